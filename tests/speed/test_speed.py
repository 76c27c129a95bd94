"""Measurements of speed: that they measure what they say. Nothing here judges a time."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.models import NETWORKS
from pfl_benchmark.present.document import Document
from pfl_benchmark.speed import report, workload
from pfl_benchmark.speed.cells import Trainer, cells, seated
from pfl_benchmark.speed.clock import training_bytes, training_flops
from pfl_benchmark.speed.equality import Seen, difference
from pfl_benchmark.speed.kernels import WAYS
from pfl_benchmark.speed.plain import PlainTrainer, plain_network
from pfl_benchmark.speed.report import PARTS, Sizes, load, measure, save
from pfl_benchmark.speed.tables import as_markdown, part_of, tables_of
from pfl_benchmark.speed.workload import TRAINERS, ready

CPU = Execution(device="cpu")
SMALL = Sizes(
    repeats=1, cells=("digits",), apart=False, cohort_cell="digits", cohorts=(1, 2), crowds=(20, 40),
    variants=(("fedper", None), ("ppfe", None)), setting="digits-s2", rounds=4, side_rounds=1, side_runs=2,
    jobs=2,
)  # fmt: skip
MARKS = "before\n<!-- measured on cpu: begin -->\nold\n<!-- measured on cpu: end -->\nafter\n"


@pytest.fixture(scope="module")
def rows():
    """Every part, as small as can be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(workload.CELLS, "digits", ("digits-s2", 1))
        patch.setenv("OMP_NUM_THREADS", "1")  # of the processes that run side by side
        found, failed = measure(PARTS, CPU, SMALL, lambda line: None)
    assert failed == []
    return found


# The plain trainer


@pytest.mark.parametrize(("cell", "samples"), [("digits", 25), ("cifar10", 12)])
def test_plain_training_is_the_loops(cell, samples):
    prepared = ready(cell, "loop", CPU, clients=3, samples_per_client=samples, batch_size=10, local_epochs=2)
    algorithm, task = prepared.make(2), prepared.task
    call = algorithm.begin([2, 0], algorithm.message([2, 0], 1), 1)
    expected = task.executor.train(call)
    found = PlainTrainer(prepared.config, task.data, task.streams).train(call)
    assert (found.clients, found.samples, found.steps) == ([2, 0], expected.samples, expected.steps)
    torch.testing.assert_close(found.models, expected.models, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-4, atol=1e-5)


def test_the_plain_network_is_an_ordinary_one():
    kinds = [type(module).__name__ for module in plain_network(NETWORKS["digits"])]
    assert kinds == ["Conv2d", "ReLU", "MaxPool2d"] * 2 + ["Flatten"] + ["Linear", "ReLU"] * 2 + ["Linear"]


# Equality


def test_differences_are_relative_and_nothing_escapes():
    one = torch.tensor([1.0, 200.0])
    assert difference({"a": [one]}, {"a": [one + torch.tensor([0.0, 2.0])]}) == pytest.approx(0.01)
    assert difference(one, one.clone()) == 0
    nan = torch.tensor([1.0, float("nan")])
    for other in (torch.ones(3), nan, torch.tensor([1.0, float("inf")])):
        assert difference(one, other) == float("inf")
    assert difference([one], [one, one]) == float("inf")


@pytest.mark.parametrize(
    ("trainings", "passes", "equal"),
    [
        ([1e-7, 1e-6, 1e-7], [1e-6], True),
        ([1e-7, 8e-3], [1e-6], True),  # a pooling window decided otherwise, once
        ([8e-3, 8e-3, 1e-7], [1e-6], False),
        ([1e-7, 0.1, 1e-7], [1e-6], False),
        ([1e-7, 1e-7], [1e-6, 1e-3], False),  # nothing is decided in a forward pass
        ([float("inf")], [], False),
    ],
)
def test_most_trainings_and_all_forward_passes_must_agree(trainings, passes, equal):
    assert Seen(trainings, passes).equal is equal


# The ways to compute a step


@pytest.mark.parametrize("cell", ["digits", "fmnist"])
def test_all_ways_give_the_same_gradients(cell):
    network, rng = NETWORKS[cell], np.random.default_rng(0)
    params = {
        name: torch.from_numpy(rng.normal(0, 0.1, (3, *shape)).astype(np.float32))
        for name, shape in network.shapes().items()
    }
    shape = (1, 8, 8) if cell == "digits" else (1, 28, 28)
    x, y = torch.from_numpy(rng.random((3, 4, *shape), dtype=np.float32)), torch.arange(12).view(3, 4) % 10
    expected = WAYS["loop"](network, params, x, y)
    for way in WAYS.values():
        torch.testing.assert_close(way(network, params, x, y), expected, rtol=1e-3, atol=1e-6)


def test_a_sample_of_training_is_three_forward_passes_but_for_the_first_layer():
    network = NETWORKS["digits"]
    conv1, others = 2 * 64 * 16 * 9, 2 * (16 * 32 * 16 * 9 + 128 * 64 + 64 * 32 + 32 * 10)
    assert training_flops(network, (1, 8, 8)) == 2 * conv1 + 3 * others
    assert training_bytes(network, (1, 8, 8), 10) > 2 * 4 * (64 * 16 + 16 * 32 + 64 + 32 + 10)


# The parts


def test_every_part_has_rows_but_tf32_which_cpus_lack(rows):
    assert {row["part"] for row in rows} == set(PARTS) - {"tf32"}
    json.dumps(rows, allow_nan=False)


