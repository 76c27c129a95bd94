"""``tune``: hyper-parameters of a method, chosen on a validation split."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pfl_benchmark.config.fields import DATA_FIELDS, PROTOCOL_FIELDS, as_typed
from pfl_benchmark.config.flags import add_config_flags, add_data, add_flag, add_method, count, path
from pfl_benchmark.console.terminal import say, shown_path
from pfl_benchmark.errors import UserError, optional
from pfl_benchmark.experiment.flags import add_execution, execution_of

if TYPE_CHECKING:
    from pfl_benchmark.config.run_config import RunConfig
    from pfl_benchmark.experiment.tuning import Trial
    from pfl_benchmark.resolve.run import Run

HELP = "choose a method's hyper-parameters on a validation split (needs the package optuna)"
USAGE = "--algo METHOD --trials N [--setting NAME] [flags]"
EXAMPLES = """\
  python -m benchmark tune --algo ditto --trials 20 --dataset digits
  python -m benchmark tune --algo fedrep --trials 30 --setting cifar10-s5 --lr 0.01    all but the rate
  python -m benchmark tune --algo ppfe --trials 10 --set T=4 --results-dir results/tune

Searched are the learning rate, from a tenth to ten times the setting's, and what the method declares; what
--lr and --set give is fixed. The first trial has the defaults; Optuna (TPE) suggests the others. A fifth of
each client's training samples (--validation) is kept out of training and evaluated; test data are not looked
at. Trials are ordinary records. The same command continues; a larger --trials adds to what is there. All
finished trials of the folder count, whatever command made them. The end is the command of the run that is
evaluated on test data; its --tuning-trials puts the number of trials on record and into tables."""

_FOLDER = Path("results/tune")
_VALIDATION = 0.2
_SHOWN = 5  # trials in the table at the end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    method = parser.add_argument_group("method")
    add_method(method, None, "required; `python -m benchmark list methods` names them")
    text = "configurations to try, the default one included (default: 20)"
    add_flag(method, "--trials N", text, count, default=20)
    add_data(parser, DATA_FIELDS)
    protocol = [name for name in PROTOCOL_FIELDS if name != "tuning_trials"]
    add_config_flags(parser.add_argument_group("protocol"), protocol)
    add_execution(parser.add_argument_group("execution"))
    output = parser.add_argument_group("output")
    text = f"folder of the trials (default: {_FOLDER})"
    add_flag(output, "--results-dir DIR", text, path, default=_FOLDER)
    add_flag(output, "--json", "print one JSON object instead of a table")


def execute(arguments: argparse.Namespace) -> None:
    """Search, then print the best trials and the command of the run with the best.

    Raises:
        UserError: bad input, optuna is not installed, or all trials diverged.
    """
    from pfl_benchmark.resolve.run import configure, parse_assignments

    if arguments.validation is None:
        arguments.validation = _VALIDATION
    elif not arguments.validation:
        raise UserError(
            "--validation is 0, but trials are compared on a validation split; give a share above 0"
        )
    _, run = configure(arguments)
    config = run.config

    from pfl_benchmark.engine.rounds import Diverged
    from pfl_benchmark.experiment.progress import RunProgress
    from pfl_benchmark.experiment.runner import run_cell
    from pfl_benchmark.experiment.tuning import RATE, earlier, search, space_of
    from pfl_benchmark.present.page.command import command
    from pfl_benchmark.records.writer import open_store

    optional("optuna", "tune")
    known = [spec.name for spec in dataclasses.fields(run.method.Hyper)]
    fixed = parse_assignments(arguments.set, config.algo, known)
    space = space_of(config, {*fixed, *([RATE] if arguments.lr is not None else [])})
    execution = execution_of(arguments)
    execution.pick_device()
    wanted = arguments.trials
    found = earlier(open_store(execution.results_dir), config, space)
    here: list[Trial] = []
    if old := sum(trial.outdated for trial in found.values()):
        say(
            f"note: {old} of {len(found)} earlier trials were computed by other code; remove their folders "
            f"in {shown_path(execution.results_dir)} to make them again"
        )

    def evaluate(one: Run) -> float:
        if (known := found.get(one.config.hash)) and known.accuracy is None:
            raise Diverged("before")
        headline = f"trial {len(here) + 1}/{wanted}: {_in_words(one.config, space)}"
        with RunProgress(headline, headline, resumes=True) as progress:
            return float(run_cell(one, execution, progress)["accuracy"])

    for trial in search(run, fixed, arguments.ablation, space, wanted, evaluate):
        here.append(trial)
        figure = "diverged" if trial.accuracy is None else f"accuracy {100 * trial.accuracy:.2f} %"
        say(f"trial {len(here)}/{wanted}: {figure}, {_in_words(trial.config, space)}")
    if len(here) < wanted:
        say(f"no more than {len(here)} different configurations were found to try")
    found |= {trial.config.hash: trial for trial in here}
    # The best first; of equal ones in the order of their configurations.
    done = [trial for trial in found.values() if trial.accuracy is not None]
    best = sorted(done, key=lambda trial: (-(trial.accuracy or 0), trial.config.identity))
    if not best:
        raise UserError(f"all {len(found)} trials diverged; give a smaller --lr, around which it is searched")
    final = dataclasses.replace(best[0].config, validation=0.0, tuning_trials=len(found))
    if arguments.json:
        ranked = [_plain(trial) for trial in best]
        print(json.dumps({"trials": len(found), "command": command(final), "ranked": ranked}))
        return
    print(f"{len(found)} trials of {config.algo}, the best on the validation split:")
    for trial in best[:_SHOWN]:
        print(f"  {100 * (trial.accuracy or 0):.2f} %   {_in_words(trial.config, space)}")
    print(f"on test data:\n  {command(final)}")


def _in_words(config: RunConfig, space: Iterable[str]) -> str:
    values = {"lr": config.lr, **config.hyper}
    return ", ".join(f"{name} {as_typed(values[name])}" for name in space if name in values)


def _plain(trial: Trial) -> dict[str, Any]:
    config = trial.config
    return {"accuracy": trial.accuracy, "lr": config.lr, "hyper": dict(config.hyper), "config": config.hash}
