"""Reading records back: what was written is found, what is damaged is named and set aside."""

import json
import re

import numpy as np
import pytest
from record_folders import with_seed, write_record

from benchmark.engine.config import RunConfig
from benchmark.records.store import Store

CONFIG = RunConfig(
    dataset="digits", clients=6, samples_per_client=20, test_samples_per_client=10, rounds=8, eval_every=2
)


@pytest.fixture
def folder(tmp_path):
    return write_record(tmp_path, CONFIG)


def test_a_record_is_read_as_it_was_written(folder):
    record = Store.scan(folder.parent).find(CONFIG)
    assert record.folder == folder
    assert record.config.identity == CONFIG.identity
    assert record.summary == json.loads((folder / "summary.json").read_text())
    assert len(record.rounds) == CONFIG.rounds
    weighted = np.average(record.accuracies, weights=record.test_samples)
    assert weighted == pytest.approx(record.summary["accuracy"])


def test_records_are_found_by_everything_but_the_seed(folder):
    root = folder.parent
    write_record(root, with_seed(CONFIG, 3))
    store = Store.scan(root)
    assert list(store.seeds(with_seed(CONFIG, 7))) == [0, 3]
    assert store.find(with_seed(CONFIG, 1)) is None
    assert not store.seeds(RunConfig())


def test_an_empty_or_absent_folder_holds_nothing(tmp_path):
    assert Store.scan(tmp_path).records() == []
    assert Store.scan(tmp_path / "nowhere").records() == []


def _edit(name, change):
    def damage(folder):
        path = folder / name
        path.write_text(change(path.read_text()))

    return damage


DAMAGES = {
    "half a summary": (_edit("summary.json", lambda text: text[: len(text) // 2]), "summary.json"),
    "no clients": (lambda folder: (folder / "clients.csv").unlink(), "clients.csv"),
    "a client less": (_edit("clients.csv", lambda text: text[: text[:-1].rfind("\n") + 1]), "5 of 6 clients"),
    "no samples": (_edit("clients.csv", lambda text: re.sub(r"\n0,\d+,\d+", "\n0,0,0", text)), "without"),
    "better": (_edit("summary.json", lambda text: text.replace('racy": 0.', 'racy": 1.', 1)), "accuracies"),
    "a round less": (_edit("rounds.jsonl", lambda text: text[: text[:-1].rfind("\n") + 1]), "7 of 8 rounds"),
    "another run": (_edit("config.json", lambda text: text.replace('"seed": 0', '"seed": 1')), "run"),
    "no configuration": (_edit("config.json", lambda text: "[]"), "config.json"),
    "older": (_edit("config.json", lambda text: text.replace('"format": 1', '"format": 0')), "format 0"),
    "bytes": (lambda folder: (folder / "rounds.jsonl").write_bytes(b"\xff\x00{"), ""),
    "no entry": (_edit("summary.json", lambda text: text.replace('"rounds"', '"turns"')), "rounds"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_set_aside(folder, damage):
    do, reason = DAMAGES[damage]
    do(folder)
    store = Store.scan(folder.parent)
    assert store.records() == []
    assert [found.folder for found in store.damaged] == [folder]
    assert reason in store.damaged[0].reason
    (line,) = store.set_aside()
    assert f"{folder.name}.damaged" in line
    assert not folder.exists()
    assert folder.with_name(folder.name + ".damaged").is_dir()
    again = Store.scan(folder.parent)
    assert (again.records(), again.damaged) == ([], [])


def test_what_was_set_aside_before_is_kept(folder):
    for _ in range(2):
        (write_record(folder.parent, CONFIG) / "clients.csv").unlink()
        Store.scan(folder.parent).set_aside()
    assert {path.name.partition(".")[2] for path in folder.parent.glob(f"{folder.name}*")} == {
        "damaged",
        "damaged-2",
    }


def test_an_unfinished_run_is_no_record(folder):
    (folder / "done").unlink()
    store = Store.scan(folder.parent)
    assert (store.records(), store.damaged, store.failed) == ([], [], {})


def test_a_diverged_run_tells_why(folder):
    (folder / "done").unlink()
    (folder / "failed.json").write_text('{"reason": "training diverged"}')
    assert Store.scan(folder.parent).failed == {CONFIG.hash: "training diverged"}


def test_other_folders_are_left_alone(folder):
    (folder.parent / "tables").mkdir()
    (folder.parent / ".cache").mkdir()
    store = Store.scan(folder.parent)
    assert len(store.records()) == 1
    assert not store.damaged


def test_the_digest_follows_the_content(folder):
    before = Store.scan(folder.parent).find(CONFIG).digest
    assert Store.scan(folder.parent).find(CONFIG).digest == before
    path = folder / "rounds.jsonl"
    path.write_text(path.read_text().replace('"loss": 1.0', '"loss": 1.5'))
    assert Store.scan(folder.parent).find(CONFIG).digest != before
