"""The pages of the site as Markdown, before MkDocs makes HTML of them.

A page is a file of docs/site/, or is made from a registry. The line ``<!-- include FILE -->`` in a page is
replaced by a file of the checkout, ``<!-- include FILE # SECTION -->`` by a section of it without heading,
and with ``: code 1`` behind that by the first block of code of the section. A line that begins with
``In the checkout:`` is for those who read the file itself, and left out. Links are changed to the pages
that hold their targets. So everything is written in one place.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path

from . import registries

__all__ = ["ROOT", "Site", "anchors_of", "headings", "links_of", "make", "slug"]

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "docs" / "site"

_INCLUDE = re.compile(r"^<!-- include ([^#>]+?)(?: # (.+?))?(?: : code (\d+))? -->$")
_CHECKOUT = "In the checkout: "
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^(#{1,6}) (.+?)(?: \{ ?#([\w-]+) ?\})?$")
_FENCE = re.compile(r"^\s*(```|~~~)")


@dataclass
class Site:
    """What MkDocs is given.

    pages: Markdown by path, such as ``methods/fedper.md``.
    assets: files of the checkout that pages show, by path.
    """

    pages: dict[str, str] = field(default_factory=dict)
    assets: dict[str, Path] = field(default_factory=dict)


def slug(heading: str) -> str:
    """The anchor of a heading, as Markdown's toc extension makes it."""
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\s-]", "", text.encode("ascii", "ignore").decode().strip().lower())
    return re.sub(r"[-\s]+", "-", text)


def headings(text: str) -> list[tuple[int, int, str, str]]:
    """Line, level, text and anchor of every heading outside of code."""
    found, fenced = [], False
    for number, line in enumerate(text.split("\n")):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (match := _HEADING.match(line)):
            found.append((number, len(match[1]), match[2], match[3] or slug(match[2])))
    return found


def anchors_of(text: str) -> set[str]:
    """All anchors of a page; those that occur twice get a number, as by Markdown's toc extension."""
    anchors: set[str] = set()
    for *_, name in headings(text):
        unique, count = name, 0
        while unique in anchors:
            count += 1
            unique = f"{name}_{count}"
        anchors.add(unique)
    return anchors | set(re.findall(r'id="([\w-]+)"', text))


def links_of(text: str) -> list[str]:
    """The targets of all links and pictures outside of code."""
    return [match[3] for line in _prose(text) for match in _LINK.finditer(line)]


def _prose(text: str) -> list[str]:
    lines, fenced = [], False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            lines.append(re.sub(r"`[^`]*`", "", line))
    return lines


def make() -> Site:
    """All pages."""
    raw = {
        path.relative_to(SOURCE).as_posix(): _absolute(
            path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        )
        for path in SOURCE.rglob("*.md")
    }
    for name in registries.DOCUMENTS:
        if (ROOT / name).exists():
            raw[registries.DOCUMENTS[name]] = f"<!-- include {name} -->\n"
    raw |= registries.pages(ROOT)
    places: dict[tuple[str, str], tuple[str, str]] = {}  # (file, anchor) of the checkout: (page, anchor)
    pages = {path: _expand(path, text, places) for path, text in sorted(raw.items())}
    site = Site()
    for path, text in pages.items():
        site.pages[path] = _resolve(path, text, places, site.assets)
    return site


def _expand(path: str, text: str, places: dict[tuple[str, str], tuple[str, str]]) -> str:
    """Put in what is included, and note where its headings have come to stand."""
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith(_CHECKOUT):
            continue
        match = _INCLUDE.match(line)
        if not match:
            lines.append(line)
            continue
        file, section = match[1], match[2]
        found, start = _section((ROOT / file).read_text(encoding="utf-8"), section, file)
        if match[3]:  # one of its blocks of code alone
            lines.append(re.findall(r"(?ms)^```.*?^```$", found)[int(match[3]) - 1])
            continue
        for *_, anchor in headings(found):
            places.setdefault((file, anchor), (path, anchor))
        if section:
            places[file, slug(section)] = (path, "")
        else:
            places[file, ""] = (path, "")
        lines.append(_absolute(_shifted(found, start), file))
    return "\n".join(lines)


def _section(text: str, name: str | None, file: str) -> tuple[str, int]:
    """A section without its heading, or all; and the level below which its headings stand."""
    if name is None:
        return text, 0
    lines, found = text.split("\n"), headings(text)
    for place, (number, level, title, _) in enumerate(found):
        if title == name:
            ends = [line for line, deep, *_ in found[place + 1 :] if deep <= level]
            return "\n".join(lines[number + 1 : ends[0] if ends else None]).strip("\n"), level - 1
    raise ValueError(f"{file} has no section '{name}'")


def _shifted(text: str, by: int) -> str:
    """Headings `by` levels higher."""
    lines = text.split("\n")
    for number, level, *_ in headings(text):
        lines[number] = "#" * max(1, level - by) + lines[number].lstrip("#")
    return "\n".join(lines)


def _absolute(text: str, file: str) -> str:
    """The links of a file as ``repo:PATH#anchor``, from the top of the checkout."""

    def replace(match: re.Match[str]) -> str:
        bang, words, target = match.groups()
        if re.match(r"[a-z]+:", target):
            return match[0]
        path, _, anchor = target.partition("#")
        whole = posixpath.normpath(posixpath.join(posixpath.dirname(file), path)) if path else file
        return f"{bang}[{words}](repo:{whole}{'#' * bool(anchor)}{anchor})"

    return _outside_code(text, lambda line: _LINK.sub(replace, line))


def _outside_code(text: str, change: registries.Change) -> str:
    lines, fenced = text.split("\n"), False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            lines[number] = change(line)
    return "\n".join(lines)


def _resolve(
    page: str, text: str, places: dict[tuple[str, str], tuple[str, str]], assets: dict[str, Path]
) -> str:
    """Make ``repo:`` links lead to pages; what has no page is named without a link."""
    folder = posixpath.dirname(page)

    def replace(match: re.Match[str]) -> str:
        bang, words, target = match.groups()
        if not target.startswith("repo:"):
            return match[0]
        file, _, anchor = target.removeprefix("repo:").partition("#")
        if bang:
            assets[f"assets/{file}"] = ROOT / file
            return f"![{words}]({posixpath.relpath(f'assets/{file}', folder or '.')})"
        if file.startswith("docs/site/"):
            found = (file.removeprefix("docs/site/"), anchor)
        else:
            found = places.get((file, anchor)) or places.get((file, "")) or registries.LANDING.get(file)
        if found is None:
            shown = words.strip("`")
            return f"`{shown}`" if shown in file else f"{words} (`{file}`)"
        place, anchor = found
        return f"[{words}]({posixpath.relpath(place, folder or '.')}{'#' * bool(anchor)}{anchor})"

    return _outside_code(text, lambda line: _LINK.sub(replace, line))
