"""The workers of a Ray cluster, as the foreman sees them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.config.resolve import method_label
from benchmark.engine.files import write_bytes
from benchmark.engine.records import RunRecord
from benchmark.errors import UserError
from benchmark.experiment.execution import Execution
from benchmark.launch.base import Ended
from benchmark.launch.ray_shares import Shares
from benchmark.launch.ray_worker import Files, RayWorker, Survey, record_files
from benchmark.launch.work import Died, Report
from benchmark.studies.grid import Cell

__all__ = ["RayCrew"]

_SECONDS_TO_PLACE = 120.0  # for Ray to find room for the first worker,
_SECONDS_MORE = 20.0  # and for the others after it
_POLL = 1.0  # seconds that a worker waits for something to tell
_HIRES = 3  # in a row that may fail before a place is given up


@dataclass
class _Hand:
    """An actor, the answer that is awaited from it (if any), and what it has said about its place.

    Attributes:
        hires: actors at this place that have failed to start, this one included if it fails.
        record: of its cell, held here on behalf of a worker that cannot reach the results folder.
    """

    actor: Any
    answer: Any
    hires: int = 1
    survey: Survey | None = None
    record: RunRecord | None = None


class RayCrew:
    """A `benchmark.launch.foreman.Crew` of Ray actors.

    Args:
        ray: the package.
        variables: of the workers' environment, as far as they have none of their own.
        marker: a file in the results folder; workers that find it can write there.
    """

    def __init__(
        self,
        ray: Any,
        shares: Shares,
        execution: Execution,
        variables: Mapping[str, str],
        marker: Path,
        cells: Sequence[Cell],
    ) -> None:
        self._ray, self._execution, self._marker, self._variables = ray, execution, marker, variables
        # One cell of each dataset says what is needed.
        self._samples = list({cell.config.dataset: cell for cell in cells}.values())
        self._actors = ray.remote(RayWorker).options(
            num_cpus=shares.cpus, num_gpus=shares.gpus, max_concurrency=2
        )
        self._hands = {place: self._hire() for place in range(shares.jobs)}
        self._told: list[tuple[int, Report]] = []  # reports of our own

    def _hire(self, hires: int = 1) -> _Hand:
        actor = self._actors.remote(self._variables, self._marker.name)
        survey = actor.survey.remote(self._samples, self._execution.data_dir, self._marker)
        return _Hand(actor, survey, hires)

    # -- what is where ----------------------------------------------------------------------------------

    def lacking(self, cells: Sequence[Cell]) -> dict[str, str]:
        """The datasets of `cells` that no worker has, and why not.

        Raises:
            UserError: Ray finds no room for a single worker, or it cannot be started.
        """
        begun = time.monotonic()
        while waiting := [hand for hand in self._hands.values() if hand.survey is None]:
            limit = _SECONDS_TO_PLACE if len(waiting) == len(self._hands) else _SECONDS_MORE
            if time.monotonic() - begun > limit:
                break
            ready, _ = self._ray.wait([hand.answer for hand in waiting], timeout=_POLL)
            for hand in waiting:
                if hand.answer in ready:
                    hand.survey, hand.answer = self._surveyed(hand.answer), None
        surveys = self._surveys()
        if not surveys:
            raise UserError(
                f"Ray has found no room for a worker within {_SECONDS_TO_PLACE:.0f} s: is the cluster busy? "
                "`ray status` tells; wait, or add machines with `ray start --address`"
            )
        names = dict.fromkeys(cell.config.dataset for cell in cells)
        return {
            name: f"on Ray worker {surveys[0].host}: {surveys[0].lacks[name]}"
            for name in names
            if all(name in survey.lacks for survey in surveys)
        }

    def _surveyed(self, answer: Any) -> Survey:
        try:
            return self._ray.get(answer)
        except Exception as error:  # whatever keeps it from starting: most often a package
            reason = str(error).strip().splitlines()[-1]
            raise UserError(
                f"a Ray worker cannot be started: {reason}; the machines of the cluster need the packages of "
                "requirements.txt, at the same versions"
            ) from error

    def _surveys(self) -> list[Survey]:
        return [hand.survey for hand in self._hands.values() if hand.survey is not None]

    def remarks(self) -> list[str]:
        """What is worth telling about the workers: data that only some of them have."""
        lacks = {(survey.host, name) for survey in self._surveys() for name in survey.lacks}
        return [f"Ray worker {host} lacks {name} and gets no such cells" for host, name in sorted(lacks)]

    # -- as the foreman sees it -------------------------------------------------------------------------

    def places(self) -> Sequence[int]:
        """As `Crew.places`: where Ray has placed a worker."""
        return [place for place, hand in self._hands.items() if hand.survey is not None]

    def can(self, place: int, cell: Cell) -> bool:
        """As `Crew.can`."""
        survey = self._hands[place].survey
        return survey is not None and cell.config.dataset not in survey.lacks

    def hopeless(self, cell: Cell) -> bool:
        """As `Crew.hopeless`."""
        surveys = [hand.survey for hand in self._hands.values()]
        return all(survey is not None and cell.config.dataset in survey.lacks for survey in surveys)

    def send(self, place: int, cell: Cell) -> None:
        """As `Crew.send`."""
        hand, files = self._hands[place], None
        assert hand.survey is not None
        if not hand.survey.shares:
            record = RunRecord(self._execution.results_dir, cell.config, method_label(cell.config))
            ended = _claim(record)
            if ended is not None:
                self._told.append((place, ended))
                return
            hand.record, files = record, record_files(record.folder)
        hand.actor.run.remote(cell, self._execution, files)
        hand.answer = hand.actor.reports.remote(_POLL)

    def reports(self, timeout: float) -> list[tuple[int, Report]]:
        """As `Crew.reports`."""
        found, self._told = self._told, []
        awaited = {hand.answer: place for place, hand in self._hands.items() if hand.answer is not None}
        if found or not awaited:
            return found
        ready, others = self._ray.wait(list(awaited), timeout=timeout)
        if others:
            ready += self._ray.wait(others, num_returns=len(others), timeout=0)[0]
        for answer in ready:
            place = awaited[answer]
            found += [(place, report) for report in self._hear(place, answer)]
        return found

    def _hear(self, place: int, answer: Any) -> list[Report]:
        hand = self._hands[place]
        try:
            told = self._ray.get(answer)
        except self._ray.exceptions.RayError:  # the actor, its machine, or something else of Ray's
            self._replace(place)
            return [Died(f"on {hand.survey.host} was lost")] if hand.survey else []
        if isinstance(told, Survey):
            hand.survey, hand.answer = told, None
            return []
        reports: list[Report] = []
        for one in told:
            if isinstance(one, Files):
                problem = _store(hand.record, one.content)
                if problem:
                    return [*reports, Ended("stop", problem=problem)]
                continue
            if isinstance(one, Ended):
                _release(hand)
            reports.append(one)
        ended = bool(reports) and isinstance(reports[-1], Ended)
        hand.answer = None if ended else hand.actor.reports.remote(_POLL)
        return reports

    def _replace(self, place: int) -> None:
        """Hire another worker, unless one after the other fails to start.

        Raises:
            UserError: so that none are left.
        """
        hand = self._hands.pop(place)
        with contextlib.suppress(Exception):
            self._ray.kill(hand.actor)
        _release(hand)
        if hand.survey is not None:
            self._hands[place] = self._hire()
        elif hand.hires < _HIRES:
            self._hands[place] = self._hire(hand.hires + 1)
        elif not self._hands:
            raise UserError(
                "the Ray cluster has lost its workers and starts no more; see `ray status`, then give the "
                "same command again"
            )

    def close(self, hurry: bool) -> None:
        """End all workers; those at work leave their last checkpoint behind."""
        if not hurry and any(not survey.shares for survey in self._surveys()):
            tidying = [
                hand.actor.clean_up.remote() for hand in self._hands.values() if hand.survey is not None
            ]
            with contextlib.suppress(Exception):
                self._ray.wait(tidying, num_returns=len(tidying), timeout=5)
        for hand in self._hands.values():
            with contextlib.suppress(Exception):
                self._ray.kill(hand.actor)
            _release(hand)


# -- records of workers that cannot reach the results folder ------------------------------------------------


def _claim(record: RunRecord) -> Ended | None:
    """Take a run for a worker; how the cell has ended, if it cannot or need not be run."""
    try:
        record.acquire()
        if record.done:  # by another process, since we looked
            summary = {**record.summary(), "record": str(record.folder)}
            record.release()
            return Ended("done", summary)
    except UserError as error:
        return Ended("busy" if isinstance(error.__cause__, BlockingIOError) else "stop", problem=str(error))
    return None


def _store(record: RunRecord | None, content: Mapping[str, bytes]) -> str:
    """Write files of a record; the problem in words if that is impossible, which ends everything."""
    assert record is not None
    try:
        for name, data in content.items():
            write_bytes(record.folder / name, data)
        for name in ("failed.json", "checkpoint.pt"):
            if name not in content:
                (record.folder / name).unlink(missing_ok=True)
    except (UserError, OSError) as error:
        return str(error)
    return ""


def _release(hand: _Hand) -> None:
    if hand.record is not None:
        hand.record.release()
        hand.record = None
