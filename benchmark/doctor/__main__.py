"""``python -m pfl_benchmark.doctor``: also where the command line cannot be imported."""

from __future__ import annotations

import sys

from pfl_benchmark.doctor.checks import report

if __name__ == "__main__":
    sys.exit(report())
