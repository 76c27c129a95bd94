"""From a `Run` to a finished record: wires data, network, method and engine together."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pfl_benchmark.config.fields import PROTOCOL_FIELDS, as_flag, changes, describe_split
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.console.terminal import say, shown_path
from pfl_benchmark.engine.algorithm import smaller
from pfl_benchmark.engine.budget import plan_rounds
from pfl_benchmark.engine.client_memory import ClientMemory
from pfl_benchmark.engine.exits import no_exit
from pfl_benchmark.engine.hooks import Hooks
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.engine.rounds import Observer, run
from pfl_benchmark.engine.shared_rounds import SharedRoundsStore
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.callbacks import Callbacks, Called
from pfl_benchmark.experiment.divided import divided, of_workers
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import Prepared, new_clients, prepare
from pfl_benchmark.experiment.progress import RunProgress
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.records.environment import environment
from pfl_benchmark.records.outputs import MODELS, PREDICTIONS, SavedOutputs
from pfl_benchmark.records.record import read_record
from pfl_benchmark.records.same_data import data_of, refuse_other_data
from pfl_benchmark.records.store import finished_data
from pfl_benchmark.records.writer import RunRecord, open_store
from pfl_benchmark.resolve.code import code_of, installed_plugins, outdated, replacement_note
from pfl_benchmark.resolve.run import Run
from pfl_benchmark.track.base import About, Followed


def record_of(run: Run, results_dir: Path) -> RunRecord:
    """The record of a run in a results folder, whether there is one or not."""
    return RunRecord(results_dir, run.config, run.label[:80])  # names of files have at most 255 bytes


def _finished(record: RunRecord, execution: Execution) -> dict[str, Any]:
    """The summary of a finished run, which has to have kept what is asked for."""
    summary = {**read_record(record.folder).summary, "record": str(record.folder)}
    wanted = {PREDICTIONS: execution.save_predictions, MODELS: execution.save_models}
    for name, asked in wanted.items():
        if asked and not (record.folder / name).is_file():
            raise UserError(
                f"the run {record.folder.name} is finished and has no {name}; remove its folder to run it "
                "again, or choose another --results-dir"
            )
    return summary


def run_cell(resolved: Run, execution: Execution, observer: Observer) -> dict[str, Any]:
    """Carry out one run, or read its finished record; after bad input (UserError) nothing is half-written.

    Returns the summary, with the record's folder under ``record``, and under ``warnings``, if there are any,
    what trackers had to say.
    """
    with no_exit(resolved.config.algo):
        return _run_cell(resolved, execution, observer)


def _run_cell(resolved: Run, execution: Execution, observer: Observer) -> dict[str, Any]:
    if not resolved.executor:
        resolved = resolved.placed(execution)
    config, record = resolved.config, record_of(resolved, execution.results_dir)
    if record.done:
        open_store(execution.results_dir)
        return _finished(record, execution)
    kept = SavedOutputs(execution.save_predictions, execution.save_models)
    prepared = divided(prepare(resolved, execution), execution)
    try:
        plan = plan_rounds(config, prepared.make)
        if prepared.split.turn > plan.rounds:
            raise UserError(
                f"--shift {config.shift}: the {config.budget} of this run allow {plan.rounds} rounds; "
                "expected a drift in one of them"
            )
        about = {"split": _describe(prepared)}
        about |= {"weights": dict(prepared.weights)} if prepared.weights else {}
        root = open_store(execution.results_dir)
        refuse_other_data(root, data_of(config, about["split"]), finished_data(root, config.dataset))
        record.acquire()
        try:
            if record.done:  # by another process, since we looked
                return _finished(record, execution)
            data = (prepared.split.checksum, prepared.unshifted.checksum)
            record.begin(about)
            memory = ClientMemory(record.folder, execution.pick_client_memory(prepared.task.data.device))
            with memory.used():
                algorithm = prepared.make(plan.rounds)
            notes = (prepared.note, *Hooks(algorithm).notes(), replacement_note())
            for note in filter(None, notes):
                print(note, file=sys.stderr)
            plugins = installed_plugins(config, resolved.plain)
            surroundings = environment(prepared.task.data.device, resolved.executor, plugins)
            surroundings |= of_workers(prepared)
            surroundings |= {"jobs": execution.side_by_side, "tf32": execution.tf32}
            surroundings |= {"code": code_of(config, resolved.plain)}
            followed = About(config, resolved.label, record.folder, about["split"], surroundings)
            with (
                precision(execution.tf32),
                memory.used(),
                Followed(observer, execution.trackings, followed) as follower,
            ):
                shared = SharedRoundsStore(root, config, data, surroundings)
                pause = execution.checkpoint_seconds
                summary = run(algorithm, plan, record, shared, follower, surroundings, pause, kept)
                follower.moved(record.folder, record.config)
        finally:
            record.release()
    finally:
        prepared.task.executor.close()
    warnings = {"warnings": follower.warnings} if follower.warnings else {}
    return {**summary, "record": str(record.folder), **warnings}


def run_judged(run: Run, execution: Execution, observer: Observer) -> dict[str, Any]:
    """`run_cell`, with one more of its warnings where training ended far above the loss of guessing."""
    summary = run_cell(run, execution, observer)
    record = read_record(Path(summary["record"]))
    if not record.diverged:
        return summary
    text = (
        f"training has probably diverged: its loss in the last round is {record.rounds[-1]['loss']:.3g}, "
        f"that of guessing {record.guessing:.2f}; try {' or '.join(smaller(run.method, run.hyper))}"
    )
    say(f"warning: {text}")
    return {**summary, "warnings": [*summary.get("warnings", ()), text]}


def _describe(prepared: Prepared) -> dict[str, Any]:
    split, data = prepared.split, prepared.unshifted
    counts = (split.class_counts(prepared.dataset.train.y) > 0).sum(axis=1)
    drawn = new_clients(prepared.config, Streams(prepared.config.seed))
    # In the split and in clients.csv they come last, the others before them in their old order.
    new = {"new_clients": drawn} if drawn else {}
    return {
        **new,
        "checksum": split.checksum,
        "data_checksum": data.checksum,
        f"dataset_{data.unit}": [len(data.train), len(data.test)],
        "train_samples": [int(min(split.train_sizes)), int(max(split.train_sizes))],
        "test_samples": [int(min(split.test_sizes)), int(max(split.test_sizes))],
        "classes_per_client": [int(counts.min()), int(counts.max())],
        **split.facts,
        **({"shifts": prepared.shifts} if prepared.shifts else {}),
    }


_OUTDATED = (
    "note: that record was computed by other code (its method, the engine, the network or what reads the "
    "data has been changed since); remove its folder to run it again, or see by `python -m benchmark verify` "
    "whether this code gives the same"
)


def run_single(
    setting: str,
    run: Run,
    execution: Execution,
    quiet: bool = False,
    callbacks: Callbacks = Callbacks(),  # noqa: B008  # it cannot be changed
) -> dict[str, Any]:
    """Carry out one run as `run_judged` does, and say on standard error how it is doing.

    The name of its setting is for people. If it is quiet, notes are printed all the same.
    """
    run = run.placed(execution)
    config, record = run.config, record_of(run, execution.results_dir)
    place = execution.device if "," in execution.device else run.device
    headline = (
        f"{run.label} on {_describe_setting(setting, config)} | {place}, executor {run.executor} | "
        f"record {shown_path(record.folder)}"
    )
    if record.done:
        summary = run_judged(run, execution, Quiet())
        if not quiet:
            say(f"{headline} | already finished, not run again")
        if outdated(config, summary, read_record(record.folder).verified):
            say(_OUTDATED)
        return summary
    if quiet:
        return run_judged(run, execution, Called(Quiet(), callbacks))
    resumes = (record.folder / "checkpoint.pt").exists()
    with RunProgress(headline, f"preparing {config.dataset}", resumes) as progress:
        return run_judged(run, execution, Called(progress, callbacks))


def _describe_setting(setting: str, config: RunConfig) -> str:
    changed = changes(setting, config, PROTOCOL_FIELDS)
    changed.pop("rounds", None)  # is told when they begin
    parts = [describe_split(config), *(as_flag(*item) for item in changed.items())]
    return f"{setting} ({', '.join(parts)}), seed {config.seed}"
