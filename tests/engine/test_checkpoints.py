"""When checkpoints are written, and that the rounds of a record never lag behind what is known."""

import io
import shutil
from types import SimpleNamespace

import pytest
import torch
from stopping import Stop

from pfl_benchmark.engine import checkpoints
from pfl_benchmark.engine.executors import LoopExecutor
from pfl_benchmark.engine.rounds import Diverged
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.records.writer import RunRecord
from pfl_benchmark.resolve.run import resolve


@pytest.fixture
def go(tiny, tmp_path):
    """``go(pause, last)``: a tiny run with that many seconds between checkpoints, stopped in a round."""

    def start(pause, last=0):
        execution = Execution(device="cpu", executor="loop", results_dir=tmp_path, checkpoint_seconds=pause)
        return run_cell(resolve(tiny("fedavg")), execution, Stop(last))

    return start


def rounds_on_disk(root):
    (path,) = root.glob("*/rounds.jsonl")
    return len(path.read_text().splitlines())


@pytest.mark.parametrize(("spent", "rounds"), [(0.0, [1, 2, 3]), (1e6, [1])], ids=["fast", "slow"])
def test_slow_checkpoints_are_rare_and_none_follows_the_last_round(spent, rounds, go, monkeypatch):
    saved = []

    def save(self, state):
        saved.append(len(state["lines"]))
        return spent

    monkeypatch.setattr(RunRecord, "save_checkpoint", save)
    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(perf_counter=lambda: 0.0))  # `spent` is all
    go(1e-9)
    assert saved == rounds


def test_rounds_of_a_checkpoint_are_written_down_before_it_goes_on(go, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        go(0, last=2)
    (path,) = tmp_path.glob("*/rounds.jsonl")
    path.unlink()
    with pytest.raises(KeyboardInterrupt):
        go(0, last=1)  # which is told, not trained
    assert rounds_on_disk(tmp_path) == 2


def test_a_diverged_run_leaves_the_rounds_since_its_last_checkpoint(go, tmp_path, monkeypatch):
    train = LoopExecutor.train

    def broken(self, call):
        outcome = train(self, call)
        if call.round == 3:
            outcome.loss = torch.full_like(outcome.loss, torch.nan)
        return outcome

    monkeypatch.setattr(LoopExecutor, "train", broken)
    with pytest.raises(Diverged):
        go(1e9)
    assert rounds_on_disk(tmp_path) == 2


# Damage


def _flip(content, state):
    tensor = next(iter(state["algorithm"]["server"].values()))
    place = content.index(tensor.numpy().tobytes()[:64])
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


def _change(change):
    def damage(content, state):
        change(state)
        buffer = io.BytesIO()
        torch.save(state, buffer)
        return buffer.getvalue()

    return damage


def _reshape(state):
    name, tensor = next(iter(state["algorithm"]["server"].items()))
    state["algorithm"]["server"][name] = tensor[..., :-1]


DAMAGES = {
    "a bit": (_flip, "its checksum is another"),
    "half": (lambda content, state: content[: len(content) // 2], "it cannot be read"),
    "another run": (_change(lambda state: state.update(identity="another")), "it is of another run"),
    "a shape": (_change(_reshape), "its tensors have other shapes"),
    "no server": (_change(lambda state: state["algorithm"].clear()), "other code has written it"),
    "rounds": (_change(lambda state: state["lines"][0].update(round=2)), "line 1 of rounds.jsonl"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_its_rounds_are_trained_again(damage, go, tmp_path, capsys):
    whole = go(1e9)
    (folder,) = tmp_path.glob("fedavg-*")
    clients = (folder / "clients.csv").read_bytes()
    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / ".cache", ignore_errors=True)
    with pytest.raises(KeyboardInterrupt):
        go(0, last=2)
    shutil.rmtree(tmp_path / ".cache", ignore_errors=True)
    path, (change, reason) = folder / "checkpoint.pt", DAMAGES[damage]
    path.write_bytes(change(path.read_bytes(), torch.load(path, weights_only=True)))
    capsys.readouterr()
    again = go(1e9)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path} is damaged ({reason}" in line
    assert "set aside as checkpoint.damaged.pt, its rounds are trained again" in line
    assert again["accuracy"] == whole["accuracy"]
    assert again["resumed"] == 0
    assert (folder / "clients.csv").read_bytes() == clients
