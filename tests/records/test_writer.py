"""Records: one process a run, atomic files, stores of one format."""

import dataclasses
import errno
import fcntl
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.ledger import Ledger
from pfl_benchmark.errors import UserError
from pfl_benchmark.records import files, schema
from pfl_benchmark.records.metrics import ClientMetrics
from pfl_benchmark.records.seal import read_sealed, seal_of
from pfl_benchmark.records.writer import FORMAT, RunRecord, open_store, slug


@pytest.fixture
def record(tiny, tmp_path):
    """Two processes' views of one run: ``record()`` and ``record()`` again."""
    return lambda: RunRecord(open_store(tmp_path / "runs"), tiny("fedper"), "fedper")


@pytest.fixture
def metrics():
    return ClientMetrics(np.array([3, 4]), np.array([4, 4]), np.array([0.5, 0.25]))


# Stores


def test_a_new_store_is_marked(tmp_path):
    root = open_store(tmp_path / "new" / "runs")
    assert json.loads((root / "store.json").read_text()) == {"format": FORMAT}
    assert open_store(root) == root


@pytest.mark.parametrize("content", [f'{{"format": {FORMAT + 1}}}', '{"format": "old"}', "[]", "", "{}"])
def test_a_store_of_another_format_is_refused(content, tmp_path):
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(UserError, match=f"this version writes {FORMAT}; choose another --results-dir"):
        open_store(tmp_path)
    assert (tmp_path / "store.json").read_text() == content


def test_a_store_of_another_format_is_refused_by_a_run(tiny, launch, tmp_path):
    (tmp_path / "store.json").write_text('{"format": 0}')
    with pytest.raises(UserError, match="format 0"):
        launch(tiny("fedper"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["store.json"]


def test_a_results_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--results-dir"):
        open_store(tmp_path / "file")


# One process a run


def test_a_run_belongs_to_one_process(record):
    first, second = record(), record()
    first.acquire()
    with pytest.raises(UserError, match="another process is running this very run"):
        second.acquire()
    second.release()  # has nothing to let go of
    with pytest.raises(UserError, match="another process"):
        record().acquire()
    first.release()
    second.acquire()
    second.release()
    assert list(first.folder.iterdir()) == []


def test_a_lock_that_is_let_go_while_another_opens_it_still_excludes(record, monkeypatch):
    first, second, third = record(), record(), record()
    first.acquire()
    flock = fcntl.flock

    def late(*args):
        monkeypatch.setattr(fcntl, "flock", flock)
        first.release()  # between the second's open and its lock
        flock(*args)

    monkeypatch.setattr(fcntl, "flock", late)
    second.acquire()
    with pytest.raises(UserError, match="another process"):
        third.acquire()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks_is_used_without(code, record, monkeypatch):
    def flock(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    run = record()
    run.acquire()
    assert list(run.folder.iterdir()) == []
    run.release()


def test_a_killed_process_leaves_no_lock(record):
    run = record()
    code = f"""
import os, filelock
filelock.FileLock({str(run.folder / ".lock")!r}).acquire()
os.kill(os.getpid(), 9)
"""
    run.folder.mkdir(parents=True)
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert (run.folder / ".lock").exists()
    run.acquire()
    run.release()


# Names


def test_the_folder_says_what_the_run_is(tiny, tmp_path):
    def name(*args, **changes):
        config = tiny(*args, **changes)
        return RunRecord(tmp_path, config, config.algo).folder.name.removesuffix(f"-{config.hash}")

    assert name("fedper") == "fedper-digits-s2-seed0"
    assert name("ditto", partition="shards", seed=3) == "ditto-digits-shards2-seed3"
    assert name("local", partition="dirichlet", dirichlet=0.3) == "local-digits-dir0.3-seed0"
    assert name("local", partition="iid") == "local-digits-iid-seed0"


# Contents


def test_the_end_of_a_run(record, metrics):
    run = record()
    run.acquire()
    run.begin({"split": {"checksum": "abc"}})
    run.write_rounds([])
    run.save_checkpoint({"lines": []})
    assert not run.done
    run.finish(metrics, {}, {"accuracy": 0.875})
    run.release()
    assert run.done
    assert json.loads((run.folder / "summary.json").read_text()) == {"accuracy": 0.875}
    assert (run.folder / "done").read_text() == seal_of(read_sealed(run.folder))
    assert (run.folder / "clients.csv").read_text().splitlines() == [
        "client,test_samples,correct,accuracy,loss",
        "0,4,3,0.750000,0.500000",
        "1,4,4,1.000000,0.250000",
    ]
    stored = json.loads((run.folder / "config.json").read_text())
    assert stored["format"] == FORMAT
    assert stored["split"] == {"checksum": "abc"}
    assert stored["config"] == json.loads(json.dumps(run.config.to_record()))
    assert not (run.folder / "checkpoint.pt").exists()
    assert not (run.folder / "diagnostics.json").exists()


def test_the_done_marker_comes_last(record, metrics, monkeypatch):
    run = record()
    run.acquire()

    def full_disk(*args, **kwargs):
        raise OSError(28, "No space left on device")

    run.save_checkpoint({"lines": []})
    monkeypatch.setattr("pfl_benchmark.records.writer.write_json", full_disk)
    with pytest.raises(OSError, match="No space"):
        run.finish(metrics, {}, {"accuracy": 0.875})
    assert not run.done
    assert run.load_checkpoint(torch.device("cpu")) is not None
    run.release()


def test_the_configuration_on_disk_makes_the_same_run(algo, unbroken, tiny):
    stored = json.loads((unbroken(algo).folder / "config.json").read_text())["config"]
    assert RunConfig.from_dict(stored).hash == tiny(algo).hash


# Files


@pytest.mark.parametrize(
    ("write", "old", "new"),
    [(files.write_text, "old", "new"), (files.write_json, {"a": 1}, {"a": 2})],
    ids=["text", "json"],
)
def test_a_kill_while_writing_leaves_the_old_content(write, old, new, tmp_path, monkeypatch):
    path = tmp_path / "file"
    write(path, old)
    before = path.read_text()

    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write(path, new)
    assert path.read_text() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_the_users_business(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise RuntimeError("[enforce fail] . PytorchStreamWriter failed writing file\nmore")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match=r"failed writing file; free space"):
        files.save_tensors(tmp_path / "file.pt", {})
    with pytest.raises(UserError, match=r"cannot write .*choose another folder"):
        files.write_text(tmp_path / "missing" / "file", "")
    assert list(tmp_path.iterdir()) == []


def test_json_files_hold_no_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "file", {"accuracy": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "file"
    files.write_text(path, "old")
    path.chmod(0o640)
    files.write_text(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)


def test_the_costs_of_a_round_are_those_that_are_counted():
    """Records lie below the engine, and name what its ledger counts."""
    assert tuple(dataclasses.asdict(Ledger())) == schema.COSTS


def test_names_of_packages_networks_fit_every_folder():
    config = RunConfig(algo="fedavg", dataset="digits", network="timm:resnet18.a1_in1k")
    assert slug(config) == "digits-timm-resnet18.a1_in1k-s2-seed0"
