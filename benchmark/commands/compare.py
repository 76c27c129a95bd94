"""``compare``: any finished runs against each other, tested client by client."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from pfl_benchmark.config.flags import add_flag, file_of, path
from pfl_benchmark.console.terminal import columns, say, say_left_out, show
from pfl_benchmark.errors import UserError, flag
from pfl_benchmark.render.forms import p_value, percent, signed

if TYPE_CHECKING:
    from pfl_benchmark.present.across import Across
    from pfl_benchmark.present.compare import Candidate, Group, Row
    from pfl_benchmark.records.store import Record

HELP = "differences and paired tests, over clients, between any finished runs"
USAGE = "FOLDER [FOLDER ...] [--against RECORD_FOLDER] [--across] [--json]"
EXAMPLES = """\
  python -m benchmark compare results/runs                 all records of the folder, by setting
  python -m benchmark compare results/runs --out curves.png          also draw their learning curves
  python -m benchmark compare results/runs/fedper-digits-* results/runs/ditto-digits-*
  python -m benchmark compare results/runs results/paper --against results/runs/mymethod-cifar10-*
  python -m benchmark compare results/runs --json | jq '.[0].runs[] | {title, p_holm}'
  python -m benchmark compare results/paper --across --methods fedavg fedper ditto --out ranks.png

Runs that differ only in their seed count as one. Runs of one seed can be compared if they used the same
split. They may differ in anything else (method, hyper-parameters, protocol); the output says in what.

--across compares methods over several settings and seeds: average ranks, Friedman and Wilcoxon tests over
blocks, interquartile means, probabilities of improvement. A block is a setting and a seed with a run of every
method."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    text = "record of a finished run, or a results folder: all its finished runs"
    add_flag(parser, "FOLDER ...", text, path, dest="folders")
    text = "the run (one or more of its seeds) that all others are compared with "
    text += "(default: the best of each setting)"
    add_flag(parser, "--against RECORD_FOLDER ...", text, path, default=[])
    add_flag(parser, "--json", "print JSON instead (accuracies and differences in 0..1)")
    text = "also draw learning curves, or the critical-difference diagram of --across: .png or .svg"
    add_flag(parser, "--out FILE", text, file_of(".png", ".svg", ".pdf"))
    across = parser.add_argument_group("over several settings")
    add_flag(across, "--across", "compare methods over all settings and seeds instead of within each setting")
    text = "those to compare, as folders are called (default: all); blocks that lack one are left out"
    add_flag(across, "--methods METHOD ...", text, default=[])


def execute(arguments: argparse.Namespace) -> None:
    """Read, test, print.

    Raises:
        UserError: a folder without finished runs, damaged ones, runs that have no split in common; with
            ``--across``, fewer than two methods or two blocks.
    """
    if arguments.across:
        _across(arguments)
        return
    if arguments.methods:
        raise UserError(f"{flag('methods')} is only for comparisons over settings; add --across")
    from pfl_benchmark.present.compare import groups
    from pfl_benchmark.present.page.mixtures import in_words, mixed
    from pfl_benchmark.records.store import gather

    against = arguments.against
    gathered = gather([*arguments.folders, *against])
    say_left_out(gathered.left_out)
    records = gathered.records
    chosen = [(group, _reference(group, against)) for group in groups(records)]
    shown = [
        (group, reference, group.rows(reference))
        for group, reference in chosen
        if reference is not None and len(group.candidates) > 1
    ]
    if not shown:
        _complain(chosen, against)
    if arguments.out is not None:
        from pfl_benchmark.present.figures.curves import compared
        from pfl_benchmark.present.pictures import write_picture

        write_picture(compared([group for group, *_ in shown]), arguments.out)
    if arguments.json:
        print(json.dumps([group.numbers(reference, rows) for group, reference, rows in shown], indent=2))
    else:
        for part in shown:
            _show(*part)
        _explain([row for *_, rows in shown for row in rows], chosen=not against)
    for group, *_ in shown:
        if mixture := mixed(group.records):
            say(f"warning: {group.setting} mixes {in_words(mixture)}")
    if left := len(records) - sum(len(group.records) for group, *_ in shown):
        say(f"left out: {left} of {len(records)} runs, on other splits than those compared{_copies(records)}")


def _across(arguments: argparse.Namespace) -> None:
    """Compare over settings, print, draw."""
    from pfl_benchmark.present.across import Across, reference_of
    from pfl_benchmark.present.across_text import explanation_for, findings, heading, remarks, standings_table
    from pfl_benchmark.present.page.mixtures import in_words, mixed
    from pfl_benchmark.records.store import gather
    from pfl_benchmark.studies.blocks import blocks_of

    against = arguments.against
    gathered = gather([*arguments.folders, *against])
    say_left_out(gathered.left_out)
    blocks = blocks_of(gathered.records, arguments.methods)
    across = Across(blocks, reference_of(gathered.records, blocks.methods, against))
    if arguments.out is not None:
        _draw(across, arguments.out)
    if arguments.json:
        print(json.dumps(across.numbers(), indent=2))
    else:
        show(Text(heading(across), "bold"), "", standings_table(across), "")
        show(*findings(across), "")
        show(*(f"block: {block.name}" for block in blocks.blocks), "")
        show(explanation_for(across, chosen=not against))
    if mixture := mixed(blocks.records):
        say(f"warning: these blocks mix {in_words(mixture)}")
    for line in remarks(across):
        say(f"note: {line}")
    say_left_out(blocks.left_out)


