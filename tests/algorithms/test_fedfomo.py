"""FedFomo: gains and mixtures by their definition, the choice of models, and what nobody trains on."""

import pytest
import torch
import torch.nn.functional as F
from equations import EVERYONE, ONE_STEP, close, gradient_at

from pfl_benchmark.engine.params import row, select, strip_prefix

ROW = "preferences.row"


def moved(params, seed, size=0.1):
    rng = torch.Generator().manual_seed(seed)
    return {n: t + size * torch.randn(t.shape, generator=rng) for n, t in params.items()}


def prepared(tiny, ready, hyper=None, **changes):
    """The method as before round 2, with another model and another `first` for every client."""
    algorithm = ready(tiny("fedfomo", hyper or {}, **changes)).algorithm
    initial = algorithm.task.initial
    for client in EVERYONE:
        first = {f"first.{n}": t for n, t in moved(initial, client, 0.02).items()}
        kept = {**moved(initial, 10 + client), **first, ROW: torch.zeros(6)}
        algorithm.clients.scatter([client], {n: t[None] for n, t in kept.items()})
    return algorithm


def validation_loss(algorithm, params, client):
    rows = algorithm._held_out(client)
    x, y = algorithm.task.data.inputs(client)[rows], algorithm.task.data.labels(client)[rows]
    return F.cross_entropy(algorithm.network.apply(params, x), y).item()


def test_a_participant_adds_models_in_proportion_to_their_gains(tiny, ready):
    """w = first + Σ v_n (w_n − first), with v_n from (L(first) − L(w_n)) / ‖w_n − first‖₁ if positive."""
    algorithm = prepared(tiny, ready)
    network = algorithm.network
    cohort = [0, 3, 5]
    message = algorithm.message(cohort, 2)
    call = algorithm.begin(cohort, message, 2)
    mixed_any = False
    for position, client in enumerate(cohort):
        kept = row(algorithm.clients.gather([client]), 0)
        first, own = strip_prefix("first", kept), select(kept, network.shapes())
        senders = message.per_client["senders"][position].tolist()
        others = [select(row(algorithm.clients.gather([k]), 0), network.shapes()) for k in senders]
        gains = []
        for model in (own, *others):
            distance = sum((model[n] - first[n]).abs().sum().item() for n in first)
            better = validation_loss(algorithm, first, client) - validation_loss(algorithm, model, client)
            gains.append(better / distance)
        positive = [max(gain, 0) for gain in gains]
        expected, params = dict(first), row(call.models["model"].params, position)
        for gain, model in zip(positive, (own, *others), strict=True):
            share = gain / sum(positive) if sum(positive) else 0
            expected = {n: t + share * (model[n] - first[n]) for n, t in expected.items()}
        mixed_any |= sum(positive) > 0
        torch.testing.assert_close(select(params, expected), expected, rtol=1e-3, atol=1e-5)
        assert all(torch.equal(params[f"first.{n}"], params[n]) for n in expected)
        scaled = torch.zeros(6)
        scaled[senders] = torch.tensor(gains[1:]) / abs(sum(gains))
        torch.testing.assert_close(params[ROW], scaled, rtol=1e-2, atol=1e-4)
    assert mixed_any


def test_distances_leave_running_statistics_out(tiny, ready, monkeypatch):
    """Two models of the same weights and losses have the same gain."""
    algorithm = ready(tiny("fedfomo", network="resnet8-bn")).algorithm
    first = {n: t[None] for n, t in algorithm.task.initial.items()}
    same = {n: t + (n not in algorithm.network.buffers) for n, t in first.items()}
    other = {n: t + 5 if n in algorithm.network.buffers else t for n, t in same.items()}
    losses = iter([2.0, 1.0, 1.0])
    monkeypatch.setattr(algorithm, "_losses", lambda clients, model: torch.tensor([next(losses)]))
    _, gains = algorithm._mixture([1], first, [same, other])
    assert gains.tolist() == [[0.5, 0.5]]


