"""From a run's configuration back to the command line that repeats it."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any

from algorithms import find
from benchmark.config.fields import as_words, changes, nearest_setting
from benchmark.config.settings import SETTINGS
from benchmark.engine.config import RunConfig
from benchmark.engine.hyper import parse_hyper
from benchmark.errors import UserError

__all__ = ["command"]


def command(config: RunConfig) -> str:
    """``python -m benchmark --algo … --setting … --seed …`` of this very run.

    Empty where flags cannot say it: no setting has its dataset, a hyper-parameter is an empty list, or this
    code does not know the method any more, or not with these hyper-parameters.
    """
    setting = nearest_setting(config)
    if not setting:
        return ""
    words = ["python", "-m", "benchmark", "--algo", config.algo]
    try:
        ablation, hyper = _variant(config)
    except UserError:
        return ""
    words += ["--ablation", ablation] if ablation else []
    words += ["--setting", setting]
    for name, value in changes(setting, config).items():
        if name == "partition":
            continue
        words += as_words(name, value)
    if config.partition != SETTINGS[setting].values["partition"]:
        words += ["--partition", config.partition]
    for name, value in hyper.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        if not text:
            return ""
        words += ["--set", f"{name}={text}"]
    return shlex.join([*words, "--seed", str(config.seed)])


def _variant(config: RunConfig) -> tuple[str, dict[str, Any]]:
    """The ablation that needs the fewest further hyper-parameters (empty: none), and those."""
    return _variant_of(config.algo, json.dumps(config.hyper, sort_keys=True))


@cache  # hundreds of runs have a handful of variants
def _variant_of(algo: str, hyper: str) -> tuple[str, dict[str, Any]]:
    method = find(algo)

    def complete(given: Mapping[str, Any]) -> dict[str, Any]:
        return dataclasses.asdict(parse_hyper(method.Hyper, given, algo))

    own = complete(json.loads(hyper))  # tuples again, after JSON
    left = {
        name: {key: value for key, value in own.items() if value != base[key]}
        for name, base in (("", complete({})), *((n, complete(v)) for n, v in method.ablations.items()))
    }
    best = min(left, key=lambda name: len(left[name]))
    return best, left[best]
