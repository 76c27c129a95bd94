"""``speed``: how fast clients are trained here, executor by executor."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.table import Table

from benchmark.errors import UserError, nearest
from benchmark.terminal import Console, show, size

HELP = "how fast this machine trains clients: every executor, growth with cohort and clients"
USAGE = "[--cell NAME] [--only cells|cohorts|crowds] [--repeats N] [--json]"
EXAMPLES = """\
  python -m benchmark speed
  python -m benchmark speed --cell digits --only cells --json"""

_PARTS = ("cells", "cohorts", "crowds")
_CELLS = ("cifar10", "digits")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--cell", action="append", metavar="NAME", help="cifar10 or digits (default: both)")
    parser.add_argument("--only", metavar="PART", help=f"only one of {', '.join(_PARTS)} (default: all)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="timed repeats (default: 3)")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--json", action="store_true", help="print one JSON list, on one line")


def execute(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    for value, known in ((arguments.only, _PARTS), *((cell, _CELLS) for cell in arguments.cell or ())):
        if value is not None and value not in known:
            raise UserError(f"speed knows no '{value}'{nearest(value, known)}; known: {', '.join(known)}")
    if arguments.repeats < 1:
        raise UserError(f"--repeats is {arguments.repeats}; expected at least 1")
    from benchmark import speed
    from benchmark.runner import Execution

    execution = Execution(device=arguments.device)
    chosen = arguments.cell or list(_CELLS)
    parts = [arguments.only] if arguments.only else list(_PARTS)
    rows: list[dict[str, Any]] = []
    console = Console(stderr=True)
    if "cells" in parts:
        console.print(f"executors on {', '.join(chosen)}: a cohort of {speed.COHORT}, in turn")
        rows += speed.cells(execution, arguments.repeats, chosen)
    if "cohorts" in parts:
        console.print(f"cohorts of {', '.join(map(str, speed.COHORTS))} clients on {chosen[-1]}")
        rows += speed.cohorts(execution, arguments.repeats, chosen[-1])
    if "crowds" in parts:
        console.print(f"rounds with {', '.join(f'{n:,}' for n in speed.CROWDS)} clients, 10 taking part")
        rows += speed.crowds(execution, arguments.repeats)
    if arguments.json:
        print(json.dumps(rows))
    else:
        show(*_tables(rows))


def _tables(rows: list[dict[str, Any]]) -> list[Table]:
    columns = {
        "cell": lambda row: row["cell"],
        "executor": lambda row: row["executor"],
        "device": lambda row: row["device"],
        "clients": lambda row: f"{row['clients']}" + (f" of {row['crowd']:,}" if "crowd" in row else ""),
        "seconds": lambda row: f"{row['seconds']:.3f}",
        "samples/s": lambda row: f"{row['samples_per_second']:,.0f}",
        "steps/s": lambda row: f"{row['client_steps_per_second']:,.0f}",
        "GFLOP/s": lambda row: f"{row['flops'] / 1e9:,.1f}",
        "of product": lambda row: f"{100 * row['share_of_product']:.0f} %",
        "times loop": lambda row: f"{row['times_loop']:.2f}",
        "peak memory": lambda row: size(row["peak_memory"]),
    }
    kinds = (
        ("Executors on the same work", lambda row: "times_loop" in row, list(columns)),
        (
            "Growth with the cohort",
            lambda row: "times_loop" not in row and "crowd" not in row,
            [*columns][:6],
        ),
        (
            "Growth with the clients that sit out",
            lambda row: "crowd" in row,
            [*[*columns][:6], "peak memory"],
        ),
    )
    tables = []
    for title, belongs, names in kinds:
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for place, name in enumerate(names):
            table.add_column(name, justify="left" if place < 3 else "right")
        for row in filter(belongs, rows):
            table.add_row(*(columns[name](row) for name in names))
        if table.row_count:
            tables.append(table)
    return tables
