"""Standard output and error of commands: what cannot be seen is escaped, and closed ones are no fault."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from pfl_benchmark.errors import HIDDEN, printable

# On a terminal rich colours text, moves the cursor over its bars and hides it.
_OF_RICH = re.compile(rf"(\x1b\[[0-9;]*m|\x1b\[\??[0-9]*[ABGKhl]|\r)|[{HIDDEN}]")


class _Seen:
    """A stream that writes `printable` text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._coloured = stream.isatty()

    def write(self, text: str) -> int:
        if self._coloured:
            return self._stream.write(_OF_RICH.sub(lambda found: found[1] or printable(found[0]), text))
        return self._stream.write(printable(text))

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class OutputError(Exception):
    """Standard output takes no more; `str` has the reason."""


class _Full(_Seen):
    """Standard output, whose errors are not taken for those of files."""

    def write(self, text: str) -> int:
        with _told():
            return super().write(text)

    def flush(self) -> None:
        with _told():
            super().flush()


class _Quiet(_Seen):
    """Standard error: nobody can be told that it takes no more."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.strerror or str(error)) from error


@contextlib.contextmanager
def checked_streams() -> Iterator[None]:
    """Standard output and error of a command.

    Closed ones (``>&-``) are as good as /dev/null. Otherwise the next file to be opened would take their
    place, and get what libraries print.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        out, err = before[0] or nowhere, before[1] or nowhere
        for stream in (out, err):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal that has no λ shows a ?
        sys.stdout, sys.stderr = _Full(out), _Quiet(err)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
