"""Models and predictions that a run has kept, loaded again."""

import numpy as np
import pytest
import torch

from pfl_benchmark import federated, load_model, load_predictions, run
from pfl_benchmark.algorithms import ALGORITHMS, needed
from pfl_benchmark.datasets.api import load
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.resolve.run import resolve
from tests.helpers.python import TINY

pytest.importorskip("safetensors")
# What their clients predict with is more than one network.
SEVERAL = {"apfl-ensemble", "fedcp", "fedem", "fedproto", "fedrod", "gpfl", "knn-per", "ppfe"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    root = tmp_path_factory.mktemp("kept")
    made = {}

    def of(algo):
        if algo not in made:
            keywords = {**TINY, **needed(algo), "rounds": 6 if algo == "ppfe" else 2, "results_dir": root}
            made[algo] = run(algo, save_models=True, save_predictions=True, **keywords)
        return made[algo]

    return of


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_a_loaded_model_gives_the_predictions_on_record(algo, kept):
    record = kept(algo)
    if algo in SEVERAL:
        with pytest.raises(UserError, match="more than one network"):
            load_model(record, client=0)
        return
    logits, labels, client = load_predictions(record)
    prepared = prepare(resolve(record.config), Execution(executor="loop", device="cpu"))
    prepared.task.executor.close()
    for number in (0, 3):
        model = load_model(record, client=number)
        with torch.no_grad():
            found = model(prepared.task.data.inputs(number, "test")).numpy()
        own = logits[client == number].astype(np.float32)
        np.testing.assert_allclose(found, own, atol=2e-3 * np.abs(own).max())  # kept as float16
        right = (found.argmax(1) == labels[client == number]).mean()
        assert right == pytest.approx(record.accuracies[number])


def test_a_model_is_a_module(kept):
    model = load_model(kept("fedper").folder, client=1)
    assert not model.training
    assert {*model.state_dict()} == {name for name, _ in model.named_parameters()}
    images = torch.from_numpy(load("digits").test.x[:3])
    logits = model(model.preprocess(images))
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    other = load_model(kept("fedper"), client=2).state_dict()
    equal = {name: bool((tensor == other[name]).all()) for name, tensor in model.state_dict().items()}
    assert equal["conv1.weight"], "FedPer shares it"
    assert not equal["fc3.weight"], "and not this one"
    with_statistics = load_model(kept("fedbn"), client=0)
    assert {name for name, _ in with_statistics.named_buffers()}, "running means and variances"


@pytest.mark.parametrize(
    ("shape", "config"),
    [((3, 40), {}), ((5,), {}), ((5,), {"standardise": "client"}), ((5,), {"new_clients": 0.25})],
)
def test_samples_as_they_were_given(shape, config, tmp_path):
    """`preprocess` makes what training saw of series and rows, of a client's own scale too."""
    rng = np.random.default_rng(0)
    clients = [
        (
            *(
                part
                for size in (12, 6)
                for part in (rng.normal(3 * k, 1 + k, (size, *shape)), np.arange(size) % 3)
            ),
        )
        for k in range(4)
    ]
    record = run(
        "fedper", dataset=federated(clients=clients), rounds=2, save_models=True, save_predictions=True,
        results_dir=tmp_path, progress=False, **config,
    )  # fmt: skip
    logits, _, client = load_predictions(record)
    order = [number for number in range(4) if number not in record.new_clients] + [*record.new_clients]
    for number in range(4):
        model = load_model(record, client=number)
        with torch.no_grad():
            found = model(model.preprocess(clients[order[number]][2])).numpy()
        np.testing.assert_allclose(found, logits[client == number].astype(np.float32), rtol=5e-3, atol=1e-3)


def test_images_that_were_scaled_already(kept):
    model = load_model(kept("fedper"), client=1)
    with pytest.raises(TypeError, match=r"torch.float32; expected torch.uint8"):
        model.preprocess(torch.rand(2, 1, 8, 8))


def test_samples_of_another_shape(kept):
    model = load_model(kept("fedper"), client=1)
    with pytest.raises(ValueError, match=r"shape \[2, 8, 8\]; expected \['B', 1, 8, 8\]"):
        model.preprocess(np.zeros((2, 8, 8), np.uint8))


def test_names_of_classes_and_columns(tmp_path):
    """Logits and labels are in their order, whatever numbers the classes were given as."""
    y = 10 * (np.arange(20) % 3) + 7
    clients = [(np.random.default_rng(k).normal(size=(20, 3)), y) for k in range(3)]
    record = run("local", dataset=federated(clients=clients), rounds=1, results_dir=tmp_path, progress=False)
    assert (record.classes, record.features) == (("7", "17", "27"), ("x0", "x1", "x2"))


def test_data_that_this_process_does_not_know(kept, monkeypatch):
    monkeypatch.delitem(DATASETS, "digits")
    with pytest.raises(UserError, match="'digits' is not known in this process; make it known first"):
        load_model(kept("fedper").folder, client=1)


def test_another_copy_of_the_data(tmp_path, monkeypatch):
    clients = [(np.random.default_rng(k).normal(size=(20, 3)), np.arange(20) % 3) for k in range(3)]
    data, other = (federated(clients=clients[:2] + more) for more in (clients[2:], [clients[0]]))
    record = run("local", dataset=data, rounds=1, results_dir=tmp_path, save_models=True, progress=False)
    monkeypatch.setitem(DATASETS, data.name, DATASETS[other.name])
    with pytest.raises(UserError, match="was made on another copy"):
        load_model(record, client=1)


@pytest.mark.parametrize("client", [-1, 4, 1.0, "1"])
def test_no_such_client(client, kept):
    with pytest.raises(UserError, match="expected a number from 0 to 3"):
        load_model(kept("fedper"), client=client)


def test_what_was_not_kept_or_has_changed(kept, tmp_path):
    bare = run("fedavg", results_dir=tmp_path, **TINY)
    for load_it, keyword in (
        (load_predictions, "save_predictions"),
        (lambda r: load_model(r, 0), "save_models"),
    ):
        with pytest.raises(UserError, match=f"run it again with {keyword}=True, again=True"):
            load_it(bare)
    with pytest.raises(UserError, match=r"has no models\.safetensors; remove its folder"):
        run("fedavg", results_dir=tmp_path, save_models=True, **TINY)
    again = run("fedavg", results_dir=tmp_path, save_models=True, again=True, **TINY)
    assert load_model(again, 0) is not None
    file = again.folder / "models.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(UserError, match="has changed since the run"):
        load_model(again, 0)
    file.unlink()
    with pytest.raises(UserError, match="is missing"):
        load_model(again, 0)
