"""A process for each trainer, timed in turn.

The trainers must not share a process: the executor `threads` changes the memory allocator's settings, for
good and for everything in its process (`benchmark.engine.executors.allocator`), and the peak of memory is
the process's. Waiting for its turn a process does nothing, so turns are as close as within one process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import NamedTuple

from benchmark.engine.precision import precision
from benchmark.experiment.execution import Execution
from benchmark.speed.clock import peak_memory, seconds_of
from benchmark.speed.workload import trainer_call

__all__ = ["Apart", "Here", "Turn", "seated"]


class Turn(NamedTuple):
    """One timed call."""

    seconds: float
    samples: int
    peak: int


class Here:
    """A trainer in this process; the first call, not timed, is made at once."""

    def __init__(self, cell: str, trainer: str, execution: Execution, epochs: int) -> None:
        self.prepared, self._call = trainer_call(cell, trainer, execution, epochs)
        with precision(execution.tf32):
            self._samples = self._call()
        self._tf32 = execution.tf32

    def turn(self) -> Turn:
        with precision(self._tf32):
            seconds = seconds_of(self._call)
        return Turn(seconds, self._samples, peak_memory(self.prepared.task.data.device))

    def close(self) -> None:
        self.prepared.task.executor.close()


class Apart:
    """A trainer in a process of its own."""

    def __init__(self, cell: str, trainer: str, execution: Execution, epochs: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(other, cell, trainer, execution, epochs), name=trainer, daemon=True
        )
        self._process.start()
        other.close()
        self._answer()

    def turn(self) -> Turn:
        self._pipe.send("turn")
        found = self._answer()
        assert isinstance(found, Turn)
        return found

    def _answer(self) -> object:
        try:
            answer = self._pipe.recv()
        except EOFError:
            raise RuntimeError(
                f"the process of '{self._process.name}' ended; see its message above"
            ) from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()


def _serve(pipe: Connection, cell: str, trainer: str, execution: Execution, epochs: int) -> None:
    try:
        seat = Here(cell, trainer, execution, epochs)
        pipe.send(None)
        while pipe.recv():
            pipe.send(seat.turn())
        seat.close()
    except EOFError:  # the process that asked is gone
        return
    except Exception:
        pipe.send(traceback.format_exc())


@contextlib.contextmanager
def seated(
    cell: str, trainers: tuple[str, ...], execution: Execution, epochs: int, apart: bool
) -> Iterator[dict[str, Here | Apart]]:
    """The trainers by name, each in a process of its own or all in this one."""
    with contextlib.ExitStack() as stack:
        seats: dict[str, Here | Apart] = {}
        for trainer in trainers:
            seats[trainer] = (Apart if apart else Here)(cell, trainer, execution, epochs)
            stack.callback(seats[trainer].close)
        yield seats
