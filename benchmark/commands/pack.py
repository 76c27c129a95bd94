"""``pack``: finished records in one zip file that others can check."""

from __future__ import annotations

import argparse

from pfl_benchmark.config.flags import add_flag, file_of, path
from pfl_benchmark.errors import UserError

HELP = "finished records, with plugin files and checksums, in one zip file that others can check"
USAGE = "RESULTS [RESULTS ...] --out FILE.zip"
EXAMPLES = """\
  python -m benchmark pack results/quick --out quick.zip
  python -m benchmark pack results/runs/mine-* --plugin mine.py --out mine.zip
  python -m benchmark verify quick.zip                       whoever has the file

The bundle has the files of every record, their SHA-256, the checksums of the data, versions, and the plugin
files that the runs were made with, which have to be given. Predictions, models and verdicts stay where they
are. The same records make the same pack. docs/board.md says what is expected of results for a board."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    text = "results folder, or record of a finished run"
    add_flag(parser, "RESULTS ...", text, path, dest="results")
    add_flag(parser, "--out FILE.zip", "required: the bundle to write", file_of(".zip"))


def execute(arguments: argparse.Namespace) -> None:
    """Read the records and write the pack.

    Raises:
        UserError: no finished run, one that cannot be packed, or a file that cannot be written.
    """
    if arguments.out is None:
        raise UserError("--out is required; give the bundle's name, such as --out results.zip")

    from pfl_benchmark.algorithms import ALGORITHMS
    from pfl_benchmark.config.network import knows_network
    from pfl_benchmark.console.terminal import say, say_left_out, shown_path
    from pfl_benchmark.records.bundle import plugins_of, write_bundle
    from pfl_benchmark.records.store import gather
    from pfl_benchmark.render.forms import size
    from pfl_benchmark.resolve.code import outdated

    gathered = gather(arguments.results)
    say_left_out(gathered.left_out)
    own = [record for record in gathered.records if plugins_of(record)]
    known = [record for record in own if record.config.algo in ALGORITHMS and knows_network(record.config)]
    other = [record for record in known if outdated(record.config, record.summary, record.verified)]
    made = write_bundle(gathered.records, arguments.out)
    if unknown := len(own) - len(known):
        say(
            f"note: whether {unknown} records of plugins were made by the plugin files as they are now is "
            "not known: their method, data or network is not here"
        )
    if other:
        say(
            f"note: {len(other)} records of plugins, such as {other[0].folder.name}, were made by other "
            "code, perhaps by another version of the plugin file than is packed; `verify` them, or run them "
            "again"
        )
    plugins = f", {made['plugins']} plugin file{'s' * (made['plugins'] > 1)}" if made["plugins"] else ""
    print(f"{shown_path(arguments.out)}: {made['records']} records{plugins}, {size(made['bytes'])}")
