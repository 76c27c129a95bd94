"""What stages are called along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def stage_labels(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Their numbers and, below them, the personal layers: ``fc2–fc3``, or ``none``."""
    return [f"{stage['stage']}\n{_span(stage['personal'])}" for stage in stages]


def _span(layers: Sequence[str]) -> str:
    if not layers:
        return "none"
    return layers[0] if len(layers) == 1 else f"{layers[0]}–{layers[-1]}"
