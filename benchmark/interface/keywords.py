"""Errors in the words of Python: keywords where the command line has flags."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.errors import UserError

_FIELDS = {spec.name: spec for spec in dataclasses.fields(RunConfig)}
_OTHERS = ("setting", "ablation", "columns", "results_dir", "data_dir", "device", "executor", "client_memory")
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:( | is |=)'?([\w.:/,+-]*\w)'?(?![\w=]))?")
_COLUMNS = re.compile(r"--columns ((?:,?\w+=[^,;\s]+)+)")
_SET = re.compile(r"--set (\w+)(?:=([\w.,-]*\w))?")


@contextlib.contextmanager
def in_keywords() -> Iterator[None]:
    """Let errors name the keywords of `run`, not the flags that are called alike."""
    try:
        yield
    except UserError as error:
        error.args = (_told(str(error)),)
        raise


def _told(text: str) -> str:
    """``lr=0.1``, ``augment=False`` and ``hyper={"lam": 0.5}`` instead of flags."""
    text = re.sub(r"\bflag(s?)\b", r"keyword\1", _SET.sub(_hyper, _COLUMNS.sub(_columns, text)))
    text = text.replace("image=img,label=fine_label", '{"image": "img", "label": "fine_label"}')
    return _FLAG.sub(_keyword, text)


def _columns(found: re.Match[str]) -> str:
    pairs = (pair.partition("=")[::2] for pair in found[1].split(","))
    return "columns={" + ", ".join(f'"{role}": "{name}"' for role, name in pairs) + "}"


def _hyper(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    if value is None:
        return f'hyper["{name}"]'
    words = {"true": "True", "false": "False"}
    shown = value if _is_number(value) else words.get(value, f'"{value}"')
    return f'hyper={{"{name}": {shown}}}'


def _keyword(found: re.Match[str]) -> str:
    name, between, value = found[1].replace("-", "_"), found[2] or "", found[3] or ""
    rest = found[0][len(found[1]) + 2 :]
    positive = name.removeprefix("no_")
    if positive in _FIELDS and isinstance(_FIELDS[positive].default, bool):
        return f"{positive}={positive == name}{rest}"
    if name not in (*_FIELDS, *_OTHERS):
        return found[0]
    if between == " " and _is_number(value):
        return f"{name}={value}"
    return f"{name}={value!r}" if between == " " and (value in _words() or ":" in value) else name + rest


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", text) is not None


def _words() -> set[str]:
    """Values that are words."""
    choices = {word for spec in _FIELDS.values() for word in spec.metadata.get("choices") or ()}
    return {*choices, *ALGORITHMS, *DATASETS, *SETTINGS, *EXECUTORS, "auto", "cpu", "cuda", "mps"}