def test_a_fault_in_one_part_loses_no_other(monkeypatch, capsys):
    def broken(execution, sizes):
        yield {"seconds": 1.0}
        raise ZeroDivisionError

    kept = []
    monkeypatch.setitem(PARTS, "cells", broken)
    monkeypatch.setitem(PARTS, "runs", lambda execution, sizes: iter([{}]))
    rows, failed = measure(["cells", "runs"], CPU, SMALL, print, lambda rows: kept.append(len(rows)))
    assert [row["part"] for row in rows] == ["cells", "runs"]
    assert kept == [1, 2]
    assert failed == ["cells"]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_rows_say_what_scripts_rely_on(rows):
    for row in rows:
        if row["part"] in ("cells", "cohorts", "crowds"):
            assert {"cell", "executor", "device", "samples_per_second"} <= set(row)
            assert row["samples_per_second"] > 0
    trainers = [row for row in rows if row["part"] == "cells"]
    assert [row["executor"] for row in trainers] == list(TRAINERS)
    for row in trainers:
        for base in trainers[:2]:
            least, most = row[f"times_{base['executor']}_range"]
            assert least <= row[f"times_{base['executor']}"] <= most
            assert (least == most == 1) == (base is row)
    assert all(row["equal"] for row in rows if row["part"] == "equality")
    assert [row["jobs"] for row in rows if row["part"] == "side-by-side"] == [1, 2]


def test_a_measurement_is_kept_and_becomes_a_document(rows, tmp_path):
    save(tmp_path / "speed.json", rows, CPU)
    found = load(tmp_path / "speed.json")
    assert found["rows"] == json.loads(json.dumps(rows))
    assert found["environment"]["kind"] == "cpu"
    document = tmp_path / "document.md"
    document.write_text(MARKS)
    Document(document).save({part_of("cpu"): as_markdown(found)})
    text = document.read_text()
    assert as_markdown(found) in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert Document(document).with_parts({part_of("cpu"): as_markdown(found)}) == text
    assert len(tables_of(rows)) == len(PARTS) - 1


def test_the_repositorys_document_has_room_for_measurements(rows, tmp_path):
    save(tmp_path / "speed.json", rows, CPU)
    document = Document(Path(__file__).resolve().parents[2] / "docs" / "performance.md")
    for kind in ("cpu", "cuda"):
        found = load(tmp_path / "speed.json")
        found["environment"]["kind"] = kind
        assert document.with_parts({part_of(kind): as_markdown(found)}).count("<!-- measured on") == 4


@pytest.mark.parametrize("content", [None, "", "[]", '{"format": 0}', '{"format": 1, "environment": {}}'])
def test_files_of_something_else_are_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "speed.json").write_text(content)
    with pytest.raises(UserError):
        load(tmp_path / "speed.json")


# Trainers in processes of their own


def test_a_trainer_apart_takes_turns_and_tells_what_went_wrong(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with seated("digits", ["loop"], CPU, 1, True) as seats:
        turns = [seats["loop"]() for _ in range(2)]
    assert [turn.samples for turn in turns] == [600, 600]
    assert all(turn.seconds > 0 and turn.peak > 10**7 for turn in turns)
    with pytest.raises(KeyError, match="nowhere"), seated("nowhere", ["loop"], CPU, 1, True):
        pass


def test_the_trainers_are_closed_where_one_fails(monkeypatch):
    closed = []
    monkeypatch.setattr(Trainer, "__init__", lambda self, *_: None)
    monkeypatch.setattr(Trainer, "close", lambda self: closed.append(self))
    monkeypatch.setattr(Trainer, "turn", lambda self: 1 / 0)
    monkeypatch.setitem(workload.CELLS, "digits", ("digits-s2", 1))
    with pytest.raises(ZeroDivisionError):
        list(cells(CPU, 1, ["digits"], ("plain", "loop"), apart=False))
    assert len(closed) == 2


@pytest.mark.parametrize("cell", workload.CELLS)
def test_nothing_timed_is_augmented(cell):
    """The plain trainer, which all are compared with, cannot."""
    assert not ready(cell, "loop", CPU, clients=3, samples_per_client=10).config.augment


def test_gpus_get_the_whole_measurement_and_cpus_a_small_one():
    big, small = (report.sizes_for(torch.device(kind), 3) for kind in ("cuda", "cpu"))
    assert (big.setting, big.rounds, big.side_runs) == ("cifar10-s2", 160, 20)
    assert small.rounds < big.rounds
    assert small.cells == big.cells == ("cifar10", "digits")
    assert small.trainers == TRAINERS
    assert set(TRAINERS) - set(big.trainers) == {"threads"}


def test_on_cpus_calls_of_the_large_network_are_short_unless_asked_otherwise():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert (report.sizes_for(cpu, 3).epochs, report.sizes_for(cuda, 3).epochs) == ({"cifar10": 1}, {})
    for device in (cpu, cuda):
        assert report.sizes_for(device, 3, (), 2).epochs == {"cifar10": 2, "digits": 2}
    for row in cells(CPU, 1, ["digits"], ("plain", "loop"), apart=False, epochs={"digits": 2}):
        assert row["local_epochs"] == 2
        assert row["seconds"] * row["samples_per_second"] == pytest.approx(2 * 10 * 60)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_committed_tables_are_those_of_the_committed_measurements(kind):
    docs = Path(__file__).resolve().parents[2] / "docs"
    found = load(docs / f"speed-{kind}.json")
    document = Document(docs / "performance.md")
    assert document.with_parts({part_of(kind): as_markdown(found)}) == document.with_parts({})
