"""Methods over all settings of a study: average ranks, tests over blocks, interquartile means."""

from __future__ import annotations

from pfl_benchmark.present.across import Across, Standing
from pfl_benchmark.present.tables.captions import SELECTION, caption
from pfl_benchmark.present.tables.places import heads, scaled
from pfl_benchmark.render.forms import p_value, percent
from pfl_benchmark.render.table import Cell, Plain, Table
from pfl_benchmark.studies.blocks import Block, Blocks
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import LEVEL

_MEANS = {"settings": " (means over seeds)", "seeds": ""}
LEAST = 4  # settings; statistics over fewer say little
HEADS = ("average rank", "interquartile mean", "interval", "P(better)", "p")
_FIELDS = (
    "method", "average_rank", "iqm", "iqm_low", "iqm_high", "improvement", "improvement_low",
    "improvement_high", "p_holm",
)  # fmt: skip


def over_settings(results: Results) -> Table:
    """As ``compare --across``; no figures where fewer than four settings have a record of every method."""
    blocks = blocks_of(results)
    settings = len(set(blocks.settings))
    few = len(blocks.methods) < len(results.rows)
    every = f"each of {len(blocks.methods)} methods" if few else "every method"
    count = f"{settings} of {len(results.columns)} settings have a record of {every}"
    if settings < LEAST or len(blocks.methods) < 2:
        text = f"{count}; statistics over settings need {LEAST}."
        rows = [(Cell(name), *(Cell(reason=text) for _ in HEADS)) for name in results.rows]
    else:
        found = Across(blocks)
        text = f"{count}, {len(blocks.blocks)} with their seeds. {explanation(found)}"
        rows = [row_of(standing) for standing in found.standings]
    return Table(
        title="Over settings",
        caption=caption(results, text),
        heads=heads("method", *HEADS),
        rows=tuple(rows),
        fields=_FIELDS,
    )


def blocks_of(results: Results) -> Blocks:
    """Columns and seeds of which all rows have a record, but for rows without any."""
    rows = tuple(row for row in results.rows if any(results.at(row, column) for column in results.columns))
    found = []
    for column in results.columns:
        for seed in results.seeds:
            records = {row: results.records.get((row, column), {}).get(seed) for row in rows}
            there = {row: record for row, record in records.items() if record is not None}
            if rows and len(there) == len(rows) and len({record.split for record in there.values()}) == 1:
                found.append(Block(column, seed, there))
    return Blocks(rows, tuple(found), (), {})


def explanation(found: Across) -> str:
    """What the columns are, and what the tests of all methods at once say."""
    methods = len(found.blocks.methods)
    corrected = "all pairs" if 2 * len(found.pairs) == methods * (methods - 1) else "the comparisons with it"
    text = (
        f"Test accuracy {SELECTION}. Average rank: within {found.over}{_MEANS[found.over]}, 1 is best. "
        "Interquartile mean of accuracy in %, not normalised by setting, with its 95 % bootstrap interval "
        "(runs drawn within settings, two seeds or more of each). "
        f"P(better): probability in % that a run is better than one of {found.reference}, averaged over "
        f"settings. p: Wilcoxon signed-rank test over {found.over} against {found.reference}, Holm-corrected "
        f"for {corrected}."
    )
    if found.test is None or found.critical_difference is None:
        return text
    return (
        f"{text} Friedman test (Iman–Davenport): p {told_p(found.test.p)}; critical "
        f"difference of average ranks (Nemenyi, {LEVEL}): {found.critical_difference:.2f}."
    )


def told_p(p: float) -> str:
    """``= 0.014``, or ``< 0.001``."""
    return p_value(p) if p < 0.001 else f"= {p_value(p)}"


def row_of(standing: Standing) -> tuple[Cell, ...]:
    """How a method fares: a cell for its name and for each of `HEADS`."""
    low, high = standing.iqm_interval or (None, None)
    least, most = standing.improvement_interval or (None, None)
    facts: dict[str, Plain] = {
        "method": standing.method,
        "average_rank": standing.rank,
        "iqm": 100 * standing.iqm,
        "iqm_low": scaled(low),
        "iqm_high": scaled(high),
        "improvement": standing.improvement,
        "improvement_low": least,
        "improvement_high": most,
        "p_holm": standing.p_holm,
    }
    reference = standing.improvement is None
    return (
        Cell(standing.method, facts=facts),
        Cell(standing.rank, "rank"),
        Cell(standing.iqm, "percent"),
        Cell("" if low is None or high is None else f"{percent(low)} to {percent(high)}"),
        Cell("reference" if reference else standing.improvement, "percent"),
        Cell("" if reference else standing.p_holm, "p"),
    )
