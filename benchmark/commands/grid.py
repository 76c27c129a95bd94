"""``grid``: a table of one's own, of methods × settings × seeds × what is varied."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pfl_benchmark.commands.tables import add_running, batch_of, refuse_nothing, write
from pfl_benchmark.config.fields import DATA_FIELDS, PROTOCOL_FIELDS
from pfl_benchmark.config.flags import add_config_flags, add_flag, path
from pfl_benchmark.console.terminal import duration, say
from pfl_benchmark.errors import UserError

if TYPE_CHECKING:
    from pfl_benchmark.launch.batch import Batch
    from pfl_benchmark.studies.grid_file import Entries
    from pfl_benchmark.studies.own_grid import OwnGrid

HELP = (
    "a table of your own: methods x settings x seeds x whatever is varied; on the command line or in a file"
)
USAGE = (
    "[FILE.yaml|FILE.toml] [--algo METHOD ...] [--setting NAME ...] [--seeds N] [--vary KEY=A,B ...] [flags]"
)
EXAMPLES = """\
  python -m benchmark grid --algo fedper fedavg-ft ditto --setting digits-s2 --seeds 3
  python -m benchmark grid --algo fedper ditto --setting digits-s2 --vary lr=0.01,0.03 ditto.lam=0.1,1
  python -m benchmark grid --algo ditto fedprox --setting digits-s2 --seeds 3 --vary ditto.lam=0.1,1 \\
      fedprox.mu=0.01,0.1 --select-on-validation
  python -m benchmark grid --algo ppfe ppfe:no-reduction --setting cifar10-s5 cifar10-s2 --dry-run
  python -m benchmark grid examples/grid.yaml --jobs 2
  python -m benchmark grid examples/grid.yaml --set seeds=5 --set vary.ditto.lam=0.1,1

In a file, entries have the names of these flags without dashes: algo, setting, seeds, vary, rounds, lr, ….
Finished runs are not repeated; the same command continues. Its folder has tables/ (Markdown, CSV, LaTeX,
HTML), figures/ (SVG, PNG, PDF) and report.html at the end."""

_LONG = "--dry-run shows the plan; add --yes to run it all the same, or --jobs for several at a time"
_TAKEN = ("quick", "lite", "paper", "runs", "tune", "report")  # folders of other commands, and the page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    what = parser.add_argument_group("what")
    text = "a grid in YAML or TOML; flags override its entries"
    what.add_argument("file", metavar="FILE", nargs="?", help=text)
    text = "methods; METHOD:ABLATION is a named variant of one"
    add_flag(what, "--algo METHOD ...", text)
    add_flag(what, "--setting NAME ...", "settings; `python -m benchmark list settings` names them")
    add_flag(what, "--seeds N", "seeds 0 to N-1 (default: 1)")
    text = (
        "values to compare: of a flag of runs, such as lr=0.01,0.03, or of a hyper-parameter of one method, "
        "such as ditto.lam=0.1,1; values that have commas are separated by semicolons"
    )
    add_flag(what, "--vary KEY=A,B ...", text)
    text = (
        "select what is varied on a validation split (a fifth of each client's training samples, or "
        "--validation), for every method and setting, and report that on test data with the number of trials"
    )
    add_flag(what, "--select-on-validation", text)
    text = "the section of the file, quick, lite or paper, if it has sections (as files of studies have)"
    add_flag(what, "--profile NAME", text)
    add_flag(what, "--set KEY=VALUE ...", "override an entry of the file", default=[])
    add_flag(what, "--title TEXT", "heading of the table (default: Test accuracy)")
    add_flag(what, "--dry-run", "only print what is done and missing, and how long it would take")
    add_flag(what, "--render-only", "run nothing; use existing records")
    add_flag(what, "--yes", "run also what takes more than a week")
    fixed = parser.add_argument_group("the same in all runs")
    add_config_flags(fixed, (name for name in DATA_FIELDS if name != "dataset"))
    add_config_flags(fixed, (name for name in PROTOCOL_FIELDS if name not in ("seed", "tuning_trials")))
    add_running(parser)
    text = "folder of the records, with tables/ and figures/ in it (default: results/grid, or of FILE's name)"
    add_flag(parser.add_argument_group("output"), "--results-dir DIR", text, path)


def execute(arguments: argparse.Namespace) -> None:
    """Run what is missing, then write and print the table.

    Raises:
        UserError: bad input, or more than a week to run without ``--yes``.
        SystemExit: with code 1, if a run of this call has failed otherwise than by diverging.
    """
    entries = _entries(arguments)
    if "plugins" in entries:
        from pfl_benchmark.resolve.plugins import load_plugins

        try:
            load_plugins(entries["plugins"].values)
        except UserError as error:
            raise UserError(f"{entries['plugins'].where}{error}") from error

    from pfl_benchmark.launch.grid import fill_grid, parts_of, refuse_long
    from pfl_benchmark.present.render import drop_others
    from pfl_benchmark.present.required import refuse_impossible
    from pfl_benchmark.studies.own_grid import make_grid, possible

    own = make_grid(_name(arguments.file), entries, arguments.file or "")
    refuse_impossible(own)
    batch = batch_of(arguments, own.profile, [own.study], possible(own), own.profile.seeds)
    search, runs = parts_of(own, batch)
    if arguments.dry_run:
        _show(search, runs)
        return
    refuse_nothing(batch, arguments.render_only)
    if not arguments.render_only and not arguments.yes:
        refuse_long(search, runs, _LONG)
    own, batch, failed = fill_grid(own, batch, not arguments.render_only)
    shown = [study for study in (own.study, own.search) if study]
    drop_others(batch.store.root, own.study.name, shown)
    write(batch, shown, [study.name for study in shown])
    _print(batch, own)
    if failed:
        raise SystemExit(1)


def _name(file: str | None) -> str:
    """The grid's, from the name of its file; that of its folder, too."""
    name = re.sub(r"[^\w.+-]+|^[^a-zA-Z0-9]+", "-", Path(file).stem).strip("-_.") if file else ""
    return f"grid-{name}" if name in _TAKEN else name or "grid"


