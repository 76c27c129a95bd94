"""Arrays and datasets of PyTorch as clients' data."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

from pfl_benchmark import federated, grid, load_model, run
from pfl_benchmark.datasets.api import DATASETS, load
from pfl_benchmark.errors import UserError
from tests.helpers.python import TINY

RUN = {**{name: value for name, value in TINY.items() if name in ("local_epochs", "device", "executor")}}
RUN |= {"rounds": 2, "eval_every": 1, "progress": False}
DIGITS = load("digits")
X, Y = DIGITS.train.x[:120], DIGITS.train.y[:120]  # uint8 [N, 1, 8, 8]


pytestmark = pytest.mark.usefixtures("registries_restored")


def of_three(x, y):
    """Three clients with 30 training and 10 test samples each."""
    return [(x[k : k + 30], y[k : k + 30], x[k + 30 : k + 40], y[k + 30 : k + 40]) for k in (0, 40, 80)]


def labels(count):
    return np.arange(count) % 3


FORMS = {
    "uint8 [N, C, H, W]": (X, Y),
    "uint8 [N, H, W]": (X[:, 0], Y),
    "channels last": (np.repeat(X.transpose(0, 2, 3, 1), 3, axis=3), Y),
    "floats in 0..1": ((X / 255).astype(np.float32), Y),
    "tensors": (torch.from_numpy(X), torch.from_numpy(Y)),
    "rows": (np.random.default_rng(0).normal(size=(120, 5)), labels(120)),
    "series": (np.random.default_rng(0).normal(size=(120, 6, 128)).astype(np.float32), labels(120)),
    "classes as text": (X, np.array(["even", "odd"])[Y % 2]),
}


@pytest.mark.parametrize("form", FORMS)
def test_clients_have_what_they_were_given(form, tmp_path):
    data = federated(clients=of_three(*FORMS[form]))
    record = run("fedper", dataset=data, results_dir=tmp_path, save_models=True, **RUN)
    assert record.config.partition == "given"
    assert record.test_samples.tolist() == [10, 10, 10]
    assert run(**record.config, results_dir=tmp_path, progress=False).digest == record.digest
    assert load_model(record, client=1) is not None
    assert federated(clients=of_three(*FORMS[form])) == data, "the same data have the same name"


@pytest.mark.parametrize("form", FORMS)
def test_samples_and_labels_are_those_given(form):
    given, labels = FORMS[form]
    found = load(federated(clients=of_three(given, labels)).name)
    plain = form not in ("rows", "series", "channels last")
    expected = X if plain else given.transpose(0, 3, 1, 2) if form == "channels last" else given
    np.testing.assert_allclose(found.train.x, expected, rtol=1e-6)
    assert found.train.y.tolist() == (Y % 2 if form == "classes as text" else labels)[:120].tolist()
    assert found.users.tolist() == [k for k in range(3) for _ in range(40)]
    assert np.flatnonzero(found.held_out).tolist() == [*range(30, 40), *range(70, 80), *range(110, 120)]


def test_channels_last_of_images_that_are_not_square():
    x = np.random.default_rng(0).integers(0, 256, (24, 8, 12, 3)).astype(np.uint8)
    found = load(federated(clients=[(x[:12], labels(12)), (x[12:], labels(12))]).name)
    assert (found.train.x == x.transpose(0, 3, 1, 2)).all()


def test_the_same_samples_train_alike_whatever_their_form(tmp_path):
    found = set()
    for form in ("uint8 [N, C, H, W]", "uint8 [N, H, W]", "floats in 0..1", "tensors"):
        data = federated(clients=of_three(*FORMS[form]))
        found.add(run("fedper", dataset=data, results_dir=tmp_path, **RUN).rounds[-1]["loss"])
    assert len(found) == 1


def test_a_part_is_held_out_where_clients_have_no_test_samples(tmp_path):
    data = federated(clients=[(X[k : k + 40], Y[k : k + 40]) for k in (0, 40, 80)])
    record = run("local", dataset=data, results_dir=tmp_path, **RUN)
    assert record.config.partition == "natural"
    assert record.test_samples.tolist() == [8, 8, 8]


def test_a_dataset_of_pytorch(tmp_path):
    train = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    test = TensorDataset(torch.from_numpy(DIGITS.test.x[:60]), torch.from_numpy(DIGITS.test.y[:60]))
    pooled = {"clients": 4, "samples_per_client": 20, "test_samples_per_client": 1, **RUN}
    pooled |= {"partition": "dirichlet", "dirichlet": 1.0, "results_dir": tmp_path}
    for data in (federated(train), federated(train, test=test)):
        record = run("fedavg", dataset=data, **pooled)
        assert len(record.accuracies) == 4
    assert (load(federated(train, test=test).name).test.x == DIGITS.test.x[:60]).all()
    order = np.random.default_rng(0).permutation(120)
    whole = federated(train, partition=[order[:40], order[40:80], order[80:]])
    assert len(run("fedavg", dataset=whole, results_dir=tmp_path, **RUN).accuracies) == 3
    halves = federated(train, partition=[(order[:30], order[30:40]), (order[40:70], order[70:80])])
    assert run("fedavg", dataset=halves, results_dir=tmp_path, **RUN).test_samples.tolist() == [10, 10]
    for data, count in ((whole, 120), (halves, 80)):
        assert (load(data.name).train.x == X[order[:count]]).all()
        assert (load(data.name).train.y == Y[order[:count]]).all()


def test_standardised_rows_may_drift(tmp_path):
    """Each client's later rows are scaled as its first ones."""
    x, y = FORMS["rows"]
    data = federated(clients=of_three(x, y))
    keywords = {
        "standardise": "client",
        "shift": "drift=2:1:concept=permute:2",
        "results_dir": tmp_path,
        **RUN,
    }
    record = run("local", dataset=data, **keywords, save_predictions=True)
    plain = run("local", dataset=data, standardise="client", results_dir=tmp_path, **RUN)
    assert record.rounds[0]["loss"] == plain.rounds[0]["loss"]
    assert record.rounds[1]["loss"] != plain.rounds[1]["loss"]
    assert np.isfinite(record.losses).all()


