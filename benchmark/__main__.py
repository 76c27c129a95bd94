"""``python -m benchmark``: see `cli`."""

from __future__ import annotations

import sys


def start() -> int:
    """Carry out the process's command line and return its exit code."""
    try:
        from pfl_benchmark.cli import main  # takes a moment, in which somebody may press Ctrl-C
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return main()


if __name__ == "__main__":
    sys.exit(start())
