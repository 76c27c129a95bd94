"""``compare``: any finished runs against each other, tested client by client."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from benchmark.errors import UserError
from benchmark.flags import path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmark.compare import Contest, Entrant, Standing
    from benchmark.store import Record

HELP = "any finished runs against each other: differences and paired tests, client by client"
USAGE = "FOLDER [FOLDER ...] [--against RECORD_FOLDER] [--json]"
EXAMPLES = """\
  python -m benchmark compare results/runs                 all that lies there, setting by setting
  python -m benchmark compare results/runs/fedper-digits-* results/runs/ditto-digits-*
  python -m benchmark compare results/runs results/paper --against results/runs/mymethod-cifar10-...
  python -m benchmark compare results/runs --json | jq '.[0].runs[] | {title, p_holm}'

Runs that differ in their seed alone count as one. Runs of a seed can be paired if they were made on the same
split; whatever else they differ in (method, hyper-parameters, protocol) is told and may be what is tested."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "folders",
        type=path("FOLDER"),
        nargs="+",
        metavar="FOLDER",
        help="record of a finished run, or a results folder: all that are in it",
    )
    parser.add_argument(
        "--against",
        type=path("--against"),
        metavar="RECORD_FOLDER",
        help="the run (with its other seeds) that all others are compared with (default: the best of each "
        "setting)",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as a JSON list instead")


def execute(arguments: argparse.Namespace) -> None:
    """Read, test, print.

    Raises:
        UserError: a folder without finished runs, damaged ones, runs that have no split in common.
    """
    from benchmark.compare import contests, read_records
    from benchmark.terminal import say

    against: Path | None = arguments.against
    records = read_records([*arguments.folders, *([against] if against else [])])
    found = contests(records)
    chosen = [(contest, _reference(contest, against)) for contest in found]
    shown = [(c, reference) for c, reference in chosen if reference is not None and len(c.entrants) > 1]
    if against and not any(reference for _, reference in chosen):
        raise UserError(f"--against is {against}, a results folder; give the record of one run in it")
    if not shown:
        raise UserError(
            "these runs cannot be compared: no two of them that differ in more than their seed have a seed "
            f"and its split in common{_copies(records)}; give runs on the same setting"
        )
    if arguments.json:
        print(json.dumps([_numbers(*pair) for pair in shown], indent=2))
        return
    for contest, reference in shown:
        _show(contest, reference)
    _explain()
    if left := sum(len(contest.records) for contest in found) - sum(len(c.records) for c, _ in shown):
        say(f"left out: {left} of {len(records)} runs, on other splits than those compared{_copies(records)}")


def _copies(records: Sequence[Record]) -> str:
    """Why splits may differ although settings are alike, if that may be so."""
    from benchmark.same_data import copies

    found = {kind.dataset: count for kind, count in copies(r.data for r in records).items() if count > 1}
    return "".join(f" ({count} copies of '{name}' are among their data)" for name, count in found.items())


def _reference(contest: Contest, against: Path | None) -> Entrant | None:
    return contest.entrants[0] if against is None else contest.find(against)


def _show(contest: Contest, reference: Entrant) -> None:
    """The table of one contest."""
    from benchmark.report.mixtures import in_words, mixed
    from benchmark.tables.table import p_value, percent, signed
    from benchmark.terminal import say, show

    standings = contest.standings(reference)
    several = any(len(standing.by_seed) > 1 for standing in standings)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", overflow="fold")
    for head in ("seeds", "accuracy", "difference", "error", "p"):
        table.add_column(head, justify="left" if head == "seeds" else "right", no_wrap=True)
    table.add_column("", no_wrap=True)
    if several:
        table.add_column("by seed")
    for standing in standings:
        mean, std = standing.entrant.accuracy
        cells = [
            standing.entrant.title,
            ", ".join(map(str, standing.entrant.records)),
            percent(mean) if std is None else f"{percent(mean)} ± {percent(std)}",
        ]
        if standing.test is not None and standing.difference is not None:
            error = standing.test.standard_error
            seeds = (f"{seed}: {signed(found)}" for seed, found in standing.by_seed.items())
            cells += [
                signed(standing.difference),
                percent(error) if error == error else "",  # NaN of a single client
                p_value(standing.test.p_holm),
                standing.verdict,
                *[", ".join(seeds)] * (len(standing.by_seed) > 1),
            ]
        else:
            cells += ["reference" if standing.entrant is reference else "no seed in common"]
        table.add_row(*cells)
    show(Text(contest.setting, "bold"), "", Padding(table, (0, 0, 0, 2)), "")
    if found := mixed(contest.records):
        say(f"warning: {contest.setting} mixes {in_words(found)}")


def _explain() -> None:
    """What the columns are."""
    from benchmark.statistics import LEVEL
    from benchmark.tables.captions import DEPENDENT, SELECTION, TEST
    from benchmark.terminal import show

    show(
        f"Accuracy in % {SELECTION}, clients weighted by their test samples; ±: sample standard deviation "
        "over seeds. Difference: in percentage points to the reference, over the seeds that both have. "
        "Error: standard error of the unweighted mean difference, clients and seeds taken as independent. p: "
        f"{TEST}, Holm-corrected within the table; {DEPENDENT}. Better, worse: p < {LEVEL}. These tests tell "
        "nothing of other seeds."
    )


def _numbers(contest: Contest, reference: Entrant) -> dict[str, Any]:
    return {
        "setting": contest.setting,
        "reference": reference.title,
        "runs": [_of(standing) for standing in contest.standings(reference)],
    }


def _of(standing: Standing) -> dict[str, Any]:
    entrant, test = standing.entrant, standing.test
    mean, std = entrant.accuracy
    told = {
        "title": entrant.title,
        "records": [str(record.folder) for record in entrant.records.values()],
        "seeds": list(entrant.records),
        "accuracy": mean,
        "accuracy_std": std,
    }
    if test is None:
        return told
    error = test.standard_error
    return told | {
        "difference": standing.difference,
        "difference_by_seed": {str(seed): found for seed, found in standing.by_seed.items()},
        "standard_error": error if error == error else None,
        "pairs": test.pairs,
        "p": test.p,
        "p_holm": test.p_holm,
        "verdict": standing.verdict,
    }
