"""The one exception for mistakes that the person at the keyboard can mend, and its usual words."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable
from typing import Any

from pfl_benchmark.installation import with_program


class UserError(Exception):
    """Bad input: one line that says what was wrong, what was expected and what to do.

    The command line prints it without a traceback and exits with code 2.
    """

    def __str__(self) -> str:
        return with_program(super().__str__())


class NotDefined(UserError):
    """A method was asked for on data that it is not defined for; studies leave such runs out."""


def check_name(kind: str, name: object) -> None:
    """Refuse a name that cannot be typed as one word, or that would lead out of a results folder.

    Args:
        kind: what is called so, for the message.

    Raises:
        ValueError: another character, or another type than text.
    """
    if not (isinstance(name, str) and re.fullmatch(r"[^\W_][\w.+-]*", name)):
        raise ValueError(
            f"a {kind} is called {name!r:.60}; expected letters, digits, '-', '_' and '.', the first one a "
            "letter or a digit"
        )


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the known name nearest to `word`, else an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


def unknown(kind: str, name: str, known: Iterable[str], meant: str = "") -> UserError:
    """The error for a name that is not among the known ones, with the one `meant` (or nearest) and all."""
    known = list(known)
    guess = f" (did you mean '{meant}'?)" if meant else nearest(name, known)
    return UserError(f"unknown {kind} '{name}'{guess}; known: {', '.join(known)}")


def optional(name: str, what: str, instead: str = "", package: str = "") -> Any:
    """Import a package that only some uses need.

    Args:
        what: needs it.
        instead: what else can be done, to end the message.
        package: what it is called where it is installed from, if not by its name.

    Raises:
        UserError: it is not installed, or broken.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever an installation that does not fit together raises
        root = name.partition(".")[0]
        absent = isinstance(error, ModuleNotFoundError) and (error.name or name).split(".")[0] == root
        why = "is not installed" if absent else f"cannot be imported ({error})"
        package = package or root.replace("_", "-")
        raise UserError(
            f"{what} needs the package {package}, which {why}: pip install {package}{instead}"
        ) from error


def flag(name: str) -> str:
    """The command-line flag of a field."""
    return "--" + name.replace("_", "-")


def is_plain(text: str) -> bool:
    """Whether a number is typed in plain digits: Python reads ``1_000`` and digits of other scripts, too."""
    return text.isascii() and "_" not in text


def check_range(name: str, value: float, within: str, where: str = "", such_as: Any = None) -> None:
    """Refuse a field's value outside of an interval.

    Args:
        within: such as ``"[0, 1)"`` or, with a limit that no use comes near to, ``"[1, 1e6]"``; one that ends
            at inf has all larger finite numbers.
        where: under which conditions, for the message.
        such_as: an example for the message.

    Raises:
        UserError: the value lies outside.
    """
    low, high = (float(end) for end in within[1:-1].split(","))
    above = low <= value if within[0] == "[" else low < value
    below = value <= high if within[-1] == "]" else value < high
    if above and below:
        return
    kind = "a whole number" if isinstance(value, int) else "a number"
    least = f"of at least {low:g}" if within[0] == "[" else f"above {low:g}"
    most = "" if high == float("inf") else f" and at most {f'{high:,.0f}' if high < 1e16 else f'{high:g}'}"
    place = f"in {within}" if high < 100 else least + most
    example = "" if such_as is None else f", such as {such_as}"
    shown = value if isinstance(value, int) else f"{value:g}"
    raise UserError(f"{flag(name)} is {shown}; expected {kind} {place}{where}{example}")
