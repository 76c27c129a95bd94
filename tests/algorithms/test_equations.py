"""The defining equation of each method, on cases small enough for a closed form or plain autograd."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from equations import EVERYONE, ONE_STEP, Quadratic, close, gradient_at, loss_at, quadratic_step

from pfl_benchmark.algorithms.apfl import Mixed, mixture
from pfl_benchmark.algorithms.fedproto import PrototypeMean, class_means
from pfl_benchmark.algorithms.per_fedavg import Meta
from pfl_benchmark.algorithms.pfedme import Envelope
from pfl_benchmark.engine.local import Phase
from pfl_benchmark.engine.params import strip_prefix
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import BatchNorm

# Rules and objectives by themselves


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_pfedmes_inner_solve_finds_the_proximal_point(decay):
    """argmin ½ ‖θ − x‖² + (λ/2) ‖θ − w‖² + (μ/2) ‖θ‖² = (x + λ w) / (1 + λ + μ); w moves by η λ (w − θ)."""
    x, w = torch.tensor([[[1.0, 2.0]], [[-3.0, 0.5]]]), torch.tensor([[0.0, 1.0], [2.0, 2.0]])
    params = {"w.at": w.clone(), "theta.w.at": w.clone()}
    lam, rate = 3.0, 0.1
    step = quadratic_step(params, {"w.at": rate, "theta.w.at": 0.2}, x)
    with torch.no_grad():
        losses = Envelope(lam, 200, decay)(step)
    theta = (x[:, 0] + lam * w) / (1 + lam + decay)
    close(params["theta.w.at"], theta)
    close(params["w.at"], w - rate * lam * (w - theta))
    close(losses, (w - x[:, 0]).square().sum(1) / 2)


def test_pfedmes_clients_have_theta_and_the_server_goes_a_part_of_the_way(begun):
    algorithm, _, outcome = begun("pfedme", {"beta": 0.5}, (1, 4))
    algorithm.keep(outcome)
    (member,) = algorithm.members([1, 4])
    trained = outcome.models["model"]
    close(member.params, strip_prefix("theta", trained))
    assert all((tensor != trained[name]).any() for name, tensor in member.params.items())
    before = dict(algorithm.server)
    algorithm.aggregate({name: tensor + 1 for name, tensor in before.items()})
    close(algorithm.server, {name: tensor + 0.5 for name, tensor in before.items()})


def test_per_fedavg_adapts_at_the_rate_of_its_personalising_step(tiny, ready):
    algorithm = ready(tiny("per-fedavg", {"alpha": 0.03, "ft_epochs": 2})).algorithm
    (phase,) = algorithm.adaptation()
    assert phase.rates == dict.fromkeys(algorithm.network.names, 0.03)
    assert phase.epochs == 2


@pytest.mark.parametrize("second", [False, True])
def test_per_fedavgs_step_is_that_of_maml_on_a_quadratic(second):
    """∇F(w) = (I − α c) c (w − α c (w − x₁) − x₂) with the second-order term, without (I − α c) else."""
    alpha, rate, curvature = 0.3, 0.1, 2.0
    x = torch.tensor([[[1.0], [4.0], [2.0]], [[-2.0], [0.5], [7.0]]])  # one sample a batch
    x = x if second else x[:, :2]
    w = torch.tensor([[0.5], [3.0]])
    step = quadratic_step({"w.at": w.clone()}, {"w.at": rate}, x, objective=Quadratic(curvature))
    with torch.no_grad():
        Meta(alpha, 1e-2 if second else None)(step)
    ahead = w - alpha * curvature * (w - x[:, 0])
    slope = (1 - alpha * curvature if second else 1) * curvature * (ahead - x[:, 1])
    torch.testing.assert_close(step.params["w.at"], w - rate * slope, rtol=1e-3, atol=1e-4)


def test_per_fedavgs_second_order_counts_the_batches_that_it_takes_twice(tiny, play):
    found = [play(tiny("per-fedavg", {"second_order": second})).summary for second in (False, True)]
    assert found[1]["samples"] * 3 == pytest.approx(found[0]["samples"] * 4, rel=0.03)


def test_apfls_gradient_of_alpha_is_that_of_finite_differences():
    x = torch.tensor([[[1.0, -1.0]], [[0.3, 2.0]]])
    common, personal = torch.tensor([[0.0, 1.0], [1.0, 1.0]]), torch.tensor([[2.0, 0.0], [-1.0, 0.5]])
    alpha, rate = torch.tensor([[0.4], [0.7]]), 0.01
    params = {"w.at": common.clone(), "personal.w.at": personal.clone(), "mix.alpha": alpha.clone()}
    params["mix.due"] = torch.ones(2, 1)
    rates = dict.fromkeys(params, rate)
    with torch.no_grad():
        Mixed()(quadratic_step(params, rates, x))

    def loss(weight):
        mixed = mixture(weight, {"at": personal.double()}, {"at": common.double()})["at"]
        return (mixed - x[:, 0]).square().sum(1, keepdim=True) / 2

    delta = 1e-4
    slope = (loss(alpha.double() + delta) - loss(alpha.double() - delta)) / (2 * delta)
    expected = alpha - rate * (slope.float() + 0.02 * alpha)
    torch.testing.assert_close(params["mix.alpha"], expected, rtol=1e-5, atol=1e-6)
    assert params["mix.due"].tolist() == [[0], [0]]
    mixed = alpha * personal + (1 - alpha) * common
    close(params["w.at"], common - rate * (common - x[:, 0]))
    close(params["personal.w.at"], personal - rate * alpha * (mixed - x[:, 0]))


def test_apfls_common_model_is_trained_as_fedavgs_with_momentum(begun):
    found, expected = (begun(name, momentum=0.9)[2].models["model"] for name in ("apfl", "fedavg"))
    close({name: found[name] for name in expected}, expected)


@pytest.mark.parametrize("adaptive", [False, True])
def test_apfl_is_evaluated_with_the_mixture(adaptive, tiny, play):
    played = play(tiny("apfl", {"alpha": 0.3, "adaptive": adaptive}))
    kept, models = played.algorithm.clients.gather(list(EVERYONE)), played.models()
    alpha = kept["mix.alpha"]
    assert bool((alpha != 0.3).all()) == adaptive
    for name, common in played.algorithm.server.items():
        weight = alpha.view(-1, *[1] * common.dim())
        close(models[name], weight * kept[f"personal.{name}"] + (1 - weight) * common)


def test_a_step_is_split_into_batches_that_differ_by_at_most_one():
    x = torch.arange(2 * 5.0).view(2, 5, 1)
    step = quadratic_step({}, {}, x)
    step = dataclasses.replace(
        step, count=torch.tensor([5, 2]), sample_weights=torch.tensor([[0.2] * 5, [0.5, 0.5, 0, 0, 0]])
    )
    first, second = step.split(2)
    assert first.x[0].flatten().tolist() == [0, 2, 4]
    assert second.x[0].flatten().tolist() == [1, 3]
    assert (first.count.tolist(), second.count.tolist()) == ([3, 1], [2, 1])
    close(first.sample_weights, torch.tensor([[1 / 3] * 3, [1, 0, 0]]))
    close(second.sample_weights, torch.tensor([[0.5, 0.5], [1, 0]]))


# FedProx


def test_fedproxs_first_step_is_fedavgs_and_later_ones_are_pulled(begun):
    config = {"batch_size": 20, "local_epochs": 2, "momentum": 0.0}
    algorithm, _, outcome = begun("fedprox", {"mu": 3.0}, (2,), **config)
    task = algorithm.task
    w = task.initial
    for _ in range(2):
        gradient = gradient_at(task, w, 2)
        w = {n: t - 0.05 * (gradient[n] + 3.0 * (t - task.initial[n])) for n, t in w.items()}
    close({n: t[0] for n, t in outcome.models["model"].items()}, w)


# FedProto


def test_fedprotos_prototypes_are_class_means_of_clients_that_have_the_class():
    features = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]])
    means, held = class_means(features, torch.tensor([1, 1, 2]), 4)
    assert means.tolist() == [[0, 0], [2, 1], [5, 5], [0, 0]]
    assert held.tolist() == [False, True, True, False]
    other, has = class_means(features[:1], torch.tensor([2]), 4)
    aggregator = PrototypeMean(means)
    aggregator.add(
        [0, 3], {"prototypes": torch.stack([means, other]), "known": torch.stack([held, has])}, torch.ones(2)
    )
    found = aggregator.value()
    assert found["prototypes"].tolist() == [[0, 0], [2, 1], [3, 2.5], [0, 0]]
    assert found["known"].tolist() == [False, True, True, False]


def test_fedprotos_objective_is_cross_entropy_and_the_gap_to_known_prototypes(begun, tiny, ready):
    algorithm = ready(tiny("fedproto", {"lam": 2.0}, momentum=0.0, **ONE_STEP)).algorithm
    task, stop = algorithm.task, algorithm.network.index("fc3")
    known = torch.arange(10) % 2 == 0
    prototypes = torch.randn(10, 32, generator=torch.Generator().manual_seed(0))
    algorithm.server = {"prototypes": prototypes, "known": known}
    outcome = task.executor.train(algorithm.begin([3], algorithm.message([3], 1), 1))
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in task.initial.items()}
    x, y = task.data.inputs(3), task.data.labels(3)
    features = task.network.apply(leaves, x, stop=stop)
    gaps = (features - prototypes[y]).square().mean(1) * known[y]
    loss = F.cross_entropy(task.network.apply(leaves, features, stop), y) + 2.0 * gaps.mean()
    assert 0 < int(known[y].sum()) < len(y)
    assert outcome.loss[0] == pytest.approx(loss.item(), rel=1e-4)
    gradients = torch.autograd.grad(loss, leaves.values())
    for (name, start), gradient in zip(leaves.items(), gradients, strict=True):
        close(outcome.models["model"][name][0], start.detach() - 0.05 * gradient)
    sent = algorithm.upload(outcome)
    means, held = class_means(features.detach(), y, 10)
    assert torch.equal(sent["known"][0], held)
    close(sent["prototypes"][0], means)


def test_fedproto_predicts_the_nearest_prototype_of_the_clients_classes(tiny, ready):
    algorithm = ready(tiny("fedproto")).algorithm
    held = algorithm.task.data.labels(0).unique()
    algorithm.server = {"prototypes": torch.zeros(10, 32), "known": torch.ones(10, dtype=torch.bool)}
    algorithm.server["prototypes"][held[0]] = 1e3  # far: everything is the other class
    (scores,) = algorithm.scores(algorithm.members([0]), [0], "test")
    assert set(scores.argmax(1).tolist()) == {int(held[1])}
    assert (scores[:, [k for k in range(10) if k not in held]] == -100).all()


# IFCA


def test_ifcas_participants_train_the_model_that_fits_and_only_that_one_moves(begun):
    algorithm, call, outcome = begun("ifca", {"clusters": 3}, **ONE_STEP)
    task = algorithm.task
    models = [strip_prefix(str(number), algorithm.server) for number in range(3)]
    losses = torch.tensor([[loss_at(task, model, k) for model in models] for k in EVERYONE])
    chosen = losses.argmin(1)
    assert torch.equal(outcome.models["model"]["cluster.index"].flatten().long(), chosen)
    assert algorithm.meter.collect() == (3 * 6 * 20, 0)
    for client, number in enumerate(chosen.tolist()):
        assert torch.equal(call.models["model"].params["fc3.weight"][client], models[number]["fc3.weight"])
    aggregator = algorithm.aggregator()
    aggregator.add(EVERYONE, algorithm.upload(outcome), torch.ones(6))
    means = aggregator.value()
    for number in range(3):
        rows = chosen == number
        key = f"{number}.fc1.bias"
        assert (key in means) == bool(rows.any())
        if rows.any():
            close(means[key], outcome.models["model"]["fc1.bias"][rows].mean(0))


def test_ifca_with_one_cluster_is_fedavg(tiny, play, differing):
    ours, fedavg = play(tiny("ifca", {"clusters": 1})), play(tiny("fedavg"))
    for found, expected in zip(ours.history, fedavg.history, strict=True):
        assert differing(strip_prefix("0", found), expected) == []


# FedBN


@pytest.mark.parametrize("training", [True, False])
def test_batch_normalisation_is_pytorchs(training):
    ours, theirs = BatchNorm("bn", 3), torch.nn.BatchNorm2d(3).train(training)
    params = {name: torch.from_numpy(value) for name, value in ours.draw(np.random.default_rng(0)).items()}
    x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0)) * 3 + 1
    for _ in range(2):
        found = ours.apply(params, x, (lambda shape, rate: None) if training else None)
        close(found, theirs(x).detach())
    close(params["bn.mean"], theirs.running_mean)
    close(params["bn.var"], theirs.running_var)


def test_buffers_have_no_gradient_and_are_kept_up_to_date(begun):
    """Also in frozen layers, as in PyTorch's training mode."""
    algorithm, call, outcome = begun("fedbn", None, (2,), momentum=0.0, **ONE_STEP)
    task, network = algorithm.task, algorithm.network
    assert network.names[:4] == ("conv1", "conv1_bn", "conv2", "conv2_bn")
    x = task.network.apply(task.initial, task.data.inputs(2), stop=1)
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    trained = outcome.models["model"]
    close(trained["conv1_bn.mean"][0], 0.1 * mean)
    close(trained["conv1_bn.var"][0], 0.9 + 0.1 * var)
    assert not torch.equal(trained["conv1_bn.weight"][0], task.initial["conv1_bn.weight"])
    frozen = dataclasses.replace(call, phases=[Phase.of(["fc3"], 0.05, 1)])
    close(task.executor.train(frozen).models["model"]["conv1_bn.mean"][0], 0.1 * mean)


def test_fedbns_normalisation_stays_with_the_clients(tiny, play):
    played = play(tiny("fedbn"))
    network, models = played.algorithm.network, played.models()
    for name, tensor in models.items():
        own = "_bn" in name
        assert (name in played.algorithm.server) != own
        assert len({tuple(client.flatten().tolist()) for client in tensor}) == (6 if own else 1), name
    assert network.buffers == {f"conv{n}_bn.{kind}" for n in (1, 2) for kind in ("mean", "var")}


def test_a_network_that_cannot_be_stacked_is_refused_by_the_layers_name(tiny, launch, tmp_path):
    with pytest.raises(
        UserError,
        match="stacked cannot train this network: conv1_bn, conv2_bn: batch normalisation: places that fill",
    ):
        launch(tiny("fedbn"), tmp_path, executor="stacked")
    assert list(tmp_path.iterdir()) == []
