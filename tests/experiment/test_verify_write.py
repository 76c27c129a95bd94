"""`verify` of records that git knows writes into them only when asked."""

import shutil
import subprocess

import pytest

from pfl_benchmark.cli import main


@pytest.fixture
def committed(unbroken, tmp_path):
    """A results folder in a repository, its one record committed."""

    folder = shutil.copytree(unbroken("fedper").folder, tmp_path / "runs" / unbroken("fedper").folder.name)
    for words in (
        "init -q", "add .", "-c user.name=a -c user.email=a@b commit -q -m records",
    ):  # fmt: skip
        subprocess.run(["git", "-C", str(tmp_path), *words.split()], check=True)
    return folder


def changed(folder):
    words = ["git", "-C", str(folder), "status", "--porcelain"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("by_folder", [False, True])
def test_committed_records_are_left_as_they_are(committed, capsys, by_folder):
    main(["verify", str(committed.parent if by_folder else committed), "--rounds", "1"])
    assert not changed(committed)
    assert "--write saves" in capsys.readouterr().err


def test_written_if_asked(committed, capsys):
    main(["verify", str(committed), "--rounds", "1", "--write"])
    assert "verified.json" in changed(committed)
    assert "--write saves" not in capsys.readouterr().err


def test_others_are_written(unbroken, tmp_path, committed, capsys):

    own = shutil.copytree(committed, tmp_path / "new" / committed.name)
    main(["verify", str(own), "--rounds", "1"])
    assert (own / "verified.json").exists()