def test_without_a_gain_a_client_goes_back_to_its_first_model(tiny, ready):
    algorithm = prepared(tiny, ready)
    kept = row(algorithm.clients.gather([3]), 0)
    first = strip_prefix("first", kept)
    for _ in range(200):  # a `first` that is better than all others on the validation samples
        rows = algorithm._held_out(3)
        leaves = {n: t.clone().requires_grad_() for n, t in first.items()}
        x, y = algorithm.task.data.inputs(3)[rows], algorithm.task.data.labels(3)[rows]
        loss = F.cross_entropy(algorithm.network.apply(leaves, x), y)
        slopes = torch.autograd.grad(loss, leaves.values())
        first = {n: t - 0.1 * slope for (n, t), slope in zip(first.items(), slopes, strict=True)}
    algorithm.clients.scatter(
        [3], {n: t[None] for n, t in {**kept, **{f"first.{n}": t for n, t in first.items()}}.items()}
    )
    params = row(algorithm.begin([3], algorithm.message([3], 2), 2).models["model"].params, 0)
    close(select(params, first), first)


def test_the_preferred_models_of_the_last_round_are_sent(tiny, ready, differing):
    algorithm = prepared(tiny, ready, {"models": 2, "epsilon": 0.0}, participation=0.8)
    before = algorithm.task.schedule.cohort(1, False)
    assert len(before) == 5
    (client, *others), absent = before, next(k for k in EVERYONE if k not in before)
    preferences = torch.zeros(1, 6)
    preferences[0, others[1]], preferences[0, others[3]], preferences[0, others[0]] = 2.0, 1.0, -1.0
    preferences[0, absent], preferences[0, client] = 9.0, 9.0
    kept = algorithm.clients.gather([client])
    algorithm.clients.scatter([client], {**kept, ROW: preferences})
    message = algorithm.message([client], 2)
    assert message.per_client["senders"].tolist() == [[others[1], others[3]]]
    model = select(algorithm.clients.gather([others[3]]), algorithm.network.shapes())
    assert differing(strip_prefix("peer1", message.per_client), model) == []


def test_random_models_are_sent_with_their_chance(tiny, ready):
    algorithm = prepared(tiny, ready, {"models": 1, "epsilon": 1.0, "epsilon_decay": 0.5}, participation=1.0)
    kept = algorithm.clients.gather([0])
    algorithm.clients.scatter([0], {**kept, ROW: torch.arange(6.0)[None]})
    explored = [algorithm._choose(0, list(EVERYONE), [0, 1, 2, 3, 4, 5], 1)[0] for _ in range(3)]
    assert len(set(explored)) == 1  # the same draw for the same round
    rounds = [algorithm._choose(client, list(EVERYONE), [0, 1, 2, 3, 4, 5], 2)[0] for client in range(5)]
    assert set(rounds) != {5}  # at a chance of a half
    assert [algorithm._choose(c, list(EVERYONE), list(range(6)), 3)[0] for c in range(5)] == [5] * 5


def test_nothing_is_trained_on_validation_samples(begun):
    algorithm, call, outcome = begun("fedfomo", {"holdout": 0.25}, (2,), momentum=0.0, **ONE_STEP)
    held = algorithm._held_out(2)
    assert len(held) == 5
    weights = call.sample_weights[0]
    assert weights[held].tolist() == [0] * 5
    assert weights.mean().item() == pytest.approx(1)
    task = algorithm.task
    rest = [place for place in range(20) if place not in held]
    leaves = {n: t.clone().requires_grad_() for n, t in task.initial.items()}
    x, y = task.data.inputs(2)[rest], task.data.labels(2)[rest]
    slopes = torch.autograd.grad(F.cross_entropy(task.network.apply(leaves, x), y), leaves.values())
    for (name, start), slope in zip(task.initial.items(), slopes, strict=True):
        close(outcome.models["model"][name][0], start - 0.05 * slope)
    assert not torch.allclose(slopes[0], gradient_at(task, task.initial, 2)["conv1.weight"])


def test_messages_and_passes_are_what_was_sent_and_run(tiny, play):
    """Two models each from the second round on, beside their owners; four passes over 4 of 20 samples."""
    played = play(tiny("fedfomo", {"models": 2}))
    size = 4 * played.algorithm.network.count()
    participations, later = 3 + 3 + 3 + 6, 3 + 3 + 6
    assert played.summary["bytes_down"] == later * 2 * (size + 8)
    assert played.summary["bytes_up"] == participations * (size + 4 * 6)
    assert played.summary["bytes_broadcast"] == 0
    assert played.summary["samples"] == 20 * participations + 4 * 4 * later
    assert played.summary["evaluated"] == "personal"


def test_models_are_at_most_the_other_participants(tiny, ready):
    assert prepared(tiny, ready, {"models": 9}).message([0], 2).per_client["senders"].shape == (1, 2)
