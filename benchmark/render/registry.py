"""The formats in which tables are written to files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pfl_benchmark.render.table import Table


@dataclass(frozen=True)
class Format:
    """A format of files.

    Attributes:
        title: its name in words.
        write: makes the text of a file.
    """

    title: str
    write: Callable[[Table], str]


FORMATS: dict[str, Format] = {}  # by the ending of file names


def register(ending: str, title: str) -> Callable[[Callable[[Table], str]], Callable[[Table], str]]:
    """Function decorator: write every table also with this function, into a file of this ending.

    Raises:
        ValueError: the ending is taken.
    """

    def enter(write: Callable[[Table], str]) -> Callable[[Table], str]:
        if ending in FORMATS:
            raise ValueError(f"two formats write files that end in .{ending}")
        FORMATS[ending] = Format(title, write)
        return write

    return enter
