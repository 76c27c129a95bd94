"""``check``: does a method fulfil what every method must?"""

from __future__ import annotations

import argparse
import json
import sys

from tabulate import tabulate

from pfl_benchmark.config.flags import add_flag
from pfl_benchmark.errors import UserError

HELP = "what every method must fulfil, checked by short runs"
USAGE = "--algo METHOD [--ablation NAME] [--only CHECK ...] [--plugin FILE]"
EXAMPLES = """\
  python -m benchmark check --algo fedper
  python -m benchmark check --plugin ~/my_method.py --algo my-method
  python -m benchmark check --plugin ~/my_method.py --algo my-method --only resume ledger

Runs take seconds each, on the CPU. Exit code 1 if something is wrong."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    text = "required; `python -m benchmark list methods` names them"
    add_flag(parser, "--algo METHOD", text)
    add_flag(parser, "--ablation NAME", "a named variant of the method")
    add_flag(parser, "--only CHECK ...", "only these checks, by the names in the table", default=[])
    add_flag(parser, "--json", "print JSON instead")


def execute(arguments: argparse.Namespace) -> None:
    """Check, print a table.

    Raises:
        UserError: unknown method, ablation or check.
    """
    from pfl_benchmark.algorithms import ALGORITHMS, find
    from pfl_benchmark.check.report import check_method

    if not arguments.algo:
        raise UserError(f"--algo is required; known methods: {', '.join(sorted(ALGORITHMS))}")
    results = check_method(find(arguments.algo).name, arguments.ablation, arguments.only)
    if arguments.json:
        print(json.dumps([vars(result) for result in results]))
    else:
        rows = [[one.check, "passed" if one.passed else "FAILED", one.found] for one in results]
        print(tabulate(rows, tablefmt="plain"))
    if not all(result.passed for result in results):
        sys.exit(1)
