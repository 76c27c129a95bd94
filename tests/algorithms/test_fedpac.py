"""FedPAC: its quadratic programme against brute force, its statistics, its losses by plain autograd."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from equations import ONE_STEP, close

from pfl_benchmark.algorithms.head_combination import head_weights, of_features, simplex_minimum

LAM, LR = 2.0, 0.05


# The quadratic programme


@pytest.mark.parametrize("seed", range(6))
def test_no_point_of_a_fine_grid_is_lower(seed):
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((4, 3))  # singular, as matrices of gaps are
    matrix = factor @ factor.T + np.diag(rng.uniform(0, 0.5, 4))
    found = simplex_minimum(matrix)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    grid = np.array([p for p in itertools.product(range(41), repeat=4) if sum(p) == 40]) / 40
    values = np.einsum("ni,ij,nj->n", grid, matrix, grid)
    assert found @ matrix @ found <= values.min() + 1e-9
    near = grid[values.argmin()]
    assert found @ matrix @ found == pytest.approx(near @ matrix @ near, abs=0.05)


def test_a_diagonal_programme_weighs_by_inverse_entries_at_any_scale():
    for scale in (1e-8, 1.0, 1e8):
        found = simplex_minimum(scale * np.diag([1.0, 2.0, 4.0]))
        np.testing.assert_allclose(found, np.array([4, 2, 1]) / 7, rtol=1e-6)
    np.testing.assert_allclose(simplex_minimum(np.zeros((2, 2))), [0.5, 0.5])


def test_heads_of_like_clients_are_mixed_by_their_variances_and_others_left_out():
    parts = torch.zeros(3, 2, 4)
    parts[2] = 50.0
    weights = head_weights(torch.tensor([0.1, 0.3, 0.1]), parts)
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25, 0], [0.75, 0.25, 0], [0, 0, 1.0]]))


def test_statistics_are_those_of_the_definition():
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(5, 3, generator=generator), torch.tensor([0, 2, 2, 0, 2])
    found = of_features(features, labels, 4)
    assert found["counts"].tolist() == [2, 0, 3, 0]
    variance = 0.0
    for label, share in ((0, 2 / 5), (2, 3 / 5)):
        own = features[labels == label]
        close(found["means"][label], own.mean(0))
        close(found["parts"][label], share * own.mean(0))
        second = torch.trace(own.T @ own / len(own))
        variance += share * second - share**2 * own.mean(0).square().sum()
    close(found["variance"], (variance / 5).view(1))
    assert found["parts"][1].abs().sum() == 0


# The method


@pytest.mark.parametrize("number", [1, 2])
def test_the_head_steps_first_then_the_body_towards_the_class_means(number, tiny, ready):
    """In the first round nothing is known yet, and there is no distance."""
    algorithm = ready(tiny("fedpac", {"lam": LAM}, momentum=0.0, **ONE_STEP)).algorithm
    task, network = algorithm.task, algorithm.network
    if number > 1:
        generator = torch.Generator().manual_seed(0)
        prototypes = torch.rand(10, 32, generator=generator)
        algorithm.server |= {"prototypes": prototypes, "known": torch.arange(10) % 2 == 0}
    outcome = task.executor.train(algorithm.begin([3], algorithm.message([3], number), number))
    assert algorithm.meter.collect() == (20, 0)
    x, y = task.data.inputs(3), task.data.labels(3)
    start, targets = network.apply(task.initial, x, stop=4), []
    for label in y.tolist():
        known = number > 1 and label % 2 == 0
        targets.append(prototypes[label] if known else start[y == label].mean(0))
    assert number == 1 or 0 < int((y % 2).sum()) < len(y)
    head = [task.initial[f"fc3.{kind}"].clone().requires_grad_() for kind in ("weight", "bias")]
    slopes = torch.autograd.grad(F.cross_entropy(F.linear(start, *head), y), head)
    head = [tensor.detach() - 0.1 * slope for tensor, slope in zip(head, slopes, strict=True)]
    body = {n: t.clone().requires_grad_() for n, t in task.initial.items() if not n.startswith("fc3")}
    features = network.apply(body, x, stop=4)
    loss = F.cross_entropy(F.linear(features, *head), y)
    if number > 1:
        loss = loss + LAM * F.mse_loss(features, torch.stack(targets))
    gradients = torch.autograd.grad(loss, body.values())
    trained = {name: tensor[0] for name, tensor in outcome.models["model"].items()}
    close([trained["fc3.weight"], trained["fc3.bias"]], head)
    expected = {n: t.detach() - LR * g for (n, t), g in zip(body.items(), gradients, strict=True)}
    close({name: trained[name] for name in expected}, expected)


def test_participants_receive_their_combined_heads_in_their_next_round(tiny, ready):
    algorithm = ready(tiny("fedpac", **ONE_STEP)).algorithm
    cohort = [0, 2, 5]
    outcome = algorithm.task.executor.train(algorithm.begin(cohort, algorithm.message(cohort, 1), 1))
    sent = algorithm.upload(outcome)
    aggregator = algorithm.aggregator()
    for part in (slice(0, 1), slice(1, 3)):
        aggregator.add(cohort[part], {n: t[part] for n, t in sent.items()}, torch.ones(len(cohort[part])))
    algorithm.aggregate(aggregator.value())
    weights = head_weights(sent["variance"].flatten(), sent["parts"])
    own = algorithm.message([2, 1], 2).per_client
    close(own["fc3.weight"][0], sum(w * head for w, head in zip(weights[1], sent["fc3.weight"], strict=True)))
    assert torch.equal(own["fc3.weight"][1], algorithm.task.initial["fc3.weight"])
    close(algorithm.server["fc1.weight"], sent["fc1.weight"].mean(0))
    sums, counts = (sent["means"] * sent["counts"][..., None]).sum(0), sent["counts"].sum(0)
    known = algorithm.server["known"]
    assert torch.equal(known, counts > 0)
    close(algorithm.server["prototypes"][known], sums[known] / counts[known, None])


def test_a_participation_sends_statistics_and_heads(tiny, play):
    seen = []
    played = play(tiny("fedpac"), watch=lambda algorithm, line: seen.append(line))
    size, head, classes = 4 * played.algorithm.network.count(), 4 * (320 + 10), 4 * 320
    assert seen[0]["bytes_down"] == 3 * (size + classes + 10)  # and which classes are known
    assert seen[0]["bytes_up"] == 3 * (size + 2 * classes + 4 * 10 + 4)
    assert head == size - 4 * played.algorithm.network.count(played.algorithm.shared_layers())
    assert seen[-1]["bytes_broadcast"] == 0


@pytest.mark.parametrize(("rate", "expected"), [(0.1, 0.1), (0.0, 0.05)])
def test_the_heads_rate_is_its_own_or_that_of_the_run(rate, expected, tiny, ready):
    head, body = ready(tiny("fedpac", {"head_rate": rate}, lr=0.05)).algorithm.phases(1)
    assert set(head.rates.values()) == {expected}
    assert set(body.rates.values()) == {0.05}
