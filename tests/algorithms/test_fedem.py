"""FedEM: its E and M steps, and the mixture that predicts."""

import math

import torch
import torch.nn.functional as F
from equations import EVERYONE, ONE_STEP, close, loss_at

from pfl_benchmark.algorithms.fedem import responsibilities
from pfl_benchmark.engine.params import row, strip_prefix

WEIGHTS = "mixture.weights"


def losses_of(task, models, client):
    """Each model's losses on a client's training samples [M, n]."""
    x, y = task.data.inputs(client), task.data.labels(client)
    return torch.stack([F.cross_entropy(task.network.apply(m, x), y, reduction="none") for m in models])


def test_shares_follow_bayes_rule():
    losses = torch.tensor([[0.0, 2.0], [1.0, 0.5]])
    shares = responsibilities(torch.tensor([0.25, 0.75]), losses)
    first = [
        0.25 * math.exp(-a) / (0.25 * math.exp(-a) + 0.75 * math.exp(-b))
        for a, b in zip(*losses.tolist(), strict=True)
    ]
    close(shares, torch.tensor([first, [1 - share for share in first]]))


def test_the_m_step_weights_every_sample_by_its_share(begun):
    algorithm, _, outcome = begun("fedem", {"components": 2}, (1, 4), momentum=0.0, **ONE_STEP)
    task = algorithm.task
    models = [strip_prefix(slot, algorithm.server) for slot in ("component0", "component1")]
    for position, client in enumerate((1, 4)):
        shares = responsibilities(torch.tensor([0.5, 0.5]), losses_of(task, models, client))
        close(outcome.models["component0"][WEIGHTS][position], shares.mean(1))
        x, y = task.data.inputs(client), task.data.labels(client)
        for slot, model, own in zip(("component0", "component1"), models, shares, strict=True):
            leaves = {name: tensor.clone().requires_grad_() for name, tensor in model.items()}
            loss = (F.cross_entropy(task.network.apply(leaves, x), y, reduction="none") * own).sum() / 20
            gradients = torch.autograd.grad(loss, leaves.values())
            for (name, start), gradient in zip(leaves.items(), gradients, strict=True):
                close(outcome.models[slot][name][position], start.detach() - 0.05 * gradient)


def test_the_next_e_step_begins_with_the_weights_of_the_last(begun):
    algorithm, _, outcome = begun("fedem", {"components": 3}, (1, 4))
    algorithm.upload(outcome)
    algorithm.keep(outcome)
    call = algorithm.begin([1], algorithm.message([1], 2), 2)
    models = [strip_prefix(f"component{number}", algorithm.server) for number in range(3)]
    shares = responsibilities(outcome.models["component0"][WEIGHTS][0], losses_of(algorithm.task, models, 1))
    close(torch.stack([call.sample_weights[f"component{number}"][0] for number in range(3)]), shares)
    assert not torch.allclose(shares.mean(1), outcome.models["component0"][WEIGHTS][0])


def test_components_start_apart_and_cost_what_is_sent(begun):
    algorithm, _, outcome = begun("fedem", {"components": 3})
    size = 4 * algorithm.network.count()
    starts = [strip_prefix(f"component{number}", algorithm.server)["fc1.weight"] for number in range(3)]
    assert torch.equal(starts[0], algorithm.task.initial["fc1.weight"])
    assert not torch.equal(starts[1], starts[2])
    sent = algorithm.upload(outcome)
    assert sum(tensor[0].numel() * 4 for tensor in sent.values()) == 3 * size
    assert algorithm.message(EVERYONE, 1).nbytes(1) == 3 * size
    assert algorithm.meter.collect() == (3 * 6 * 20, 0)


def test_predictions_are_mixtures_of_probabilities(tiny, ready):
    algorithm = ready(tiny("fedem", {"components": 2})).algorithm
    task = algorithm.task
    algorithm.clients.scatter([0, 5], {WEIGHTS: torch.tensor([[0.9, 0.1], [0.2, 0.8]])})
    members = algorithm.members([0, 5])
    for position, scores in enumerate(algorithm.scores(members, [0, 5], "test")):
        x = task.data.inputs((0, 5)[position], "test")
        first, second = (task.network.apply(row(m.params, position), x).softmax(1) for m in members)
        weight = (0.9, 0.2)[position]
        close(scores.exp(), weight * first + (1 - weight) * second)


def test_one_component_is_fedavg(tiny, play, differing):
    ours, fedavg = play(tiny("fedem", {"components": 1})), play(tiny("fedavg"))
    for found, expected in zip(ours.history, fedavg.history, strict=True):
        close(strip_prefix("component0", found), expected)
    assert ours.summary["accuracy"] == fedavg.summary["accuracy"]
    assert ours.summary["evaluated"] == "global"


def test_em_lowers_the_loss_of_the_mixture(tiny, play):
    """−log Σ π_m p_m(y | x) falls, and clients end with weights that differ."""
    played = play(tiny("fedem", {"components": 2}, participation=1.0, rounds=6, local_epochs=3))
    algorithm, task = played.algorithm, played.prepared.task
    first = sum(loss_at(task, task.initial, client) for client in EVERYONE) / 6
    weights = algorithm.clients.gather(list(EVERYONE))[WEIGHTS]
    models = [strip_prefix(slot, algorithm.server) for slot in ("component0", "component1")]
    mixed = [
        -(own[:, None] * (-losses_of(task, models, k)).exp()).sum(0).log().mean()
        for k, own in zip(EVERYONE, weights, strict=True)
    ]
    assert torch.stack(mixed).mean() < first
    close(weights.sum(1), torch.ones(6))
