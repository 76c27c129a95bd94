"""Hyper-parameters of methods: documented dataclass fields that ``--set key=value`` may change."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from pfl_benchmark.config.run_config import Recorded
from pfl_benchmark.errors import UserError, is_plain, nearest


@dataclass(frozen=True)
class Between:
    """An interval that `tune` searches, ends included.

    Attributes:
        log: whether factors count, not differences; `low` is above 0 then.
    """

    low: float
    high: float
    log: bool = True


Space = Between | tuple[Any, ...]
"""What `tune` tries of a hyper-parameter: an interval, or the values that it may have."""

_MOST, _MOST_REAL = 1e6, 1e30  # of whole numbers and of others: no use comes near, and float32 holds them
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def option(
    default: Any,
    doc: str,
    choices: tuple[str, ...] = (),
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    absent: Any = None,
    search: Space | None = None,
) -> Any:
    """A dataclass field with its one line of documentation.

    Args:
        choices: the only values allowed.
        least, below, most: numbers must be at least `least`, smaller than `below` and at most `most` (for
            tuples: every entry).
        absent: the value that records stand for which do not name the option: it came when the method had
            records already. None: there are none.
        search: what `tune` tries, the default among it; None: it is not searched.
    """
    rules = {"doc": doc, "choices": choices, "least": least, "below": below, "most": most}
    return dataclasses.field(default=default, metadata={**rules, "absent": absent, "search": search})


def spaces(hyper: type) -> dict[str, Space]:
    """What `tune` searches of a method's hyper-parameters, by name."""
    found = {spec.name: spec.metadata.get("search") for spec in dataclasses.fields(hyper)}
    return {name: space for name, space in found.items() if space is not None}


def recorded(hyper: Any) -> Recorded:
    """The values of a hyper-parameter object that belong to a run's identity.

    That is all of them, but not an option that came later and has the value of the runs before it: those stay
    the runs they were.
    """
    values = dataclasses.asdict(hyper)
    for spec in dataclasses.fields(hyper):
        absent = spec.metadata.get("absent")
        if absent is not None and values[spec.name] == absent:
            del values[spec.name]
    return Recorded(values)


def parse_hyper(hyper: type, given: Mapping[str, Any], owner: str) -> Any:
    """Build a hyper-parameter object from text, JSON or Python values.

    Args:
        hyper: the dataclass.
        given: values by name, as typed (``"0.5"``, ``"4,1"``), as read from JSON or as Python has them. Of
            options that are not named the default is meant, or, where they are of a record (`Recorded`), the
            ``absent`` value.
        owner: the method's name, for messages.

    Raises:
        UserError: unknown name, or a value of the wrong kind or outside its range.
    """
    fields = {spec.name: spec for spec in dataclasses.fields(hyper)}
    kinds = _kinds(hyper)
    values = {}
    if isinstance(given, Recorded):
        absent = {name: spec.metadata.get("absent") for name, spec in fields.items()}
        given = {**{name: value for name, value in absent.items() if value is not None}, **given}
    for name, value in given.items():
        if name not in fields:
            known = f"known: {', '.join(fields)}" if fields else "it has none"
            raise UserError(f"unknown hyper-parameter '{name}' of '{owner}'{nearest(name, fields)}; {known}")
        try:
            values[name] = _convert(value, kinds[name])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise UserError(
                f"{name}={value} does not fit '{owner}': expected {_describe(kinds[name])}, such as "
                f"{_typed(fields[name].default)}"
            ) from None
        _check(name, values[name], fields[name].metadata)
    return hyper(**values)


@cache
def _kinds(hyper: type) -> dict[str, Any]:
    return get_type_hints(hyper)


def _convert(value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        entry = get_args(kind)[0]
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, (tuple, list)):
            raise ValueError
        return tuple(_convert(part, entry) for part in parts if part != "")
    if kind is bool:
        return _BOOLEANS[str(value).lower()]
    if isinstance(value, bool) or (kind is int and isinstance(value, float)):
        raise ValueError
    if kind is not str and isinstance(value, str) and not is_plain(value):
        raise ValueError
    number = kind(value.strip() if isinstance(value, str) else value)
    if kind is float and not math.isfinite(number):
        raise ValueError
    return number


def _describe(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return f"{_describe(get_args(kind)[0]).split(maxsplit=1)[1]}s separated by commas"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}[kind]


def _typed(value: Any) -> str:
    return ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def _check(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    choices, least, below = rules.get("choices"), rules.get("least"), rules.get("below")
    if choices and value not in choices:
        raise UserError(
            f"{name}={value}: expected one of: {', '.join(choices)}{nearest(str(value), choices)}"
        )
    for entry in value if isinstance(value, tuple) else (value,):
        if least is not None and not entry >= least:
            raise UserError(f"{name}={_typed(value)}: expected at least {least:g}")
        if below is not None and not entry < below:
            raise UserError(f"{name}={_typed(value)}: expected less than {below:g}")
        limit = rules.get("most") or (_MOST if isinstance(entry, int) else _MOST_REAL)
        if isinstance(entry, (int, float)) and abs(entry) > limit:
            raise UserError(f"{name}={_typed(value)}: expected at most {limit:g}")
