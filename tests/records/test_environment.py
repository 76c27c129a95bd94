"""What a record says of the code that made it."""

import subprocess

import pytest

from pfl_benchmark.records.environment import _state


@pytest.fixture
def checkout(tmp_path):
    """A repository with a program in it, committed."""
    for name in ("algorithms/one.py", "benchmark/engine/two.py", "tests/three.py", "notes.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "begin"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "differs"),
    [
        ("algorithms/one.py", True),  # edited
        ("tests/three.py", True),
        ("algorithms/mine.py", True),  # new, as every method is at first
        ("benchmark/engine/deep/mine.py", True),
        ("notes.md", False),
        ("sketch.py", False),  # no part of the program
        ("algorithms/notes.md", False),
        ("algorithms/ignored.py", False),
    ],
)
def test_code_that_the_commit_does_not_have_is_marked(name, differs, checkout):
    before = _state(checkout)
    assert len(before) == 12
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).write_text("x = 2\n")
    assert _state(checkout) == before + "+" * differs


def test_outside_of_git_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert _state(tmp_path) == ""


def test_the_commit_of_something_else_is_not_this_programs(checkout):
    """A copy without history, unpacked inside of another project."""
    assert _state(checkout / "benchmark") == ""