class Short(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(60, 8), nn.ReLU(), nn.Linear(8, 3))


def test_series_that_are_too_short_need_a_network_of_ones_own(tmp_path):
    x = np.random.default_rng(0).normal(size=(120, 3, 20)).astype(np.float32)
    data = federated(clients=of_three(x, labels(120)))
    with pytest.raises(UserError, match=f"'{data.name}' has no network that fits: choose one"):
        run("fedper", dataset=data, results_dir=tmp_path, **RUN)
    assert run("fedper", dataset=data, network=Short, results_dir=tmp_path, **RUN).config.network == "short"


def test_series_of_one_dataset_of_which_a_channel_is_constant(tmp_path):
    x, y = FORMS["series"]
    x = np.concatenate([x, np.full_like(x[:, :1], 7)], 1)
    data = federated(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)))
    pooled = {"clients": 3, "samples_per_client": 20, "test_samples_per_client": 4, **RUN}
    record = run(
        "fedavg", dataset=data, partition="dirichlet", dirichlet=10.0, results_dir=tmp_path, **pooled
    )
    assert np.isfinite([line["loss"] for line in record.rounds]).all()


def test_floats_without_channels_are_images_where_they_are_pixels():
    x = X[:, 0] / 255
    assert (load(federated(clients=of_three(x, Y)).name).train.x == X).all()
    x = x + 0.001
    assert load(federated(clients=of_three(np.tile(x, (1, 1, 16)), Y)).name).train.x.dtype == np.float32


def test_labels_of_pandas_and_lists_of_numbers():
    words = pd.Series(np.array(["even", "odd"])[Y % 2], dtype=object)
    assert (
        load(federated(clients=[(X[:60], words[:60]), (X[60:], words[60:])]).name).train.y.tolist()
        == (Y % 2).tolist()
    )
    halves = federated(whole(), partition=[[range(30), range(30, 40)], [range(40, 70), range(70, 80)]])
    assert load(halves.name).held_out.sum() == 20


