"""A comparison over settings for a terminal: its table, its tests and what the columns are."""

from __future__ import annotations

from rich.padding import Padding

from pfl_benchmark.console.terminal import columns
from pfl_benchmark.present.across import Across
from pfl_benchmark.present.tables.over_settings import HEADS, explanation, row_of, told_p
from pfl_benchmark.render.forms import percent
from pfl_benchmark.render.table import plain
from pfl_benchmark.studies.bootstrap import RESAMPLES
from pfl_benchmark.studies.friedman import Friedman, least_p
from pfl_benchmark.studies.statistics import LEVEL


def heading(found: Across) -> str:
    """What is compared: ``3 methods on 6 blocks: 3 settings, seeds 0 and 1``."""
    blocks = found.blocks.blocks
    settings = len(set(found.blocks.settings))
    seeds = ", ".join(map(str, sorted({block.seed for block in blocks})))
    return (
        f"{len(found.blocks.methods)} methods on {len(blocks)} blocks: {settings} "
        f"setting{'s' * (settings > 1)}, seed{'s' * (',' in seeds)} {seeds}"
    )


def standings_table(found: Across) -> Padding:
    """A row for each method, by average rank; as the table of studies, with the interval of P(better)."""
    rows = []
    for standing in found.standings:
        cells = [plain(cell) for cell in row_of(standing)]
        if bounds := standing.improvement_interval:
            cells[4] += f" ({percent(bounds[0])} to {percent(bounds[1])})"
        rows.append([*cells, standing.verdict])
    return columns(["", *HEADS, ""], rows, words=(0, len(HEADS) + 1), wrapped=(0,))


def findings(found: Across) -> list[str]:
    """The tests of all methods at once, a line each."""
    if found.test is None or found.critical_difference is None:
        return ["Two methods: the Friedman test and the critical difference need three."]
    lines = [f"Friedman test over {found.over}: {_words(found.test, found.over)}"]
    lines.append(f"critical difference of average ranks (Nemenyi, {LEVEL}): {found.critical_difference:.2f}")
    lines += [f"not significantly different: {', '.join(group)}" for group in found.groups]
    if not found.test.significant:
        lines.append(
            "The Friedman test finds no difference between methods: differences of pairs do not count."
        )
    return lines


def _words(test: Friedman, over: str) -> str:
    return (
        f"χ² = {test.chi2:.2f} (p {told_p(test.p_chi2)}), Iman–Davenport F = {test.f:.2f} "
        f"(p {told_p(test.p)}), {test.blocks} {over}"
    )


def remarks(found: Across) -> list[str]:
    """What readers should know of these very blocks."""
    lines = []
    count, blocks = len(found.means), len(found.scores)
    if (least := least_p(count, found.pairs)) >= LEVEL:
        lines.append(
            f"{count} {found.over} are too few for the Wilcoxon tests: the smallest possible p is {least:.3f}"
        )
    if found.blocks.splits < blocks:
        lines.append(
            f"{blocks} blocks have {found.blocks.splits} splits: those of one split are not independent"
        )
    counts = {found.blocks.settings.count(name) for name in found.blocks.settings}
    if len(counts) > 1:
        lines.append("settings have different numbers of seeds: those with more count more in the IQM")
    if 1 in counts:
        lines.append("no bootstrap intervals: they need two seeds or more of every setting")
    if diverged := [record.folder.name for record in found.blocks.records if record.diverged]:
        lines.append(f"the training of some runs diverged: {', '.join(diverged)}")
    if variants := found.blocks.variants():
        lines.append(f"hyper-parameters differ between settings: {', '.join(variants)}")
    return lines


def explanation_for(found: Across, chosen: bool) -> str:
    """What the columns are; `chosen` tells that the reference was chosen by these figures."""
    text = (
        f"{explanation(found)} Accuracies are weighted by the samples that clients are evaluated on, not "
        f"normalised by setting. Intervals: percentiles of {RESAMPLES:,} bootstrap samples; they tell "
        f"nothing of other settings, and of few seeds they are too narrow. Better, worse: p < {LEVEL}."
    )
    if chosen:
        text += " The reference is the method of the best average rank; --against names another."
    return text
