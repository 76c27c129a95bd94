"""What the entries of a grid of one's own mean: values read and checked, complaints with file and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pfl_benchmark.algorithms import called, find
from pfl_benchmark.config.fields import DATA_FIELDS, PROTOCOL_FIELDS, as_typed, in_one, meant
from pfl_benchmark.config.flags import read_field
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.hyper import parse_hyper
from pfl_benchmark.errors import UserError, nearest, unknown
from pfl_benchmark.resolve.run import owners
from pfl_benchmark.studies.grid import Variant
from pfl_benchmark.studies.grid_file import Entries, Entry
from pfl_benchmark.studies.profiles import PROFILES

FIELDS = tuple(
    name for name in (*DATA_FIELDS, *PROTOCOL_FIELDS) if name not in ("dataset", "seed", "tuning_trials")
)
KEYS = ("algo", "setting", "seeds", "title", "plugins", "profile", "select_on_validation")
TEXTS = ("title", "shows", "highlight", "reference", "axis")  # of a study
LISTS = ("tables", "figures", "on_request")
SWITCHES = ("settings_as_rows", "ranked")
_IN_FILES = ("include", "printed", "printed_file", *TEXTS, *LISTS, *SWITCHES)
_TABLES = ("vary", "rows", "columns", "lists")  # have entries below them, as sections by profile do
_INSTEAD = {
    "vary": "a list of values for each name, such as {lr: [0.01, 0.1]}",
    "seed": "the number of seeds, such as 'seeds: 3'",
    "dataset": "a setting with it, such as 'setting: digits-s2'",
}
_MOST = 100_000  # runs


@dataclass(frozen=True)
class Varied:
    """One thing that is varied.

    Attributes:
        method: the only one that has it; empty: all, it is a field of every run.
    """

    name: str
    values: tuple[Any, ...]
    where: str
    method: str = ""

    @property
    def is_axis(self) -> bool:
        """Whether a curve can be drawn over it."""
        return len(self.values) > 1 and all(type(value) in (int, float) for value in self.values)


@contextmanager
def at(entries: Entries, key: str) -> Iterator[None]:
    """Say with every complaint where in a file the entry stands."""
    try:
        yield
    except UserError as error:
        where = entries[key].where if key in entries else ""
        raise UserError(f"{where}{error}") from error


def refuse_unknown(entries: Entries) -> None:
    """UserError for a key that no grid has."""
    for key, entry in entries.items():
        if _is_known(key):
            continue
        if key in _INSTEAD:
            raise UserError(f"{entry.where}{key}: expected {_INSTEAD[key]}")
        first, _, below = key.partition(".")
        key = below.partition(".")[0] if first in PROFILES and below else first
        known = (*KEYS, *_IN_FILES, *_TABLES, *PROFILES, *FIELDS)
        guess = meant(key, known) or meant(key.removesuffix("s"), known)
        raise UserError(f"{entry.where}{unknown('entry', key, known, guess)}")


def _is_known(key: str) -> bool:
    first, _, below = key.partition(".")
    alone: tuple[str, ...] = (*KEYS, *_IN_FILES, *FIELDS)
    if first in PROFILES and below:
        first, _, below = below.partition(".")
        alone = ("algo", "setting", *FIELDS)
    return first in _TABLES if below else first in alone


def one(entries: Entries, key: str) -> str:
    """The only value of an entry; empty where there is no entry."""
    if key not in entries:
        return ""
    entry = entries[key]
    if len(entry.values) != 1 or (entry.listed and entry.where):
        more = f"; to compare several, write them below vary: {key}" if key in FIELDS else ""
        raise UserError(f"{entry.where}{key} is a list; expected one value{more}")
    return entry.values[0]


def several(entries: Entries, key: str, what: str) -> tuple[str, ...]:
    """The values of an entry that must be there, each once."""
    if key not in entries:
        raise UserError(f"--{key} is required (in a file: {key}): one or more {what}")
    entry = entries[key]
    with at(entries, key):
        if not entry.values or "" in entry.values:
            raise UserError(f"{key} is empty; expected {what}")
        _refuse_twice(key, entry.values)
    return entry.values


def _refuse_twice(key: str, values: Sequence[Any]) -> None:
    value, times = max(Counter(values).items(), key=lambda item: item[1])
    if times > 1:
        raise UserError(f"{key} has {as_typed(value)} twice; give each once")


def yes(entries: Entries, key: str) -> bool:
    """Whether an entry is there and true."""
    if key not in entries:
        return False
    text = one(entries, key)
    with at(entries, key):
        return boolean(key, text)


def boolean(name: str, text: str) -> bool:
    """A value that is typed as true, yes, false or no."""
    words = {"true": True, "yes": True, "false": False, "no": False}
    if text.lower() not in words:
        raise UserError(f"{name} is '{text:.40}'; expected true or false")
    return words[text.lower()]


def fixed_fields(entries: Entries) -> dict[str, Any]:
    """The fields of `RunConfig` that are the same in all runs."""
    found = {}
    for key in entries:
        if key in FIELDS:
            text = in_one(key, entries[key].values)
            text = text if isinstance(text, str) else one(entries, key)
            with at(entries, key):
                found[key] = field_value(key, text)
    return found


def field_value(name: str, text: str) -> Any:
    """The value of a field from its text."""
    if not text:
        raise UserError(f"{name} is empty; expected a value")
    return boolean(name, text) if isinstance(getattr(RunConfig, name), bool) else read_field(name, text)


def method_of(text: str) -> Variant:
    """A method, or with ``METHOD:ABLATION`` a variant of it."""
    name, colon, ablation = text.partition(":")
    method = find(name)
    if colon and ablation not in method.ablations:
        known = f"known: {', '.join(method.ablations)}" if method.ablations else "it has none"
        close = nearest(ablation, method.ablations)
        raise UserError(f"unknown ablation '{ablation}' of '{name}'{close}; {known}")
    return Variant(f"{method.title}, {ablation}" if colon else method.title, method.name, ablation or None)


def varied(entries: Entries, methods: Sequence[str], fixed: Mapping[str, Any]) -> list[Varied]:
    """What the entries below ``vary`` ask for, of methods as typed.

    Raises:
        UserError: no values, one twice, one of the wrong type; a name that no method of the grid has.
    """
    used = {called(text.partition(":")[0]) for text in methods}
    found = []
    for key, entry in entries.items():
        if not key.startswith("vary."):
            continue
        name = key.removeprefix("vary.")
        method, _, own = name.rpartition(".")
        try:
            if not entry.values or "" in entry.values:
                raise UserError(f"no values; expected some, such as {name}=0.01,0.1")
            each = _of_method(method, own, entry, used) if method else _of_all(name, entry, used, fixed)
        except UserError as error:
            raise UserError(f"{entry.where or '--'}vary {name}: {error}") from error
        with at(entries, key):
            _refuse_twice(name, each.values)
        found.append(each)
    return found


def _of_method(method: str, name: str, entry: Entry, used: Iterable[str]) -> Varied:
    if method in FIELDS:
        raise UserError(f"expected values of {method}, such as {{{method}: [0.01, 0.1]}}")
    kind, name = find(method), name.replace("-", "_")
    method = kind.name
    if method not in used:
        raise UserError(f"'{method}' is not in the grid; add it to the methods, or drop this")
    values = tuple(getattr(parse_hyper(kind.Hyper, {name: text}, method), name) for text in entry.values)
    return Varied(name, values, entry.where, method)


def _of_all(name: str, entry: Entry, used: Iterable[str], fixed: Mapping[str, Any]) -> Varied:
    name = name.replace("-", "_")
    if name not in FIELDS:
        if name in (*KEYS, *_INSTEAD):
            by = f"expected {_INSTEAD[name]}" if name in _INSTEAD else f"give --{name}"
            raise UserError(f"it is not varied; {by}")
        if having := owners(name):
            own = [each for each in having if each in used]
            use = f"write {own[0]}.{name}" if own else "none of them is in the grid"
            raise UserError(f"it is a hyper-parameter of {', '.join(own or having)}; {use}")
        raise unknown("field", name, FIELDS, meant(name, FIELDS))
    if name in fixed:
        raise UserError("it is also set for all runs; drop one of the two")
    return Varied(name, tuple(field_value(name, text) for text in entry.values), entry.where)


def refuse_many(places: int, found: Iterable[Varied]) -> None:
    """UserError for a grid of more runs than anybody means."""
    for each in found:
        places *= len(each.values)
    if places > _MOST:
        raise UserError(f"the grid has {places:,} runs; expected at most {_MOST:,}: vary less at a time")
