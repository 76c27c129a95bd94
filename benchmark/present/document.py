"""Documents that people write, with parts that are generated: what stands between two lines of one name.

The lines are ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``; parts follow each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pfl_benchmark.errors import UserError
from pfl_benchmark.records.files import read_bytes, write_text

_LINE = re.compile(
    r"^[ \t\ufeff]*<!--[ \t]*(?P<name>[^:\n]+?)[ \t]*:[ \t]*(?P<kind>begin|end)[ \t]*-->[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)


def lines_of(name: str) -> str:
    """The lines between which the part called `name` belongs, in words."""
    return f"'<!-- {name}: begin -->' and '<!-- {name}: end -->'"


class Document:
    """A document on disk, as it was when this object was made.

    Attributes:
        parts: the names of its parts, in small letters, and where each begins and ends in the text.

    Raises:
        UserError: it cannot be read, or its lines are not in pairs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = read_bytes(path).decode()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"cannot read {path}: {reason}; give a text file that you may read") from error
        self._break = "\r\n" if "\r\n" in text else "\n"
        self._text = text.replace("\r\n", "\n")
        self.parts: dict[str, tuple[int, int]] = {}
        self._find_parts()

    def _find_parts(self) -> None:
        name, start = "", 0
        for line in _LINE.finditer(self._text):
            found, begins = line["name"].lower(), line["kind"].lower() == "begin"
            if begins == bool(name) or (not begins and found != name):
                raise UserError(
                    f"{self.path}: '{line[0].strip()}' stands "
                    + (f"inside the part '{name}'" if name else "behind no line that begins it")
                    + f"; expected the lines {lines_of(name or found)} around every part"
                )
            if begins and found in self.parts:
                raise UserError(f"{self.path}: the part '{found}' stands there twice; keep one of them")
            if begins:
                name, start = found, line.end()
            else:
                self.parts[name], name = (start, line.start()), ""
        if name:
            raise UserError(
                f"{self.path}: the part '{name}' does not end; it needs the lines {lines_of(name)}"
            )

    def text(self, name: str) -> str:
        """The text of the part of that name.

        Raises:
            UserError: there is none.
        """
        if name not in self.parts:
            raise UserError(f"{self.path} needs the lines {lines_of(name)}, once each and in this order")
        return self._text[slice(*self.parts[name])]

    def with_parts(self, new: Mapping[str, str]) -> str:
        """The text with these parts in the place of what was there."""
        text = self._text
        for name in sorted(new, key=lambda name: self.parts[name], reverse=True):  # so that places hold
            start, end = self.parts[name]
            text = f"{text[:start]}\n\n{new[name].strip()}\n\n{text[end:]}"
        return text

    def save(self, new: Mapping[str, str]) -> None:
        """Renew parts on disk; links and ways to end lines stay what they are.

        Raises:
            UserError: it cannot be written.
        """
        write_text(self.path.resolve(), self.with_parts(new).replace("\n", self._break))
