"""The one exception for mistakes that the person at the keyboard can mend, and its usual words."""

from __future__ import annotations

import difflib
import errno
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


class Unlucky(UserError):
    """What was drawn does not do; other draws, by another seed, may."""


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


# Control characters but tab and line feed, what turns the direction of text or has no width, lone surrogates.
HIDDEN = (
    "\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSEEN = re.compile(f"[{HIDDEN}]")


def printable(text: object) -> str:
    r"""The text of something with all that cannot be seen in it as ``\x1b`` or ``\u202e``."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def why(error: OSError) -> str:
    """The reason of an error of the file system; what Unix calls ``File exists`` more plainly."""
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return "a file is where a folder is needed"
    return error.strerror or str(error)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the known name nearest to `word`, else an empty string.

    Capitals, hyphens and the like do not count.
    """
    plain = {re.sub(r"[\W_]", "", name).lower(): name for name in known}
    close = difflib.get_close_matches(re.sub(r"[\W_]", "", word).lower(), list(plain), n=1, cutoff=0.51)
    return f" (did you mean '{plain[close[0]]}'?)" if close else ""


def unknown(kind: str, name: str, known: Iterable[str], meant: str = "") -> UserError:
    """The error for a name that is not among the known ones, with the one `meant` (or nearest) and all."""
    known = list(known)
    if "," in name and all(part.strip() in known for part in name.split(",")):
        several = "give one, or, where several may be given, put spaces between them"
        return UserError(f"'{name}' is a list with commas; expected the name of one {kind}: {several}")
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
    if such_as is None and high == 1 < value <= 100:  # taken for percent
        such_as = f"{value / 100:g} for {value:g} %"
    example = "" if such_as is None else f", such as {such_as}"
    shown = value if isinstance(value, int) else f"{value:g}"
    raise UserError(f"{flag(name)} is {shown}; expected {kind} {place}{where}{example}")
