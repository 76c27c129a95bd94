"""Carry out a grid of one's own: what is selected on validation data first, then what is reported."""

from __future__ import annotations

from pfl_benchmark.launch.batch import Batch
from pfl_benchmark.studies.own_grid import OwnGrid
from pfl_benchmark.studies.selection import selected


def parts_of(own: OwnGrid, batch: Batch) -> tuple[Batch, Batch]:
    """The runs of the search, perhaps none, and those on test data; with what is selected, if it is known."""
    search = batch.about(own.profile, *([own.search] if own.search else []))
    chosen = own if search.missing else selected(own, batch.store)
    return search, batch.about(chosen.profile, chosen.study)


def fill_grid(own: OwnGrid, batch: Batch, make: bool = True) -> tuple[OwnGrid, Batch, int]:
    """Make what is missing (unless not `make`), and select.

    Returns:
        The grid with what was selected, the batch of its runs on test data, and the number of runs that
        failed otherwise than by diverging.
    """
    search, _ = parts_of(own, batch)
    failed = search.fill() if make and own.search else 0
    own = selected(own, batch.store)
    batch = batch.about(own.profile, own.study)
    return own, batch, failed + (batch.fill() if make else 0)
