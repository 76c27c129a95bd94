"""Watchers of runs that remember, and one that kills."""

import contextlib
import os
import signal
from pathlib import Path


class Log:
    """A watcher, and the observer of every cell."""

    def __init__(self):
        self.begun, self.ends, self.notes, self.waits = [], [], [], 0
        self.starts, self.rounds = [], []

    def begin(self, cell):
        self.begun.append(cell.title)
        return self

    def end(self, cell, summary, problem):
        self.ends.append((cell.title, problem))

    def wait(self, cells):
        self.waits += 1

    def note(self, text):
        self.notes.append(text)

    def start(self, rounds, done):
        self.starts.append(done)

    def round(self, line):
        self.rounds.append(line["round"])


class Killer(Log):
    """A watcher that kills the worker of the run called ``long`` after some rounds, once."""

    def __init__(self, rounds, by=signal.SIGKILL):
        super().__init__()
        self._rounds, self._by, self._cell = rounds, by, None

    def begin(self, cell):
        self.begun.append(cell.title)
        if cell.title != "long":
            return Log()
        self._cell = cell
        return self

    def round(self, line):
        super().round(line)
        if self._rounds and line["round"] >= self._rounds:
            self._rounds = 0
            os.kill(self._worker(), self._by)

    def _worker(self):
        """The process that holds the lock of the run."""
        for process in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
            with contextlib.suppress(OSError):  # one that ends just now
                held = [os.readlink(link) for link in Path(f"/proc/{process}/fd").iterdir()]
                if process != os.getpid() and any(
                    name.endswith(f"-{self._cell.config.hash}/.lock") for name in held
                ):
                    return process
        raise AssertionError("nobody is at it")
