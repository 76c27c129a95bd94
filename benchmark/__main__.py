"""``python -m benchmark``: see `benchmark.cli`."""

from __future__ import annotations

import sys

from benchmark.cli import main

if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that has no λ shows a ?
    sys.exit(main())
