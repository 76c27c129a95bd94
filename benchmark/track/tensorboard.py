"""TensorBoard: one folder of event files for every run, with what the record has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfl_benchmark.errors import optional
from pfl_benchmark.track.base import About, Sums, Warn, name_of_tables, need_folder

if TYPE_CHECKING:
    from pfl_benchmark.render.table import Table


@dataclass(frozen=True)
class TensorBoard:
    """A `track.Tracking`.

    Attributes:
        folder: what ``tensorboard --logdir`` is given; a run has the folder of its record's name in it.
    """

    folder: Path

    title = "TensorBoard"

    @property
    def place(self) -> str:
        return f"TensorBoard {self.folder}"

    def check(self) -> None:
        """Refuse what cannot work: no package, or a folder that cannot be written."""
        optional("torch.utils.tensorboard", "--tensorboard", package="tensorboard")
        need_folder(self.folder, f"--tensorboard {self.folder}")

    def begin(self, about: About, warn: Warn) -> _Run:
        """Begin to log a run; one that goes on is logged anew, from its first round."""
        folder = self.folder / about.folder.name
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        rows = [f"| {name} | {value} |" for name, value in about.config.to_dict().items()]
        writer = _writer(folder)
        writer.add_text("configuration", "\n".join(["| field | value |", "|---|---|", *rows]))
        return _Run(writer)

    def log_tables(self, profile: str, root: Path, tables: Sequence[Table], warn: Warn) -> None:
        """Log tables as text, under `name_of_tables`."""
        from pfl_benchmark.render.formats import FORMATS

        writer = _writer(self.folder / name_of_tables(profile, root))
        for table in tables:
            writer.add_text(table.name, FORMATS["md"].write(table))
        writer.close()


class _Run:
    """A `track.Tracker` that feeds the event file of a run; steps are rounds."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._round, self._sums = 0, Sums()

    def round(self, line: Mapping[str, Any]) -> None:
        """Log the numbers of the line, and what is added up (`Sums`)."""
        self._round = line["round"]
        for name, value in {**line, **self._sums.add(line)}.items():
            if name != "round" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, self._round)

    def finish(self, summary: Mapping[str, Any], accuracies: Sequence[float]) -> None:
        """Log the clients' accuracies and the figures of the summary."""
        self._writer.add_histogram("clients/accuracy", np.array(accuracies), self._round)
        for name, value in _numbers("summary", summary):
            self._writer.add_scalar(name, value, self._round)
        self._writer.close()

    def stop(self, code: int) -> None:
        """Write what was logged."""
        self._writer.close()

    def abandon(self) -> None:
        """Let go of the file."""
        self._writer.close()


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """The numbers in nested dictionaries: ``summary/new_clients/accuracy``."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _numbers(f"{name}/{key}", part)
    elif isinstance(value, int | float):
        yield name, value


def _writer(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
