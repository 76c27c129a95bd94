"""The table of claims: what the paper says, what the records say of it, and how surely."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from benchmark.statistics import LEVEL, Comparison, compare_with_best, mean_and_std
from benchmark.studies.grid import Claim, Column
from benchmark.studies.paper import paper_accuracy
from benchmark.studies.results import Results
from benchmark.tables.captions import DEPENDENT, SELECTION, TEST, caption
from benchmark.tables.table import Table, p_value, signed, tex

__all__ = ["claims"]


@dataclass(frozen=True)
class _Finding:
    """One claim in one setting; differences are of accuracies in 0..1, positive if the claim is right.

    Attributes:
        against: the best of the others that have a record, by the mean over the seeds that both have.
        found, wanted: how many of the others have a record, and how many there are.
        papers: the best of the others in the paper, and the difference there; None where it prints none.
    """

    claim: Claim
    setting: str
    against: str
    difference: float
    comparison: Comparison
    found: int
    wanted: int
    papers: tuple[str, float] | None

    @property
    def verdict(self) -> str:
        text = "undecided"
        if self.comparison.significant:
            text = "holds" if self.difference > 0 else "reversed"
        return text + f" ({self.found} of {self.wanted})" * (self.found < self.wanted)


def claims(results: Results) -> Table:
    """One row a claim and setting for which there are records."""
    findings: list[_Finding] = []
    open_: dict[object, bool] = {}  # comparisons that the paper prints, and whether there is no record
    for claim in results.study.claims:
        for column in results.grid.columns:
            finding = _find(results, claim, column)
            if finding is not None:
                findings.append(finding)
            if _in_paper(claim, column) is not None:  # perhaps under several protocols, one of which will do
                key = (claim.text, column.paper)
                open_[key] = open_.get(key, True) and finding is None
    text = (
        f"Differences of test accuracy in percentage points {SELECTION}, clients weighted by their test "
        "samples; positive: as the paper says. In brackets: the best of the others, here and in the paper. "
        f"p: {TEST}, Holm-corrected for the others of the claim; {DEPENDENT}. Verdict: by the sign where "
        f"p < {LEVEL}, else undecided."
    )
    if any(finding.found < finding.wanted for finding in findings):
        text += " (n of m): so many of the others have a record."
    if any(open_.values()):
        text += f" {sum(open_.values())} comparisons of the paper have no record here."
    heads = ["claim", "setting", "verdict", "paper", "ours", "p"]
    shown = pd.DataFrame([_text(finding) for finding in findings], columns=heads)
    return Table(
        name=results.study.name,
        title=results.study.title,
        caption=caption(results, text),
        notes=(),
        data=pd.DataFrame([_numbers(finding) for finding in findings], columns=_FIELDS),
        shown=shown,
        latex=shown.map(tex).rename(columns=tex),
    )


def _find(results: Results, claim: Claim, column: Column) -> _Finding | None:
    """None where there is nothing to compare."""
    samples = {
        row.title: found
        for row in (claim.better, *claim.others)
        if (found := results.samples(row.title, column.title))
    }
    if claim.better.title not in samples:
        return None
    compared = compare_with_best(samples, claim.better.title)
    if not compared:
        return None
    differences = {title: _difference(results, claim.better.title, title, column) for title in compared}
    against = min(differences, key=lambda title: differences[title])
    return _Finding(
        claim=claim,
        setting=column.title,
        against=against,
        difference=differences[against],
        comparison=compared[against],
        found=len(compared),
        wanted=len(claim.others),
        papers=_in_paper(claim, column),
    )


def _difference(results: Results, row: str, other: str, column: Column) -> float:
    """Mean over the seeds (and splits) that both have, as in the test."""
    ours, theirs = (
        {
            (seed, record.split): float(record.summary["accuracy"])
            for seed, record in results.records[title, column.title].items()
        }
        for title in (row, other)
    )
    return mean_and_std([ours[key] - theirs[key] for key in ours if key in theirs])[0]


def _in_paper(claim: Claim, column: Column) -> tuple[str, float] | None:
    for table in claim.papers:
        better = paper_accuracy(table, claim.better, column)
        others = {
            row.title: figure
            for row in claim.others
            if (figure := paper_accuracy(table, row, column)) is not None
        }
        if better is not None and others:
            best = max(others, key=lambda title: others[title])
            return best, better - others[best]
    return None


def _text(finding: _Finding) -> dict[str, str]:
    several = finding.wanted > 1

    def of(title: str, difference: float) -> str:
        return signed(difference) + f" ({title})" * several

    return {
        "claim": finding.claim.text,
        "setting": finding.setting,
        "verdict": finding.verdict,
        "paper": of(*finding.papers) if finding.papers else "",
        "ours": of(finding.against, finding.difference),
        "p": p_value(finding.comparison.p_holm),
    }


_FIELDS = [
    "claim", "setting", "row", "paper_against", "paper_difference", "against", "difference", "pairs", "p",
    "p_holm", "compared", "others", "verdict",
]  # fmt: skip


def _numbers(finding: _Finding) -> dict[str, object]:
    against, difference = finding.papers or ("", None)
    return {
        "claim": finding.claim.text,
        "setting": finding.setting,
        "row": finding.claim.better.title,
        "paper_against": against,
        "paper_difference": None if difference is None else 100 * difference,
        "against": finding.against,
        "difference": 100 * finding.difference,
        "pairs": finding.comparison.pairs,
        "p": finding.comparison.p,
        "p_holm": finding.comparison.p_holm,
        "compared": finding.found,
        "others": finding.wanted,
        "verdict": finding.verdict,
    }
