"""A comparison over settings for a terminal: its table, its tests and what the columns are."""

from __future__ import annotations

from rich.table import Table

from pfl_benchmark.console.terminal import open_table
from pfl_benchmark.present.across import Across, Standing
from pfl_benchmark.present.tables.captions import SELECTION
from pfl_benchmark.render.forms import p_value, percent
from pfl_benchmark.studies.bootstrap import CONFIDENCE, RESAMPLES
from pfl_benchmark.studies.friedman import Friedman, least_p
from pfl_benchmark.studies.statistics import LEVEL

__all__ = ["explanation", "findings", "heading", "remarks", "standings_table"]


def heading(found: Across) -> str:
    """What is compared: ``3 methods on 6 blocks: 3 settings, seeds 0 and 1``."""
    blocks = found.blocks.blocks
    settings = len(set(found.blocks.settings))
    seeds = ", ".join(map(str, sorted({block.seed for block in blocks})))
    return (
        f"{len(found.blocks.methods)} methods on {len(blocks)} blocks: {settings} "
        f"setting{'s' * (settings > 1)}, seed{'s' * (',' in seeds)} {seeds}"
    )


def standings_table(found: Across) -> Table:
    """A row for each method, by average rank; columns in which nobody has anything are left out."""
    rows = [_cells(standing) for standing in found.standings]
    used = [place for place in range(1, len(rows[0]) - 1) if any(row[place] for row in rows)]
    table = open_table()
    table.add_column("", overflow="fold", min_width=20)
    heads = ("average rank", "IQM", "interval", "P(better)", "interval", "p")
    for place in used:
        table.add_column(heads[place - 1], justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        table.add_row(row[0], *(row[place] for place in used), row[-1])
    return table


def _cells(standing: Standing) -> list[str]:
    cells = [
        standing.method,
        f"{standing.rank:.2f}",
        percent(standing.iqm),
        _interval(standing.iqm_interval),
    ]
    if standing.improvement is None or standing.p_holm is None:
        return [*cells, "", "", "", "reference"]
    return [
        *cells,
        percent(standing.improvement),
        _interval(standing.improvement_interval),
        p_value(standing.p_holm),
        standing.verdict,
    ]


def _interval(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else f"{percent(bounds[0])} to {percent(bounds[1])}"


def findings(found: Across) -> list[str]:
    """The tests of all methods at once, a line each."""
    if found.test is None or found.critical_difference is None:
        return ["Two methods: the Friedman test and the critical difference need three."]
    lines = [f"Friedman test over blocks: {_words(found.test)}"]
    if found.settings_test:
        lines.append(f"over settings, means over seeds: {_words(found.settings_test)}")
    lines.append(f"critical difference of average ranks (Nemenyi, {LEVEL}): {found.critical_difference:.2f}")
    lines += [f"not significantly different: {', '.join(group)}" for group in found.groups]
    if not found.test.significant:
        lines.append(
            "The Friedman test finds no difference between methods: differences of pairs do not count."
        )
    return lines


def _words(test: Friedman) -> str:
    return (
        f"χ² = {test.chi2:.2f} (p {_p(test.p_chi2)}), Iman–Davenport F = {test.f:.2f} (p {_p(test.p)}), "
        f"{test.blocks} blocks"
    )


def _p(p: float) -> str:
    return p_value(p) if p < 0.001 else f"= {p_value(p)}"


def remarks(found: Across) -> list[str]:
    """What readers should know of these very blocks."""
    lines = []
    blocks = len(found.scores)
    if (least := least_p(blocks, found.pairs)) >= LEVEL:
        lines.append(
            f"{blocks} blocks are too few for the Wilcoxon tests: the smallest possible p is {least:.3f}"
        )
    if found.blocks.splits < blocks:
        lines.append(
            f"{blocks} blocks have {found.blocks.splits} splits: those of one split are not independent"
        )
    counts = {found.blocks.settings.count(name) for name in found.blocks.settings}
    if len(counts) > 1:
        lines.append("settings have different numbers of seeds: those with more count more in ranks and IQM")
    if 1 in counts:
        lines.append("no bootstrap intervals: they need two seeds or more of every setting")
    if variants := found.blocks.variants():
        lines.append(f"hyper-parameters differ between settings: {', '.join(variants)}")
    return lines


def explanation(chosen: bool) -> str:
    """What the columns are.

    Args:
        chosen: the reference was chosen by these figures.
    """
    text = (
        f"Test accuracy {SELECTION}, clients weighted by the samples they are evaluated on. A block is a "
        "setting and a seed. Average rank: ranks within blocks, 1 is the best, ties share their mean. IQM: "
        "interquartile mean of accuracy over all runs, in %, not normalised by setting. P(better): "
        "probability, in %, that a run of the method is better than one of the reference on the same "
        f"setting, averaged over settings. Intervals: {100 * CONFIDENCE:g} %, percentiles of {RESAMPLES:,} "
        "bootstrap samples, runs drawn within settings; they tell nothing of other settings, and of few "
        "seeds they are too narrow. p: two-sided Wilcoxon signed-rank test over blocks against the "
        f"reference, Holm-corrected for {_corrected(chosen)}. Better, worse: p < {LEVEL}. The tests take "
        "blocks as independent, which seeds of one setting are not; this makes p too small."
    )
    if chosen:
        text += " The reference is the method of the best average rank; --against names another."
    return text


def _corrected(chosen: bool) -> str:
    return "all pairs of methods" if chosen else "the comparisons with it"
