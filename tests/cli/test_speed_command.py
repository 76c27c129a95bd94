"""The command ``speed``: flags, files, and what it refuses."""

import json

import pytest
import torch

from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.speed import parts

DOCUMENT = "# Speed\n<!-- measured on cpu: begin -->\n<!-- measured on cpu: end -->\n"


@pytest.fixture
def kept(tmp_path):
    """A kept measurement of two trainers."""
    row = {
        "part": "cells", "cell": "digits", "executor": "plain", "device": "cpu", "threads": 1, "clients": 10,
        "repeats": 3, "tf32": False, "seconds": 2.0, "samples_per_second": 1500.0,
        "client_steps_per_second": 150.0, "flops": 1e9, "share_of_product": 0.1, "product_flops": 1e10,
        "share_of_copy": 0.2, "copy_bytes_per_second": 1e10, "times_loop": 0.5,
        "times_loop_range": [0.4, 0.6], "times_plain": 1.0, "times_plain_range": [1.0, 1.0],
        "peak_memory": 123456789, "local_epochs": 1,
    }  # fmt: skip
    file = tmp_path / "speed.json"
    parts.save(file, [row, {**row, "executor": "loop", "seconds": 4.0}], Execution(device="cpu"))
    return file


def test_measuring_prints_and_keeps(command, tmp_path, monkeypatch):
    sizes = parts.Sizes(1, crowds=(20,))
    monkeypatch.setattr(parts, "sizes_for", lambda device, repeats, cells, epochs: sizes)
    out = tmp_path / "speed.json"
    answer = command("speed --device cpu --only crowds --json --output", str(out))
    assert answer.code == 0
    (row,) = answer.json
    assert {"cell", "executor", "device", "samples_per_second"} <= set(row)
    assert json.loads(out.read_text())["rows"] == [row]


def test_without_flags_the_trainers_are_compared(command, monkeypatch):
    asked = []
    monkeypatch.setattr(parts, "measure", lambda chosen, *others: asked.append(chosen) or ([], []))
    assert command("speed --device cpu").code == 0
    assert asked == [["cells"]]


def test_a_kept_measurement_is_shown_and_put_into_a_document(command, kept, tmp_path):
    document = tmp_path / "speed.md"
    document.write_text(DOCUMENT)
    answer = command("speed --from", str(kept), "--into", str(document))
    assert answer.code == 0
    assert "| digits | plain " in answer.out
    cells = [[part.strip() for part in line.split("|")[1:6]] for line in document.read_text().splitlines()]
    assert ["digits", "plain", "1", "2.000", "1,500"] in cells


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--only cell", "did you mean 'cells'"),
        ("--cell mnist", "known: cifar10, digits"),
        ("--repeats 0", "at least 1"),
        ("--epochs 0", "--epochs is '0'; expected how many, a whole number"),
        ("--all --only cells", "contradict"),
        ("--from speed.json --all", "drop --all"),
        ("--from speed.json --device cpu --repeats 9", "drop --repeats, --device"),
        ("--from /dev/zero", "cannot read /dev/zero"),
        ("--device cpu,cpu", "one device is measured at a time"),
        ("--only crowds --cell digits", "--cell is for cells, cohorts, scale"),
        ("--only runs --epochs 2", "--epochs is for cells, cohorts"),
        ("--client-memory 1GiB", "--client-memory is for scale"),
        ("--from speed.json --epochs 2", "--epochs"),
        ("--from nowhere.json", "cannot read nowhere.json"),
        ("--into README.md", "--output FILE, or --from FILE"),
        ("--output nowhere/speed.json", "a folder that exists"),
        ("--output .", "a folder that exists"),
        ("--output speed.json --into nowhere.md", "no such document"),
        ("--device tpu0", "unknown device"),
        ("--device cpu --output speed.json --into README.md", "<!-- measured on cpu: begin -->"),
    ],
)
def test_bad_input(words, told, command):
    answer = command(f"speed {words}")
    assert answer.code == 2
    (line,) = answer.err.splitlines()
    assert line.startswith("error: ")
    assert told in line


