"""Hyper-parameters chosen by Optuna on the validation split; every trial is an ordinary run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pfl_benchmark.algorithms import find
from pfl_benchmark.config.fields import as_typed
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.hyper import Between, Space, spaces
from pfl_benchmark.engine.rounds import Diverged
from pfl_benchmark.errors import UserError, optional
from pfl_benchmark.records.files import read_json
from pfl_benchmark.records.store import Store
from pfl_benchmark.resolve.code import outdated
from pfl_benchmark.resolve.run import Run, resolve

RATE = "lr"  # is searched in every method,
_FACTOR = 10.0  # from a tenth of its value in the setting to ten times that
_DIGITS = 3  # of a real value that is tried
_PATIENCE = 20  # suggestions in a row that are no new configuration, after which the space counts as searched


@dataclass(frozen=True)
class Trial:
    """One configuration that was tried."""

    config: RunConfig
    accuracy: float | None  # on the validation split; None where training diverged
    outdated: bool = False  # other code than this made it


def space_of(config: RunConfig, fixed: set[str]) -> dict[str, Space]:
    """What is searched: what the method declares (`engine.hyper.option`) and the learning rate.

    All but what is `fixed`; UserError where nothing is left. The rate's interval is around that of `config`.
    """
    rate = Between(config.lr / _FACTOR, config.lr * _FACTOR)
    every = {RATE: rate, **spaces(find(config.algo).Hyper)}
    if left := {name: space for name, space in every.items() if name not in fixed}:
        return left
    raise UserError(
        f"'{config.algo}' has nothing left to tune besides what was given ({', '.join(sorted(fixed))}); "
        "give less with --lr and --set"
    )


def search(
    run: Run,
    given: Mapping[str, str],
    ablation: str | None,
    space: Mapping[str, Space],
    trials: int,
    evaluate: Callable[[Run], float],
) -> Iterator[Trial]:
    """Try so many different configurations, the first one with the defaults.

    What is tried depends on the seed and on the accuracies so far only: the same search again finds the runs
    of its first trials finished, and goes on.

    Args:
        run: the first trial, with its validation split.
        given: hyper-parameters that are fixed, as typed.
        evaluate: carries out a run and returns its accuracy.
    """
    optuna, config = optional("optuna", "tune"), run.config
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=config.seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    start = {RATE: config.lr, **config.hyper}
    # Optuna knows a choice by its text.
    first = {n: start[n] if isinstance(part, Between) else as_typed(start[n]) for n, part in space.items()}
    study.enqueue_trial(first)
    tried: dict[str, float] = {}
    idle = 0
    while len(tried) < trials and idle < _PATIENCE:
        trial = study.ask()
        values = {name: _suggested(trial, name, part, start[name]) for name, part in space.items()}
        one = _configured(config, given, ablation, values)
        if one is None:  # values that do not go together
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            idle += 1
            continue
        key = one.config.hash
        if key in tried:
            study.tell(trial, tried[key])
            idle += 1
            continue
        idle, accuracy = 0, None
        with contextlib.suppress(Diverged):  # counts as a trial, and as the worst there can be
            accuracy = evaluate(one)
        tried[key] = accuracy or 0.0
        study.tell(trial, tried[key])
        yield Trial(one.config, accuracy)


def _configured(
    config: RunConfig, given: Mapping[str, str], ablation: str | None, values: Mapping[str, str]
) -> Run | None:
    """A run with these values; None where the method refuses them together."""
    hyper = {name: text for name, text in values.items() if name != RATE}
    rate = float(values[RATE]) if RATE in values else config.lr
    try:
        return resolve(dataclasses.replace(config, lr=rate, hyper={**given, **hyper}), ablation=ablation)
    except UserError:
        return None


def _suggested(trial: Any, name: str, space: Space, default: Any) -> str:
    """What Optuna suggests, as typed."""
    if not isinstance(space, Between):
        return str(trial.suggest_categorical(name, [as_typed(value) for value in space]))
    if isinstance(default, int):
        return str(trial.suggest_int(name, int(space.low), int(space.high), log=space.log))
    return f"{trial.suggest_float(name, space.low, space.high, log=space.log):.{_DIGITS}g}"


def earlier(root: Path, config: RunConfig, space: Container[str]) -> dict[str, Trial]:
    """Trials in a results folder, by hash: runs that differ from `config` only in what is searched.

    Those that diverged are among them, as far as their configuration can be read.
    """
    found = [
        Trial(record.config, record.summary["accuracy"], outdated(record.config, record.summary))
        for record in Store.scan(root).records()
        if _fixed(record.config, space) == _fixed(config, space)
    ]
    for path in sorted(root.glob("*/failed.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, UserError):
            failed = RunConfig.from_dict(read_json(path.with_name("config.json"))["config"])
            if not path.with_name("done").exists() and _fixed(failed, space) == _fixed(config, space):
                found.append(Trial(failed, None))
    return {trial.config.hash: trial for trial in found}


def _fixed(config: RunConfig, space: Container[str]) -> str:
    """All of a run but what is searched."""
    hyper = {name: value for name, value in config.hyper.items() if name not in space}
    rate = 1.0 if RATE in space else config.lr
    return dataclasses.replace(config, lr=rate, hyper=hyper, tuning_trials=0).identity
