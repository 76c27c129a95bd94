"""A small federation in float64, and a method of this project on it, round by round."""

from collections import OrderedDict, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine import sgd
from pfl_benchmark.engine.algorithm import Algorithm, RunContext
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.evaluate import evaluate, evaluate_adapted
from pfl_benchmark.engine.executors import LoopExecutor
from pfl_benchmark.engine.ledger import Ledger
from pfl_benchmark.engine.rounds import mean_weights
from pfl_benchmark.engine.schedule import Schedule
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.models import network_from_module
from pfl_benchmark.resolve.run import resolve, with_hyper

ROUNDS, BATCH, RATE, CLASSES = 3, 5, 0.05, 10
SIZES = (20, 40, 30, 10, 50)  # whole batches, and whole pairs of batches: public code drops the others
CPU = torch.device("cpu")


def base(norm=False):
    """The body of the network that both sides train."""
    normal = [("bn", nn.BatchNorm2d(4))] if norm else []
    return nn.Sequential(
        OrderedDict([
            ("conv", nn.Conv2d(1, 4, 3, padding=1)), *normal, ("relu", nn.ReLU()), ("pool", nn.MaxPool2d(2)),
            ("flatten", nn.Flatten()), ("fc1", nn.Linear(64, 12)), ("relu1", nn.ReLU()),
        ])
    )  # fmt: skip


def whole(norm=False):
    return nn.Sequential(OrderedDict([*base(norm).named_children(), ("fc", nn.Linear(12, CLASSES))]))


def network(norm=False):
    splits = ("conv", *(["bn"] if norm else []), "fc1", "fc")
    return network_from_module(lambda: whole(norm), splits, (1, 8, 8))


def split(dataset, sizes=SIZES):
    """Clients of different sizes with three or four classes each, and the same classes in their tests."""
    rng = np.random.default_rng(7)
    train, test = [], []
    for client, size in enumerate(sizes):
        own = [(3 * client + step) % CLASSES for step in range(4)]
        parts = []
        for y, count in ((dataset.train.y, size), (dataset.test.y, 17)):
            rows = np.flatnonzero(np.isin(y, own))
            parts.append(np.sort(rng.choice(rows, count, replace=False)))
        train.append(parts[0])
        test.append(parts[1])
    return datasets.Split(tuple(train), tuple(test))


class Doubles(FederatedData):
    """The data with inputs in float64."""

    def encode(self, raw):
        return super().encode(raw).double()


