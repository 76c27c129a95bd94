"""PPFE: progressive personalization, model reduction and boosting over stages (the paper's own method)."""

from __future__ import annotations

from pfl_benchmark.algorithms.ppfe.method import PPFE

__all__ = ["PPFE"]
