"""What killed processes leave behind, and what may lie in a results folder that is no file of ours."""

import json
import os

import pytest
from record_folders import write_record

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError
from pfl_benchmark.present.render import RenderedFiles
from pfl_benchmark.records.files import write_text
from pfl_benchmark.records.writer import RunRecord, open_store

CONFIG = RunConfig(
    dataset="digits", clients=6, samples_per_client=20, test_samples_per_client=10, rounds=8, eval_every=2
)


@pytest.fixture
def folder(tmp_path):
    return write_record(tmp_path / "runs", CONFIG)


def leave(path, hours=0.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    if hours:
        os.utime(path, (0, path.stat().st_mtime - 3600 * hours))
    return path


def test_what_a_finished_record_does_not_need_goes(folder):
    names = {path.name for path in folder.iterdir()}
    beside = ("checkpoint-0123456789ab.rows", "checkpoint-0123456789ab.part")
    for name in ("checkpoint.pt", "checkpoint.damaged.pt", *beside, ".lock"):
        leave(folder / name)
    open_store(folder.parent)
    assert {path.name for path in folder.iterdir()} == names


def test_an_unfinished_run_keeps_its_checkpoint(folder):
    (folder / "done").unlink()
    names = ("checkpoint.pt", "checkpoint-0123456789ab.rows", ".lock")
    kept = [leave(folder / name) for name in names]
    open_store(folder.parent)
    assert all(path.exists() for path in kept)


def test_old_temporary_files_go(folder):
    root = folder.parent
    for place in (root, folder, root / "tables", root / ".cache", root / ".cache" / "report"):
        young = leave(place / ".a.json.123-0123abcd.tmp")
        old = leave(place / ".b.json.123-0123abcd.tmp", hours=2)
        other = leave(place / "mine.tmp", hours=2)
        open_store(root)
        assert (young.exists(), old.exists(), other.exists()) == (True, False, True)


def test_who_takes_a_run_removes_its_temporary_files(folder):
    (folder / "done").unlink()
    left = leave(folder / ".summary.json.123-0123abcd.tmp")
    run = RunRecord(folder.parent, CONFIG, "fedavg")
    assert run.folder == folder
    run.acquire()
    assert not left.exists()
    run.release()


def test_release_does_not_hide_the_error_that_ends_a_run(folder, monkeypatch):
    run = RunRecord(folder.parent, CONFIG, "fedavg")

    def broken(self):
        raise OSError("input/output error")

    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        run.acquire()
        try:
            monkeypatch.setattr("filelock.FileLock.release", broken)
            _ = 1 / 0
        finally:
            run.release()


# Rendered files


@pytest.fixture
def rendered(tmp_path):
    RenderedFiles(tmp_path / "runs").write("main", "print", {"tables/a.md": "a", "tables/b.md": "b"})
    return tmp_path / "runs"


def test_only_what_is_as_it_was_written_is_up_to_date(rendered):
    assert RenderedFiles(rendered).is_current("main", "print")
    (rendered / "tables" / "a.md").write_text("edited")
    assert not RenderedFiles(rendered).is_current("main", "print")
    (rendered / "tables" / "a.md").write_text("a")
    assert RenderedFiles(rendered).is_current("main", "print")
    assert not RenderedFiles(rendered).is_current("main", "another")


@pytest.mark.parametrize(
    "name", ["../victim.txt", "/{root}/../victim.txt", "tables/../../victim.txt", "link/victim.txt", "."]
)
def test_nothing_outside_of_the_folder_is_deleted_or_trusted(name, rendered, tmp_path):
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    (rendered / "link").symlink_to(tmp_path)
    path = rendered / ".rendered.json"
    found = json.loads(path.read_text())
    found["main"]["files"][name.format(root=str(rendered).lstrip("/"))] = ""
    path.write_text(json.dumps(found))
    files = RenderedFiles(rendered)
    assert {path.name for path in files.files("main")} == {"a.md", "b.md"}
    assert not files.is_current("main", "print")
    files.write("main", "print", {"tables/a.md": "new"})
    assert victim.read_text() == "precious"
    assert not (rendered / "tables" / "b.md").exists()


def test_nothing_is_written_through_a_link_to_another_place(rendered, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (rendered / "figures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="leads out of"):
        RenderedFiles(rendered).write("main", "print", {"figures/a.svg": "a"})
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("text", ["", "[]", '{"main": 5}', '{"main": {"files": ["a"]}}', "[" * 100_000])
def test_a_damaged_list_of_files_is_none(text, rendered):
    (rendered / ".rendered.json").write_text(text)
    files = RenderedFiles(rendered)
    assert (files.is_current("main", "print"), files.files("main"), files.fingerprint("main")) == (
        False,
        [],
        "",
    )


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(UserError, match="no regular file"):
            write_text(path, "text")
    assert (tmp_path / "pipe").is_fifo()
