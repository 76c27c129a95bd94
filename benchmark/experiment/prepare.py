"""What a run needs before its first round: data, split, network, method and executor."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.weights import file_of_weights, seen
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.datasets.standardise import standardise
from pfl_benchmark.engine.algorithm import Algorithm, RunContext
from pfl_benchmark.engine.batches import check_batches
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.dry import Costs
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.features import compute_once
from pfl_benchmark.engine.schedule import Schedule
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.errors import Unlucky, UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.models import Network, Params
from pfl_benchmark.models.frozen import begin
from pfl_benchmark.models.weights import fit_weights, read_weights
from pfl_benchmark.resolve.run import Run, check_data

_SEEDS = 3  # others that are tried where a split fails
D = TypeVar("D")

__all__ = ["Prepared", "dealt", "new_clients", "prepare", "shifted", "split_of"]


def split_of(config: RunConfig, dataset: datasets.Dataset) -> datasets.Split:
    """The split of a run: a function of the dataset, the configuration's split fields and the seed.

    Raises:
        UserError: the dataset cannot be divided so.
    """
    check_data(config)
    return _with_advice(lambda same: _split(same, dataset), config)


def _split(config: RunConfig, dataset: datasets.Dataset) -> datasets.Split:
    return config.partitioner.split(dataset, Streams(config.seed).get("partition"))


def _divided(config: RunConfig, dataset: datasets.Dataset) -> tuple[datasets.Dataset, datasets.Split]:
    """Data and split with new clients set apart and, where asked for, validation data held out."""
    streams = Streams(config.seed)
    split = _split(config, dataset).set_apart(new_clients(config, streams))
    if config.validation:
        return datasets.hold_out(dataset, split, config.validation, streams.get("validation"))
    return dataset, split


def shifted(config: RunConfig, dataset: datasets.Dataset, split: datasets.Split) -> datasets.Shifted:
    """Data and split of a run under its shifts; new clients draw as if they took part in training."""
    streams = Streams(config.seed)
    new = new_clients(config, streams)
    numbers = [*(client for client in range(config.clients) if client not in {*new}), *new]

    def draw(purpose: str, client: int) -> np.random.Generator:
        return streams.get(f"shift-{purpose}", client=client)

    return datasets.apply_shifts(dataset, split, config.shifts, draw, numbers)


def dealt(config: RunConfig, dataset: datasets.Dataset) -> tuple[datasets.Dataset, datasets.Shifted]:
    """The data of a run, dealt to its clients: without its shifts, and with them.

    Raises:
        UserError: the dataset cannot be divided so.
    """
    check_data(config)
    plain = config.partitioner.arranged(dataset)
    unshifted, split = _with_advice(lambda same: _divided(same, plain), config)
    return unshifted, shifted(config, unshifted, split)


def _with_advice(divide: Callable[[RunConfig], D], config: RunConfig) -> D:
    """Divide data; where that fails by what this seed draws, and by no other's, the error says so."""
    try:
        return divide(config)
    except Unlucky as error:
        for seed in range(config.seed + 1, config.seed + 1 + _SEEDS):
            with contextlib.suppress(Unlucky):
                divide(dataclasses.replace(config, seed=seed))
                break
        else:
            raise
        raise UserError(f"{error}; another seed may do, such as --seed {seed}") from error


def _trained_on(
    config: RunConfig, dataset: datasets.Dataset, split: datasets.Split
) -> tuple[datasets.Dataset, datasets.Split]:
    """Data and split as clients train on them: tables are standardised by what the split says."""
    if dataset.kind != "rows":
        return dataset, split
    numeric = datasets.DATASETS[config.dataset].numeric
    return standardise(dataset, split, numeric, each=config.standardise == "client")


@dataclass(frozen=True)
class Prepared:
    """Everything of a run but its rounds; `make` builds the method for a number of rounds.

    Attributes:
        unshifted: the dataset as it is without the run's shifts.
        shifts: by shift, what is on record of each.
        weights: what is on record of the file of weights that the network begins with; empty: none.
        note: a line about them, if there is something to tell.
    """

    resolved: Run
    dataset: datasets.Dataset
    split: datasets.Split
    task: RunContext
    unshifted: datasets.Dataset
    shifts: Mapping[str, Mapping[str, Any]]
    weights: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

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
    if not resolved.executor:
        resolved = resolved.placed(execution)
    config, network, device = resolved.config, resolved.network, resolved.device
    weights, about, note = _weights(config, network)
    if dataset is None:
        dataset = datasets.load(config.dataset, execution.data_dir, embedding=config.embedding)
    unshifted, changed = dealt(config, dataset)
    dataset, split = changed.dataset, changed.split
    streams = Streams(config.seed)
    data = FederatedData(*_trained_on(config, dataset, split), device)
    executor = EXECUTORS[resolved.executor](config, data, streams, strict=execution.executor != "auto")
    network, initial = begin(network, streams.get("init"), device, weights, executor.layout)
    if config.adapters and not config.augment:
        network = compute_once(network, data, executor)
    schedule = Schedule(data.clients, config.participation, streams)
    task = RunContext(config, network, data, streams, schedule, config.rounds, initial, executor)
    prepared = Prepared(resolved, dataset, split, task, unshifted, changed.facts, about, note)
    if config.adapters:
        try:
            _check_shared(prepared)
        except UserError:
            executor.close()
            raise
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


def _weights(config: RunConfig, network: Network) -> tuple[Params, Mapping[str, Any], str]:
    """Tensors that a network begins with, what is on record of them, and notes."""
    if not config.weights:
        return {}, {}, ""
    path = file_of_weights(config.weights)
    fitted = fit_weights(network.plain, read_weights(path), path.name)
    about = {
        "file": path.name,
        "sha256": config.weights.partition(":")[2],
        "fresh_layers": [*fitted.fresh],
        "unused_tensors": len(fitted.unused),
    }
    notes = (fitted.note(path.name), seen(path, config.dataset))
    return fitted.tensors, about, "\n".join(filter(None, notes))


def _check_shared(prepared: Prepared) -> None:
    """Refuse a method that sends nothing under adapters, or has a phase without any of what trains."""
    config, network = prepared.config, prepared.task.network
    method = prepared.make(config.rounds)
    trained = ", ".join(layer.name for layer in network.layers if not layer.still)
    if not any(cost.up for _, cost in Costs().of(method)):
        raise UserError(
            f"--adapters {config.adapters}: '{config.algo}' sends nothing of what trains ({trained}); choose "
            "other adapters, or another --algo"
        )
    for phase in (*method.phases(1), *method.adaptation()):
        frozen = [name for name in phase.rates if name in network.names and network.layer(name).still]
        if frozen and len(frozen) == len(phase.rates):
            raise UserError(
                f"--adapters {config.adapters}: '{config.algo}' has a phase that trains {', '.join(frozen)} "
                f"alone, and what trains is in {trained}; choose other adapters, or another --algo"
            )


def new_clients(config: RunConfig, streams: Streams) -> list[int]:
    """Who takes no part in training: drawn once for a seed, as the clients of the split are numbered."""
    drawn = streams.get("new-clients").permutation(config.clients)
    return sorted(drawn[: config.new_count].tolist())
