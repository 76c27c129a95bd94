"""pFedHN: the hypernetwork by PyTorch's layers, and its step by autograd through a client's whole model."""

import pytest
import torch
from equations import EVERYONE, ONE_STEP, close
from torch import nn

from pfl_benchmark.engine.params import strip_prefix
from pfl_benchmark.engine.rounds import mean_weights

HYPER = {"hidden": 7, "n_hidden": 2, "embed_dim": 5, "hyper_rate": 0.1, "hyper_decay": 0.01}


class Hypernetwork(nn.Module):
    """The method's hypernetwork with PyTorch's layers and the method's tensors."""

    def __init__(self, algorithm):
        super().__init__()
        phi = strip_prefix("phi", algorithm.server)
        self.vectors = nn.Embedding(6, 5)
        count = algorithm.network.count()
        self.layers = nn.ModuleList([nn.Linear(5, 7), nn.Linear(7, 7), nn.Linear(7, 7), nn.Linear(7, count)])
        self.shapes = algorithm.network.shapes()
        for own, tensor in zip(self.parameters(), phi.values(), strict=True):
            own.data.copy_(tensor)

    def forward(self, client):
        first, second, third, out = self.layers
        code = third(second(first(self.vectors(torch.tensor(client))).relu()).relu())
        parts = out(code).split([torch.Size(shape).numel() for shape in self.shapes.values()])
        return {
            name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }


def test_clients_receive_and_are_evaluated_with_their_own_models(tiny, ready):
    algorithm = ready(tiny("phn", HYPER)).algorithm
    made = Hypernetwork(algorithm)
    message = algorithm.message([3, 1], 1)
    assert message.common == {}
    (member,) = algorithm.members([3, 1])
    for position, client in enumerate((3, 1)):
        expected = {name: tensor.detach() for name, tensor in made(client).items()}
        close({name: tensor[position] for name, tensor in message.per_client.items()}, expected)
        close({name: tensor[position] for name, tensor in member.params.items()}, expected)


@pytest.mark.parametrize(("clip", "last"), [(1e-3, [5, 4]), (1e3, [5, 4]), (1e3, [*EVERYONE])])
def test_rounds_move_the_hypernetwork_as_sgd_on_the_changes_does(clip, last, tiny, ready):
    """With everyone the sum of the changes is scaled to that of an ordinary cohort, of three clients."""
    algorithm = ready(tiny("phn", {**HYPER, "clip": clip}, **ONE_STEP)).algorithm
    made = Hypernetwork(algorithm)
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for number, cohort in ((1, [0, 4, 2]), (2, last)):
        call = algorithm.begin(cohort, algorithm.message(cohort, number), number)
        outcome = algorithm.task.executor.train(call)
        aggregator, sent = algorithm.aggregator(), algorithm.upload(outcome)
        for start, stop in ((0, 2), (2, len(cohort))):  # in chunks
            part = {name: tensor[start:stop] for name, tensor in sent.items()}
            if start < stop:
                aggregator.add(cohort[start:stop], part, mean_weights(algorithm, cohort[start:stop]))
        algorithm.aggregate(aggregator.value())
        optimizer.zero_grad()
        for position, client in enumerate(cohort):
            model = made(client)
            for name, tensor in model.items():
                change = (tensor - outcome.models["model"][name][position]).detach()
                tensor.backward(change * min(1, 3 / len(cohort)), retain_graph=True)
        norm = torch.nn.utils.clip_grad_norm_(made.parameters(), clip)
        assert (norm > clip) == (clip < 1)
        optimizer.step()
        for tensor, expected in zip(
            strip_prefix("phi", algorithm.server).values(), made.parameters(), strict=True
        ):
            torch.testing.assert_close(tensor, expected.detach(), rtol=1e-3, atol=1e-4)


def test_a_participation_sends_a_model_down_and_a_change_up(tiny, play):
    seen = []
    played = play(tiny("phn"), watch=lambda algorithm, line: seen.append(line))
    size = 4 * played.algorithm.network.count()
    sent = [[line[f"bytes_{kind}"] for kind in ("down", "up", "broadcast")] for line in (seen[0], seen[-1])]
    assert sent == [[3 * size, 3 * size, 0], [6 * size] * 3]
