"""Methods compared over a set of settings and seeds: ranks, tests, aggregates with intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pfl_benchmark.errors import UserError
from pfl_benchmark.records.store import Record
from pfl_benchmark.studies import bootstrap, friedman
from pfl_benchmark.studies.blocks import Blocks, listed
from pfl_benchmark.studies.friedman import Friedman
from pfl_benchmark.studies.statistics import LEVEL


@dataclass(frozen=True)
class Standing:
    """How a method fares over all blocks.

    Attributes:
        rank: mean of its ranks within settings, 1 is the best.
        iqm, iqm_interval: interquartile mean of its accuracies (0..1); None where a setting has one seed.
        improvement, improvement_interval: probability that it is better than the reference; None of itself.
        p_holm: of the Wilcoxon test against the reference, corrected for the pairs tested; None of itself.
        verdict: ``better`` or ``worse`` than the reference by that test, or ``undecided``; empty of itself.
    """

    method: str
    rank: float
    iqm: float
    iqm_interval: tuple[float, float] | None
    improvement: float | None = None
    improvement_interval: tuple[float, float] | None = None
    p_holm: float | None = None
    verdict: str = ""


class Across:
    """The comparison.

    Ranks and tests take each setting once, with the mean over its seeds, as Demšar (JMLR 7, 2006) asks: seeds
    of a setting are not independent. Where there is one setting alone they take its seeds.

    Args:
        blocks: at least two of at least two methods.
        reference: the method that others are compared with, chosen beforehand; empty: that of the best mean
            rank, and all pairs are tested.

    Attributes:
        scores: accuracies [B, methods].
        means: what ranks and tests take [N, methods].
        over: what the N are, ``settings`` or ``seeds``.
        ranks: average ranks [methods].
        pairs: Wilcoxon tests, of all pairs or of those with the reference.

    Raises:
        UserError: fewer than two methods or two blocks.
    """

    def __init__(self, blocks: Blocks, reference: str = "") -> None:
        _require_enough(blocks)
        self.blocks, self.scores = blocks, blocks.accuracies()
        settings = np.array(blocks.settings)
        names = list(dict.fromkeys(blocks.settings))
        self.over, self.means = "seeds", self.scores
        if len(names) > 1:
            self.over = "settings"
            self.means = np.array([self.scores[settings == name].mean(axis=0) for name in names])
        self.ranks = friedman.average_ranks(self.means)
        self.pairs = friedman.pairs(self.means, blocks.methods.index(reference) if reference else None)
        self.reference = reference or blocks.methods[int(np.argmin(self.ranks))]

    @cached_property
    def test(self) -> Friedman | None:
        """The Friedman test; None of two methods."""
        return friedman.friedman(self.means) if len(self.blocks.methods) > 2 else None

    @cached_property
    def critical_difference(self) -> float | None:
        """Of average ranks, by Nemenyi; None of two methods."""
        return friedman.critical_difference(len(self.ranks), len(self.means)) if self.test else None

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Methods whose average ranks are nearer than the critical difference, the best first."""
        if self.critical_difference is None:
            return []
        found = friedman.groups(self.ranks, self.critical_difference)
        return [tuple(self.blocks.methods[index] for index in group) for group in found]

    @cached_property
    def standings(self) -> list[Standing]:
        """All methods by average rank, the best first."""
        order = np.argsort(self.ranks, kind="stable")
        return [self._standing(int(place)) for place in order]

    def _standing(self, place: int) -> Standing:
        scores, settings = self.scores[:, place], self.blocks.settings
        alone = Standing(
            self.blocks.methods[place],
            float(self.ranks[place]),
            float(bootstrap.iqm(scores)),
            bootstrap.iqm_interval(scores, settings),
        )
        against = self.blocks.methods.index(self.reference)
        if place == against:
            return alone
        theirs = self.scores[:, against]
        pair = next(pair for pair in self.pairs if {pair.first, pair.second} == {place, against})
        sign = pair.direction if pair.first == place else -pair.direction
        return dataclasses.replace(
            alone,
            improvement=bootstrap.improvement(scores, theirs, settings),
            improvement_interval=bootstrap.improvement_interval(scores, theirs, settings),
            p_holm=pair.p_holm,
            verdict=("better" if sign > 0 else "worse") if pair.significant and sign else "undecided",
        )

    def numbers(self) -> dict[str, Any]:
        """All of it for JSON; accuracies and probabilities in 0..1, None where a figure is not defined."""
        methods = self.blocks.methods
        return {
            "methods": [dataclasses.asdict(standing) for standing in self.standings],
            "reference": self.reference,
            "level": LEVEL,
            "over": self.over,
            "friedman": _of(self.test),
            "critical_difference": self.critical_difference,
            "groups": self.groups,
            "wilcoxon": [
                dataclasses.asdict(pair) | {"first": methods[pair.first], "second": methods[pair.second]}
                for pair in self.pairs
            ],
            "bootstrap": {
                "confidence": bootstrap.CONFIDENCE,
                "resamples": bootstrap.RESAMPLES,
                "strata": "settings",
            },
            "splits": self.blocks.splits,
            "blocks": [
                {
                    "setting": block.setting,
                    "seed": block.seed,
                    "accuracies": {name: block.records[name].summary["accuracy"] for name in methods},
                    "records": {name: str(block.records[name].folder) for name in methods},
                }
                for block in self.blocks.blocks
            ],
            "left_out": list(self.blocks.left_out),
        }


def _of(test: Friedman | None) -> dict[str, Any] | None:
    """As JSON knows no infinity, None for it."""
    if test is None:
        return None
    return {name: value if math.isfinite(value) else None for name, value in dataclasses.asdict(test).items()}


def _require_enough(blocks: Blocks) -> None:
    """Refuse what cannot be compared: fewer than two methods or two blocks."""
    if len(blocks.methods) < 2:
        raise UserError(
            f"{blocks.methods[0]} is the only method here, and nothing is there to compare it with; give more"
        )
    if len(blocks.blocks) < 2:
        here = "only one setting and seed has" if blocks.blocks else "no setting and seed has"
        counts = sorted(blocks.counts.items(), key=lambda item: (-item[1], item[0]))
        raise UserError(
            f"{here} usable runs of all of {listed(blocks.methods)}; two at least are needed (blocks by "
            f"method: {listed([f'{name} {count}' for name, count in counts], 10)}); give records of "
            "more settings or seeds, or choose methods that more of them have (--methods)"
        )


def reference_of(records: Sequence[Record], methods: Sequence[str], against: Sequence[Path]) -> str:
    """The method of the runs that ``--against`` names; empty if it names none.

    Raises:
        UserError: they are of several methods, of one that is not compared, or no record.
    """
    found = []
    for folder in against:
        identity = folder.resolve().name[-10:]
        found += [record.method for record in records if record.config.hash == identity][:1]
    if len(found) < len(against):
        raise UserError(f"--against is {against[0]}, a results folder; give the record of one run in it")
    if len(set(found)) > 1:
        raise UserError(f"--against names runs of several methods ({', '.join(found)}); give one of them")
    if found and found[0] not in methods:
        raise UserError(f"--against is a run of {found[0]}, which is not among --methods; add it there")
    return found[0] if found else ""
