"""pFedFDA: the mathematics of its head, what it sends, and what its clients are evaluated with."""

import math

import numpy as np
import pytest
import torch
from costs import cost_of
from stopping import Stop
from torch.testing import assert_close

from pfl_benchmark.algorithms import gaussian_head
from pfl_benchmark.algorithms.gaussian_head import (
    Gaussians,
    best_coefficients,
    class_prior,
    estimate,
    halves,
    head,
    interpolate,
    one_thread,
    validation_loss,
)
from pfl_benchmark.algorithms.pfedfda import PFedFDA, PFedFDAHyper
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import find_setting
from pfl_benchmark.datasets.api import Dataset, Samples, Split
from pfl_benchmark.engine.algorithm import RunContext
from pfl_benchmark.engine.checkpoints import packed, unpacked
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.executors import EXECUTORS, LoopExecutor
from pfl_benchmark.engine.local import LocalResult
from pfl_benchmark.engine.params import clone, nbytes
from pfl_benchmark.engine.rounds import mean_weights
from pfl_benchmark.engine.schedule import Schedule
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import NETWORKS, Linear, Network, Recurrent
from pfl_benchmark.records.rows import RowFile, new_name

REGULARISATIONS = ("official", "eps_I")
CLASSES, WIDTH = 5, 8


def random_problem(seed, count=60, present=3):
    """Features [N, d] as a ReLU leaves them, labels of the first `present` classes, and common Gaussians."""
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(0, present, count))
    means = torch.from_numpy(rng.random((CLASSES, WIDTH)))
    centres = means + 0.7 * torch.from_numpy(rng.standard_normal((CLASSES, WIDTH)))
    features = (centres[labels] + torch.from_numpy(rng.standard_normal((count, WIDTH)))).relu()
    factor = torch.from_numpy(rng.standard_normal((WIDTH, WIDTH)))
    return features, labels, Gaussians(means, factor @ factor.T / WIDTH + 0.1 * torch.eye(WIDTH).double())


def scores(features, layer):
    weight, bias = layer
    return features @ weight.T + bias


# The head


@pytest.mark.parametrize("seed", range(3))
def test_with_unit_covariance_the_head_is_the_nearest_mean_rule(seed):
    features, labels, (means, _) = random_problem(seed)
    prior = class_prior(labels, CLASSES)
    ours = scores(features, head(Gaussians(means, torch.eye(WIDTH).double()), prior))
    distances = torch.cdist(features, means) ** 2
    assert_close(ours.log_softmax(1), (prior.log() - 0.5 * distances).log_softmax(1))


@pytest.mark.parametrize("seed", range(3))
def test_the_head_is_the_posterior_of_its_gaussians(seed):
    features, labels, common = random_problem(seed)
    prior = class_prior(labels, CLASSES)
    shrunk = (1 - 1e-4) * common.covariance + 1e-4 * common.covariance.trace() / WIDTH * torch.eye(WIDTH)
    weight, bias = head(common, prior)
    assert_close(weight @ shrunk, common.means)
    densities = torch.stack(
        [torch.distributions.MultivariateNormal(m, shrunk).log_prob(features) for m in common.means], 1
    )
    assert_close(scores(features, (weight, bias)).softmax(1), (densities + prior.log()).softmax(1))


def test_a_common_factor_of_the_prior_changes_no_prediction():
    features, labels, common = random_problem(0)
    prior = class_prior(labels, CLASSES)
    ours, scaled = (scores(features, head(common, factor * prior)) for factor in (1, 7.5))
    assert_close(scaled - ours, torch.full_like(ours, math.log(7.5)))
    assert torch.equal(ours.argmax(1), scaled.argmax(1))


@pytest.mark.parametrize("labels", [[0], [3, 3, 3], [0, 1, 2, 3, 4, 4]])
def test_the_prior_is_a_positive_distribution(labels):
    labels = torch.tensor(labels)
    prior = class_prior(labels, CLASSES)
    assert prior.min() > 0
    assert_close(prior.sum().item(), 1.0)
    counts = torch.bincount(labels, minlength=CLASSES)
    assert_close(prior * (1 + 1e-4 * CLASSES), counts.double() / len(labels) + 1e-4)


