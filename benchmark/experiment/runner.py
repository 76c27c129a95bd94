"""From a `RunConfig` to a finished record: wires data, network, method and engine together."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import datasets
from algorithms import find
from benchmark.engine.algorithm import Algorithm, Task
from benchmark.engine.budget import plan_rounds
from benchmark.engine.config import RunConfig
from benchmark.engine.data import FederatedData
from benchmark.engine.executors import EXECUTORS, choose_executor
from benchmark.engine.hyper import parse_hyper, recorded
from benchmark.engine.network import network_of
from benchmark.engine.precision import precision
from benchmark.engine.records import RunRecord, open_store
from benchmark.engine.rounds import CHECKPOINT_SECONDS, Observer, run
from benchmark.engine.schedule import Schedule
from benchmark.engine.streams import Streams
from benchmark.engine.trunks import TrunkStore
from benchmark.errors import UserError, nearest, unknown
from benchmark.models import NETWORKS, Network
from benchmark.records.environment import environment
from benchmark.records.freshness import code_of
from benchmark.records.same_data import data_of, refuse_other_data
from benchmark.track import About, Followed, Tracking

__all__ = ["Execution", "Prepared", "check", "method_label", "prepare", "run_cell", "split_of", "with_hyper"]


@dataclass(frozen=True)
class Execution:
    """How and where a run is carried out; nothing here changes what it means."""

    device: str = "auto"
    executor: str = "auto"
    data_dir: Path | None = None
    results_dir: Path = Path("results/runs")
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    side_by_side: int = 1  # runs that share the machine; on record, since it tells in the seconds
    trackings: tuple[Tracking, ...] = ()
    tf32: bool = False  # see `benchmark.engine.precision`

    def pick_device(self) -> torch.device:
        """The device to use.

        Raises:
            UserError: CUDA asked for where there is none, or an unknown device.
        """
        name = self.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
        except RuntimeError:
            raise UserError(f"unknown device '{name}'; expected auto, cpu, cuda or cuda:N") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise UserError("--device cuda: PyTorch finds no CUDA GPU here; use --device cpu")
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise UserError(f"--device {name}: only {torch.cuda.device_count()} CUDA device(s) here")
        if device.type not in ("cpu", "cuda"):
            raise UserError(f"--device {name} is not supported; expected auto, cpu, cuda or cuda:N")
        return device

    def check_executor(self) -> None:
        """Refuse an unknown executor.

        Raises:
            UserError: names the known ones.
        """
        if self.executor not in ("auto", *EXECUTORS):
            known = ", ".join(["auto", *EXECUTORS])
            raise UserError(
                f"unknown executor '{self.executor}'{nearest(self.executor, EXECUTORS)}; known: {known}"
            )

    def pick_executor(self, device: torch.device, network: Network) -> str:
        """The name of the executor to use for a network.

        Raises:
            UserError: unknown executor, or one that cannot train this network.
        """
        self.check_executor()
        if self.executor == "auto":
            return choose_executor(device.type, network)
        problem = EXECUTORS[self.executor].unable(network)
        if problem:
            raise UserError(
                f"--executor {self.executor} cannot train this network: {problem}; use --executor auto"
            )
        return self.executor


def with_hyper(config: RunConfig, given: Mapping[str, Any], ablation: str | None = None) -> RunConfig:
    """Complete `config` with all hyper-parameters of its method.

    Args:
        given: the ones that are set, as typed.
        ablation: name of a variant of the method, whose values come first.

    Raises:
        UserError: unknown method, ablation or hyper-parameter, or values that do not fit.
    """
    method = find(config.algo)
    if ablation is not None and ablation not in method.ablations:
        raise UserError(_unknown_ablation(ablation, method))
    hyper = parse_hyper(method.Hyper, {**_variant(config, ablation), **given}, config.algo)
    return dataclasses.replace(config, hyper=recorded(hyper))


def _variant(config: RunConfig, ablation: str | None) -> Mapping[str, Any]:
    """What an ablation (None: the plain method) sets for the network of a configuration."""
    method = find(config.algo)
    values = {} if ablation is None else method.ablations[ablation]
    return method.fitted(network_of(config), values) if config.dataset in NETWORKS else values


def _unknown_ablation(name: str, method: type[Algorithm]) -> str:
    from algorithms import ALGORITHMS

    owners = [other.name for other in ALGORITHMS.values() if name in other.ablations]
    if owners:
        return f"ablation '{name}' belongs to {owners[0]}, not to '{method.name}'; use --algo {owners[0]}"
    if not method.ablations:
        return f"'{method.name}' has no ablations; drop --ablation {name}"
    known = ", ".join(method.ablations)
    return f"unknown ablation '{name}' of '{method.name}'{nearest(name, method.ablations)}; known: {known}"


def method_label(config: RunConfig) -> str:
    """Readable name of the method and its variant: ``ppfe``, ``ppfe-no-reduction``, ``ditto-lam=0.1``."""
    method = find(config.algo)

    def variant(ablation: str | None) -> dict[str, Any]:
        return dataclasses.asdict(parse_hyper(method.Hyper, _variant(config, ablation), config.algo))

    default = variant(None)
    own = dataclasses.asdict(parse_hyper(method.Hyper, config.hyper, config.algo))  # tuples again, after JSON
    changed = {name: value for name, value in own.items() if value != default[name]}
    for name in method.ablations:
        if {key: value for key, value in variant(name).items() if value != default[key]} == changed:
            return f"{config.algo}-{name}" if changed else config.algo
    parts = []
    for name, value in changed.items():
        text = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
        parts.append(f"{name}={text}")
    return "-".join([config.algo, *parts])[:80]


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

    config: RunConfig
    dataset: datasets.Dataset
    split: datasets.Split
    task: Task
    schedule: Schedule
    executor_name: str

    def make(self, rounds: int) -> Algorithm:
        method = find(self.config.algo)
        hyper = parse_hyper(method.Hyper, self.config.hyper, self.config.algo)
        return method(dataclasses.replace(self.task, rounds=rounds), hyper)


def prepare(config: RunConfig, execution: Execution, dataset: datasets.Dataset | None = None) -> Prepared:
    """Load the data (unless given), deal them to the clients and build the network and executor of a run."""
    device = execution.pick_device()
    if dataset is None:
        dataset = datasets.load(config.dataset, execution.data_dir, embedding=config.embedding)
    split = split_of(config, dataset)
    streams = Streams(config.seed)
    if config.validation:
        dataset, split = datasets.hold_out(dataset, split, config.validation, streams.get("validation"))
    network = network_of(config)
    name = execution.pick_executor(device, network)
    data = FederatedData(dataset, split, device)
    executor = EXECUTORS[name](config, data, streams, strict=execution.executor != "auto")
    initial = network.init(streams.get("init"), device)
    task = Task(config, network, data, streams, config.rounds, initial, executor)
    schedule = Schedule(config.clients, config.participation, streams)
    return Prepared(config, dataset, split, task, schedule, name)


def check_data(config: RunConfig) -> None:
    """Refuse what an image dataset cannot give, or a text dataset.

    Raises:
        UserError: one line that says what to mend.
    """
    name, text = config.dataset, datasets.DATASETS[config.dataset].text is not None
    config.law.check(name, users=text)
    if text and config.augment:
        raise UserError(f"--augment is for images, and '{name}' holds tweets; drop it")
    side = min(datasets.DATASETS[name].shape[1:], default=0)
    if config.augment and config.crop_padding >= side:
        raise UserError(
            f"--crop-padding is {config.crop_padding}, but the images of '{name}' have {side} pixels a side; "
            f"expected at most {side - 1}"
        )
    if text and not config.embedding:
        raise UserError(f"--embedding is 0, but '{name}' needs word vectors; give their width, such as 300")
    for field in ("embedding", "cell"):
        if not text and getattr(config, field) != getattr(RunConfig, field):
            raise UserError(f"--{field} is for text, and '{name}' holds images; drop it")


def check(config: RunConfig) -> None:
    """Refuse what can be refused before data are loaded.

    Raises:
        UserError: one line that says what to mend.
    """
    config.validate()
    if config.dataset not in datasets.DATASETS:
        raise unknown("dataset", config.dataset, datasets.DATASETS)
    if config.dataset not in NETWORKS:
        raise UserError(
            f"the dataset '{config.dataset}' has no network: add one to NETWORKS in "
            "benchmark/models/catalogue.py"
        )
    check_data(config)
    method = find(config.algo)
    hyper = parse_hyper(method.Hyper, config.hyper, config.algo)
    method.check(config, network_of(config), hyper)


def run_cell(config: RunConfig, execution: Execution, observer: Observer) -> dict[str, Any]:
    """Run one configuration, or return the summary of its finished record.

    Returns:
        The summary, with the record's folder under ``record``, and under ``warnings``, if there are any, what
        trackers had to say.

    Raises:
        UserError: bad input; nothing is left half-written.
    """
    config = with_hyper(config, config.hyper)
    check(config)
    execution.pick_executor(execution.pick_device(), network_of(config))
    record = RunRecord(execution.results_dir, config, method_label(config))
    if record.done:
        open_store(execution.results_dir)
        return {**record.summary(), "record": str(record.folder)}
    prepared = prepare(config, execution)
    try:
        plan = plan_rounds(config, prepared.schedule, prepared.make)
        about = {"split": _describe(prepared)}
        root = open_store(execution.results_dir)
        refuse_other_data(root, data_of(config, about["split"]))
        record.acquire()
        try:
            if record.done:  # by another process, since we looked
                return {**record.summary(), "record": str(record.folder)}
            data = (prepared.split.checksum, prepared.dataset.checksum)
            record.begin(about)
            algorithm = prepared.make(plan.rounds)
            for note in algorithm.notes():
                print(note, file=sys.stderr)
            surroundings = environment(prepared.task.data.device, prepared.executor_name)
            surroundings |= {"jobs": execution.side_by_side, "tf32": execution.tf32}
            surroundings |= {"code": code_of(config)}
            followed = About(config, method_label(config), record.folder, about["split"], surroundings)
            with precision(execution.tf32), Followed(observer, execution.trackings, followed) as follower:
                summary = run(
                    algorithm,
                    prepared.schedule,
                    plan,
                    record,
                    TrunkStore(root, config, data, surroundings),
                    follower,
                    surroundings,
                    execution.checkpoint_seconds,
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
    return {
        "checksum": split.checksum,
        "data_checksum": prepared.dataset.checksum,
        f"dataset_{prepared.dataset.unit}": [len(prepared.dataset.train), len(prepared.dataset.test)],
        "train_samples": [int(min(split.train_sizes)), int(max(split.train_sizes))],
        "test_samples": [int(min(split.test_sizes)), int(max(split.test_sizes))],
        "classes_per_client": [int(counts.min()), int(counts.max())],
        **split.facts,
    }
