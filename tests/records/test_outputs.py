"""Predictions and models that are kept with a record."""

import hashlib
import json
import sys

import numpy as np
import pytest
import torch
from answers import refused

from pfl_benchmark.cli import main
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.records.outputs import MODELS, PREDICTIONS
from pfl_benchmark.records.record import read_record
from pfl_benchmark.resolve.run import resolve


@pytest.fixture
def keep(tiny, tmp_path):
    def go(algo, models=True, **changes):
        execution = Execution(
            device="cpu", executor="loop", results_dir=tmp_path, save_predictions=True, save_models=models
        )
        return read_record(tmp_path / run_cell(resolve(tiny(algo, **changes)), execution, Quiet())["record"])

    return go


@pytest.mark.parametrize("algo", ["fedavg", "fedavg-ft", "fedem", "fedproto", "fedrod", "knn-per", "ppfe"])
def test_predictions_give_the_accuracy_of_every_client(algo, keep):
    record = keep(algo, models=False)
    with np.load(record.folder / PREDICTIONS, allow_pickle=False) as found:
        logits, labels, client = found["logits"], found["labels"], found["client"]
    assert logits.dtype == np.float16
    assert np.isfinite(logits).all()
    assert len(logits) == len(labels) == len(client) == record.test_samples.sum()
    right = logits.astype(np.float32).argmax(1) == labels
    accuracies = [right[client == number].mean() for number in range(len(record.accuracies))]
    # Two logits may be one float16.
    assert np.abs(np.array(accuracies) - record.accuracies).max() <= 0.1 + 1e-9


@pytest.mark.parametrize("algo", ["fedavg", "fedper", "fedavg-ft", "ppfe", "fedem"])
def test_models_are_those_that_clients_are_evaluated_with(algo, keep, play, tiny):
    from safetensors.torch import load_file

    record = keep(algo)
    tensors = load_file(record.folder / MODELS)
    algorithm = play(tiny(algo)).algorithm
    everyone = range(record.config.clients)
    if algorithm.adaptation():
        assert any(".clients." in name for name in tensors)
        return
    members = algorithm.members(everyone)
    for place, member in enumerate(members):
        for name, tensor in member.params.items():
            common = tensors.get(f"{place}.common.{name}")
            found = tensors[f"{place}.clients.{name}"] if common is None else common.expand_as(tensor)
            assert torch.equal(found, tensor), name
        if member.weights is not None:
            assert torch.equal(tensors[f"{place}.weights"], member.weights)
    if algo == "fedavg":
        assert all(".common." in name for name in tensors)


def test_their_checksums_stand_in_the_record_which_is_whole_without_them(keep):
    record = keep("fedper")
    saved = record.summary["saved"]
    assert set(saved) == {PREDICTIONS, MODELS}
    for name, about in saved.items():
        content = (record.folder / name).read_bytes()
        assert about == {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        (record.folder / name).unlink()
    assert read_record(record.folder).digest == record.digest


def test_nothing_changes_in_what_else_is_recorded(keep, tiny, launch, tmp_path):
    kept = keep("ditto").summary
    plain = launch(tiny("ditto"), tmp_path / "plain").summary
    timed = ("seconds", "samples_per_second", "environment", "record", "saved")
    assert {n: v for n, v in kept.items() if n not in timed} == {
        n: v for n, v in plain.items() if n not in timed
    }


def test_a_run_that_kept_nothing_is_not_taken_for_one_that_did(keep, tiny, launch, tmp_path):
    launch(tiny("fedavg"), tmp_path)
    with pytest.raises(UserError, match=r"has no predictions\.npz"):
        keep("fedavg")


def test_verify_does_not_miss_them(keep, capsys):
    folder = keep("fedavg").folder
    assert main(["verify", str(folder), "--all"]) == 0
    assert capsys.readouterr().out.startswith("bit-equal")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of file sizes")
def test_a_full_disk_is_a_line_and_the_run_can_be_finished_later(keep, tmp_path):
    import resource

    pytest.importorskip("safetensors")
    whole = (keep("fedper").folder / MODELS).stat().st_size
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole - 1, limit[1]))
    try:
        with pytest.raises(UserError, match=rf"cannot write .*{MODELS}: .*free space"):
            keep("fedper", seed=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    (folder,) = tmp_path.glob("*-seed1-*")
    assert not [path for path in folder.iterdir() if path.suffix in (".tmp", ".safetensors")]
    assert (keep("fedper", seed=1).folder / MODELS).exists()


def test_without_the_package_nothing_is_begun(tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    words = f"--algo fedavg --dataset digits --rounds 1 --save-models --results-dir {tmp_path / 'runs'}"
    code = main(words.split())
    refused(
        (code, *capsys.readouterr()), "--save-models needs the package safetensors", "pip install safetensors"
    )
    assert not list(tmp_path.iterdir())


def test_flags_of_the_command(tmp_path, capsys):
    words = "--algo fedper --dataset digits --clients 4 --rounds 1 --save-predictions --save-models --json"
    assert main([*words.split(), "--results-dir", str(tmp_path)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert set(summary["saved"]) == {PREDICTIONS, MODELS}
