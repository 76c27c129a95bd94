"""FedALA: its mixture of own and global layers by plain autograd, and what it costs."""

import pytest
import torch
from equations import EVERYONE, ONE_STEP, close, gradient_at

from pfl_benchmark.engine.params import strip_prefix
from pfl_benchmark.errors import UserError

HEAD = ("fc3.weight", "fc3.bias")
WHOLE = {"part": 1.0, "eta": 3.0}  # one batch of all samples, so that no draw matters


def prepared(tiny, ready, hyper, **changes):
    """The method, with heads of its own for clients 2 and 5 and weights of 0.75."""
    algorithm = ready(tiny("fedala", hyper, **{**ONE_STEP, **changes})).algorithm
    own = {name: algorithm.task.initial[name] - 0.2 for name in algorithm._mixed}
    kept = {f"local.{name}": tensor.expand(2, *tensor.shape) for name, tensor in own.items()}
    kept |= {f"shares.{name}": torch.full((2, *tensor.shape), 0.75) for name, tensor in own.items()}
    algorithm.clients.scatter([2, 5], kept)
    return algorithm, own


@pytest.mark.parametrize("layers", [1, 3])
def test_weights_follow_the_gradient_at_the_mixture(layers, tiny, ready):
    """W ← clip(W − η ∇ℓ(own + W ⊙ Δ) ⊙ Δ, 0, 1), twice, and the client begins at own + W ⊙ Δ."""
    algorithm, own = prepared(tiny, ready, {**WHOLE, "layers": layers, "ala_epochs": 2})
    task = algorithm.task
    call = algorithm.begin([2, 5], algorithm.message([2, 5], 2), 2)
    for position, client in enumerate((2, 5)):
        shares = {name: torch.full_like(tensor, 0.75) for name, tensor in own.items()}
        for _ in range(2):
            point = {**task.initial, **{n: own[n] + shares[n] * 0.2 for n in own}}
            slopes = gradient_at(task, point, client)
            shares = {n: (w - 3.0 * slopes[n] * 0.2).clamp(0, 1) for n, w in shares.items()}
        params = {name: tensor[position] for name, tensor in call.models["model"].params.items()}
        close(strip_prefix("shares", params), shares)
        close({n: params[n] for n in own}, {n: own[n] + shares[n] * 0.2 for n in own})
        assert all(torch.equal(params[n], task.initial[n]) for n in task.initial if n not in own)
        assert len(own) == 2 * layers
        assert any((w != 0.75).any() for w in shares.values())


def test_weights_stay_between_0_and_1(tiny, ready):
    algorithm, _ = prepared(tiny, ready, {"part": 1.0, "eta": 1e6})
    shares = strip_prefix("shares", algorithm.begin([2], algorithm.message([2], 2), 2).models["model"].params)
    found = torch.cat([w.flatten() for w in shares.values()]).unique().tolist()
    assert found in ([0.0, 1.0], [0.0, 0.75, 1.0])  # 0.75 where a feature is 0 and has no gradient


def test_the_first_round_and_a_rate_of_0_begin_at_the_global_model(begun, tiny, ready):
    _, call, _ = begun("fedala")
    fedavg = begun("fedavg")[1]
    model = call.models["model"].params
    assert all(torch.equal(model[n], t) for n, t in fedavg.models["model"].params.items())
    algorithm = ready(tiny("fedala", {"eta": 0.0})).algorithm
    call = algorithm.begin(EVERYONE, algorithm.message(EVERYONE, 2), 2)
    close(call.models["model"].params["fc3.weight"][4], algorithm.task.initial["fc3.weight"])


def test_a_client_keeps_its_trained_head_and_is_evaluated_with_a_mixture(begun):
    algorithm, _, outcome = begun("fedala", WHOLE, (1, 4), **ONE_STEP)
    algorithm.upload(outcome)
    algorithm.keep(outcome)
    kept = algorithm.clients.gather([4])
    assert torch.equal(kept["local.fc3.weight"][0], outcome.models["model"]["fc3.weight"][1])
    assert set(strip_prefix("local", kept)) == set(HEAD)
    (member,) = algorithm.members([4])
    own, common = strip_prefix("local", kept), algorithm.server
    point = {**common, **{n: own[n][0] + (common[n] - own[n][0]) for n in HEAD}}
    slopes = gradient_at(algorithm.task, point, 4)
    for name in HEAD:
        gap = common[name] - own[name][0]
        close(member.params[name][0], own[name][0] + (1 - 3.0 * slopes[name] * gap).clamp(0, 1) * gap)
    assert torch.equal(member.params["conv1.weight"][0], common["conv1.weight"])
    assert torch.equal(algorithm.clients.gather([4])["shares.fc3.weight"], kept["shares.fc3.weight"])


def test_it_is_charged_for_the_samples_that_it_learns_on(tiny, play):
    """80 % of 20 samples in two epochs, in all rounds but the first and in the evaluation."""
    played = play(tiny("fedala", {"ala_epochs": 2}))
    participations, later = 3 + 3 + 3 + 6, 3 + 3 + 6
    assert played.summary["samples"] == 20 * participations + 2 * 16 * later
    assert played.summary["adaptation_samples"] == 2 * 16 * 6


def test_more_layers_than_there_are_is_refused(tiny, ready):
    with pytest.raises(UserError, match="layers=6: the network has 5 layers; give at most that"):
        ready(tiny("fedala", {"layers": 6}))
