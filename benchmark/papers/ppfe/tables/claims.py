"""The table of claims: what the paper says, what the records say of it, and how surely."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

from pfl_benchmark.papers.ppfe.studies.claims import Claim, ClaimsStudy
from pfl_benchmark.present.tables.captions import DEPENDENT, SELECTION, TEST, absent, caption
from pfl_benchmark.render.forms import signed
from pfl_benchmark.render.table import Cell, Head, Plain, Table
from pfl_benchmark.studies.grid import Column
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import LEVEL, Comparison, compare_with


@dataclass(frozen=True)
class Finding:
    """One claim in one setting; differences are of accuracies in 0..1, positive if the claim is right.

    Attributes:
        verdict: ``holds`` if the row is significantly better than all of the others, none of which lacks a
            record, ``reversed`` if any of them is significantly better, else ``undecided``.
        against: the other that decides: where the claim is reversed the best of those that do it, else the
            best of all, by the mean over the seeds that both have.
        by_seed: the difference in each seed that the row and `against` both have.
        found, wanted: how many of the others have a record, and how many there can be.
        papers: the best of the others in the paper, and the difference there; None where it prints none.
    """

    claim: Claim
    setting: str
    verdict: str
    against: str
    by_seed: dict[int, float]
    comparison: Comparison
    found: int
    wanted: int
    papers: tuple[str, float] | None

    @property
    def difference(self) -> float:
        return fmean(self.by_seed.values())


def claims(results: Results) -> Table:
    """One row a claim and setting for which there are records."""
    assert isinstance(results.study, ClaimsStudy)
    findings: list[Finding] = []
    open_: dict[object, bool] = {}  # comparisons that the paper prints, and whether there is no record
    for claim in results.study.claims:
        for column in results.grid.columns:
            finding = find_claim(results, claim, column)
            if finding is not None:
                findings.append(finding)
            if _in_paper(claim, column) is not None:  # perhaps under several protocols, one of which will do
                key = (claim.better.printed, *(other.printed for other in claim.others), column.paper)
                open_[key] = open_.get(key, True) and finding is None
    text = (
        f"Differences of test accuracy in percentage points {SELECTION}, clients weighted by their test "
        "samples; positive: as the paper says. In brackets: the best of the others, here and in the paper. "
        "Standard error: of the unweighted mean difference, clients and seeds taken as independent; it does "
        "not tell what other seeds would bring. "
        f"p: {TEST}, which are not weighted, Holm-corrected for the others of the claim; {DEPENDENT}. "
        f"Verdict: holds where the test (p < {LEVEL}) finds it better than each of the others, reversed "
        "where it finds it worse than any."
    )
    if any(finding.found < finding.wanted for finding in findings):
        text += " (n of m): so many of the others have a record; such a claim can be reversed, not hold."
    if any(finding.papers and finding.papers[1] < 0 for finding in findings):
        text += " Where the paper's figure is negative, its table contradicts its text."
    if any(open_.values()):
        text += f" {sum(open_.values())} comparisons of the paper have no record here."
    several = len(results.seeds) > 1
    text += " Ours: means over the seeds that both sides have." * several
    words = [Head(head, words=True) for head in ("claim", "setting", "verdict")]
    return Table(
        title="What the paper says, tested on the runs there are",
        caption=caption(_only(results, findings), text, spread=False),
        heads=(
            *words,
            *map(Head, ("paper", "ours", "standard error", "p", *["by seed"] * several)),
        ),
        rows=tuple(_cells(finding)[: len(words) + 4 + several] for finding in findings),
        notes=absent(results),
        fields=_FIELDS,
    )


def _only(results: Results, findings: list[Finding]) -> Results:
    """Without the records that no finding is of."""
    settings = {finding.setting for finding in findings}
    return replace(results, records={p: found for p, found in results.records.items() if p[1] in settings})


def find_claim(results: Results, claim: Claim, column: Column) -> Finding | None:
    """What the records say of a claim in one setting; None where there is nothing to compare."""
    row = claim.better.title
    samples = {
        title: found
        for title in (row, *(other.title for other in claim.others))
        if (found := results.samples(title, column.title))
    }
    compared = compare_with(samples, row) if row in samples else {}
    if not compared:
        return None
    better = [title for title, test in compared.items() if test.significant and test.direction > 0]
    by_seed = {title: _by_seed(results, row, title, column) for title in compared}
    against = min(better or by_seed, key=lambda title: fmean(by_seed[title].values()))
    wanted = sum((other.title, column.title) in results.configs for other in claim.others)
    worse = [title for title, test in compared.items() if test.significant and test.direction < 0]
    return Finding(
        claim=claim,
        setting=column.title,
        verdict="reversed" if better else "holds" if len(worse) == wanted else "undecided",
        against=against,
        by_seed=by_seed[against],
        comparison=compared[against],
        found=len(compared),
        wanted=wanted,
        papers=_in_paper(claim, column),
    )


def _by_seed(results: Results, row: str, other: str, column: Column) -> dict[int, float]:
    """Differences in the seeds whose splits both have, as in the test."""
    ours, theirs = (results.by_split(title, column.title) for title in (row, other))
    return {
        seed: ours[seed, split].summary["accuracy"] - theirs[seed, split].summary["accuracy"]
        for seed, split in sorted(ours.keys() & theirs.keys())
    }


def _in_paper(claim: Claim, column: Column) -> tuple[str, float] | None:
    for table in claim.papers:
        better = table.accuracy(column.paper, claim.better.printed)
        others = {
            row.title: figure
            for row in claim.others
            if (figure := table.accuracy(column.paper, row.printed)) is not None
        }
        if better is not None and others:
            best = max(others, key=lambda title: others[title])
            return best, better - others[best]
    return None


def _cells(finding: Finding) -> tuple[Cell, ...]:
    several = len(finding.claim.others) > 1
    part = Cell(f"{finding.found} of {finding.wanted}") if finding.found < finding.wanted else None
    by_seed = (f"{seed}: {signed(difference)}" for seed, difference in finding.by_seed.items())

    def of(title: str, difference: float) -> Cell:
        return Cell(difference, "signed", beside=Cell(title) if several else None)

    return (
        Cell(finding.claim.text, facts=_numbers(finding)),
        Cell(finding.setting),
        Cell(finding.verdict, beside=part),
        of(*finding.papers) if finding.papers else Cell(""),
        of(finding.against, finding.difference),
        Cell(finding.comparison.standard_error, "percent"),
        Cell(finding.comparison.p_holm, "p"),
        Cell(", ".join(by_seed)),
    )


_FIELDS = (
    "claim", "setting", "row", "paper_against", "paper_difference", "against", "difference",
    "standard_error", "direction", "pairs", "p", "p_holm", "seeds", "by_seed", "compared", "others",
    "verdict",
)  # fmt: skip


def _numbers(finding: Finding) -> dict[str, Plain]:
    against, difference = finding.papers or ("", None)
    return {
        "claim": finding.claim.text,
        "setting": finding.setting,
        "row": finding.claim.better.title,
        "paper_against": against,
        "paper_difference": None if difference is None else 100 * difference,
        "against": finding.against,
        "difference": 100 * finding.difference,
        "standard_error": 100 * finding.comparison.standard_error,
        "direction": -finding.comparison.direction,
        "pairs": finding.comparison.pairs,
        "p": finding.comparison.p,
        "p_holm": finding.comparison.p_holm,
        "seeds": len(finding.by_seed),
        "by_seed": " ".join(f"{seed}:{100 * found:+.4f}" for seed, found in finding.by_seed.items()),
        "compared": finding.found,
        "others": finding.wanted,
        "verdict": finding.verdict,
    }
