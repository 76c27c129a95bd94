"""``report``: tables, figures and the page ``report.html`` again, from records alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pfl_benchmark.config.flags import add_flag, few, path
from pfl_benchmark.console.terminal import shown_path
from pfl_benchmark.errors import UserError

if TYPE_CHECKING:
    from pfl_benchmark.records.store import Store

HELP = "tables, figures and report.html from existing records; runs nothing"
USAGE = "[--profile quick|lite|paper] [--only STUDY ...] [--into FILE ...] [flags]"
EXAMPLES = """\
  python -m benchmark report                               results/quick/report.html
  python -m benchmark report --profile paper --only main reduction
  python -m benchmark report --profile paper --into README.md results/README.md results/tuning.md
  python -m benchmark report --profile paper --wandb my-team/pfl-benchmark
  python -m benchmark report --profile paper --results-dir copied/from/the/cluster"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    what = parser.add_argument_group("what")
    add_flag(what, "--profile NAME", "quick, lite or paper: what was run (default: quick)", default="quick")
    text = (
        "the studies on the page (default: all, and those on request that were made before); "
        "the list of runs is always complete"
    )
    add_flag(what, "--only STUDY ...", text)
    add_flag(what, "--seeds N", "use seeds 0 to N-1 (default: all that have records)", few)
    text = (
        "folder of the records, in which report.html, tables/ and figures/ are written "
        "(default: results/PROFILE)"
    )
    add_flag(what, "--results-dir DIR", text, path)
    more = parser.add_argument_group("elsewhere")
    text = (
        "update tables and figures in documents: the main table between the lines "
        "'<!-- main table: begin -->' and '<!-- main table: end -->', its learning curves with 'main "
        "picture' instead; for others, write 'table NAME' or 'figure NAME'; --only leaves parts of other "
        "studies as they are"
    )
    add_flag(more, "--into FILE ...", text, path, default=[])
    text = "publish a Weights & Biases Report of these tables and of the runs logged to that project"
    add_flag(more, "--wandb ENTITY/PROJECT", text, default="")


def execute(arguments: argparse.Namespace) -> None:
    """Write everything and say where it is.

    Raises:
        UserError: unknown study or profile, a folder without records or that cannot be used, a document
            without the lines that say what belongs where.
    """
    from pfl_benchmark.present.page.front import DocumentParts
    from pfl_benchmark.present.wandb_report import destination, publish
    from pfl_benchmark.studies.catalogue import STUDIES, find_profile, find_studies

    profile = find_profile(arguments.profile)
    studies = find_studies(arguments.only, profile)
    root = arguments.results_dir or Path("results") / profile.name
    entity, project = destination(arguments.wandb) if arguments.wandb else ("", "")
    parts = DocumentParts(arguments.into, profile, [study.name for study in studies] * bool(arguments.only))
    store = _read_store(root, profile.name)
    seeds = None if arguments.seeds is None else tuple(range(arguments.seeds))

    from pfl_benchmark.present.page.page import write_all
    from pfl_benchmark.present.render import with_rendered

    if not arguments.only:
        studies = with_rendered(studies, STUDIES.values(), profile, root)
    for line in store.remarks():
        print(line, file=sys.stderr)
    parts.make(store, seeds)
    written, lines = write_all(studies, profile, store, seeds, again=True)
    print(f"{profile.name}: {len(store.records())} runs; rendered {', '.join(written)}")
    for line in lines:
        print(f"  {line}")
    for document, names, others in parts.write(root):
        kept = f"; no table or figure, left as it is: {', '.join(others)}" if others else ""
        print(f"  {shown_path(document)}: {', '.join(names)}{kept}")
    if project:
        print(f"  {publish(entity, project, profile, store)}")


def _read_store(root: Path, profile: str) -> Store:
    """The records of a results folder; there must be some, and of this version."""
    from pfl_benchmark.records.store import Store, reasons
    from pfl_benchmark.records.writer import open_store
    from pfl_benchmark.studies.catalogue import STUDIES

    if not root.exists():
        raise UserError(
            f"there is no results folder {root}; give --results-dir, or make the runs first: "
            f"python -m benchmark tables --profile {profile}"
        )
    if (root / "store.json").exists():
        open_store(root)  # refuses other formats; without that file nothing is to be made of the folder
    store = Store.scan(root)
    if store.records() or any(study.computed.digest(store) for study in STUDIES.values() if study.computed):
        return store
    raise UserError(
        f"there is no finished run in {root}{reasons(store.remarks())}; "
        f"give another --results-dir, or make runs first: python -m benchmark tables --profile {profile}"
    )
