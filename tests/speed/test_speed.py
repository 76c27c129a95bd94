"""Measurements of speed: that they measure what they say. Nothing here judges a time."""

import json
from pathlib import Path

import pytest
import torch

from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.models import NETWORKS
from pfl_benchmark.present.document import Document
from pfl_benchmark.speed.parts import PARTS, Sizes, load, measure, save, sizes_for
from pfl_benchmark.speed.plain import PlainTrainer, plain_network
from pfl_benchmark.speed.tables import TABLES, document_part
from pfl_benchmark.speed.work import CELLS, TRAINERS, Work, processes, ready, turns

CPU = Execution(device="cpu")
SMALL = Sizes(
    repeats=1, cells=("digits",), epochs={"digits": 1}, trainers=TRAINERS, cohort_cell="digits",
    cohorts=(1, 2), crowds=(20, 40), setting="digits-s2", rounds=4,
    scale_cell="digits", scale_methods=("ditto",), scale_rounds=2,
)  # fmt: skip
MARKS = "before\n<!-- measured on cpu: begin -->\nold\n<!-- measured on cpu: end -->\nafter\n"


@pytest.fixture(scope="module")
def rows():
    """Every part, as small as can be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # of the processes that take turns
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


# The parts


def test_every_part_has_rows(rows):
    assert {row["part"] for row in rows} == set(PARTS) <= set(TABLES)
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
            assert row["peak_memory"] > 10**7
    trainers = [row for row in rows if row["part"] == "cells"]
    assert [row["executor"] for row in trainers] == list(TRAINERS)
    for row in trainers:
        for base in trainers[:2]:
            least, most = row[f"times_{base['executor']}_range"]
            assert least <= row[f"times_{base['executor']}"] <= most
            assert (least == most == 1) == (base is row)
        assert row["local_epochs"] == 1
        assert row["seconds"] * row["samples_per_second"] == pytest.approx(10 * 60)


def test_a_measurement_is_kept_and_becomes_a_document(rows, tmp_path):
    save(tmp_path / "speed.json", rows, CPU)
    found = load(tmp_path / "speed.json")
    assert found["rows"] == json.loads(json.dumps(rows))
    name, tables = document_part(found)
    assert name == "measured on cpu"
    document = tmp_path / "document.md"
    document.write_text(MARKS)
    Document(document).save({name: tables})
    text = document.read_text()
    assert tables in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert Document(document).with_parts({name: tables}) == text
    assert tables.count("\n**") == len(PARTS)


def test_the_repositorys_document_has_room_for_measurements(rows, tmp_path):
    save(tmp_path / "speed.json", rows, CPU)
    document = Document(Path(__file__).resolve().parents[2] / "docs" / "performance.md")
    for kind in ("cpu", "cuda"):
        found = load(tmp_path / "speed.json")
        found["environment"]["kind"] = kind
        assert document.with_parts(dict([document_part(found)])).count("<!-- measured on") == 4


@pytest.mark.parametrize("content", [None, "", "[]", '{"format": 0}', '{"format": 1, "environment": {}}'])
def test_files_of_something_else_are_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "speed.json").write_text(content)
    with pytest.raises(UserError):
        load(tmp_path / "speed.json")


# Trainers in processes of their own


def test_a_trainer_takes_turns_and_tells_what_went_wrong(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with processes(["loop"]) as places:
        found = turns({"loop": Work("digits", "loop", CPU, 2, 20)}, 2, places)
        with pytest.raises(KeyError, match="nowhere"):
            turns({"loop": Work("nowhere", "loop", CPU)}, 1, places)
    assert [turn["loop"].samples for turn in found] == [1200, 1200]
    assert all(turn["loop"].seconds > 0 and turn["loop"].peak > 10**7 for turn in found)


@pytest.mark.parametrize("cell", CELLS)
def test_nothing_timed_is_augmented(cell):
    """The plain trainer, which all are compared with, cannot."""
    assert not ready(cell, "loop", CPU, clients=3, samples_per_client=10).config.augment


def test_gpus_get_the_whole_measurement_and_cpus_a_small_one():
    big, small = (sizes_for(torch.device(kind), 3) for kind in ("cuda", "cpu"))
    assert (big.setting, big.rounds) == ("cifar10-s2", 160)
    assert small.rounds < big.rounds
    assert small.cells == big.cells == ("cifar10", "digits")
    assert small.trainers == TRAINERS
    assert set(TRAINERS) - set(big.trainers) == {"threads"}


def test_on_cpus_calls_of_the_large_network_are_short_unless_asked_otherwise():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert (sizes_for(cpu, 3).epochs, sizes_for(cuda, 3).epochs) == ({"cifar10": 1}, {})
    for device in (cpu, cuda):
        assert sizes_for(device, 3, (), 2).epochs == {"cifar10": 2, "digits": 2}


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_committed_tables_are_those_of_the_committed_measurements(kind):
    docs = Path(__file__).resolve().parents[2] / "docs"
    found = load(docs / f"speed-{kind}.json")
    document = Document(docs / "performance.md")
    assert document.with_parts(dict([document_part(found)])) == document.with_parts({})
