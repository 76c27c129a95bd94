"""TensorBoard: what lies in its event files equals the record."""

import dataclasses
import json

import pytest

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pfl_benchmark.cli import main
from pfl_benchmark.records.record import read_record
from pfl_benchmark.track.tensorboard import TensorBoard

RUN = "run --algo fedavg-ft --dataset digits --clients 4 --samples-per-client 20 --test-samples-per-client 10"
RUN += " --rounds 4 --eval-every 2 --local-epochs 1 --device cpu --executor loop --json"


def events(folder):
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_its_files_have_what_the_record_has(tmp_path, capsys):
    words = [*RUN.split(), "--results-dir", str(tmp_path / "runs"), "--tensorboard", str(tmp_path / "board")]
    assert main(words) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    record = read_record(next((tmp_path / "runs").glob("*/done")).parent)
    found = events(tmp_path / "board" / record.folder.name)
    for name in ("loss", "bytes_up", "accuracy"):
        logged = [(event.step, event.value) for event in found.Scalars(name)]
        lines = [(line["round"], line[name]) for line in record.rounds if name in line]
        assert [step for step, _ in logged] == [step for step, _ in lines]
        assert [value for _, value in logged] == pytest.approx([value for _, value in lines])
    assert found.Scalars("summary/accuracy")[0].value == pytest.approx(summary["accuracy"])
    (histogram,) = found.Histograms("clients/accuracy")
    assert histogram.histogram_value.num == 4
    sent = sum(line["bytes_up"] + line["bytes_down"] + line["bytes_broadcast"] for line in record.rounds)
    assert found.Scalars("cumulative/bytes")[-1].value == pytest.approx(sent)


def test_a_run_that_goes_on_is_logged_once(tmp_path):
    board = TensorBoard(tmp_path)
    about = dataclasses.make_dataclass("About", ["folder", "config"])
    config = dataclasses.make_dataclass("Config", [])()
    type(config).to_dict = lambda self: {"lr": 0.1}
    line = {"bytes_up": 1, "bytes_down": 1, "bytes_broadcast": 0, "samples": 5, "adaptation_samples": 0}
    for rounds in (2, 3):
        tracker = board.begin(about(tmp_path / "run-1", config), print)
        for number in range(1, rounds + 1):
            tracker.round({"round": number, **line})
        tracker.stop(130)
    assert [event.step for event in events(tmp_path / "run-1").Scalars("samples")] == [1, 2, 3]


def test_a_folder_that_is_a_file(tmp_path, capsys):
    (tmp_path / "file").touch()
    words = [*RUN.split(), "--results-dir", str(tmp_path / "runs"), "--tensorboard", str(tmp_path / "file")]
    assert main(words) == 2
    assert "--tensorboard" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
