"""The one exception for mistakes that the person at the keyboard can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["NotDefined", "UserError", "nearest", "unknown"]


class UserError(Exception):
    """Bad input: one line that says what was wrong, what was expected and what to do.

    The command line prints it without a traceback and exits with code 2.
    """


class NotDefined(UserError):
    """A method was asked for on data that it is not defined for; studies leave such cells out."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the known name nearest to `word`, else an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not among the known ones, with the nearest and all of them."""
    known = list(known)
    return UserError(f"unknown {kind} '{name}'{nearest(name, known)}; known: {', '.join(known)}")
