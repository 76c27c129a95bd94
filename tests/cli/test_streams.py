"""Output of commands: hidden characters are escaped wherever they come from; closed and full streams."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from damages import CONFIG, command
from record_folders import write_record

from pfl_benchmark.errors import printable
from pfl_benchmark.records.seal import seal

ROOT = Path(__file__).parents[2]
HIDDEN = {
    "escape": "\x1b[31mred", "bell": "\a", "back": "a\b", "delete": "\x7f", "C1": "\x9b2J",
    "right to left": "\u202etxt",
    "isolate": "\u2066x", "no width": "a\u200bb", "byte order mark": "\ufeff", "soft hyphen": "a\u00adb",
    "not UTF-8": "\udcff", "tag": "\U000e0041",
}  # fmt: skip


@pytest.mark.parametrize("kind", HIDDEN)
def test_they_are_shown_as_escapes(kind):
    shown = printable(HIDDEN[kind])
    assert shown.isprintable()
    assert shown.encode("ascii").decode("unicode_escape") == HIDDEN[kind]


def test_other_text_stays_as_it_is():
    text = "± 0.3 %, é, 中文, ✓ †\n\ta"
    assert printable(text) == text


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize(
    "words", ["--algo {hidden}", "--setting {hidden}", "compare {hidden}", "{hidden}", "--set {hidden}=1"]
)
def test_arguments(kind, words):
    code, out, err = command([word.format(hidden=HIDDEN[kind]) for word in words.split()])
    assert (code, out) == (2, "")
    assert all(char.isprintable() for char in err.rstrip("\n")), err


@pytest.mark.parametrize("kind", ["escape", "right to left", "no width"])
@pytest.mark.parametrize("words", ["compare {root}", "cost {root} --targets 0.5", "compare {root} --json"])
def test_records_of_others(kind, words, tmp_path):
    """A title that somebody's method has, in a record with a seal of its own."""
    for seed in (0, 1):
        import dataclasses

        for algo in ("fedavg", "fedper"):
            folder = write_record(tmp_path, dataclasses.replace(CONFIG, seed=seed, algo=algo))
            summary = json.loads((folder / "summary.json").read_text())
            summary["environment"]["device"] = summary["environment"]["gpu"] = HIDDEN[kind]
            summary["notes"] = [HIDDEN[kind]]
            (folder / "summary.json").write_text(json.dumps(summary))
            (folder / "done").unlink()
            seal(folder)
    code, out, err = command(words.format(root=tmp_path).split())
    assert code == 0, err
    assert all(char.isprintable() for char in (out + err).replace("\n", ""))


LIST = [sys.executable, "-m", "pfl_benchmark", "list", "methods"]
BAD = [sys.executable, "-m", "pfl_benchmark", "--algo", "nothing"]


@pytest.mark.skipif(not shutil.which("sh"), reason="needs a shell")
@pytest.mark.parametrize(
    ("words", "redirection", "code"),
    [
        (LIST, ">&-", 0), (LIST, "2>&-", 0), (LIST, ">&- 2>&-", 0), (LIST, "<&- >&- 2>&-", 0),
        (LIST, ">/dev/full", 2), (LIST, ">/dev/full 2>/dev/full", 2), (LIST, "2>/dev/full", 0),
        (BAD, ">&-", 2), (BAD, "2>&-", 2), (BAD, "2>/dev/full", 2),
    ],
)  # fmt: skip
def test_closed_and_full_streams(words, redirection, code, tmp_path):
    line = f'"$@" {redirection}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", line, "sh", *words], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.stderr.count("\n") == (code == 2 and "2>" not in redirection), done.stderr


def test_a_locale_without_the_characters(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([*LIST, "ppfe"], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