# Estimates


def slow_estimate(features, labels, means, cov_reg, least):
    """The definition, sample by sample."""
    own = means.clone()
    for label in labels.unique():
        rows = features[labels == label]
        if len(rows) >= least:
            own[label] = rows.mean(0)
    scatter = sum(torch.outer(z - own[y], z - own[y]) for z, y in zip(features, labels, strict=True))
    identity = torch.eye(WIDTH).double()
    added = 1e-4 + identity if cov_reg == "official" else 1e-4 * identity
    return Gaussians(own, scatter / (len(features) - 1) + added)


@pytest.mark.parametrize("cov_reg", REGULARISATIONS)
@pytest.mark.parametrize("least", [1, 3])
def test_estimates_are_maximum_likelihood(cov_reg, least):
    features, labels, common = random_problem(0)
    labels[labels == 2] = 1
    labels[:2] = 2  # a class of two samples, and two absent ones
    ours = estimate(features, labels, common.means, cov_reg, least)
    theirs = slow_estimate(features, labels, common.means, cov_reg, least)
    assert_close(ours.means, theirs.means)
    assert_close(ours.covariance, theirs.covariance)
    kept = [2, 3, 4] if least == 3 else [3, 4]
    assert torch.equal(ours.means[kept], common.means[kept])
    assert not torch.equal(ours.means[2], common.means[2]) or least == 3


@pytest.mark.parametrize(("cov_reg", "floor"), [("official", 1.0), ("eps_I", 1e-4)])
@pytest.mark.parametrize("count", [1, 2, 5, 60])
def test_covariances_are_positive_definite(cov_reg, floor, count):
    features, labels, common = random_problem(1, count)
    covariance = estimate(features, labels, common.means, cov_reg).covariance
    assert_close(covariance, covariance.T)
    assert torch.linalg.eigvalsh(covariance).min() >= floor * (1 - 1e-9)


@pytest.mark.parametrize("coefficients", [(0.0, 0.0), (0.3, 0.9), (1.0, 1.0)])
def test_interpolation(coefficients):
    _, _, common = random_problem(0)
    _, _, local = random_problem(1)
    mixed = interpolate(coefficients, local, common)
    for b, ours, near, far in zip(coefficients, mixed, local, common, strict=True):
        assert_close(ours, far + b * (near - far))


def test_at_zero_only_the_prior_is_the_clients_own():
    _, _, common = random_problem(0)
    layers = []
    for seed in (1, 2):
        features, labels, _ = random_problem(seed, count=30 * seed)
        prior = class_prior(labels, CLASSES)
        local = estimate(features, labels, common.means, "official")
        weight, bias = head(interpolate((0, 0), local, common), prior)
        layers.append((weight, bias - prior.log()))
    assert_close(*layers)


@pytest.mark.parametrize("cov_reg", REGULARISATIONS)
def test_at_one_nothing_common_is_left_for_classes_present(cov_reg):
    features, labels, common = random_problem(0)
    prior = class_prior(labels, CLASSES)
    other = Gaussians(common.means + 3, 2 * common.covariance)
    weights, biases = zip(
        *(
            head(interpolate((1, 1), estimate(features, labels, g.means, cov_reg), g), prior)
            for g in (common, other)
        ),
        strict=True,
    )
    assert_close(weights[0][:3], weights[1][:3])
    assert_close(biases[0][:3], biases[1][:3])
    assert (weights[0][3:] - weights[1][3:]).abs().max() > 0.1


# Cross-validation


@pytest.mark.parametrize("seed", range(4))
def test_halves_have_the_same_classes(seed):
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(0, 4, int(rng.integers(8, 40))))
    labels = torch.cat([labels, torch.tensor([4])])  # alone in its class
    left, right = halves(labels, np.random.default_rng(seed))
    assert sorted(left.tolist() + right.tolist()) == [
        i for i, label in enumerate(labels) if (labels == label).sum() >= 2
    ]
    counts = torch.stack([torch.bincount(labels[part], minlength=5) for part in (left, right)])
    assert (counts[0] - counts[1]).abs().max() <= 1
    again, _ = halves(labels, np.random.default_rng(seed))
    assert torch.equal(left, again)
    assert not torch.equal(left.sort()[0], halves(labels, np.random.default_rng(seed + 100))[0].sort()[0])


