"""A network given as a class or function that makes a `torch.nn.Module`."""

import pytest
import torch
from torch import nn

from pfl_benchmark import load_model, run
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import ARCHITECTURES
from tests.helpers.python import TINY


class Small(nn.Sequential):
    def __init__(self):
        body = nn.Conv2d(1, 4, 3, padding=1)
        super().__init__(body, nn.ReLU(), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(256, 10))


def sized(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], 8), nn.ReLU(), nn.Linear(8, classes))


def no_module():
    return "a network"


def without_head():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten())


@pytest.fixture(autouse=True)
def as_before():
    kept = dict(ARCHITECTURES)
    yield
    ARCHITECTURES.clear()
    ARCHITECTURES.update(kept)


@pytest.mark.parametrize(("make", "name"), [(Small, "small"), (sized, "sized")])
def test_it_is_a_network_like_others(make, name, tmp_path):
    record = run("fedper", network=make, results_dir=tmp_path, save_models=True, **TINY)
    assert record.config.network == name
    again = run("fedper", network=make, results_dir=tmp_path, **TINY)
    assert again.digest == record.digest
    assert run(**record.config, results_dir=tmp_path, progress=False).digest == record.digest
    model = load_model(record, client=0)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def normalised():
    return nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))


def test_normalisation_may_come_first(tmp_path):
    record = run("fedper", network=normalised, results_dir=tmp_path, **TINY)
    assert record.config.network == "normalised"


class Tuples(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.LSTM(64, 8), nn.Linear(8, 10))


@pytest.mark.parametrize(
    ("network", "part"),
    [
        (Tuples, "gives a tuple, and the next child takes one tensor"),
        (Small(), "a module, not what makes it"),
        (lambda: Small(), "expected a name, or a class or function"),
        (no_module, "no_module returns 'a network'; expected a torch.nn.Module"),
        (without_head, "nn.Linear"),
        (3, "expected a name"),
    ],
)
def test_bad_input(network, part, tmp_path):
    with pytest.raises(UserError, match=part):
        run("fedper", network=network, results_dir=tmp_path / "new", **TINY)
    assert not (tmp_path / "new").exists()


def test_the_name_of_another_network(tmp_path):
    def other():
        return Small()

    other.__name__ = name = min(ARCHITECTURES)
    with pytest.raises(UserError, match=f"there is a network '{name}' already"):
        run("fedper", network=other, results_dir=tmp_path, **TINY)


def test_a_value_of_the_function_around_it(tmp_path):
    """No record tells it, so a record of another value would be read."""

    def made(width):
        class Wide(nn.Sequential):
            def __init__(self):
                super().__init__(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

        return Wide

    def by_a_static_method(width):
        class Wide(nn.Sequential):
            @staticmethod
            def layers():
                return nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)

            def __init__(self):
                super().__init__(*self.layers())

        return Wide

    with pytest.raises(UserError, match="Wide takes 'width' from the function around it"):
        run("fedavg", network=by_a_static_method(8), results_dir=tmp_path, **TINY)
    with pytest.raises(UserError, match="Wide takes 'width' from the function around it"):
        run("fedavg", network=made(8), results_dir=tmp_path, **TINY)
    assert not list(tmp_path.iterdir())


def test_texts(tmp_path):
    with pytest.raises(UserError, match="cannot read texts"):
        run("fedper", dataset="synth-tweets", network=Small, results_dir=tmp_path)
