"""The observer of runs: few lines into files, a bar on terminals."""

import re

import pytest

from pfl_benchmark.console.terminal import duration, percent, shown_path
from pfl_benchmark.experiment import progress
from pfl_benchmark.render.forms import size


def line(number, rounds, every):
    evaluated = number == rounds or (every and number % every == 0)
    figures = (
        {"accuracy": 0.5, "evaluated": "personal" if number == rounds else "global"} if evaluated else {}
    )
    return {
        "round": number,
        "loss": 1.0,
        "bytes_up": 500,
        "bytes_down": 400,
        "bytes_broadcast": 100,
        "adaptation_samples": 10 * (number == rounds),
        **figures,
    }


def watch(rounds, every, done=0, resumes=False):
    with progress.RunProgress("headline", "waiting", resumes) as observer:
        observer.start(rounds, done)
        for number in range(1, rounds + 1):
            observer.round(line(number, rounds, every))


@pytest.mark.parametrize("rounds", [1, 2, 19, 20, 21, 40, 41, 160, 999])
@pytest.mark.parametrize("every", [0, 1, 3, 10, 1000])
def test_few_lines_and_always_the_last(rounds, every, capsys):
    watch(rounds, every)
    out, err = capsys.readouterr()
    headline, *lines = err.splitlines()
    assert out == ""
    assert headline == "headline"
    assert 1 <= len(lines) <= 21
    of = "fine-tuned" if every and every < rounds else "personal models"
    assert lines[-1].startswith(
        f"round {rounds}/{rounds}  accuracy 50.00 % ({of})  loss 1.0000  {size(1000 * rounds)}"
    )
    assert all("(global model)" in line for line in lines[:-1] if "accuracy" in line)
    assert "left" not in lines[-1]


def test_every_evaluated_round_if_they_are_few(capsys):
    watch(160, 10)
    numbers = [int(found) for found in re.findall(r"round +(\d+)/160  accuracy", capsys.readouterr().err)]
    assert numbers == list(range(10, 161, 10))


def test_an_evaluation_out_of_step_hides_no_later_one(capsys):
    with progress.RunProgress("headline", "waiting", resumes=False) as observer:
        observer.start(40, 0)
        for number in range(1, 41):
            observer.round(line(number, 40, number if number == 15 else 4))
    numbers = [int(found) for found in re.findall(r"round +(\d+)/40  accuracy", capsys.readouterr().err)]
    assert {*numbers} >= {*range(4, 41, 4)} - {16}


def test_resumed_rounds_count_but_are_not_told_again(capsys):
    watch(20, 1, done=15, resumes=True)
    headline, *lines = capsys.readouterr().err.splitlines()
    assert "resumes after round 15" in headline
    assert [text.split("/")[0] for text in lines] == [f"round {n}" for n in range(16, 21)]
    assert "20 kB" in lines[-1]


def test_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "is_interactive", lambda stream: True)
    monkeypatch.setattr("pfl_benchmark.console.terminal.is_interactive", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "100")
    watch(4, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert "waiting" in err
    assert "headline" in err
    last = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", err[err.rindex("round 4/4") :])  # without colours
    assert "loss 1.0000  accuracy 50.00 % (fine-tuned)  4 kB" in last


def test_no_bar_on_a_dumb_terminal_or_in_a_file(capsys, monkeypatch):
    class Terminal:
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    assert progress.is_interactive(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not progress.is_interactive(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    watch(4, 2)
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (4.5e15, "4,500 TB"),
    ],
)
def test_size(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1:00"),
        (200, "3:20"),
        (3599.6, "1:00:00"),
        (7400, "2:03:20"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_percent_and_path(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert percent(0.81254) == "81.25 %"
    assert shown_path(tmp_path / "a" / "b") == "a/b"
    assert shown_path("a/b") == "a/b"
    assert shown_path(tmp_path.parent) == str(tmp_path.parent)