@pytest.mark.parametrize("labels", [[0], [0, 1, 2, 3], [2, 2], [0, 0, 0, 1]])
def test_too_few_samples_leave_the_common_statistics(labels):
    labels = torch.tensor(labels)
    features, _, common = random_problem(0, count=len(labels))
    prior, rng = class_prior(labels, CLASSES), np.random.default_rng(0)
    objective = validation_loss(features, labels, common, prior, "official", rng)
    assert objective is None
    assert best_coefficients(objective, (0.2, 0.7), single=False) == (0.0, 0.0)


def objective_of(seed, cov_reg, **problem):
    features, labels, common = random_problem(seed, **problem)
    prior = class_prior(labels, CLASSES)
    return validation_loss(features, labels, common, prior, cov_reg, np.random.default_rng(seed))


def test_the_objective_is_the_loss_of_each_half_under_the_others_head():
    features, labels, common = random_problem(3)
    prior = class_prior(labels, CLASSES)
    objective = validation_loss(features, labels, common, prior, "eps_I", np.random.default_rng(5))
    left, right = halves(labels, np.random.default_rng(5))
    expected = 0.0
    for fit, test in ((left, right), (right, left)):
        local = estimate(features[fit], labels[fit], common.means, "eps_I")
        outputs = scores(features[test], head(interpolate((0.3, 0.8), local, common), prior))
        expected += torch.nn.functional.cross_entropy(outputs, labels[test]).item()
    assert objective(np.array([0.3, 0.8]))[0] == pytest.approx(expected)