def _draw(across: Across, out: Path) -> None:
    """Write the critical-difference diagram."""
    distance = across.critical_difference
    if distance is None:
        raise UserError("--out: a critical-difference diagram needs three methods; here are two")
    from pfl_benchmark.present.figures.critical import critical_differences
    from pfl_benchmark.present.pictures import write_picture
    from pfl_benchmark.resolve.run import titled

    first = across.blocks.blocks[0].records
    methods = [titled(name, first[name].config.algo) for name in across.blocks.methods]
    over = f"{len(across.means)} {across.over}"
    write_picture(critical_differences(methods, across.ranks, distance, over), out)


def _reference(group: Group, against: Sequence[Path]) -> Candidate | None:
    """The candidate that others are compared with; None if it is of another group."""
    if not against:
        return group.best
    candidates = [group.find(folder) for folder in against]
    if any(candidate is not candidates[0] for candidate in candidates):
        raise UserError("--against names runs that differ in more than their seed; give one of them")
    return candidates[0]


def _complain(chosen: Sequence[tuple[Group, Candidate | None]], against: Sequence[Path]) -> None:
    if not all((folder / "config.json").exists() for folder in against):
        raise UserError(f"--against is {against[0]}, a results folder; give the record of one run in it")
    reference_first = sorted(chosen, key=lambda part: part[1] is None)
    records = [record for group, _ in reference_first for record in group.records]
    if len(records) == 1:
        raise UserError("there is one run here, and nothing to compare it with; give more folders")
    which = (
        f"none of the others has a seed and its split in common with {against[0]}"
        if against
        else "no two of them that differ in more than their seed have a seed and its split in common"
    )
    raise UserError(
        f"these runs cannot be compared: {which}{_copies(records)}; they are of {_splits(records)}; "
        "give runs on the same setting"
    )


def _splits(records: Sequence[Record]) -> str:
    """The settings and seeds of the records: ``'cifar10-s2, seed 0', 'cifar10-s5, clients 50, seed 0'``."""
    from pfl_benchmark.config.fields import DATA_FIELDS, setting_in_words
    from pfl_benchmark.studies.blocks import listed

    fields = (*DATA_FIELDS, "validation", "new_clients")
    configs = [record.config for record in records]
    return listed([*dict.fromkeys(f"'{setting_in_words(it, fields)}, seed {it.seed}'" for it in configs)])


def _copies(records: Sequence[Record]) -> str:
    """Why splits may differ although settings are alike, if that may be so."""
    from pfl_benchmark.records.same_data import copies

    found = {kind.dataset: count for kind, count in copies(r.data for r in records).items() if count > 1}
    return "".join(f" ({count} copies of '{name}' are among their data)" for name, count in found.items())


def _show(group: Group, reference: Candidate, rows: Sequence[Row]) -> None:
    """The table of one group."""
    heads = ["", "seeds", "accuracy", "difference", "error", "pairs", "p", ""]
    heads += ["by seed"] * any(map(_tells_seeds, rows))
    cells = [_cells(row, row.candidate is reference)[: len(heads)] for row in rows]
    show(Text(group.setting, "bold"), "", columns(heads, cells, words=(0, 1, 7, 8), wrapped=(0, 1, 7)), "")


def _cells(row: Row, is_reference: bool) -> list[str]:
    mean, std = row.candidate.accuracy
    cells = [
        row.candidate.title,
        ", ".join(map(str, row.candidate.records)),
        (percent(mean) if std is None else f"{percent(mean)} ± {percent(std)}")
        + " §" * row.candidate.diverged,
    ]
    if row.test is None:
        return [*cells, "reference" if is_reference else "no split in common"]
    by_seed = (f"{seed}: {signed(gap)}" for seed, gap in row.by_seed.items())
    return [
        *cells,
        signed(row.difference),
        "" if math.isnan(row.standard_error) else percent(row.standard_error),
        str(row.test.pairs),
        p_value(row.test.p_holm),
        row.verdict,
        "\n".join(by_seed) if _tells_seeds(row) else "",
    ]


def _tells_seeds(row: Row) -> bool:
    """Whether there is more to say than the mean: several seeds, or not all that the candidate has."""
    return len(row.by_seed) > 1 or (bool(row.by_seed) and [*row.by_seed] != [*row.candidate.records])


def _explain(rows: Sequence[Row], chosen: bool) -> None:
    """What the columns are."""
    from pfl_benchmark.present.tables.captions import DEPENDENT, SELECTION, TEST
    from pfl_benchmark.studies.statistics import LEVEL

    text = (
        f"Accuracy in % {SELECTION}, clients weighted by the samples they are evaluated on; ±: sample "
        "standard deviation over seeds. Difference: in percentage points to the reference, over the seeds "
        "that both have. Error: its standard error, clients and seeds taken as independent. p: "
        f"{TEST}, which are not weighted, Holm-corrected within the table; {DEPENDENT}. Better, worse: p < "
        f"{LEVEL}. These tests tell nothing of other seeds."
    )
    if any(row.verdict.endswith("ranks") for row in rows):
        text += " By ranks: the test speaks for one side and the mean difference for the other."
    if any(row.candidate.diverged for row in rows):
        text += " §: training diverged, its loss in the last round is far above that of guessing."
    if chosen:
        text += (
            " The reference is the best, by these very figures, of those with the most seeds, which makes p "
            "somewhat too small: a "
            "comparison that was meant before anything was run is asked for by --against."
        )
    show(text)
