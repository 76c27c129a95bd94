"""SCAFFOLD: corrected gradients, control variates, and the server's step."""

import pytest
import torch
from equations import EVERYONE, ONE_STEP, close, gradient_at

from pfl_benchmark.engine.params import add_prefix, strip_prefix


def near(params, seed, scale=0.1):
    """Tensors like these, drawn."""
    rng = torch.Generator().manual_seed(seed)
    return {name: scale * torch.randn(tensor.shape, generator=rng) for name, tensor in params.items()}


def test_gradients_are_corrected_by_the_controls(tiny, ready):
    """w ← w − η (∇ℓ(w) − c_k + c), twice."""
    config = {"batch_size": 20, "local_epochs": 2, "momentum": 0.0}
    algorithm = ready(tiny("scaffold", **config)).algorithm
    task, w = algorithm.task, algorithm.task.initial
    common, own = near(w, 0), near(w, 1)
    algorithm.server |= add_prefix("control", common)
    algorithm.clients.scatter([2], {f"control.{name}": tensor[None] for name, tensor in own.items()})
    outcome = task.executor.train(algorithm.begin([2], algorithm.message([2], 1), 1))
    for _ in range(2):
        gradient = gradient_at(task, w, 2)
        w = {n: t - 0.05 * (gradient[n] - own[n] + common[n]) for n, t in w.items()}
    close({n: outcome.models["model"][n][0] for n in w}, w)


def test_the_servers_control_is_the_mean_of_all_clients_controls(tiny, play):
    """Also of those that have not taken part, whose control is 0."""
    played = play(tiny("scaffold", participation=0.4, last_round="cohort", rounds=3))
    kept = strip_prefix("control", played.algorithm.clients.gather(list(EVERYONE)))
    idle = [k for k in EVERYONE if not kept["fc3.weight"][k].any()]
    assert 0 < len(idle) < len(EVERYONE)
    server = strip_prefix("control", played.algorithm.server)
    close({name: tensor.mean(0) for name, tensor in kept.items()}, server)


def test_the_servers_step(tiny, ready):
    algorithm = ready(tiny("scaffold", {"global_rate": 0.5})).algorithm
    algorithm.message([0, 1, 2], 1)
    before = dict(algorithm.server)
    mean = near(before, 0)
    algorithm.aggregate(mean)
    for name, found in algorithm.server.items():
        change = mean[name] if name.startswith("control.") else mean[name] - before[name]
        close(found, before[name] + 0.5 * change)  # half of the clients, half of the step


def test_scaffold_with_everyone_and_one_local_step_is_fedavg(tiny, play):
    config = {"participation": 1.0, "rounds": 3, **ONE_STEP}
    ours, fedavg = (play(tiny(algo, **config)) for algo in ("scaffold", "fedavg"))
    for found, expected in zip(ours.history, fedavg.history, strict=True):
        close({name: found[name] for name in expected}, expected)
    kept = strip_prefix("control", ours.algorithm.clients.gather(list(EVERYONE)))
    server = strip_prefix("control", ours.algorithm.server)
    close({name: tensor.mean(0) for name, tensor in kept.items()}, server)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_scaffolds_control_variate_is_the_gradient_of_the_only_step(momentum, begun):
    algorithm, _, outcome = begun("scaffold", None, (1, 4), momentum=momentum, **ONE_STEP)
    algorithm.upload(outcome)
    for position, client in enumerate((1, 4)):
        found = {n: t[position] for n, t in strip_prefix("control", outcome.found).items()}
        torch.testing.assert_close(
            found, gradient_at(algorithm.task, algorithm.task.initial, client), rtol=1e-3, atol=1e-5
        )


def test_scaffold_divides_by_how_far_momentum_carries_a_gradient(tiny, ready):
    """A gradient of 1 in each of three steps."""
    algorithm = ready(tiny("scaffold", momentum=0.5)).algorithm
    moved, velocity = 0.0, 0.0
    for _ in range(3):
        velocity = 0.5 * velocity + 1
        moved += 0.05 * velocity
    assert float(algorithm._moves([0], 1)[0]) == pytest.approx(moved)
