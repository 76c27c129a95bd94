"""The defining equation of each method, on cases small enough for a closed form or plain autograd."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from equations import EVERYONE, ONE_STEP, Quadratic, close, gradient_at, loss_at, quadratic_step

from pfl_benchmark.algorithms.apfl import Mixed, mixture
from pfl_benchmark.algorithms.fedamp import attention
from pfl_benchmark.algorithms.fedproto import PrototypeMean, class_means
from pfl_benchmark.algorithms.knn_per import neighbour_shares
from pfl_benchmark.algorithms.per_fedavg import Meta
from pfl_benchmark.algorithms.pfedme import Envelope
from pfl_benchmark.engine.local import Phase
from pfl_benchmark.engine.params import expand, strip_prefix
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


# SCAFFOLD


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


# FedRoD


def test_fedrods_heads_learn_from_their_own_losses(begun):
    algorithm, _, outcome = begun("fedrod", None, (2,), momentum=0.0, **ONE_STEP)
    task, last = algorithm.task, algorithm.network.index("fc3")
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in task.initial.items()}
    x, y = task.data.inputs(2), task.data.labels(2)
    counts = torch.bincount(y, minlength=10).float()
    features = task.network.apply(leaves, x, stop=last)
    generic = task.network.apply(leaves, features, last)
    present = counts > 0  # the balanced softmax by its definition: a sum over n_c exp(z_c)
    partition = (counts * generic.exp())[:, present].sum(1)
    balanced = partition.log() - generic.gather(1, y[:, None])[:, 0] - counts[y].log()
    for (name, start), gradient in zip(
        leaves.items(), torch.autograd.grad(balanced.mean(), leaves.values(), retain_graph=True), strict=True
    ):
        close(outcome.models["model"][name][0], start.detach() - 0.05 * gradient)
    weight = task.initial["fc3.weight"].clone().requires_grad_()
    personal = F.linear(features.detach(), weight, task.initial["fc3.bias"])
    loss = F.cross_entropy(generic.detach() + personal, y)
    (gradient,) = torch.autograd.grad(loss, [weight])
    close(outcome.models["model"]["personal.weight"][0], weight.detach() - 0.05 * gradient)
    assert outcome.loss[0] == pytest.approx((balanced.mean() + loss).item(), rel=1e-4)


# FedAMP


def test_fedamps_attention_falls_with_the_distance_and_leaves_the_rest_to_ones_own():
    distances = torch.tensor([[math.inf, 1.0, 2.0], [0.0, math.inf, 0.0]])
    weights = attention(distances, alpha=0.5, sigma=2.0)
    close(weights[0], torch.tensor([0, 0.25 * math.exp(-0.5), 0.25 * math.exp(-1.0)]))
    close(weights[1], torch.tensor([0.25, 0, 0.25]))
    close(attention(distances, alpha=8.0, sigma=2.0)[1], torch.tensor([0.5, 0, 0.5]))  # scaled to 1


def test_fedamps_cloud_models_are_those_mixtures(tiny, ready):
    algorithm = ready(tiny("fedamp", {"alpha": 0.3, "sigma": 5.0})).algorithm
    initial = algorithm.task.initial
    start = strip_prefix("cloud", algorithm.message([0, 1], 1).per_client)
    close(start, expand(initial, 2))
    shifts = torch.tensor([0.0, 0.01, 0.02])
    models = {n: t + shifts.view(-1, *[1] * t.dim()) for n, t in initial.items()}
    algorithm.clients.scatter([1, 3, 5], models)
    size = sum(tensor.numel() for tensor in initial.values())
    squares = (shifts - shifts[:, None]).square() * size
    weights = 0.3 * torch.exp(-squares / 5.0) / 5.0
    cloud = strip_prefix("cloud", algorithm.message([3], 2).per_client)
    own, others = shifts[1], shifts[[0, 2]]
    expected = own + (weights[1, [0, 2]] * (others - own)).sum()
    for name, tensor in cloud.items():
        close(tensor[0], initial[name] + expected)


def test_fedamps_distances_leave_running_statistics_out(tiny, ready):
    """Clients whose weights are alike have all of each other's model, and nothing pulls them."""
    losses = []
    for strength in (0.0, 10.0):
        algorithm = ready(tiny("fedamp", {"lam": strength}, network="resnet8-bn", **ONE_STEP)).algorithm
        initial, buffers = algorithm.task.initial, algorithm.network.buffers
        for client in (1, 4):
            own = {n: t + client * (n in buffers) for n, t in initial.items()}
            algorithm.clients.scatter([client], {n: t[None] for n, t in own.items()})
        message = algorithm.message([1], 2)
        close({n: message.per_client[f"cloud.{n}"][0] for n in buffers}, {n: initial[n] + 4 for n in buffers})
        losses.append(algorithm.task.executor.train(algorithm.begin([1], message, 2)).loss)
    close(losses[1], losses[0])


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


