"""Macro-F1 and AUC, as scikit-learn computes them, and as records tell them."""

import json
import math

import numpy as np
import pytest
import torch
from record_folders import amend
from sklearn.metrics import f1_score, roc_auc_score

from pfl_benchmark.engine.evaluate import evaluate_shared
from pfl_benchmark.engine.scores import macro_auc, macro_f1
from pfl_benchmark.records.metrics import ClientMetrics
from pfl_benchmark.records.record import BadRecord, read_record
from pfl_benchmark.records.seal import seal


def samples(seed):
    """Probabilities with ties, labels of a few of many classes, predictions of any."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(2, 12)
    held = rng.choice(classes, rng.integers(2, min(classes, 5) + 1), replace=False)
    labels = np.concatenate([held, rng.choice(held, rng.integers(1, 60))])
    values = np.round(rng.random((len(labels), classes)), rng.integers(1, 4)) + 1e-3
    return values / values.sum(1, keepdims=True), labels


@pytest.mark.parametrize("seed", range(40))
def test_as_scikit_learn(seed):
    probabilities, labels = samples(seed)
    present, predicted = np.unique(labels), probabilities.argmax(1)
    f1 = f1_score(labels, predicted, labels=present, average="macro", zero_division=0)
    assert macro_f1(predicted, labels) == pytest.approx(f1)
    truth = labels[:, None] == present
    auc = roc_auc_score(truth, probabilities[:, present], average="macro")
    assert macro_auc(probabilities, labels) == pytest.approx(auc)


@pytest.mark.parametrize("seed", range(5))
def test_perfect_and_turned_predictions(seed):
    _, labels = samples(seed)
    right = np.eye(labels.max() + 1)[labels]
    assert macro_f1(labels, labels) == macro_auc(right, labels) == 1
    assert macro_auc(-right, labels) == 0
    assert macro_auc(np.ones_like(right), labels) == 0.5
    assert macro_f1(np.full(len(labels), 99), labels) == 0


def test_two_classes_have_the_same_area():
    probability = np.random.default_rng(0).random(50)
    labels = (np.random.default_rng(1).random(50) < probability).astype(int)
    both = np.stack([1 - probability, probability], 1)
    assert macro_auc(both, labels) == pytest.approx(roc_auc_score(labels, probability))


def test_a_client_with_one_class_has_an_f1_and_no_auc():
    labels = np.array([3, 3, 3])
    assert macro_f1(np.array([3, 3, 1]), labels) == pytest.approx(0.8)
    assert math.isnan(macro_auc(np.ones((3, 5)), labels))


def metrics(auc):
    total = np.array([10, 10, 10])
    return ClientMetrics(np.array([5, 6, 7]), total, np.ones(3), np.array([0.5, 0.6, 1.0]), np.array(auc))


def test_means_are_over_the_clients_that_have_a_value():
    summary = metrics([0.5, np.nan, 0.8]).summary()
    assert (summary["macro_f1"], summary["auc"], summary["auc_clients"]) == (pytest.approx(0.7), 0.65, 2)
    assert not {"auc", "auc_clients"} & metrics([np.nan] * 3).summary().keys()


# In records


def test_every_method_has_them_at_the_end_alone(algo, unbroken):
    finished = unbroken(algo)
    record = read_record(finished.folder)
    assert len(record.macro_f1) == len(record.auc) == len(record.accuracies)
    assert 0 <= record.summary["macro_f1"] == pytest.approx(record.macro_f1.mean(), abs=1e-5)
    assert record.summary["auc_clients"] == np.isfinite(record.auc).sum()
    assert ["macro_f1" in line for line in record.rounds] == [False] * (len(record.rounds) - 1) + [True]


def test_a_client_without_an_auc_has_an_empty_entry(tiny, launch, tmp_path):
    folder = launch(tiny("fedavg", classes_per_client=1), tmp_path).folder
    assert all(line.endswith(",") for line in (folder / "clients.csv").read_text().splitlines()[1:])
    record = read_record(folder)
    assert np.isnan(record.auc).all()
    assert "auc" not in record.summary


@pytest.fixture
def folder(tiny, launch, tmp_path):
    return launch(tiny("fedavg"), tmp_path).folder


def test_older_records_are_read_without_them(folder):
    lines = (folder / "clients.csv").read_text().splitlines()
    (folder / "clients.csv").write_text("\n".join(line.rsplit(",", 2)[0] for line in lines) + "\n")
    amend(
        folder / "rounds.jsonl", lambda lines: [lines[-1].pop(n) for n in ("macro_f1", "auc", "auc_clients")]
    )
    names = ("macro_f1", "auc", "auc_clients", "global_accuracy")
    amend(folder / "summary.json", lambda summary: [summary.pop(name) for name in names])
    record = read_record(folder)
    assert record.macro_f1 is record.auc is None


BAD = {
    "another mean": ("summary.json", lambda s: s.update(macro_f1=0.123456), "macro_f1 is 0.123456"),
    "no mean": ("summary.json", lambda s: s.pop("auc"), "auc is in only one"),
    "no share": ("summary.json", lambda s: s.update(auc=1.5), "auc is 1.5"),
    "no shared share": ("summary.json", lambda s: s.update(global_accuracy=-1), "global_accuracy is -1"),
}


@pytest.mark.parametrize("damage", BAD)
def test_figures_that_do_not_fit_are_named(damage, folder):
    name, change, reason = BAD[damage]
    amend(folder / name, change)
    with pytest.raises(BadRecord, match=reason):
        read_record(folder)


@pytest.mark.parametrize("end", [",2.0,0.5", ",0.5,7", ",0.5,nan", ",0.5", ",,", ",0.5,0.5,0.5"])
def test_lines_of_clients_that_cannot_be_are_refused(end, folder):
    text = (folder / "clients.csv").read_text().splitlines()
    text[1] = ",".join(text[1].split(",")[:5]) + end
    (folder / "clients.csv").write_text("\n".join(text) + "\n")
    seal(folder)
    with pytest.raises(BadRecord, match="client 0"):
        read_record(folder)


# The shared model


def test_the_shared_model_is_what_a_global_method_is_evaluated_with(algo, tiny, play):
    played = play(tiny(algo))
    algorithm, model = played.algorithm, played.algorithm.shared_model()
    if model is None:
        assert "global_accuracy" not in played.summary
        return
    shapes = algorithm.network.shapes()
    assert {name: tuple(tensor.shape) for name, tensor in model.items()} == shapes
    assert 0 <= played.summary["global_accuracy"] <= 1
    plain = type(algorithm).scores is type(algorithm).__mro__[-2].scores
    if played.summary["evaluated"] == "global" and not algorithm.adaptation() and plain:
        (own,) = algorithm.members([0])
        assert all(np.array_equal(own.params[n][0], tensor) for n, tensor in model.items())
        assert played.summary["global_accuracy"] == pytest.approx(played.summary["accuracy"])


def test_methods_with_personal_layers_or_without_a_server_share_no_model(tiny, play):
    shared = {
        name: play(tiny(name, rounds=1)).algorithm.shared_model() is not None
        for name in (
            "fedavg",
            "ditto",
            "fedbabu",
            "moon",
            "local",
            "fedper",
            "fedrep",
            "pfedfda",
            "phn",
            "ifca",
        )
    }
    assert [name for name, found in shared.items() if found] == ["fedavg", "ditto", "fedbabu", "moon"]


def test_a_sample_of_several_clients_counts_once(tiny, ready):
    algorithm = ready(tiny("fedavg")).algorithm
    data, network = algorithm.task.data, algorithm.task.network
    first, *others = data._index["test"]
    data._index["test"] = [first, *([torch.cat([first[:1], own])[: len(own)] for own in others])]
    rows = torch.cat(data._index["test"]).unique()
    x, y = data.stored("test")
    right = network.apply(algorithm.server, data.encode(x[rows])).argmax(1) == y[rows]
    assert evaluate_shared(algorithm) == pytest.approx(float(right.float().mean()))


def test_summaries_hold_plain_numbers(unbroken):
    summary = json.loads((unbroken("ditto").folder / "summary.json").read_text())
    assert isinstance(summary["auc_clients"], int)
