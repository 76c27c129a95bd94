"""A sample of the campaign (tests/campaign): nothing ends in a traceback, nothing changes without a word."""

import random

import pytest
from damages import COMMANDS, CONFIG, command_lines, damages, digits, judge, judge_damage
from record_folders import write_record

from pfl_benchmark.records.record import BadRecord, read_record

DAMAGES = damages()
QUICK = ("compare", "plan", "stages", "verify")


def test_a_changed_digit_is_found(tmp_path):
    folder = write_record(tmp_path, CONFIG)
    for name, content in digits(folder, 60):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        with pytest.raises(BadRecord):
            read_record(folder)
        (folder / name).write_bytes(before)
    assert read_record(folder).sealed


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "older"])
@pytest.mark.parametrize("which", QUICK)
def test_a_damaged_record_is_named(which, sealed, tmp_path):
    for what in random.Random(f"{which} {sealed}").sample(sorted(DAMAGES), 5):
        assert not judge_damage(tmp_path / "runs", DAMAGES[what], which, sealed), what


def test_rendering_leaves_damaged_records_out(tmp_path):
    for which in COMMANDS.keys() - set(QUICK):
        damage = DAMAGES["summary.json: a digit"]
        assert not judge_damage(tmp_path / "runs", damage, which, sealed=True), which


def test_absurd_command_lines_end_in_a_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line in random.Random(0).sample(command_lines(tmp_path / "runs"), 40):
        assert not judge(line)[0], line
