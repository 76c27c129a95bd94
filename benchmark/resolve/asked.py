"""The run that the flags of a command ask for."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
from collections.abc import Iterable
from typing import get_type_hints

from pfl_benchmark.algorithms import ALGORITHMS, find
from pfl_benchmark.config.flags import config_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError, flag
from pfl_benchmark.resolve.run import Run, resolve

_KINDS = get_type_hints(RunConfig)


def configure(arguments: argparse.Namespace) -> tuple[str, Run]:
    """The setting's name and the run that the flags ask for; UserError where they do not fit."""
    if not arguments.algo:
        raise UserError(f"--algo is required; known methods: {', '.join(sorted(ALGORITHMS))}")
    method = find(arguments.algo)
    setting, config = config_of(arguments)
    known = [spec.name for spec in dataclasses.fields(method.Hyper)]
    given = parse_assignments(arguments.set, arguments.algo, known)
    config = dataclasses.replace(config, algo=arguments.algo, hyper=given)
    return setting, resolve(config, ablation=arguments.ablation)


def parse_assignments(pairs: Iterable[str], algo: str, known: Iterable[str]) -> dict[str, str]:
    """The hyper-parameters given as ``--set key=value``, of which the method has the `known` ones.

    Raises:
        UserError: no key=value, a key given twice or with a flag of its own, or a number that is not finite.
    """
    known = set(known)
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key, value = key.strip().replace("-", "_"), value.strip()
        if not (key and equals and value):
            raise UserError(f"--set {pair}: expected key=value, such as lam=0.5")
        if key not in known and key in _KINDS and key != "hyper":
            kept = f"{flag(key)} {value}"
            if _KINDS[key] is bool:
                kept = f"{flag(key)} or {flag('no_' + key)}"
            raise UserError(f"--set {pair}: {key} is no hyper-parameter of '{algo}'; use {kept}")
        for part in value.split(","):
            with contextlib.suppress(ValueError):  # words
                if not math.isfinite(float(part)):
                    raise UserError(f"--set {pair}: expected a finite number")
        if key in values:
            raise UserError(f"--set {key} is given twice, as {values[key]} and as {value}; give it once")
        values[key] = value
    return values
