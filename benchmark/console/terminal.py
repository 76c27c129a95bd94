"""How figures and paths are shown to people."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import rich.console
from rich.console import JustifyMethod
from rich.padding import Padding
from rich.table import Table

from pfl_benchmark.errors import printable
from pfl_benchmark.installation import with_program

_PLAIN_WIDTH = 110  # columns of output that goes to a file or pipe


class Console(rich.console.Console):
    """Rich output in which nothing is coloured by guesswork.

    Into a file or pipe it writes plain text of a fixed width.
    """

    def __init__(self, stderr: bool = False) -> None:
        self._interactive = is_interactive(sys.stderr if stderr else sys.stdout)
        super().__init__(
            stderr=stderr,
            highlight=False,
            markup=False,
            emoji=False,
            force_terminal=self._interactive,
            width=None if self._interactive else _PLAIN_WIDTH,
        )


def show(*parts: rich.console.RenderableType) -> None:
    """Print to standard output, without the spaces that fill up the lines of a table."""
    console = Console()
    with console.capture() as text:
        for part in parts:
            console.print(part)
    print("\n".join(line.rstrip() for line in text.get().splitlines()))


def open_table(gap: int = 2) -> Table:
    """A table without lines, `gap` spaces between its columns."""
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")


def columns(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    words: Collection[int] = (0,),
    wrapped: Collection[int] = (),
    gap: int = 2,
    indent: int = 2,
) -> Padding:
    """A table of texts without lines, figures to the right.

    Columns with numbers among `words` stand to the left; those among `wrapped` may take several lines.
    """
    table = open_table(gap)
    for number, head in enumerate(heads):
        justify: JustifyMethod = "left" if number in words else "right"
        table.add_column(head, justify=justify, overflow="fold", no_wrap=number not in wrapped)
    for row in rows:
        table.add_row(*row)
    return Padding(table, (0, 0, 0, indent))


def say(text: str) -> None:
    """Print to the error stream, which leaves the output to results."""
    print(printable(with_program(text)), file=sys.stderr, flush=True)


def say_left_out(lines: Iterable[str]) -> None:
    """Say what of the given folders is not used, and why: before anything is made of the rest."""
    for line in lines:
        say(f"left out: {line}")


def is_interactive(stream: object) -> bool:
    """Say whether a person watches `stream` on a terminal that can move its cursor."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty()) and os.environ.get("TERM", "") not in ("", "dumb")


def in_notebook() -> bool:
    """Say whether rich can show a bar in a notebook, for which it needs ipywidgets."""
    return rich.console.Console().is_jupyter and importlib.util.find_spec("ipywidgets") is not None


def shown_path(path: str | Path) -> str:
    """`path`, relative where it lies below the current folder."""
    path = Path(path)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def percent(share: float) -> str:
    """``81.25 %`` for 0.8125."""
    return f"{100 * share:.2f} %"


def duration(seconds: float) -> str:
    """``4.2 s``, ``3:20`` (minutes) or ``2:03:20`` (hours)."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
