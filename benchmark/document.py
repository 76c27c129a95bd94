"""Parts of a document that are generated: what stands between two marks of one name."""

from __future__ import annotations

import re
from pathlib import Path

from benchmark.engine.files import write_text
from benchmark.errors import UserError

__all__ = ["marks", "parts", "read", "renew", "with_part"]


def marks(text: str, name: str) -> tuple[str, str]:
    """The lines between which the part called `name` belongs.

    Raises:
        UserError: the document has no such lines.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise UserError(f"the document needs the lines '{begin}' and '{end}', once each and in this order")
    return begin, end


def parts(text: str) -> list[str]:
    """The names of the parts that a document has marks for, in its order."""
    return re.findall(r"^<!-- (.+): begin -->$", text, re.M)


def with_part(text: str, name: str, part: str) -> str:
    """`text` with `part` between the marks of that name, in the place of what was there."""
    begin, end = marks(text, name)
    return f"{text[: text.index(begin)]}{begin}\n\n{part.strip()}\n\n{text[text.index(end) :]}"


def read(document: Path) -> str:
    """The text of a document.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return document.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {document}: {error}") from error


def renew(document: Path, name: str, part: str) -> None:
    """Put `part` between the marks of that name in a document on disk."""
    write_text(document, with_part(read(document), name, part))