def test_in_a_grid_of_this_process(tmp_path):
    data = federated(clients=of_three(X, Y), name="mine")
    small = {name: value for name, value in RUN.items() if name != "progress"}
    records = grid(["fedper", "local"], setting=[data], results_dir=tmp_path, **small)
    assert [record.config.dataset.startswith("mine-") for record in records] == [True, True]
    with pytest.raises(UserError, match="known in this process alone"):
        grid("local", setting=data, jobs=2, results_dir=tmp_path, **small)


def whole(**_):
    return TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({}, "needs a dataset, or clients"),
        ({"dataset": whole(), "clients": of_three(X, Y)}, "needs a dataset, or clients"),
        ({"clients": []}, "clients have no arrays"),
        ({"clients": [(X, Y, X)]}, "clients have 3 arrays"),
        ({"clients": [(X, Y[:5]), (X, Y)]}, "client 0 has 120 samples and 5 classes"),
        ({"clients": [(X, Y), (X[:, :, :4], Y)]}, "client 1 has samples of shape 1 x 4 x 8"),
        ({"clients": of_three((X - 100.0) / 30, Y)}, "expected uint8, or floats from 0 to 1"),
        ({"clients": of_three(X / 255 * 0.77, Y)}, "between the 256 values of pixels"),
        ({"clients": of_three(np.full((120, 4), np.nan), labels(120))}, "not finite"),
        ({"clients": of_three(X, Y / 2)}, "expected whole numbers or text"),
        ({"clients": of_three(X, np.zeros(120, int))}, "one class"),
        ({"clients": of_three(X[:, 0, 0, 0], Y)}, "one number"),
        ({"dataset": [1, 2, 3]}, "no pairs"),
        ({"dataset": 3}, "is no dataset with samples"),
        ({"dataset": whole(), "partition": [[0, 500]]}, "numbers of samples from 0 to 119"),
        ({"dataset": whole(), "partition": []}, "partition has no clients"),
        (
            {"dataset": whole(), "partition": [(range(20), range(19, 30))]},
            "sample 19 is for training and for",
        ),
        ({"clients": [{"x": X, "y": Y}]}, "a client is no tuple"),
        ({"clients": of_three(np.zeros((120, 8, 8, 4), np.uint8), Y)}, "4 channels last"),
        ({"dataset": whole(), "partition": [range(40)], "test": whole()}, "without partition"),
        ({"clients": of_three(X, Y), "test": whole()}, "are for a dataset"),
        ({"clients": [((X[:9], Y[:9]), (X[9:], Y[9:]))]}, "client 0: expected arrays .* in one tuple"),
        ({"dataset": whole(), "partition": [[0, [1, 2], 3]]}, "numbers of samples from 0 to 119"),
        ({"clients": [*of_three(X, Y), (X[:0], Y[:0], X[:2], Y[:2])]}, "client 3 has too few samples"),
        ({"clients": [(X[:9], Y[:9]), (X[9:13], Y[9:13])]}, "client 1 has .* expected 5, of which a fifth"),
        ({"dataset": whole(), "partition": [range(9), range(8, 20)]}, "sample 8 is given twice"),
        ({"dataset": [(Image.fromarray(x[0]).convert("P"), 0) for x in X]}, "mode P; expected L or RGB"),
        ({"clients": of_three(X[:, 0].astype(int), Y)}, "whole numbers from 0 to 255 of int64; give"),
        (
            {"clients": [*of_three(X, Y)[:2], of_three(X / 255, Y)[2]]},
            "client 2 .* float64, the first one of",
        ),
        ({"clients": of_three(X, ["a", "b", float("nan")] * 40)}, "classes are missing in some places"),
        ({"clients": [*of_three(X, Y)[:2], of_three(X, [f"{y}" for y in Y])[2]]}, "in words, others numbers"),
        ({"clients": of_three(np.full((120, 4), 1e39), labels(120))}, "expected numbers of float32"),
        ({"dataset": pd.DataFrame({"x": [1.0, 2.0]})}, "a DataFrame of pandas holds no pairs"),
        ({"clients": of_three(X, Y), "name": 5}, "name is 5; expected text"),
    ],
    ids=range(34),
)
def test_bad_input(arguments, part):
    before = set(DATASETS)
    with pytest.raises(UserError, match=part) as found:
        federated(**arguments)
    assert "\n" not in str(found.value)
    assert set(DATASETS) == before