TABLE = DOCUMENT.replace("begin -->\n", "begin -->\n\n**Growth with the cohort**\n\nfigures\n\n")


def ends_by(error, *rows):
    """A part that gives some rows and then fails."""

    def part(execution, sizes):
        yield from rows
        raise error

    return part


def test_tables_of_parts_that_are_not_measured_are_not_lost(command, tmp_path):
    (tmp_path / "speed.md").write_text(TABLE)
    words = ("--output", str(tmp_path / "speed.json"), "--into", str(tmp_path / "speed.md"))
    answer = command("speed --device cpu", *words)
    assert answer.code == 2
    assert "its tables of cohorts would be lost" in answer.err
    assert (tmp_path / "speed.md").read_text() == TABLE


def test_a_failed_measurement_leaves_the_document(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(parts.PARTS, "cohorts", ends_by(ZeroDivisionError))
    (tmp_path / "speed.md").write_text(TABLE)
    words = ("--output", str(tmp_path / "speed.json"), "--into", str(tmp_path / "speed.md"))
    with pytest.raises(SystemExit, match="1"):
        command("speed --device cpu --only cohorts", *words)
    assert "is left as it was" in capsys.readouterr().err
    assert (tmp_path / "speed.md").read_text() == TABLE


def test_an_interruption_before_the_first_row_claims_nothing(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(parts.PARTS, "cohorts", ends_by(KeyboardInterrupt))
    with pytest.raises(SystemExit, match="130"):
        command("speed --device cpu --only cohorts --output", str(tmp_path / "speed.json"))
    assert "interrupted; the same command measures everything again" in capsys.readouterr().err


def test_a_kept_measurement_loses_no_tables_of_a_document(command, kept, tmp_path):
    (tmp_path / "speed.md").write_text(TABLE)
    answer = command("speed --from", str(kept), "--into", str(tmp_path / "speed.md"))
    assert answer.code == 2
    assert "its tables of cohorts would be lost" in answer.err
    assert (tmp_path / "speed.md").read_text() == TABLE


def test_an_interrupted_measurement_says_what_is_kept(command, tmp_path, monkeypatch, capsys):
    row = {"cell": "digits", "executor": "loop", "clients": 1, "seconds": 1.0, "samples_per_second": 1.0}
    monkeypatch.setitem(parts.PARTS, "cohorts", ends_by(KeyboardInterrupt, row))
    with pytest.raises(SystemExit, match="130"):
        command("speed --device cpu --only cohorts --output", str(tmp_path / "speed.json"))
    assert "has what was measured so far" in capsys.readouterr().err
    assert len(parts.load(tmp_path / "speed.json")["rows"]) == 1


@pytest.mark.parametrize(
    "change", [{"seconds": "x"}, {"times_plain_range": [1.0]}, {"part": "cell"}, {"samples_per_second": None}]
)
def test_damaged_measurements_are_refused(change, command, kept):
    found = json.loads(kept.read_text())
    found["rows"][0] |= change
    kept.write_text(json.dumps(found))
    answer = command("speed --from", str(kept))
    assert answer.code == 2
    assert f"cannot read {kept}" in answer.err


def test_the_cell_is_that_of_every_part():
    for kind in ("cpu", "cuda"):
        sizes = parts.sizes_for(torch.device(kind), 1, ("digits",))
        assert {*sizes.cells, sizes.cohort_cell, sizes.scale_cell} == {"digits"}


def test_a_document_without_marks_is_left_as_it_is(command, kept, tmp_path):
    document = tmp_path / "speed.md"
    document.write_text("# Speed\n")
    assert command("speed --from", str(kept), "--into", str(document)).code == 2
    assert document.read_text() == "# Speed\n"
