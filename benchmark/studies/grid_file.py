"""Entries of a grid of one's own: from a YAML or TOML file, with the line of each for messages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pfl_benchmark.errors import UserError, optional

_MOST = 2**20  # bytes: no grid that anybody wrote is as long
_DEEP = 20  # brackets within each other
_KEY = re.compile(r"\"[^\"]*\"|'[^']*'|[\w-]+")
_BEGIN = re.compile(rf"\s*(\[?)\s*((?:{_KEY.pattern})(?:\s*\.\s*(?:{_KEY.pattern}))*)\s*[=\]]")


@dataclass(frozen=True)
class Entry:
    """What stands under a key, as typed: its values, and where, to begin messages (``grid.yaml, line 3: ``).

    Attributes:
        listed: as a list, or as several words.
        included: stands in a file that the file includes.
    """

    values: tuple[str, ...]
    where: str = ""
    listed: bool = True
    included: bool = False


Entries = dict[str, Entry]
"""Entries by key; those below another key are named with it: ``vary.lr``, ``vary.ditto.lam``."""


def listed(text: str, where: str = "") -> Entry:
    """An entry of values typed in one word, between commas; or semicolons, where values have commas."""
    parts = tuple(part.strip() for part in text.strip(";").split(";" if ";" in text else ","))
    return Entry(parts if text.strip() else (), where, len(parts) > 1)


def read_entries(path: Path) -> Entries:
    """The entries of a file.

    Raises:
        UserError: it cannot be read, or is no YAML or TOML; names the line.
    """
    found = _alone(path)
    for name in found["include"].values if "include" in found else ():
        other = _alone(path.parent / name)
        if "include" in other:
            raise UserError(f"{other['include'].where}an included file cannot include others")
        found = over(found, {key: replace(entry, included=True) for key, entry in other.items()})
    return found


def _alone(path: Path) -> Entries:
    """The entries of a file without those of files that it includes."""
    read = {".toml": _of_toml, ".yaml": _of_yaml, ".yml": _of_yaml}.get(path.suffix.lower())
    if read is None:
        raise UserError(f"{path}: expected a file whose name ends in .yaml, .yml or .toml")
    found = read(path, _text(path))
    if printed := found.get("printed_file"):  # seen from the file
        found["printed_file"] = replace(printed, values=tuple(str(path.parent / v) for v in printed.values))
    return found


def over(own: Entries, common: Entries) -> Entries:
    """Some entries and those of the common ones that they do not replace; a row or column as a whole."""

    def part(key: str) -> str:
        return key.rpartition(".")[0] if key.startswith(("rows.", "columns.")) else key

    replaced = {part(key) for key in own}
    return {**{key: entry for key, entry in common.items() if part(key) not in replaced}, **own}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST + 1)
        if len(content) > _MOST:
            raise UserError(f"{path} is larger than {_MOST:,} bytes; expected a file of a few lines")
        return content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UserError(f"{path} cannot be read: {reason}; expected a YAML or TOML file") from error


def _of_toml(path: Path, text: str) -> Entries:
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        where = f"{path}, line {line[1]}" if line else str(path)
        reason = str(error).removesuffix(line[0] if line else "")
        raise UserError(f"{where}: {reason[:1].lower()}{reason[1:]}; expected TOML") from error
    lines = _lines(text)
    return {key: _entry(value, f"{path}{_place(lines, key)}: ", key) for key, value in _flat(found)}


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def _lines(text: str) -> dict[str, int]:
    """Where keys stand: Python's reader of TOML does not tell."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if begin := _BEGIN.match(line):
            name = ".".join(part.strip("\"'") for part in _KEY.findall(begin[2]))
            if begin[1]:
                section = f"{name}."
            found.setdefault(name if begin[1] else section + name, number)
    return found


def _place(lines: Mapping[str, int], key: str) -> str:
    """The line of a key, or of what it stands below."""
    while key not in lines and "." in key:
        key = key.rpartition(".")[0]
    return f", line {lines[key]}" if key in lines else ""


def _entry(value: Any, where: str, key: str) -> Entry:
    values = value if isinstance(value, list) else [value]
    return Entry(tuple(_typed(each, where, key) for each in values), where, isinstance(value, list))


def _typed(value: Any, where: str, key: str) -> str:
    """A value as one would type it; a list within a list is a value with commas."""
    if isinstance(value, list):
        return ",".join(_typed(each, where, key) for each in value)
    if isinstance(value, dict) or value is None or value == "":
        raise UserError(f"{where}{key} has {'a mapping' if value else 'nothing'} for a value; give one")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_yaml(path: Path, text: str) -> Entries:
    yaml = optional("yaml", "a grid in YAML", ", or write the file as TOML", package="pyyaml")
    depth = 0
    for place, line in enumerate(text.splitlines(), start=1):
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise UserError(f"{path}, line {place}: begins with a tab; YAML is indented by spaces")
        depth += sum(line.count(sign) for sign in "[{") - sum(line.count(sign) for sign in "]}")
        if depth > _DEEP:  # which takes the reader minutes
            raise UserError(f"{path}, line {place}: {depth} brackets are open; expected lists of values")
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):  # a few of them can stand for millions of entries
                where = f"{path}, line {event.start_mark.line + 1}"
                raise UserError(f"{where}: *{event.anchor}; expected the value itself, no alias")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        reason = getattr(error, "problem", None) or getattr(error, "reason", "it is nested too deep")
        raise UserError(f"{where}: {reason}; expected YAML, such as 'algo: [fedper, ditto]'") from error
    found: Entries = {}
    if node is None:
        return found
    if node.id != "mapping":
        raise UserError(f"{path}, line 1: expected lines of the form 'key: value'")
    for key, value, number in _pairs(node, path):
        if key in found:
            raise UserError(f"{path}, line {number}: {key} is given twice; give it once")
        found[key] = _entry(value, f"{path}, line {number}: ", key)
    return found


def _pairs(node: Any, path: Path, above: str = "") -> Iterator[tuple[str, Any, int]]:
    """Keys, values as text and lists of it, and lines."""
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.id != "scalar" or key.value == "<<":
            raise UserError(f"{path}, line {line}: expected a word before the colon")
        name = above + key.value
        if value.id == "mapping":
            yield from _pairs(value, path, f"{name}.")
        else:
            yield name, _value(value), line


def _value(node: Any, depth: int = 0) -> Any:
    if node.id == "sequence" and depth < 3:
        return [_value(each, depth + 1) for each in node.value]
    if node.id != "scalar":
        return {"": ""}  # refused as a mapping
    return None if node.tag.endswith(":null") else node.value
