"""How the tests of PPFE drive it: made data for the large nets, single rounds, an independent Reweight."""

import math

import numpy as np
import pytest

from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine.rounds import mean_weights
from pfl_benchmark.models import NETWORKS
from pfl_benchmark.resolve.run import with_hyper

EIGHT = {"rounds": 8, "eval_every": 3}  # four stages of two rounds: 1-2, 3-4, 5-6, 7-8

# Enough training for β > 0 from stage 2 on, and clients with different numbers of samples.
LEARNING = {"lr": 0.1, "local_epochs": 4, "batch_size": 4, "partition": "dirichlet", "dirichlet": 0.5}


@pytest.fixture(scope="session")
def staged(tiny):
    """``staged({"T": 2})``: the tiny configuration with two rounds for each of four stages.

    With ``learning=True`` sample weights and β differ from client to client.
    """

    def make(hyper=None, ablation=None, learning=False, **changes):
        values = {**EIGHT, **(LEARNING if learning else {}), **changes}
        return with_hyper(tiny("ppfe", **values), hyper or {}, ablation)

    return make


@pytest.fixture
def advance():
    """Carry out some rounds of a method by hand, with everyone taking part in the rounds `full`."""

    def go(played, rounds, full):
        algorithm, schedule = played.algorithm, played.prepared.task.schedule
        for number in rounds:
            algorithm.start_round(number)
            cohort = schedule.cohort(number, number in full)
            call = algorithm.begin(cohort, algorithm.message(cohort, number), number)
            outcome = played.prepared.task.executor.train(call)
            aggregator = algorithm.aggregator()
            aggregator.add(cohort, algorithm.upload(outcome), mean_weights(algorithm, cohort))
            algorithm.keep(outcome)
            algorithm.aggregate(aggregator.value())
            algorithm.finish_round(number)

    return go


@pytest.fixture
def outputs():
    """Logits of every member for every client: ``outputs(played)[member][client]`` is [n, C]."""

    def compute(played, part="test"):
        everyone, data = range(played.prepared.config.clients), played.prepared.task.data
        return [
            [
                member.network.apply({n: t[k] for n, t in member.params.items()}, data.inputs(k, part))
                for k in everyone
            ]
            for member in played.algorithm.members(everyone)
        ]

    return compute


@pytest.fixture
def made_data(monkeypatch):
    """Let the runner find random images where it looks for a dataset: ``made_data("cifar100")``."""

    def arm(name, count=60):
        info, rng = datasets.DATASETS[name], np.random.default_rng(0)

        def samples():
            pixels = rng.integers(0, 256, (count, *info.shape), dtype=np.uint8)
            return datasets.Samples(pixels, np.arange(count, dtype=np.int64) % info.classes)

        dataset = datasets.Dataset(
            name, samples(), samples(), info.classes, info.class_names, info.mean, info.std, "made"
        )
        monkeypatch.setattr(datasets, "load", lambda *_, **__: dataset)
        return NETWORKS[name]

    return arm


@pytest.fixture(scope="session")
def boosted():
    """Specification 4.6, written down once more: (ε, β, new ω) of one client in plain Python."""

    def compute(logits, labels, weights):
        losses = []
        for row, label in zip(logits.double().tolist(), labels.tolist(), strict=True):
            top = max(row)
            losses.append(top + math.log(sum(math.exp(z - top) for z in row)) - row[label])
        normalised = [loss / max(losses) for loss in losses]
        n = len(losses)
        mean = sum(w * e for w, e in zip(weights, normalised, strict=True)) / sum(weights)
        epsilon = min(max(mean, 1 / (2 * n)), 1 - 1 / (2 * n))
        beta = max(0.0, 0.5 * math.log((1 - epsilon) / epsilon))
        raised = [w * math.exp(beta * e) for w, e in zip(weights, normalised, strict=True)]
        return epsilon, beta, [n * w / sum(raised) for w in raised]

    return compute
