"""Standard output and error of commands: what cannot be seen is escaped, and closed ones are no fault."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

# Control characters but tab and line feed, what turns the direction of text or has no width, lone surrogates.
_HIDDEN = (
    "\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSEEN = re.compile(f"[{_HIDDEN}]")
# On a terminal rich colours text, moves the cursor over its bars and hides it.
_OF_RICH = re.compile(rf"(\x1b\[[0-9;]*m|\x1b\[\??[0-9]*[ABGKhl]|\r)|[{_HIDDEN}]")


def printable(text: str) -> str:
    r"""`text` with all that cannot be seen in it as ``\x1b`` or ``\u202e``."""
    return _UNSEEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class _Seen:
    """A stream that writes `printable` text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._coloured = stream.isatty()

    def write(self, text: str) -> int:
        if self._coloured:
            return self._stream.write(_OF_RICH.sub(lambda found: found[1] or _escaped(found), text))
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
