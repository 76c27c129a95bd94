"""``python -m pfl_benchmark.doctor``: also where the command line cannot be imported."""

from __future__ import annotations

import os
import sys

from pfl_benchmark.doctor.checks import report

if __name__ == "__main__":
    try:
        code = report()
    except BrokenPipeError:  # its reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)