@pytest.mark.parametrize("cov_reg", REGULARISATIONS)
@pytest.mark.parametrize("point", [(0.5, 0.5), (0.05, 0.9), (0.9, 0.1), (1.0, 1.0), (0.0, 0.0)])
def test_the_gradient_is_that_of_the_objective(cov_reg, point):
    objective, h = objective_of(0, cov_reg), 1e-6
    numeric = [
        (objective(np.array(point) + step)[0] - objective(np.array(point) - step)[0]) / (2 * h)
        for step in h * np.eye(2)
    ]
    assert objective(np.array(point))[1] == pytest.approx(numeric, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(
    ("seed", "cov_reg", "problem"),
    [
        (0, "official", {}),
        (1, "eps_I", {}),
        (2, "official", {"present": 1}),
        (3, "eps_I", {"count": 15}),
        (4, "official", {"present": 5, "count": 200}),
    ],
)
def test_the_search_does_not_lose_to_a_grid(single, seed, cov_reg, problem):
    objective = objective_of(seed, cov_reg, **problem)
    chosen = best_coefficients(objective, (0.5, 0.5), single)
    assert 0 <= min(chosen) <= max(chosen) <= 1
    assert chosen[0] == chosen[1] or not single
    ticks = np.linspace(0, 1, 21)
    grid = [np.array([a, b]) for a in ticks for b in ticks if a == b or not single]
    least = min(objective(point)[0] for point in grid)
    # The official gradient tolerance, 1e-3, across the unit square.
    assert objective(np.array(chosen))[0] <= least + 1e-3


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("after", [0, 1])
def test_a_failed_search_keeps_the_previous_coefficients(single, after):
    seen = []

    def broken(point):
        seen.append(point)
        value = 1.0 if len(seen) <= after else float("nan")
        return value, np.full(2, -1.0 if len(seen) <= after else float("nan"))

    assert best_coefficients(broken, [0.25, 0.75], single) == (0.25, 0.75)
    assert len(seen) < 200


def test_one_thread_is_given_back(monkeypatch):
    set_to = []
    monkeypatch.setattr(gaussian_head.torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr(gaussian_head.torch, "set_num_threads", set_to.append)
    with pytest.raises(ValueError, match="stop"), one_thread():
        raise ValueError("stop")
    assert set_to == [1, 7]


# Messages

FLOATS = {"cifar10": 311_928, "cifar100": 1_091_328, "emnist": 249_344}  # specification, traffic of a round
SHAPES = {"cifar10": (3, 32, 32), "cifar100": (3, 32, 32), "emnist": (1, 28, 28)}


@pytest.mark.parametrize("dataset", FLOATS)
def test_floats_of_a_client_round(dataset):
    network, shape = NETWORKS[dataset], SHAPES[dataset]
    classes, width = network.shapes()["fc3.weight"]
    images = Samples(np.zeros((2, *shape), np.uint8), np.array([0, 1]))
    constants = ((0.5,) * shape[0],) * 2
    made = Dataset(dataset, images, images, classes, ("?",) * classes, *constants, "made")
    split = Split((np.arange(2),), (np.arange(2),))
    config, streams = RunConfig(algo="pfedfda", dataset=dataset, clients=1), Streams(0)
    data = FederatedData(made, split, torch.device("cpu"))
    initial = network.init(streams.get("init"))
    schedule, executor = Schedule(data.clients, 1.0, streams), LoopExecutor(config, data, streams)
    task = RunContext(config, network, data, streams, schedule, 160, initial, executor)
    algorithm = PFedFDA(task, PFedFDAHyper())

    message = algorithm.message([0], 1)
    model = algorithm.begin([0], message, 1).models["model"]
    seen = torch.rand(40, width), torch.arange(40) % 2
    outcome = LocalResult(1, [0], {"model": model.params}, torch.zeros(1), 0, 0, [seen])
    sent = algorithm.upload(outcome)
    assert message.nbytes(1) == nbytes(sent) == 4 * FLOATS[dataset]
    assert cost_of(algorithm, 1).down == cost_of(algorithm, 1).up == 4 * FLOATS[dataset]
    assert {name: tensor.shape[1:] for name, tensor in sent.items()} == {
        name: tensor.shape for name, tensor in message.common.items()
    }
    assert not any(name.startswith("fc3.") for name in message.common)


def test_the_start(tiny, ready):
    algorithm = ready(tiny("pfedfda")).algorithm
    means = algorithm.server["means"]
    assert 0 <= means.min() < 0.05
    assert 0.95 < means.max() < 1
    assert torch.equal(algorithm.server["covariance"], torch.eye(32))
    assert torch.equal(means, ready(tiny("pfedfda")).algorithm.server["means"])
    assert not torch.equal(means, ready(tiny("pfedfda", seed=1)).algorithm.server["means"])
    assert algorithm.clients.gather([0, 5])["coefficients"].tolist() == [[0.5, 0.5]] * 2


def test_planned_bytes_are_counted_bytes(tiny, play):
    lines = []
    played = play(tiny("pfedfda"), watch=lambda algorithm, line: lines.append(line))
    traffic = cost_of(played.algorithm, 1)
    for line in lines:
        assert line["bytes_down"] == line["participants"] * traffic.down
        assert line["bytes_up"] == line["participants"] * traffic.up
    assert lines[-1]["bytes_broadcast"] == 6 * traffic.down


def test_participants_count_by_their_samples(tiny, ready):
    algorithm = ready(tiny("pfedfda", partition="dirichlet", dirichlet=0.5)).algorithm
    sizes = algorithm.task.data.train_sizes
    assert len(set(sizes)) > 1
    assert mean_weights(algorithm, range(6)).tolist() == sizes


# A participation


def participate(algorithm, clients=(0, 2, 5)):
    """One round of some clients up to their uploads: (call, outcome, uploads)."""
    call = algorithm.begin(list(clients), algorithm.message(list(clients), 1), 1)
    outcome = algorithm.task.executor.train(call)
    return call, outcome, algorithm.upload(outcome)


def test_the_body_is_trained_under_the_received_head(tiny, ready):
    played = ready(tiny("pfedfda"))
    call, outcome, _ = participate(played.algorithm)
    before, after = call.models["model"].params, outcome.models["model"]
    data, server = played.prepared.task.data, played.algorithm.server
    common = Gaussians(server["means"].double(), server["covariance"].double())
    for position, client in enumerate(call.clients):
        prior = class_prior(data.labels(client), 10)
        for name, tensor in zip(("fc3.weight", "fc3.bias"), head(common, prior), strict=True):
            assert_close(before[name][position], tensor.float())
    for name in ("fc3.weight", "fc3.bias"):
        assert torch.equal(before[name], after[name])
    assert not torch.equal(before["fc2.weight"], after["fc2.weight"])


def passed(played, params, clients):
    """Features of the clients' training data under stacked models, in evaluation mode."""
    task = played.prepared.task
    outputs = task.executor.forward(task.network, params, clients, "train", task.network.index("fc3"))
    return [(z.double(), task.data.labels(client)) for z, client in zip(outputs, clients, strict=True)]


@pytest.mark.parametrize("feats", ["all_epochs", "last_epoch", "eval_pass"])
@pytest.mark.parametrize("cov_reg", REGULARISATIONS)
def test_what_is_sent_is_local_statistics_interpolated_with_the_common_ones(feats, cov_reg, tiny, ready):
    options = {"fda_feats": feats, "cov_reg": cov_reg}
    split = {"partition": "dirichlet", "dirichlet": 0.5}
    played = ready(tiny("pfedfda", options, local_epochs=3, lr=0.005, dropout=0.2, **split))
    call, outcome, sent = participate(played.algorithm)
    if feats == "eval_pass":
        assert outcome.features == []
        samples = passed(played, outcome.models["model"], call.clients)
    else:
        sizes = [played.prepared.task.data.train_sizes[client] for client in call.clients]
        assert [len(labels) for _, labels in outcome.features] == [3 * size for size in sizes]
        samples = [(z.double(), labels) for z, labels in outcome.features]
        if feats == "last_epoch":
            samples = [(z[2 * n :], y[2 * n :]) for (z, y), n in zip(samples, sizes, strict=True)]
    # Unlike in evaluation, one sample is enough for a mean.
    rare = [label for _, y in samples for label in y.unique() if (y == label).sum() < 3]
    assert rare or feats == "all_epochs"
    server = played.algorithm.server
    common = Gaussians(server["means"].double(), server["covariance"].double())
    chosen = outcome.found["coefficients"].tolist()
    for position, ((features, labels), b) in enumerate(zip(samples, chosen, strict=True)):
        mixed = interpolate(b, estimate(features, labels, common.means, cov_reg), common)
        assert_close(sent["means"][position], mixed.means.float())
        assert_close(sent["covariance"][position], mixed.covariance.float())
        covariance = sent["covariance"][position].double()
        assert_close(covariance, covariance.T)
        assert torch.linalg.eigvalsh(covariance).min() > 0
    played.algorithm.keep(outcome)
    assert played.algorithm.clients.gather(call.clients)["coefficients"].tolist() == chosen
    assert played.algorithm.clients.met == call.clients


def test_tied_coefficients(tiny, ready):
    _, outcome, _ = participate(ready(tiny("pfedfda", {"single_beta": "yes"})).algorithm)
    chosen = outcome.found["coefficients"]
    assert torch.equal(chosen[:, 0], chosen[:, 1])


def test_a_failed_search_falls_back_on_the_clients_own_last_coefficients(tiny, ready, monkeypatch):
    played = ready(tiny("pfedfda"))
    kept = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)
    played.algorithm.clients.scatter([2, 5], {"coefficients": kept})

    def broken(point):
        return float("nan"), np.full(2, float("nan"))

    monkeypatch.setattr(gaussian_head, "validation_loss", lambda *arguments: broken)
    _, outcome, _ = participate(played.algorithm)
    assert outcome.found["coefficients"].tolist() == [[0.5, 0.5], *kept.tolist()]


def test_a_class_that_nobody_has_keeps_its_initial_mean(tiny, play, ready):
    config = tiny("pfedfda", clients=4, classes_per_client=2, participation=0.5)
    start = clone(ready(config).algorithm.server)
    played = play(config)
    labels = torch.cat([played.prepared.task.data.labels(client) for client in range(4)])
    absent = [label for label in range(10) if label not in labels]
    present = [label for label in range(10) if label in labels]
    assert len(absent) == 2
    assert_close(played.algorithm.server["means"][absent], start["means"][absent])
    moved = (played.algorithm.server["means"] - start["means"]).abs().amax(1)
    assert moved[present].min() > 1e-3


# Evaluation


def test_clients_are_evaluated_with_the_head_of_their_own_statistics(tiny, play):
    config = tiny("pfedfda", partition="dirichlet", dirichlet=0.5)
    played = play(config)
    algorithm, data = played.algorithm, played.prepared.task.data
    (member,) = algorithm.members(range(6))
    common = Gaussians(algorithm.server["means"].double(), algorithm.server["covariance"].double())
    rare = 0
    for client, (features, labels) in enumerate(passed(played, member.params, range(6))):
        for name in ("conv1.weight", "fc2.bias"):
            assert torch.equal(member.params[name][client], algorithm.server[name])
        prior, folds = class_prior(labels, 10), algorithm.task.streams.get("folds", 0, client)
        objective = validation_loss(features, labels, common, prior, "official", folds)
        b = best_coefficients(objective, (0.5, 0.5), single=False)
        # A class of one or two samples takes the common mean.
        mixed = interpolate(b, estimate(features, labels, common.means, "official", least=3), common)
        weight, bias = head(mixed, prior)
        assert_close(member.params["fc3.weight"][client], weight.float())
        assert_close(member.params["fc3.bias"][client], bias.float())
        counts = torch.bincount(data.labels(client), minlength=10)
        rare += int(((counts > 0) & (counts < 3)).sum())
    assert rare > 0
    assert algorithm.evaluated in ("", "personal")


def test_evaluation_changes_nothing(tiny, play, differing):
    runs = [play(tiny("pfedfda", eval_every=every)) for every in (0, 1)]
    for ours, theirs in zip(runs[0].history, runs[1].history, strict=True):
        assert differing(ours, theirs) == []
    algorithm = runs[0].algorithm
    server, kept = clone(algorithm.server), algorithm.clients.gather(range(6))
    first, second = (algorithm.members([1, 4])[0].params for _ in range(2))
    assert differing(first, second) == []
    (whole,) = algorithm.members(range(6))
    assert differing({name: tensor[[1, 4]] for name, tensor in whole.params.items()}, first) == []
    assert differing(algorithm.server, server) == []
    assert differing(algorithm.clients.gather(range(6)), kept) == []


def test_diagnostics_are_the_coefficients_of_the_last_evaluation(tiny, play):
    algorithm = play(tiny("pfedfda")).algorithm
    found = algorithm.diagnostics()
    assert list(found) == ["b_means", "b_covariance"]
    for values in found.values():
        assert len(values["clients"]) == 6
        assert values["min"] == min(values["clients"])
        assert values["max"] == max(values["clients"])
        assert values["mean"] == pytest.approx(np.mean(values["clients"]))


# Whole runs


def test_a_stopped_run_ends_bit_equal(tiny, launch, unbroken, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        launch(tiny("pfedfda"), tmp_path, Stop(2))
    resumed = launch(tiny("pfedfda"), tmp_path)
    assert resumed.summary["resumed"] == 1
    assert resumed.content() == unbroken("pfedfda").content()


def test_state_is_all_that_later_rounds_depend_on(tiny, ready, differing, tmp_path):
    def rounds(algorithm, numbers):
        for number in numbers:
            _, outcome, sent = participate(algorithm, [number % 6, (number + 2) % 6])
            algorithm.keep(outcome)
            algorithm.aggregate({name: tensor.mean(0) for name, tensor in sent.items()})

    whole, half, rest = (ready(tiny("pfedfda")).algorithm for _ in range(3))
    rounds(whole, range(1, 5))
    rounds(half, range(1, 3))
    state, files = packed(half.state(), lambda width: RowFile(tmp_path / new_name(), width))
    torch.save(state, tmp_path / "state.pt")
    for file in files:
        file.sync()
    rest.load(unpacked(torch.load(tmp_path / "state.pt", weights_only=True), tmp_path)[0])
    rounds(rest, range(3, 5))
    assert differing(whole.server, rest.server) == []
    everyone = range(6)
    assert differing(whole.clients.gather(everyone), rest.clients.gather(everyone)) == []


@pytest.mark.parametrize("executor", sorted(set(EXECUTORS) - {"loop"}))
def test_executors_agree(executor, tiny, play):
    config = tiny("pfedfda", partition="dirichlet", dirichlet=0.5, rounds=2, local_epochs=2, dropout=0.2)
    ours, theirs = (play(config, executor=name) for name in ("loop", executor))
    for name, tensor in ours.algorithm.server.items():
        assert_close(tensor, theirs.algorithm.server[name], rtol=1e-3, atol=1e-3)
    assert ours.summary["test_loss"] == pytest.approx(theirs.summary["test_loss"], rel=1e-2)


@pytest.mark.parametrize(
    "changes",
    [
        {"classes_per_client": 1},
        {"partition": "shards"},
        {"partition": "dirichlet", "dirichlet": 0.3, "dropout": 0.5},
        {"samples_per_client": 1, "classes_per_client": 1},
        {"augment": True, "weight_decay": 1e-4},
    ],
    ids=str,
)
@pytest.mark.parametrize("feats", ["all_epochs", "eval_pass"])
def test_every_kind_of_client_is_served(changes, feats, tiny, play):
    played = play(tiny("pfedfda", {"fda_feats": feats}, **{"rounds": 2, **changes}))
    assert all(tensor.isfinite().all() for tensor in played.algorithm.server.values())
    assert 0 <= played.summary["accuracy"] <= 1
    assert math.isfinite(played.summary["test_loss"])
    if changes.get("classes_per_client") == 1:
        assert played.summary["accuracy"] == 1  # the prior alone tells


def test_it_beats_one_model_for_all(play):
    values = {**find_setting("digits-s2").values, "rounds": 4, "eval_every": 0}
    ours, common = (
        play(RunConfig(algo=algo, **values), executor="stacked").summary for algo in ("pfedfda", "fedavg")
    )
    assert ours["accuracy"] > 0.6
    assert ours["accuracy"] > common["accuracy"] + 0.2


# Bad input


def test_text_is_refused_in_one_line():
    network = Network((Recurrent("rnn", 4, 3), Linear("fc3", 3, 2, activation=False)))
    config = RunConfig(algo="pfedfda", dataset="tweets")
    with pytest.raises(UserError, match="'pfedfda' is not defined for text, and 'tweets' is") as caught:
        PFedFDA.check(config, network, PFedFDAHyper())
    assert "\n" not in str(caught.value)
    PFedFDA.check(config, NETWORKS["digits"], PFedFDAHyper())


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"cov_reg": "eps_i"}, r"cov_reg=eps_i: expected one of: official, eps_I \(did you mean 'eps_I'\?\)"),
        ({"fda_feats": "last"}, "fda_feats=last: expected one of: all_epochs, last_epoch, eval_pass"),
        ({"single_beta": "maybe"}, "single_beta=maybe does not fit 'pfedfda'"),
    ],
)
def test_unknown_values(hyper, message, tiny):
    with pytest.raises(UserError, match=message):
        tiny("pfedfda", hyper)


def test_four_samples_of_one_class_are_enough_for_halves():
    left, right = halves(torch.tensor([0, 0, 0, 0]), np.random.default_rng(0))
    assert (len(left), len(right)) == (2, 2)


@pytest.mark.parametrize("centre", ["own", "common"])
def test_classes_of_few_samples_are_centred_as_is_asked_for(centre):
    features, labels, common = random_problem(3)
    labels[labels == 2] = 1
    labels[:2] = 2
    found = estimate(features, labels, common.means, "official", least=3, centre=centre)
    assert torch.equal(found.means[2], common.means[2])
    centres = found.means.clone()
    if centre == "own":
        centres[2] = features[:2].mean(0)
    gaps = features - centres[labels]
    expected = gaps.T @ gaps / (len(features) - 1) + 1e-4 + torch.eye(WIDTH).double()
    assert_close(found.covariance, expected)
