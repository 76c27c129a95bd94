"""Floco: which mixtures are trained, where clients' points lie, and what is evaluated."""

import numpy as np
import pytest
import torch
from equations import EVERYONE, ONE_STEP, close, loss_at

from pfl_benchmark.algorithms.floco import ENDPOINTS, POINT, components, projected, spread
from pfl_benchmark.engine.sgd import step_stream
from pfl_benchmark.method import row

HEAD = "fc3.weight"


def test_components_keep_distances_and_have_the_sign_of_the_largest_loading():
    rows = torch.randn(5, 7, generator=torch.Generator().manual_seed(1)).double()
    found = components(rows, 6)
    assert found.shape == (5, 6)
    assert (found[:, 5] == 0).all()  # of five rows there are four
    close(torch.cdist(found, found), torch.cdist(rows, rows))
    direction = (rows - rows.mean(0)).T @ found[:, 0]
    assert direction[direction.abs().argmax()] > 0


def test_a_projection_is_the_nearest_point_of_the_simplex():
    rows = torch.tensor([[0.5, 0.3, 0.2], [3.0, 0.0, 0.0], [0.1, 0.1, -5.0]]).double()
    close(projected(rows, 1.0), torch.tensor([[0.5, 0.3, 0.2], [1, 0, 0], [0.5, 0.5, 0]]).double())
    close(projected(rows[:1], 0.1), torch.tensor([[1.0, 0, 0]]).double())


def test_points_are_at_the_size_that_keeps_them_farthest_apart():
    rows = torch.tensor([[0.2, -0.1], [0.0, 0.05], [-0.2, 0.05]]).double()

    def energy(size):
        points = projected(rows, size).numpy()
        gaps = [((points[a] - points[b]) ** 2).sum() for a, b in ((0, 1), (0, 2), (1, 2))]
        return sum(1 / max(gap, 1e-8) for gap in gaps)

    least = min(np.linspace(1e-4, 1, 1000), key=energy)
    close(spread(rows), projected(rows, least))
    close(spread(rows[:1]), torch.full((1, 2), 0.5).double())  # alone: the centre


@pytest.mark.parametrize("late", [False, True])
def test_a_step_trains_the_mixture_that_it_draws(late, tiny, ready):
    algorithm = ready(tiny("floco", {"endpoints": 3, "rho": 0.3}, rounds=4, **ONE_STEP)).algorithm
    task, lr, number = algorithm.task, algorithm.config.lr, 3 if late else 2
    point = torch.tensor([[0.7, 0.1, 0.2]])
    algorithm.clients.scatter([2], {POINT: point})
    call = algorithm.begin([2], algorithm.message([2], number), number)
    start = row(call.models["model"].params, 0)
    outcome = task.executor.train(call)
    (draw,) = call.phases[0].draws
    drawn = torch.from_numpy(draw.rows(task.streams.get(step_stream(draw), number, 2), 20))[0]
    if late:
        way = 2 * drawn[1:] - 1
        shares = point[0] + 0.3 * drawn[0] * way / way.abs().sum()
        assert float((shares - point[0]).abs().sum()) <= 0.3
    else:
        shares = -torch.log(1 - drawn[1:])
        shares = shares / shares.sum()
    leaves = {n: t.detach().clone().requires_grad_() for n, t in start.items() if n not in (HEAD, POINT)}
    whole = {**leaves, HEAD: torch.tensordot(shares, leaves[ENDPOINTS], 1)}
    slopes = torch.autograd.grad(loss_at(task, whole, 2), leaves.values())
    for (name, leaf), slope in zip(leaves.items(), slopes, strict=True):
        close(outcome.models["model"][name][0], leaf.detach() - lr * slope)


def test_points_are_given_in_one_round_with_everybody(tiny, play):
    seen = []

    def watch(algorithm, line):
        (member,) = algorithm.members(EVERYONE)
        points = algorithm.clients.gather(EVERYONE)[POINT]
        seen.append((line["participants"], len({tuple(point) for point in points.tolist()})))
        close(points.sum(1), torch.ones(6))
        close(member.params[HEAD], torch.einsum("me,ecd->mcd", points, algorithm.server[ENDPOINTS]))

    play(tiny("floco", {"endpoints": 3, "tau": 0.5}, rounds=4), watch=watch)
    assert [participants for participants, _ in seen] == [3, 6, 3, 6]
    assert [different > 1 for _, different in seen] == [False, True, True, True]