# kNN-Per


def test_neighbours_count_by_their_distance():
    store, labels = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]), torch.tensor([0, 1, 1, 2])
    (shares,) = neighbour_shares(store, labels, torch.zeros(1, 2), 3, 4)
    kernel = [1.0, math.exp(-1 / 2), math.exp(-4 / 2)]
    expected = [kernel[0], kernel[1] + kernel[2], 0, 0]
    assert shares.tolist() == pytest.approx([value / sum(kernel) for value in expected])
    assert neighbour_shares(store, labels, torch.zeros(1, 2), 99, 4).sum() == pytest.approx(1)


def test_knn_per_without_neighbours_is_fedavg(tiny, play):
    ours, fedavg = play(tiny("knn-per", {"weight": 0.0})), play(tiny("fedavg"))
    assert ours.summary["accuracy"] == fedavg.summary["accuracy"]
    assert ours.summary["test_loss"] == pytest.approx(fedavg.summary["test_loss"], rel=1e-5)
    assert ours.summary["adaptation_samples"] == 6 * 20


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


# Optimisers of the server


def test_fedavgm_without_momentum_is_fedavg_and_with_it_sums_the_changes(tiny, play, ready):
    plain, fedavg = play(tiny("fedavgm", {"server_momentum": 0.0, "server_rate": 1.0})), play(tiny("fedavg"))
    close(plain.history[-1], fedavg.history[-1])
    algorithm = ready(tiny("fedavgm", {"server_momentum": 0.5, "server_rate": 2.0})).algorithm
    algorithm.server = {"a": torch.tensor([1.0])}
    algorithm._velocity = {"a": torch.zeros(1)}
    for mean in (0.8, 0.7):
        algorithm.aggregate({"a": torch.tensor([mean])})
    # v = 0.2, w = 0.6; then v = 0.1 + (0.6 − 0.7) = 0, w = 0.6
    assert algorithm.server["a"].item() == pytest.approx(0.6)


def test_nesterovs_step_looks_ahead(ready, tiny):
    hyper = {"server_momentum": 0.5, "server_rate": 2.0, "nesterov": True}
    algorithm = ready(tiny("fedavgm", hyper)).algorithm
    algorithm.server = {"a": torch.tensor([1.0])}
    algorithm._velocity = {"a": torch.zeros(1)}
    for mean in (0.8, 0.7):
        algorithm.aggregate({"a": torch.tensor([mean])})
    # v = 0.2, w = 1 − 2 (0.2 + 0.1) = 0.4; then v = 0.1 − 0.3 = −0.2, w = 0.4 − 2 (−0.3 − 0.1) = 1.2
    assert algorithm.server["a"].item() == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("squares", "expected"),
    [("adam", 0.99 * 1e-6 + 0.01 * 0.04), ("yogi", 1e-6 + 0.01 * 0.04), ("adagrad", 1e-6 + 0.04)],
)
def test_fedadams_step(squares, expected, tiny, ready):
    algorithm = ready(tiny("fedadam", {"squares": squares})).algorithm
    algorithm.server = {"a": torch.tensor([1.0])}
    algorithm._mean, algorithm._squares = {"a": torch.zeros(1)}, {"a": torch.full((1,), 1e-6)}
    algorithm.aggregate({"a": torch.tensor([1.2])})
    assert algorithm._squares["a"].item() == pytest.approx(expected, rel=1e-4)
    moved = 0.01 * 0.1 * 0.2 / (math.sqrt(expected) + 1e-3)
    assert algorithm.server["a"].item() == pytest.approx(1 + moved, rel=1e-6)
