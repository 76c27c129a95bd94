"""When checkpoints are written, and that the rounds of a record never lag behind what is known."""

import pytest
import torch

from benchmark.engine.executors import LoopExecutor
from benchmark.engine.records import RunRecord
from benchmark.engine.rounds import Diverged
from benchmark.experiment.execution import Execution
from benchmark.experiment.runner import run_cell


class Stop:
    """An observer that stops the run when it hears of some round."""

    def __init__(self, last):
        self.last = last

    def start(self, rounds, done):
        pass

    def round(self, line):
        if line["round"] == self.last:
            raise KeyboardInterrupt


@pytest.fixture
def go(tiny, tmp_path):
    """``go(pause, last)``: a tiny run with that many seconds between checkpoints, stopped in a round."""

    def start(pause, last=None):
        execution = Execution(device="cpu", executor="loop", results_dir=tmp_path, checkpoint_seconds=pause)
        return run_cell(tiny("fedavg"), execution, Stop(last))

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
