"""Runs whose clients keep everything in a file: the same bits as in memory, whenever they are killed."""

import json
import os
import shutil

import pytest
import torch
from stopping import Stop

import pfl_benchmark.engine.clients as pieces
from pfl_benchmark.engine.checkpoints import Checkpoints
from pfl_benchmark.engine.clients import ClientStore
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import record_of, run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.records.rows import PATTERN
from pfl_benchmark.resolve.run import resolve

METHODS = ("ditto", "fedala", "scaffold", "ppfe", "fedpac")  # the last has two stores


@pytest.fixture
def go(tmp_path):
    """``go(config)``: a run whose clients keep nothing in memory; its record's folder."""

    def start(config, observer=None, executor="loop", memory=0):
        execution = Execution(
            device="cpu", executor=executor, results_dir=start.root, checkpoint_seconds=0,
            client_memory=memory,
        )  # fmt: skip
        run_cell(resolve(config), execution, observer or Quiet())
        return record_of(resolve(config), start.root).folder

    start.root = tmp_path / "runs"
    return start


def results(folder):
    names = ("clients.csv", "diagnostics.json")
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_rows_in_a_file_change_nothing(method, executor, tiny, go, unbroken):
    if executor != "loop" and method not in ("ditto", "ppfe"):
        pytest.skip("the loop will do")
    whole = unbroken(method, executor).folder
    folder = go(tiny(method), executor=executor)
    assert results(folder) == results(whole)
    assert folder.name == whole.name, "it is no part of what a run is"
    assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}


@pytest.mark.parametrize("method", ["ditto", "ppfe"])
def test_killed_within_every_round_equals_unbroken(method, tiny, go, unbroken, monkeypatch):
    """After a part of the cohort has written what it keeps."""
    monkeypatch.setattr(pieces, "CHUNK", 2)
    scatter, left = ClientStore.scatter, []

    def killed(self, clients, stacked):
        scatter(self, clients, stacked)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    for number in (1, 2, 3, 4):
        left[:] = [1 if number == 1 else 3]  # two parts of a round, and the first one of the next
        with monkeypatch.context() as patch:
            patch.setattr(ClientStore, "scatter", killed)
            with pytest.raises(KeyboardInterrupt):
                go(tiny(method))
    folder = go(tiny(method))
    assert results(folder) == results(unbroken(method).folder)


def test_what_a_kill_has_left_goes(tiny, go, unbroken):
    """Files of rows that no checkpoint names, of a run that is begun again."""
    with pytest.raises(KeyboardInterrupt):
        go(tiny("ditto"), Stop(2))
    folder = record_of(resolve(tiny("ditto")), unbroken("ditto").folder.parent).folder
    (named,) = (path for path in go.root.glob(f"*/{PATTERN}") if path.suffix == ".rows")
    (named.parent / "checkpoint.pt").unlink()
    (named.parent / "checkpoint-0123456789ab.part").write_text("left")
    again = go(tiny("ditto"))
    assert results(again) == results(folder)
    assert not list(again.glob("checkpoint*"))


# Checkpoints


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 16
    path.write_bytes(content)


DAMAGES = {
    "a bit": (flip, "the checksum of a row in"),
    "half": (lambda path: os.truncate(path, path.stat().st_size // 2), "is too short"),
    "nothing": (os.unlink, "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_rows_are_found_and_rounds_are_trained_again(damage, tiny, go, unbroken, capsys):
    with pytest.raises(KeyboardInterrupt):
        go(tiny("ditto"), Stop(3))
    (path,) = go.root.glob(f"*/{PATTERN}")
    change, reason = DAMAGES[damage]
    change(path)
    folder = go(tiny("ditto"))
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path.parent / 'checkpoint.pt'} is damaged (" in line
    assert reason in line
    assert results(folder) == results(unbroken("ditto").folder)


def test_a_checkpoint_of_before_is_read(tiny, go, unbroken):
    """In which all rows of all clients were."""
    with pytest.raises(KeyboardInterrupt):
        go(tiny("fedpac"), Stop(2))
    (rows, *others), (path,) = (go.root.glob(f"*/{name}") for name in (PATTERN, "checkpoint.pt"))
    assert others, "two stores"
    found = torch.load(path, weights_only=True)

    class Record:
        folder = rows.parent

    state = Checkpoints(Record).load(found["algorithm"], torch.device("cpu"))
    for name in ("clients", "heads"):
        store = ClientStore({}, 6)
        store.load(state[name])
        kept = store.state()["kept"]
        state[name] = {"initial": store.initial, "kept": {client: dict(kept[client]) for client in kept}}
    torch.save({**found, "algorithm": state}, path)
    for file in (rows, *others):
        file.unlink()
    assert results(go(tiny("fedpac"))) == results(unbroken("fedpac").folder)


def test_shared_rounds_bring_their_rows(tiny, go):
    config = tiny("ppfe", rounds=9)
    first = go(config)
    expected = results(first)
    shutil.rmtree(first)
    assert list(go.root.glob(".cache/*.rows"))
    again = go(config)
    assert json.loads((again / "summary.json").read_text())["shared_rounds"] > 3
    assert results(again) == expected


@pytest.mark.parametrize("damage", [flip, os.unlink])
def test_damaged_rows_of_shared_rounds_are_trained_again(damage, tiny, go):
    config = tiny("ppfe", rounds=9)
    first = go(config)
    expected = results(first)
    shutil.rmtree(first)
    for path in go.root.glob(".cache/*.rows"):
        damage(path)
    assert results(go(config)) == expected


# Room


def test_no_room_is_told_before_the_first_round(tiny, go, trained_rounds, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(UserError, match=r"6 clients keep .* which has 1 kB; free space there"):
        go(tiny("ditto"))
    assert trained_rounds == []
    go(tiny("ditto"), memory=10**9)
