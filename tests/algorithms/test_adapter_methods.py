"""FedSA-LoRA and FedDPA: which factors are averaged, what personal adapters learn, and what is evaluated."""

import dataclasses

import numpy as np
import pytest
import torch
from equations import EVERYONE, ONE_STEP, close, gradient_at

from pfl_benchmark.algorithms.feddpa import PERSONAL
from pfl_benchmark.engine.params import expand, row
from pfl_benchmark.errors import NotDefined
from pfl_benchmark.models.frozen import begin, low_rank_updates, with_second_lora
from pfl_benchmark.resolve.run import resolve

SIZES = {"conv1": (16, 9), "conv2": (32, 144), "fc1": (64, 128), "fc2": (32, 64)}  # outputs and inputs
HEAD = 32 * 10 + 10
WHOLE = {"rounds": 2, "participation": 1.0, "clients": 6}


def moved(params, by=0.1):
    """Stacked tensors with other values for each row."""
    rng = torch.Generator().manual_seed(5)
    return {name: tensor + by * torch.randn(tensor.shape, generator=rng) for name, tensor in params.items()}


@pytest.mark.parametrize("algo", ["fedsa-lora", "feddpa"])
@pytest.mark.parametrize(("adapters", "told"), [("", "the run has none"), ("head", "they are head")])
def test_without_lora_they_are_not_defined(algo, adapters, told, tiny):
    with pytest.raises(NotDefined, match=f"'{algo}' is defined for --adapters lora alone, and {told}"):
        resolve(tiny(algo, adapters=adapters))


# FedSA-LoRA


def test_bytes_of_a_by_hand(tiny, play):
    """A of four layers goes both ways; B and the last layer are sent once, to begin with."""
    summary = play(tiny("fedsa-lora", adapters="lora:r=3", **WHOLE)).summary
    shared = sum(3 * inputs for _, inputs in SIZES.values())
    personal = sum(3 * outputs for outputs, _ in SIZES.values()) + HEAD
    assert summary["bytes_up"] == 4 * shared * 6 * 2
    assert summary["bytes_down"] == summary["bytes_up"] + 4 * personal * 6
    assert summary["bytes_broadcast"] == 4 * shared * 6


def test_a_is_averaged_and_b_and_the_last_layer_stay(begun):
    algorithm, _, outcome = begun("fedsa-lora", local_epochs=2)
    sent, trained = algorithm.upload(outcome), outcome.models["model"]
    assert {*sent} == {f"{layer}.weight.lora_a" for layer in SIZES}
    algorithm.keep(outcome)
    algorithm.aggregate({name: tensor.mean(0) for name, tensor in sent.items()})
    (member,) = algorithm.members(EVERYONE)
    mean = {name: trained[name].mean(0).expand_as(trained[name]) for name in sent}
    close(member.params, {**trained, **mean})
    assert all(not torch.equal(t[0], t[1]) for name, t in member.params.items() if name not in sent)


def test_a_step_is_one_on_all_three(tiny, ready):
    """From a B that is not 0, where A has a gradient."""
    algorithm = ready(tiny("fedsa-lora", **ONE_STEP)).algorithm
    task, lr = algorithm.task, algorithm.config.lr
    algorithm.clients.scatter([2], moved(algorithm.clients.gather([2])))
    call = algorithm.begin([2], algorithm.message([2], 2), 2)
    start = row(call.models["model"].params, 0)
    slopes = gradient_at(task, start, 2)
    assert all(slope.any() for slope in slopes.values())
    found = row(task.executor.train(call).models["model"], 0)
    close(found, {name: tensor - lr * slopes[name] for name, tensor in start.items()})


# FedDPA


def test_two_adapters_are_a_weighted_sum(tiny, ready):
    network = ready(tiny("fedavg", adapters="lora:r=2,alpha=6")).algorithm.network
    both = with_second_lora(network, "other", 0.25)
    params = moved(begin(both, np.random.default_rng(0))[1])
    first, second = low_rank_updates(both)[:2]
    assert (first.of, first.scale, second.of, second.scale) == ("conv1.weight", 2.25, "conv1.weight", 0.75)
    layer = both.layer("fc1")
    product = {
        kind: params[f"fc1.weight.{kind}_b"] @ params[f"fc1.weight.{kind}_a"] for kind in ("lora", "other")
    }
    expected = layer.constants["fc1.weight"] + 3 * (0.75 * product["lora"] + 0.25 * product["other"])
    close(layer.merged(params)["fc1.weight"], expected)
    stacked = layer.merged({name: torch.stack([tensor, tensor]) for name, tensor in params.items()})
    close(stacked["fc1.weight"], torch.stack([expected, expected]))


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_the_personal_adapter_learns_beside_the_global_one_as_received(share, tiny, ready):
    algorithm = ready(tiny("feddpa", {"share": share}, **ONE_STEP)).algorithm
    task, lr = algorithm.task, algorithm.config.lr
    algorithm.server = row(moved(expand(algorithm.server, 1)), 0)
    algorithm.clients.scatter([2], moved(algorithm.clients.gather([2])))
    call = algorithm.begin([2], algorithm.message([2], 2), 2)
    own, common = (row(call.models[name].params, 0) for name in (PERSONAL, "model"))
    assert common.keys() == algorithm.server.keys()
    outcome = task.executor.train(call)

    whole = dataclasses.replace(task, network=algorithm.both)
    slopes = gradient_at(whole, own, 2)
    fixed = {name for name in own if ".lora_" in name}
    learnt = {n: t if n in fixed else t - lr * slopes[n] for n, t in own.items()}
    close(row(outcome.models[PERSONAL], 0), learnt)
    assert all(torch.equal(own[name], common[name]) for name in fixed)

    slopes = gradient_at(task, common, 2)
    close(row(outcome.models["model"], 0), {n: t - lr * slopes[n] for n, t in common.items()})


def test_what_is_sent_is_the_global_adapter_and_what_is_evaluated_are_both(begun):
    algorithm, _, outcome = begun("feddpa", local_epochs=2)
    sent = algorithm.upload(outcome)
    assert sent.keys() == algorithm.network.shapes().keys()
    algorithm.keep(outcome)
    algorithm.aggregate({name: tensor.mean(0) for name, tensor in sent.items()})
    (member,) = algorithm.members(EVERYONE)
    mean = {name: t.expand(6, *t.shape) for name, t in algorithm.server.items() if ".lora_" in name}
    close(member.params, {**outcome.models[PERSONAL], **mean})
    assert not torch.equal(member.params["fc3.weight"][0], member.params["fc3.weight"][1])


def test_bytes_of_feddpa_are_those_of_fedavg(tiny, play):
    """Of the personal adapter the beginning alone is sent, once."""
    ours, fedavg = (play(tiny(algo, adapters="lora:r=2", **WHOLE)) for algo in ("feddpa", "fedavg"))
    count = sum(2 * (outputs + inputs) for outputs, inputs in SIZES.values()) + HEAD
    assert ours.summary["bytes_up"] == fedavg.summary["bytes_up"] == 4 * count * 6 * 2
    assert ours.summary["bytes_down"] == fedavg.summary["bytes_down"] + 4 * count * 6
    assert ours.summary["samples"] == 2 * fedavg.summary["samples"]
    close(ours.history[-1], fedavg.history[-1])
