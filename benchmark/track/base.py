"""What a tracker is, and the guard around it."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from pfl_benchmark.config.fields import DATA_FIELDS, setting_in_words
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.rounds import Observer
from pfl_benchmark.errors import UserError, why
from pfl_benchmark.records.record import read_record

if TYPE_CHECKING:
    from pfl_benchmark.render.table import Table

_DATA = (*DATA_FIELDS, "augment", "crop_padding")  # what a run sees of its data

Warn = Callable[[str], None]  # for what a tracker has to tell people and survives


@dataclass(frozen=True)
class About:
    """What a tracker is told of a run before its rounds.

    Attributes:
        method: its name and variant.
        folder: of its record, below the results folder.
        split: as in the record's config.json.
        environment: as in the record's summary.json.
        done: rounds that were found finished; with 0 the run begins, perhaps again with other code.
    """

    config: RunConfig
    method: str
    folder: Path
    split: Mapping[str, Any]
    environment: Mapping[str, Any]
    done: int = 0

    @property
    def name(self) -> str:
        """Method, setting and seed: the folder's name without the hash."""
        return self.folder.name.removesuffix(f"-{self.config.hash}")


class Tracker(Protocol):
    """Follows one run. Any exception means that it has given up; it is not called again then."""

    def round(self, line: Mapping[str, Any]) -> None:
        """A line of rounds.jsonl: first those of rounds found finished, then new ones."""

    def finish(self, summary: Mapping[str, Any], accuracies: Sequence[float]) -> None:
        """The run is complete.

        Args:
            summary: as in summary.json.
            accuracies: per client [K], as in clients.csv.
        """

    def stop(self, code: int) -> None:
        """The run ends without a result: 130 for an interruption, else 1. It may go on another time."""

    def abandon(self) -> None:
        """Let go of everything after an exception."""


class Tracking(Protocol):
    """What was asked of a tracker; picklable."""

    @property
    def title(self) -> str:
        """Its name, as in "W&B tracking has stopped"."""

    @property
    def place(self) -> str:
        """Where it logs to, in a few words."""

    def check(self) -> None:
        """Refuse what cannot work before anything is run.

        Raises:
            UserError: something is not installed, or a key is missing.
        """

    def begin(self, about: About, warn: Warn) -> Tracker:
        """Begin to follow a run, or go on with it if it was followed before."""

    def log_tables(self, profile: str, root: Path, tables: Sequence[Table], warn: Warn) -> None:
        """Log the tables of a results folder."""


class Sums:
    """What is added up from the first round on, as axes of charts."""

    def __init__(self) -> None:
        self._bytes = self._samples = 0

    def add(self, line: Mapping[str, Any]) -> dict[str, int]:
        """Bytes and samples up to this round's line, by name."""
        self._bytes += line["bytes_up"] + line["bytes_down"] + line["bytes_broadcast"]
        self._samples += line["samples"] + line["adaptation_samples"]
        return {"cumulative/bytes": self._bytes, "cumulative/samples": self._samples}


class Followed:
    """An `Observer` that passes on to another one and feeds trackers; a context manager around the run.

    A tracker that fails is dropped with one line on standard error; the run goes on without it.

    Attributes:
        warnings: the lines, for those who do not see standard error.
    """

    def __init__(self, observer: Observer, trackings: Sequence[Tracking], about: About) -> None:
        self._observer, self._trackings, self._about = observer, trackings, about
        self._trackers: list[tuple[Tracking, Tracker]] = []
        self.warnings: list[str] = []

    def start(self, rounds: int, done: int) -> None:
        """The run begins."""
        self._observer.start(rounds, done)
        self._about = replace(self._about, done=done)
        self._begin(self._trackings)

    def round(self, line: Mapping[str, Any]) -> bool | None:
        """A round is finished."""
        stops = self._observer.round(line)
        self._each(lambda tracker: tracker.round(line))
        return stops

    def moved(self, folder: Path, config: RunConfig) -> None:
        """The run was stopped, its record is that of a shorter one: this is followed from its first round.

        The whole run, which may go on another time, is left as if it had been interrupted.
        """
        if folder == self._about.folder:
            return
        self._each(lambda tracker: tracker.stop(130))
        followed = [tracking for tracking, _ in self._trackers]
        self._trackers.clear()
        self._about = replace(self._about, config=config, folder=folder, done=0)
        self._begin(followed)
        lines = read_record(folder).rounds  # of which the last has been evaluated since

        def repeat(tracker: Tracker) -> None:
            for line in lines:
                tracker.round(line)

        self._each(repeat)

    def __enter__(self) -> Followed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._trackers:
            return
        if kind is not None:
            code = 130 if issubclass(kind, KeyboardInterrupt) else 1
            self._each(lambda tracker: tracker.stop(code))
            return
        record = read_record(self._about.folder)
        self._each(lambda tracker: tracker.finish(record.summary, record.accuracies.tolist()))

    def _begin(self, trackings: Sequence[Tracking]) -> None:
        for tracking in trackings:
            try:
                self._trackers.append((tracking, tracking.begin(self._about, self._warn)))
            except Exception as error:
                self._give_up(tracking.title, error)

    def _each(self, action: Callable[[Tracker], None]) -> None:
        for entry in tuple(self._trackers):
            tracking, tracker = entry
            try:
                action(tracker)
            except Exception as error:
                self._trackers.remove(entry)
                self._give_up(tracking.title, error)
                with contextlib.suppress(Exception):
                    tracker.abandon()

    def _give_up(self, title: str, error: Exception) -> None:
        self._warn(
            f"{title} tracking of {self._about.name} has stopped, the run and its record go on without it: "
            f"{describe(error)}"
        )

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        print(f"warning: {text}", file=sys.stderr, flush=True)


def need_folder(folder: Path, name: str) -> None:
    """Make a folder; UserError, which calls it `name`: files cannot be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{name} cannot be used: {why(error)}; give another folder") from error


def name_of_tables(profile: str, root: Path) -> str:
    """What the tables of a results folder are logged as: ``tables-quick-1a2b3c``, the same every time."""
    return f"tables-{profile}-{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:6]}"


def setting_of(config: RunConfig) -> str:
    """The setting that a run is filed under, by its data alone: ``digits-s2, samples per client 20``."""
    return setting_in_words(config, _DATA)


def describe(error: Exception) -> str:
    """An exception of somebody else's code on one line."""
    text = " ".join(str(error).split())
    return f"{text} ({type(error).__name__})" if text else type(error).__name__
