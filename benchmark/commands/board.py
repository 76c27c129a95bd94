"""``board``: methods × settings over several results folders and bundles, as one static page."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from pfl_benchmark.config.flags import add_flag, file_of, path
from pfl_benchmark.console.terminal import say_left_out, shown_path

HELP = "one static page over several results folders or bundles: methods × settings, verified or not"
USAGE = "FOLDER|BUNDLE.zip [...] [--out FILE.html]"
EXAMPLES = """\
  python -m benchmark board results/paper results/runs
  python -m benchmark board results/paper theirs.zip --out site/index.html

Nothing in a bundle is run. Its records count as verified where `python -m benchmark verify BUNDLE.zip` has
found them so on this side (BUNDLE.zip.verified.json), never by what the bundle itself says. The page
needs no network; docs/board.md has the rules for results on a board."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_flag(parser, "FOLDER ...", "results folder, or bundle (made by `pack`)", path, dest="folders")
    text = "the page to write (default: board.html)"
    add_flag(parser, "--out FILE.html", text, file_of(".html", ".htm"), default=Path("board.html"))


def execute(arguments: argparse.Namespace) -> None:
    """Read all sources, then write the page; a UserError if one of them cannot be read or written."""
    from pfl_benchmark.present.page.board import board_page, source_of_bundle, source_of_folder
    from pfl_benchmark.records.bundle import unpacked
    from pfl_benchmark.records.files import make_folder_of, write_text
    from pfl_benchmark.records.store import gather

    with contextlib.ExitStack() as stack:
        sources = []
        for given in {given.resolve(): given for given in arguments.folders}.values():
            if given.suffix.lower() == ".zip" and not given.is_dir():
                sources.append(source_of_bundle(shown_path(given), stack.enter_context(unpacked(given))))
                continue
            gathered = gather([given])
            say_left_out(gathered.left_out)
            sources.append(source_of_folder(shown_path(given), gathered.records, gathered.left_out))
        page = board_page(sources)
    make_folder_of(arguments.out)
    write_text(arguments.out, page)
    records = sum(len(source.records) for source in sources)
    print(f"{shown_path(arguments.out)}: {records} records of {len(sources)} folders and bundles")