@dataclass
class Federation:
    """What both sides get.

    orders: for each (round, client), the epochs of its training: model, stream and order of the samples.
    cohorts: who takes part, for each round.
    """

    config: RunConfig
    task: RunContext
    method: Any
    hyper: Any
    norm: bool
    orders: dict[tuple[int, int], list[tuple[str, str, np.ndarray]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def cohorts(self):
        return [self.task.schedule.cohort(number, False) for number in range(1, self.config.rounds + 1)]

    def samples(self, client, part="train"):
        """Inputs and labels of a client."""
        return self.task.data.inputs(client, part), self.task.data.labels(client, part)

    def initial(self):
        """θ_0 in the order of the network's tensors, without statistics of normalisation."""
        names = [name for name in self.task.network.shapes() if name not in self.task.network.buffers]
        return [self.task.initial[name] for name in names]


def federation(algo, hyper, participation, norm=False, streams=Streams, start=0, sizes=SIZES, **changes):
    """A method's task on the small federation."""
    torch.set_default_dtype(torch.float32)  # as networks are made; what they hold becomes float64 below
    given = {
        "dataset": "digits", "clients": len(SIZES), "participation": participation,
        "rounds": ROUNDS + 1 + start, "local_epochs": 2, "batch_size": BATCH, "lr": RATE,
        "momentum": 0.0, "aggregation": "samples", "eval_every": 0, **changes,
    }  # fmt: skip
    config = with_hyper(RunConfig(algo=algo, **given), hyper)
    run = resolve(config)
    dataset, net, drawn = datasets.load("digits"), network(norm), streams(config.seed)
    data = Doubles(dataset, split(dataset, sizes), CPU)
    initial = {name: tensor.double() for name, tensor in net.init(drawn.get("init"), CPU).items()}
    executor = LoopExecutor(config, data, drawn)
    schedule = Schedule(len(SIZES), participation, drawn)
    torch.set_default_dtype(torch.float64)
    task = RunContext(config, net, data, drawn, schedule, config.rounds, initial, executor)
    return Federation(config, task, run.method, run.hyper, norm)


@contextmanager
def recorded(orders, sorted_batches=False):
    """Note the order of every epoch that is trained.

    Args:
        sorted_batches: all epochs of a client in a round have one order, in which the samples of a batch are
            in the order of storage.
    """
    train, epochs, order = sgd.LocalWork.train, sgd.LocalWork._epochs, sgd.epoch_order
    place: dict[str, Any] = {}

    def watched_train(self, call, position):
        place["at"] = call.round, call.clients[position]
        return train(self, call, position)

    def watched_epochs(self, network, params, phase, *rest):
        for found in epochs(self, network, params, phase, *rest):
            orders[place["at"]].append((phase.model, phase.stream, found[1].numpy()))
            yield found

    def same_order(rng, size, chances=None):
        drawn = np.random.default_rng(place["at"]).permutation(size)
        return np.sort(drawn.reshape(-1, BATCH), axis=1).flatten()

    sgd.LocalWork.train, sgd.LocalWork._epochs = watched_train, watched_epochs
    if sorted_batches:
        sgd.epoch_order = same_order
    try:
        yield
    finally:
        sgd.LocalWork.train, sgd.LocalWork._epochs, sgd.epoch_order = train, epochs, order


def play(fed, look, start=0, sorted_batches=False):
    """Rounds of the method; what `look` sees after each of the last three."""
    algorithm: Algorithm = fed.method(fed.task, fed.hyper)
    found = []
    with recorded(fed.orders, sorted_batches):
        for number in range(1, start + ROUNDS + 1):
            algorithm.start_round(number)
            cohort = fed.task.schedule.cohort(number, algorithm.kind(number).full_participation)
            call = algorithm.begin(cohort, algorithm.message(cohort, number), number)
            outcome = fed.task.executor.train(call)
            upload, aggregator = algorithm.upload(outcome), algorithm.aggregator()
            aggregator.add(cohort, upload, mean_weights(algorithm, cohort))
            algorithm.keep(outcome)
            algorithm.aggregate(aggregator.value())
            algorithm.finish_round(number)
            found.append({name: copies(one(algorithm)) for name, one in look.items()})
    return found[start:]


def copies(values):
    return [torch.as_tensor(value).detach().clone().flatten() for value in values]


def gap(ours, theirs):
    """The largest absolute difference of two lists of tensors."""
    assert len(ours) == len(theirs), f"{len(ours)} tensors here, {len(theirs)} there"
    return largest((a.double() - b.double()).abs().max() for a, b in zip(ours, theirs, strict=True))


def largest(values):
    """The largest of some numbers; not a number if one of them is none, which `max` may overlook."""
    return float(torch.tensor([float(value) for value in values], dtype=torch.float64).max())


# What is looked at on our side


def server(algorithm):
    """The server's model, without statistics of normalisation."""
    return [t for n, t in algorithm.server.items() if n in algorithm.network.trainable]


def models(algorithm):
    """The model that each client is evaluated with."""
    (member,) = algorithm.members(range(len(SIZES)))
    names = [name for name in algorithm.network.shapes() if name in algorithm.network.trainable]
    return [member.params[name][client] for client in range(len(SIZES)) for name in names]


def correct(algorithm):
    """Correct predictions of every client on its test samples."""
    return [torch.tensor(evaluate(algorithm).correct)]


def adapted(algorithm):
    """Likewise, of models that are fine-tuned first."""
    return [torch.tensor(evaluate_adapted(algorithm, algorithm.task.rounds, Ledger()).correct)]


def kept(*names):
    """What each client keeps under some names, or names that begin so."""

    def look(algorithm):
        found = algorithm.clients.gather(range(len(SIZES)))
        chosen = [n for n in found if any(n == name or n.startswith(f"{name}.") for name in names)]
        return [found[name][client] for client in range(len(SIZES)) for name in chosen]

    return look
