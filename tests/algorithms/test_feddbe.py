"""FedDBE: what the first round exchanges, and the loss of later steps by plain autograd."""

import pytest
import torch
import torch.nn.functional as F
from equations import EVERYONE, ONE_STEP, close

from pfl_benchmark.errors import UserError

KAPPA, MU, LR = 32.0, 0.3, 0.05


def features_at(algorithm, params, client, part="train"):
    return algorithm.network.apply(params, algorithm.task.data.inputs(client, part), stop=4)


def test_the_first_round_trains_nothing_but_the_mean_of_everybodys_features(tiny, play):
    seen = []
    played = play(tiny("feddbe", **ONE_STEP), watch=lambda algorithm, line: seen.append(line))
    algorithm, (first, second, *_) = played.algorithm, played.history
    initial = algorithm.task.initial
    for name, tensor in initial.items():
        assert torch.equal(first[name], tensor)
        assert not torch.equal(second[name], tensor)
    means = torch.stack([features_at(algorithm, initial, k).mean(0) for k in EVERYONE])
    close(first["mean"], means.mean(0))
    assert torch.equal(played.history[-1]["mean"], first["mean"])
    size, vector = 4 * algorithm.network.count(), 4 * 32
    sent = [[line[f"bytes_{kind}"] for kind in ("down", "up", "broadcast")] for line in seen]
    assert sent[:2] == [[6 * size, 6 * vector, 6 * vector], [3 * size, 3 * size, 0]]
    assert sent[-1] == [6 * size] * 3


def test_steps_draw_the_running_mean_to_everybodys_and_train_the_vector(tiny, ready):
    """Two steps, so that the second one's running mean holds the first one's without its gradient."""
    hyper, steps = {"kappa": KAPPA, "mu": MU}, {**ONE_STEP, "local_epochs": 2}
    algorithm = ready(tiny("feddbe", hyper, momentum=0.0, **steps)).algorithm
    task, generator = algorithm.task, torch.Generator().manual_seed(0)
    common, vectors = torch.rand(32, generator=generator), torch.rand(2, 32, generator=generator)
    algorithm.server["mean"] = common
    algorithm.clients.scatter([1, 4], {"bias.vector": vectors})
    algorithm.start_round(2)
    outcome = task.executor.train(algorithm.begin([1, 4], algorithm.message([1, 4], 2), 2))
    for position, client in enumerate((1, 4)):
        params, running = {**task.initial, "vector": vectors[position]}, torch.zeros(32)
        for _ in range(2):
            leaves = {name: tensor.clone().requires_grad_() for name, tensor in params.items()}
            features = features_at(algorithm, leaves, client)
            running = (1 - MU) * running + MU * features.mean(0)
            logits = algorithm.network.apply(leaves, features + leaves["vector"], 4)
            loss = F.cross_entropy(logits, task.data.labels(client))
            loss = loss + KAPPA * (0.5 * (running - common) ** 2).sum() / 512
            gradients = torch.autograd.grad(loss, leaves.values())
            params = {
                name: tensor.detach() - LR * gradient
                for (name, tensor), gradient in zip(leaves.items(), gradients, strict=True)
            }
            running = running.detach()
        trained = {name: tensor[position] for name, tensor in outcome.models["model"].items()}
        assert outcome.loss[position] == pytest.approx(loss.item(), rel=1e-4)
        close(trained["running.mean"], running)
        close(trained["bias.vector"], params.pop("vector"))
        close({name: trained[name] for name in params}, params)


def test_clients_predict_with_their_vector_added_to_the_features(tiny, ready):
    algorithm = ready(tiny("feddbe")).algorithm
    vectors = torch.rand(2, 32, generator=torch.Generator().manual_seed(1))
    algorithm.clients.scatter([2, 5], {"bias.vector": vectors})
    scores = algorithm.scores(algorithm.members([5, 2]), [5, 2], "test")
    initial = algorithm.task.initial
    for found, client, vector in zip(scores, (5, 2), vectors.flip(0), strict=True):
        close(
            found,
            algorithm.network.apply(initial, features_at(algorithm, initial, client, "test") + vector, 4),
        )


def test_one_round_is_refused(tiny, ready):
    with pytest.raises(UserError, match="--rounds 1: the first round exchanges means; give at least 2"):
        ready(tiny("feddbe", rounds=1))
