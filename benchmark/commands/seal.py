"""``seal``: seal finished records of older versions, after a check of each."""

from __future__ import annotations

import argparse

from pfl_benchmark.config.flags import add_flag, path
from pfl_benchmark.errors import UserError

HELP = "check finished records of older versions, and seal those that are in order"
USAGE = "FOLDER [FOLDER ...]"
EXAMPLES = """\
  python -m benchmark seal results/runs                      all records there
  python -m benchmark seal results/paper/fedavg-cifar10-*

A seal is the SHA-256 of a record's files, in its file `done`. Runs of this version are sealed when they
end; in records of older versions that file is empty. A record whose files differ from its seal is damaged
and never used. Seals are not renewed: to keep a change that you made on purpose, empty the file `done` and
seal again. The exit code is 1 if any record is damaged."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    text = "record of a finished run, or a results folder: all its finished runs"
    add_flag(parser, "FOLDER ...", text, path, dest="folders")


def execute(arguments: argparse.Namespace) -> None:
    """Check, seal and count.

    Raises:
        UserError: a folder has no finished run.
        SystemExit: with code 1, if a record is damaged.
    """
    from pfl_benchmark.console.terminal import say, shown_path
    from pfl_benchmark.records.gather import require_folder
    from pfl_benchmark.records.seal import seal
    from pfl_benchmark.records.store import Store

    damaged = 0
    for folder in arguments.folders:
        require_folder(folder)
        inside = folder.resolve()  # its name counts, which "." has not
        if (inside / "config.json").exists():
            store = Store(inside)
            store.add(inside)
        else:
            store = Store.scan(inside)
        if not store.records() and not store.damaged:
            raise UserError(
                f"{folder} holds no finished run; give records, or a results folder that has some"
            )
        unsealed = [record for record in store.records() if not record.sealed]
        for record in unsealed:
            seal(record.folder)
        for found in store.damaged:
            say(f"damaged record, not sealed: {found.folder.name}: {found.reason}")
        known = len(store.records()) - len(unsealed)
        print(
            f"{shown_path(folder)}: {len(unsealed)} sealed now, {known} before, {len(store.damaged)} damaged"
        )
        damaged += len(store.damaged)
    if damaged:
        raise SystemExit(1)
