"""FedCAC: which parameters are critical, who is similar, and what clients begin with."""

import pytest
import torch
from equations import EVERYONE, close

from pfl_benchmark.algorithms.fedcac import collaborators, critical, overlaps
from pfl_benchmark.engine.params import strip_prefix


def test_critical_is_the_share_that_has_moved_most():
    start = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [2.0, 2.0]]])
    trained = torch.tensor([[[2.0, 1.0], [1.5, 0.9]], [[0.0, 0.0], [2.0, 3.0]]])
    # |Δ · w|: 2, 0, 0.75, 0.09, and 0, 0, 0, 3
    assert critical(start, trained, 0.5).tolist() == [
        [[True, False], [True, False]],
        [[False, False], [False, True]],
    ]
    assert not critical(start, trained, 0.2).any()  # less than one parameter
    assert critical(start, trained, 1.0).sum() == 4  # what has not moved never is


def test_overlaps_are_shares_of_ones_own_critical_parameters():
    masks = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1]]).bool()
    assert overlaps(masks).tolist() == [[1, 0.5, 1, 0], [0.5, 1, 0.5, 0.5], [1, 0.5, 1, 0], [0, 0.5, 0, 1]]


@pytest.mark.parametrize(
    ("progress", "near"),
    [
        (0.0, [[1, 1, 1], [1, 1, 0], [1, 0, 1]]),
        (0.6, [[1, 1, 0], [1, 1, 0], [0, 0, 1]]),
        (2.0, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
    ],
)
def test_similar_clients_become_fewer(progress, near):
    overlap = torch.tensor([[1, 0.8, 0.6], [0.8, 1, 0.2], [0.6, 0.2, 1]]).double()
    expected = torch.tensor(near).double()
    close(collaborators(overlap, progress), expected / expected.sum(1, keepdim=True))


def test_alone_a_client_keeps_its_own():
    assert collaborators(torch.ones(1, 1).double(), 0.1).tolist() == [[1.0]]


def test_a_client_begins_with_its_critical_parameters_mixed(begun):
    algorithm, _, outcome = begun("fedcac", {"tau": 0.3, "beta": 4}, (1, 4, 5))
    sent = algorithm.upload(outcome)
    algorithm.keep(outcome)
    gathered = algorithm.aggregator()
    gathered.add([1, 4, 5], sent, torch.ones(3) / 3)
    algorithm.aggregate(gathered.value())
    masks = strip_prefix("critical", sent)
    flat = torch.cat([mask.flatten(1) for mask in masks.values()], 1)
    weights = collaborators(overlaps(flat), 1 / 4).float()
    everyone = algorithm.begin(EVERYONE, algorithm.message(EVERYONE, 2), 2).models["model"].params
    (member,) = algorithm.members(EVERYONE)
    for name, tensor in outcome.models["model"].items():
        mean, mixed = tensor.mean(0), torch.tensordot(weights, tensor, 1)
        close(algorithm.server[name], mean)
        for place, client in enumerate((1, 4, 5)):
            close(everyone[name][client], torch.where(masks[name][place], mixed[place], mean))
        close(everyone[name][0], mean)
        assert torch.equal(member.params[name], everyone[name])
    assert 0.25 < flat.float().mean() < 0.31


def test_without_critical_parameters_it_is_fedavg(tiny, play):
    ours, fedavg = play(tiny("fedcac", {"tau": 0.0})), play(tiny("fedavg"))
    close(ours.history[-1], fedavg.history[-1])
