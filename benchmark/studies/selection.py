"""What of a grid of one's own is selected on the validation split, for every method and setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.grid import Column, Variant
from pfl_benchmark.studies.own_grid import OwnGrid, with_values
from pfl_benchmark.studies.results import Results, collect
from pfl_benchmark.studies.statistics import DIGITS


def selected(own: OwnGrid, store: Store) -> OwnGrid:
    """The grid at the values that are best on the validation split, in the mean over all seeds.

    Of equally good ones the first. Values at which training diverged, or that lack a seed, are not selected.
    Captions say what was, and where nothing could be: these places keep the first values.
    """
    if own.search is None:
        return own
    results = collect(own.search, own.profile, store, own.profile.seeds)
    chosen: dict[tuple[str, str], Variant] = {}
    words = []
    for row, candidates in own.candidates.items():
        told = []
        for column in own.grid.columns:
            best = _best(results, candidates, f"{column.title}, validation", len(own.profile.seeds))
            chosen[row, column.title] = best or candidates[0]
            values = chosen[row, column.title].title.removeprefix(f"{row}, ")
            told.append(values if best else f"{values} (the first: none was finished)")
        places = zip(told, own.grid.columns, strict=True)
        same = len(set(told)) == 1
        words.append(f"{row} {told[0] if same else ' and '.join(f'{v} on {c.title}' for v, c in places)}")
    first = {row.title: row for row in own.grid.variants}

    def value(row: str, column: Column) -> Variant:
        return chosen.get((row, column.title)) or column.chosen.get(row, first[row])

    text = f"{own.profile.warning} Selected on the validation split: {'; '.join(words)}.".strip()
    return replace(with_values(own, value), profile=replace(own.profile, warning=text))


def _best(results: Results, candidates: Sequence[Variant], column: str, seeds: int) -> Variant | None:
    """The finished candidate of the highest mean accuracy in a column of the search."""
    done = [
        row
        for row in candidates
        if len(results.at(row.title, column)) == seeds and not results.diverged(row.title, column)
    ]
    return max(done, key=lambda row: round(results.mean(row.title, column) or 0.0, DIGITS), default=None)
