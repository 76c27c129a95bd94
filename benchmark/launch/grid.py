"""Carry out a grid of one's own: what is selected on validation data first, then what is reported."""

from __future__ import annotations

from pfl_benchmark.console.terminal import duration
from pfl_benchmark.errors import UserError
from pfl_benchmark.launch.batch import Batch
from pfl_benchmark.studies.own_grid import OwnGrid
from pfl_benchmark.studies.selection import selected

_WEEK = 7 * 24 * 3600.0


def parts_of(own: OwnGrid, batch: Batch) -> tuple[Batch, Batch]:
    """The runs of the search, perhaps none, and those on test data; with what is selected, if it is known."""
    search = batch.about(own.profile, *([own.search] if own.search else []))
    chosen = own if search.missing else selected(own, batch.store)
    return search, batch.about(chosen.profile, chosen.study)


def refuse_long(search: Batch, runs: Batch, advice: str) -> None:
    """Raise UserError for what would take more than a week here, with the advice."""
    seconds = search.expected() + runs.expected()
    if seconds > _WEEK:
        raise UserError(f"this grid would take about {duration(seconds)}, more than a week; {advice}")


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
