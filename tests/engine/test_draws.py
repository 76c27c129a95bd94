"""Random numbers of steps: declared by the phase, the same in every executor."""

from dataclasses import dataclass

import pytest
import torch

from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.params import expand
from pfl_benchmark.errors import UserError
from pfl_benchmark.method import LocalCall, Phase, Rule, StackedModel

UNEVEN = {"partition": "dirichlet", "dirichlet": 0.3, "batch_size": 7}
CLIENTS = [0, 2, 3, 5]


@dataclass(frozen=True)
class Noisy:
    """Cross-entropy of a noisy input, and a random weight on each sample."""

    def __call__(self, step):
        noise = step.normal("pixels").reshape(step.x.shape)
        logits = step.apply(x=step.x + 0.1 * noise)
        return step.cross_entropy(logits) + step.mean(step.uniform("weight").squeeze(2))


@dataclass(frozen=True)
class Halves(Rule):
    """Two batches of a step: the second one's random numbers are those of its own samples."""

    def __call__(self, step):
        first, second = step.split(2)
        whole = step.uniform("weight")
        gap = (first.uniform("weight") - whole[:, ::2]).abs().sum() + (
            second.uniform("weight") - whole[:, 1::2]
        ).abs().sum()
        gradients, losses = step.gradient()
        step.descend({name: gradient * (1 + gap) for name, gradient in gradients.items()})
        return losses + step.mean(whole.squeeze(2))


@pytest.fixture
def trained(tiny, ready):
    """What an executor makes of a call whose phases draw."""

    def train(executor, phases, round=3, clients=CLIENTS):
        task = ready(tiny("fedavg", **UNEVEN)).prepared.task
        model = StackedModel(task.network, expand(task.initial, len(clients)))
        other = EXECUTORS[executor](task.config, task.data, task.streams)
        try:
            return other.train(LocalCall(round, clients, {"model": model}, phases(task)))
        finally:
            other.close()

    return train


def noisy(task):
    sample = task.data.inputs(0)[0]
    rates = dict.fromkeys(task.network.names, 0.05)
    shapes = {"normal": {"pixels": tuple(sample.shape)}, "uniform": {"weight": (1,)}}
    return [Phase(rates, 2, objective=Noisy(), **shapes), Phase(rates, 1, objective=Noisy(), **shapes)]


def halves(task):
    rates = dict.fromkeys(task.network.names, 0.05)
    return [Phase(rates, 2, rule=Halves(), uniform={"weight": (1,)})]


@pytest.mark.parametrize("executor", ["threads", "stacked"])
@pytest.mark.parametrize("phases", [noisy, halves])
def test_executors_draw_the_same_numbers(executor, phases, trained):
    """Clients of unequal size, short last batches and a second phase that goes on with the stream."""
    expected, found = trained("loop", phases), trained(executor, phases)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-4, atol=1e-5)
    for name, tensor in expected.models["model"].items():
        torch.testing.assert_close(found.models["model"][name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_numbers_are_those_of_seed_name_round_and_client(executor, trained):
    whole, part = trained(executor, noisy), trained(executor, noisy, clients=CLIENTS[1:])
    assert torch.allclose(whole.loss[1:], part.loss, rtol=1e-4)
    assert not torch.allclose(whole.loss, trained(executor, noisy, round=4).loss, rtol=1e-3)


def test_an_undeclared_name_is_told(trained):
    with pytest.raises(UserError, match="uniform numbers 'weight', which its phase does not declare"):
        trained("loop", lambda task: [Phase({"fc3": 0.1}, 1, objective=Noisy(), normal={"pixels": (64,)})])
