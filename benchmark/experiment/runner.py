"""From a `RunConfig` to a finished record: wires data, network, method and engine together."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pfl_benchmark.config.resolve import Run, check_data, method_label, resolve
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine.algorithm import Algorithm, Task
from pfl_benchmark.engine.batches import check_batches
from pfl_benchmark.engine.budget import plan_rounds
from pfl_benchmark.engine.config import RunConfig
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.kept import MODELS, PREDICTIONS, Kept
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.engine.records import RunRecord, open_store
from pfl_benchmark.engine.rounds import Observer, run
from pfl_benchmark.engine.schedule import Schedule
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.engine.trunks import TrunkStore
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.records.environment import environment
from pfl_benchmark.records.freshness import code_of, installed_plugins
from pfl_benchmark.records.record import read_record
from pfl_benchmark.records.same_data import data_of, refuse_other_data
from pfl_benchmark.records.store import finished_data
from pfl_benchmark.track.base import About, Followed

__all__ = ["Prepared", "finished_summary", "prepare", "record_of", "run_cell", "split_of"]


def split_of(config: RunConfig, dataset: datasets.Dataset) -> datasets.Split:
    """The split of a run: a function of the dataset, the configuration's split fields and the seed.

    Raises:
        UserError: the dataset cannot be divided so.
    """
    check_data(config)
    return config.law.split(dataset, Streams(config.seed).get("partition"))


@dataclass(frozen=True)
class Prepared:
    """Everything of a run but its rounds; `make` builds the method for a number of rounds."""

    resolved: Run
    dataset: datasets.Dataset
    split: datasets.Split
    task: Task
    executor_name: str

    @property
    def config(self) -> RunConfig:
        return self.resolved.config

    def make(self, rounds: int) -> Algorithm:
        return self.resolved.method(dataclasses.replace(self.task, rounds=rounds), self.resolved.hyper)


def prepare(resolved: Run, execution: Execution, dataset: datasets.Dataset | None = None) -> Prepared:
    """Load the data (unless given), deal them to the clients and make the executor of a run.

    Raises:
        UserError: the data are not here, cannot be dealt so, or make batches that the network cannot take.
    """
    config, network, device = resolved.config, resolved.network, execution.pick_device()
    if dataset is None:
        dataset = datasets.load(config.dataset, execution.data_dir, embedding=config.embedding)
    split = split_of(config, dataset)
    streams = Streams(config.seed)
    split = split.set_apart(new_clients(config, streams))
    if config.validation:
        dataset, split = datasets.hold_out(dataset, split, config.validation, streams.get("validation"))
    name = execution.pick_executor(device, network, resolved.method)
    data = FederatedData(dataset, split, device)
    executor = EXECUTORS[name](config, data, streams, strict=execution.executor != "auto")
    initial = network.init(streams.get("init"), device)
    schedule = Schedule(data.clients, config.participation, streams)
    task = Task(config, network, data, streams, schedule, config.rounds, initial, executor)
    prepared = Prepared(resolved, dataset, split, task, name)
    if config.eval_adapted and not prepared.make(config.rounds).adaptation():
        executor.close()
        raise UserError(
            f"--eval-adapted does nothing: '{config.algo}' does not fine-tune before it is evaluated; drop it"
        )
    if network.normalisation:
        phases, sample = prepared.make(config.rounds).phases(1), data.encode(data.stored()[0][:1])[0]
        try:
            check_batches(network, config.batch_size, split.train_sizes.tolist(), phases, sample)
        except UserError:
            executor.close()
            raise
    return prepared


def new_clients(config: RunConfig, streams: Streams) -> list[int]:
    """Who takes no part in training: drawn once for a seed, as the clients of the split are numbered."""
    drawn = streams.get("new-clients").permutation(config.clients)
    return sorted(drawn[: config.new_count].tolist())


def record_of(config: RunConfig, results_dir: Path) -> RunRecord:
    """The record of a run in a results folder, whether there is one or not."""
    return RunRecord(results_dir, config, method_label(config))


def finished_summary(record: RunRecord) -> dict[str, Any]:
    """The summary of a finished run, with the record's folder under ``record``.

    Raises:
        UserError: the record cannot be used.
    """
    return {**read_record(record.folder).summary, "record": str(record.folder)}


def _finished(record: RunRecord, execution: Execution) -> dict[str, Any]:
    """The summary of a finished run, which has to have kept what is asked for."""
    summary = finished_summary(record)
    wanted = {PREDICTIONS: execution.save_predictions, MODELS: execution.save_models}
    for name in (name for name, asked in wanted.items() if asked):
        if not (record.folder / name).is_file():
            raise UserError(
                f"the run {record.folder.name} is finished and has no {name}; remove its folder to run it "
                "again, or choose another --results-dir"
            )
    return summary


def run_cell(config: RunConfig, execution: Execution, observer: Observer) -> dict[str, Any]:
    """Run one configuration, or return the summary of its finished record.

    Returns:
        The summary, with the record's folder under ``record``, and under ``warnings``, if there are any, what
        trackers had to say.

    Raises:
        UserError: bad input; nothing is left half-written.
    """
    resolved = resolve(config)
    config = resolved.config
    execution.pick_executor(execution.pick_device(), resolved.network, resolved.method)
    record = record_of(config, execution.results_dir)
    if record.done:
        open_store(execution.results_dir)
        return _finished(record, execution)
    kept = Kept(execution.save_predictions, execution.save_models)
    prepared = prepare(resolved, execution)
    try:
        plan = plan_rounds(config, prepared.make)
        about = {"split": _describe(prepared)}
        root = open_store(execution.results_dir)
        refuse_other_data(root, data_of(config, about["split"]), finished_data(root, config.dataset))
        record.acquire()
        try:
            if record.done:  # by another process, since we looked
                return _finished(record, execution)
            data = (prepared.split.checksum, prepared.dataset.checksum)
            record.begin(about)
            algorithm = prepared.make(plan.rounds)
            for note in algorithm.notes():
                print(note, file=sys.stderr)
            plugins = installed_plugins(config)
            surroundings = environment(prepared.task.data.device, prepared.executor_name, plugins)
            surroundings |= {"jobs": execution.side_by_side, "tf32": execution.tf32}
            surroundings |= {"code": code_of(config)}
            followed = About(config, method_label(config), record.folder, about["split"], surroundings)
            with precision(execution.tf32), Followed(observer, execution.trackings, followed) as follower:
                summary = run(
                    algorithm,
                    plan,
                    record,
                    TrunkStore(root, config, data, surroundings),
                    follower,
                    surroundings,
                    execution.checkpoint_seconds,
                    kept,
                )
        finally:
            record.release()
    finally:
        prepared.task.executor.close()
    warnings = {"warnings": follower.warnings} if follower.warnings else {}
    return {**summary, "record": str(record.folder), **warnings}


def _describe(prepared: Prepared) -> dict[str, Any]:
    split = prepared.split
    counts = (split.class_counts(prepared.dataset.train.y) > 0).sum(axis=1)
    drawn = new_clients(prepared.config, Streams(prepared.config.seed))
    # In the split and in clients.csv they come last, the others before them in their old order.
    new = {"new_clients": drawn} if drawn else {}
    return {
        **new,
        "checksum": split.checksum,
        "data_checksum": prepared.dataset.checksum,
        f"dataset_{prepared.dataset.unit}": [len(prepared.dataset.train), len(prepared.dataset.test)],
        "train_samples": [int(min(split.train_sizes)), int(max(split.train_sizes))],
        "test_samples": [int(min(split.test_sizes)), int(max(split.test_sizes))],
        "classes_per_client": [int(counts.min()), int(counts.max())],
        **split.facts,
    }
