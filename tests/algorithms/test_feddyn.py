"""FedDyn: its objective by plain autograd, and Algorithm 1 of its publication."""

import pytest
import torch
from equations import EVERYONE, ONE_STEP, Quadratic, close, gradient_at, quadratic_step

from pfl_benchmark.algorithms.clipping import Clipped
from pfl_benchmark.engine.params import clone, strip_prefix

PLAIN = {"momentum": 0.0, **ONE_STEP}


def test_local_steps_follow_the_dynamic_regulariser(tiny, ready):
    """w ← w − η (∇ℓ(w) + α_k (w − w_received + h_k)), for two steps."""
    config = tiny("feddyn", {"alpha": 0.5, "clip": 0.0}, **{**PLAIN, "local_epochs": 2})
    algorithm = ready(config).algorithm
    task = algorithm.task
    drift = {name: 0.01 * torch.ones_like(tensor) for name, tensor in task.initial.items()}
    algorithm.clients.scatter([2], {f"drift.{name}": tensor[None] for name, tensor in drift.items()})
    outcome = task.executor.train(algorithm.begin([2], algorithm.message([2], 1), 1))
    w = task.initial
    for _ in range(2):
        slope = gradient_at(task, w, 2)
        w = {n: t - 0.05 * (slope[n] + 0.5 * (t - task.initial[n] + drift[n])) for n, t in w.items()}
    close({name: tensor[0] for name, tensor in outcome.models["model"].items()}, w)


def test_the_strength_is_divided_by_the_share_of_samples(tiny, ready):
    algorithm = ready(tiny("feddyn", {"alpha": 0.2}, partition="dirichlet", dirichlet=0.5)).algorithm
    call = algorithm.begin(EVERYONE, algorithm.message(EVERYONE, 1), 1)
    sizes = torch.tensor(algorithm.task.data.train_sizes, dtype=torch.float32)
    assert len(set(sizes.tolist())) > 1
    close(call.constants["client"]["alpha"][:, 0], 0.2 * sizes.mean() / sizes)


def test_the_servers_model_is_that_of_the_publication(tiny, play):
    """h ← h − (α/K) Σ (w_k − w) and w ← mean of w_k − h/α, over partial cohorts; h_k adds up to −K h/α."""
    before, checked, h = {}, [], {}

    def watch(algorithm, line):
        start = before or clone(algorithm.task.initial)
        share = line["participants"] / 6
        for name, mean in algorithm._mean.items():
            h[name] = h.get(name, 0) - 0.1 * share * (mean - start[name])
            close(algorithm.server[name], mean - h[name] / 0.1)
        kept = strip_prefix("drift", algorithm.clients.gather(list(EVERYONE)))
        close({name: tensor.mean(0) for name, tensor in kept.items()}, {n: -t / 0.1 for n, t in h.items()})
        before.update(clone(algorithm.server))
        checked.append(line["round"])

    play(tiny("feddyn", {"alpha": 0.1}), watch=watch)
    assert checked == [1, 2, 3, 4]


@pytest.mark.parametrize("evaluate", ["mean", "server"])
def test_what_is_evaluated(evaluate, tiny, play):
    played = play(tiny("feddyn", {"evaluate": evaluate}))
    expected = played.algorithm._mean if evaluate == "mean" else played.algorithm.server
    models = played.models()
    assert all(torch.equal(models[name][k], tensor) for name, tensor in expected.items() for k in EVERYONE)
    assert not torch.equal(played.algorithm._mean["fc3.bias"], played.algorithm.server["fc3.bias"])


def test_gradients_are_scaled_down_to_the_limit_client_by_client():
    w = torch.tensor([[3.0, 4.0], [0.3, 0.4]])  # slopes of norm 5 and 0.5
    step, taken = quadratic_step({"w.at": w.clone()}, {"w.at": 0.1}, torch.zeros(2, 1, 2)), {}
    object.__setattr__(step, "descend", taken.update)
    with torch.no_grad():
        losses = Clipped(1.0)(step)
    close(taken["w.at"], torch.tensor([[0.6, 0.8], [0.3, 0.4]]))
    close(losses, w.square().sum(1) / 2)
    assert isinstance(step.objective, Quadratic)


def test_without_the_regulariser_the_first_round_is_fedavgs(tiny, play):
    hyper = {"alpha": 0.0, "clip": 0.0}
    ours, fedavg = (play(tiny(algo, own, rounds=1)) for algo, own in (("feddyn", hyper), ("fedavg", {})))
    close(ours.algorithm._mean, fedavg.history[0])
