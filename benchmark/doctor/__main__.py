"""``python -m benchmark.doctor``: also where the command line cannot be imported."""

from __future__ import annotations

import sys

from benchmark.doctor.checks import report

if __name__ == "__main__":
    sys.exit(report())