def _entries(arguments: argparse.Namespace) -> Entries:
    """Those of the file, then those of ``--set``, then flags."""
    from pfl_benchmark.studies.grid_entries import FIELDS
    from pfl_benchmark.studies.grid_file import Entry, listed, read_entries

    entries = read_entries(path("FILE", arguments.file)) if arguments.file else {}
    here = Path(arguments.file).parent if arguments.file else Path()
    if plugins := entries.get("plugins"):  # seen from the file
        found = tuple(str(here / text) if text.endswith(".py") else text for text in plugins.values)
        entries["plugins"] = replace(plugins, values=found)
    if arguments.set and not arguments.file:
        raise UserError("--set overrides an entry of a file, and there is none; give flags, such as --vary")
    given = [(f"--set {pair}", "", pair) for pair in arguments.set]
    given += [(f"--vary {pair}", "vary.", pair) for pair in arguments.vary or ()]
    seen = set()
    for words, above, pair in given:
        key, equals, text = pair.partition("=")
        first, dot, below = key.strip().removeprefix("--").partition(".")
        key = above + (first if above else first.replace("-", "_")) + dot + below
        if not (equals and key.removeprefix(above)):
            raise UserError(f"{words}: expected KEY=VALUE, such as {'lr=0.01,0.03' if above else 'seeds=5'}")
        if key in seen:
            raise UserError(f"{words}: {key.removeprefix(above)} is given twice; give it once")
        seen.add(key)
        entries[key] = listed(text)
    for name in ("algo", "setting"):
        if values := getattr(arguments, name):
            entries[name] = Entry(tuple(values))
    for name in ("seeds", "title", "profile", *FIELDS):
        if (value := getattr(arguments, name)) is not None:
            entries[name] = Entry((_text(value),), listed=False)
    if arguments.select_on_validation:
        entries["select_on_validation"] = Entry(("true",), listed=False)
    return entries


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _show(search: Batch, batch: Batch) -> None:
    """Print the plan; what is not selected yet is only counted."""
    if search.runs:
        search.show()
    if search.missing:
        count, time = len(batch.runs), duration(batch.expected())
        print(f"then {count} runs on test data, with the values that are selected: about {time}")
    else:
        batch.show()


def _print(batch: Batch, own: OwnGrid) -> None:
    from pfl_benchmark.present.tables import make_table
    from pfl_benchmark.render.formats import FORMATS
    from pfl_benchmark.studies.results import collect

    results = collect(own.study, own.profile, batch.store, own.profile.seeds)
    if not results.records:
        say("no record yet, so no table")
        return
    print(f"\n{FORMATS['md'].write(make_table(results, own.study.tables[0]))}", end="")
