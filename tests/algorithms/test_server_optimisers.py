"""FedAvgM and FedAdam: steps of the server."""

import math

import pytest
import torch
from equations import close


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
    algorithm._mean, algorithm._squares = {"a": torch.full((1,), 0.3)}, {"a": torch.full((1,), 1e-6)}
    algorithm.aggregate({"a": torch.tensor([1.2])})
    assert algorithm._squares["a"].item() == pytest.approx(expected, rel=1e-4)
    moved = 0.01 * (0.9 * 0.3 + 0.1 * 0.2) / (math.sqrt(expected) + 1e-3)
    assert algorithm.server["a"].item() == pytest.approx(1 + moved, rel=1e-6)
