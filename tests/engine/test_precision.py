"""Settings of the process: TF32, repeatable cuDNN and the memory allocator."""

import json
import sys

import pytest
import torch

from pfl_benchmark.engine.executors.allocator import keep_freed_memory
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.resolve.run import resolve


def settings():
    cudnn = torch.backends.cudnn
    return torch.backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic


@pytest.mark.parametrize("wanted", [True, False])
def test_tf32_is_both_or_neither_and_restored(wanted):
    before = settings()

    def fail():
        with precision(wanted):
            assert settings() == (wanted, wanted, True)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert settings() == before


@pytest.mark.parametrize("wanted", [True, False])
def test_a_run_sets_tf32_and_records_it(wanted, tiny, tmp_path):
    seen = []

    class Observer:
        def start(self, rounds, done):
            pass

        def round(self, line):
            seen.append(settings())

    before = settings()
    execution = Execution(device="cpu", executor="loop", results_dir=tmp_path, tf32=wanted)
    summary = run_cell(resolve(tiny("fedavg", rounds=1)), execution, Observer())
    assert seen == [(wanted, wanted, True)]
    assert settings() == before
    assert summary["environment"]["tf32"] is wanted
    (record,) = tmp_path.glob("*/summary.json")
    assert json.loads(record.read_text())["environment"]["tf32"] is wanted


def test_the_allocator_is_left_alone_where_it_was_set_by_hand_or_is_another(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("MALLOC_ARENA_MAX", "2")
        assert not keep_freed_memory()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        assert not keep_freed_memory()


@pytest.mark.parametrize("variable", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_either_way_of_setting_the_allocator_by_hand_counts(variable, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv(variable, "1")
    assert not keep_freed_memory()
