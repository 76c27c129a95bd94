"""Reading records back: what was written is found, what is damaged is named and set aside."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from record_folders import with_seed, write_record

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError
from pfl_benchmark.records.store import Store

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


def _unreadable(folder):
    (folder / "clients.csv").unlink()
    (folder / "clients.csv").mkdir()


def _first(name, pattern, text):
    return _edit(name, lambda old: re.sub(pattern, text, old, count=1))


def _set(name, value):
    return _edit("summary.json", lambda text: json.dumps({**json.loads(text), name: value}))


# What is wrong with a record whose files nothing vouches for.
DAMAGES = {
    "half a summary": (_edit("summary.json", lambda text: text[: len(text) // 2]), "summary.json is no JSON"),
    "no clients": (lambda folder: (folder / "clients.csv").unlink(), "clients.csv"),
    "a folder": (_unreadable, "clients.csv is no regular file"),
    "a client less": (_edit("clients.csv", lambda text: text[: text[:-1].rfind("\n") + 1]), "5 of 6 clients"),
    "no samples": (_first("clients.csv", r"\n0,\d+,\d+", "\n0,0,0"), "client 0 cannot be"),
    "another client": (_first("clients.csv", r"\n0,", "\n1,"), "client 0 cannot be"),
    "more right": (_first("clients.csv", r"(\n0,\d+),\d+", r"\1,1"), "client 0 has another accuracy"),
    "other digits": (_first("clients.csv", r"\n0,10", "\n0,1_0"), "client 0 is no row of numbers"),
    "better": (_first("summary.json", 'racy": 0.', 'racy": 1.'), "accuracy is 1.* in"),
    "worst": (_first("summary.json", r'worst10": 0\.\d', 'worst10": 0.9'), "worst10 is 0.9.*clients.csv"),
    "spread": (_first("summary.json", r'std": 0\.\d', 'std": 0.9'), "std is 0.9.*clients.csv"),
    "bytes": (_first("summary.json", r'bytes_up": \d', 'bytes_up": 9'), "bytes_up is 9.*rounds.jsonl"),
    "seconds": (_first("summary.json", r'"seconds": \d', '"seconds": 9'), "seconds is 9.*rounds.jsonl"),
    "rate": (_first("summary.json", r'_second": \d', '_second": 9'), "another samples_per_second"),
    "a round less": (_edit("rounds.jsonl", lambda text: text[: text[:-1].rfind("\n") + 1]), "7 of 8 rounds"),
    "a list": (_first("rounds.jsonl", "{.*}", "[1]"), "line 1 of rounds.jsonl is no object"),
    "turned": (_first("rounds.jsonl", '"round": 1', '"round": 2'), "line 1 of rounds.jsonl is of round 2"),
    "last": (_first("rounds.jsonl", '("accuracy": 0.)[^,]+(.*\n)$', r"\g<1>1\2"), "than the last line"),
    "nan": (_first("rounds.jsonl", '"loss": 1.0', '"loss": NaN'), "not finite"),
    "text": (_first("rounds.jsonl", '"loss": 1.0', '"loss": "1"'), "loss is '1'; expected a number"),
    "true": (_first("rounds.jsonl", '"stage": 1', '"stage": true'), "stage is True; expected a whole"),
    "twice": (_first("rounds.jsonl", '{', '{"loss": 0.5, '), "a key is there twice"),
    "deep": (_first("rounds.jsonl", '1.0', "[" * 100_000 + "]" * 100_000), "rounds.jsonl is no JSON"),
    "rather deep": (_first("summary.json", '{', '{"more": ' + "[" * 21 + "]" * 21 + ","), "levels"),
    "long": (_first("summary.json", '{', '{"more": ' + "9" * 30 + ","), "64 bits"),
    "half a sign": (_first("summary.json", '{', r'{"more": "\\ud800",'), "no JSON"),
    "bytes order mark": (_first("config.json", "^", "\ufeff"), "config.json is no JSON"),
    "another run": (_first("config.json", '"seed": 0', '"seed": 1'), "run"),
    "no configuration": (_edit("config.json", lambda text: "[]"), "config.json is no object"),
    "words": (_first("config.json", '"rounds": 8', '"rounds": "8"'), "'rounds' is '8'; expected int"),
    "no split": (_first("config.json", '"split"', '"cut"'), "lacks the entry 'split'"),
    "older": (_first("config.json", '"format": 1', '"format": 0'), "format 0"),
    "no text": (lambda folder: (folder / "rounds.jsonl").write_bytes(b"\xff\x00{"), "is no JSON"),
    "no entry": (_first("summary.json", '"rounds"', '"turns"'), "lacks the entry 'rounds'"),
    "no environment": (_set("environment", None), "environment is"),
    "a note": (_set("notes", 5), "notes is 5; expected a list"),
    "notes": (_set("notes", [5]), "notes is a list; expected a list of text"),
    "origins": (_set("origins", [5]), "origins is a list; expected a list of objects"),
    "a plan": (_set("budget", {}), "budget .* lacks the entry"),
    "whose": (_set("evaluated", "none"), "evaluated is 'none'"),
    "device": (_set("environment", {"device": []}), "device is a list; expected text"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_set_aside(folder, damage):
    do, reason = DAMAGES[damage]
    (folder / "done").write_text("")  # as older versions left it
    do(folder)
    store = Store.scan(folder.parent)
    assert store.records() == []
    assert [found.folder for found in store.damaged] == [folder]
    assert re.search(reason, store.damaged[0].reason)
    (line,) = store.set_aside()
    assert f"{folder.name}.damaged" in line
    assert not folder.exists()
    assert folder.with_name(folder.name + ".damaged").is_dir()
    again = Store.scan(folder.parent)
    assert (again.records(), again.damaged) == ([], [])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_seal_names_the_file(folder, damage):
    names = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "done"}
    DAMAGES[damage][0](folder)
    (changed,) = (
        name for name, old in names.items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != old
    )  # fmt: skip
    (found,) = Store.scan(folder.parent).damaged
    assert found.reason.startswith(changed)


SEALS = {
    "a digit": lambda text: text.replace("a", "b", 1),
    "a name": lambda text: text.replace("rounds", "turns"),
    "a line less": lambda text: text[text.index("\n") + 1 :],
    "a line more": lambda text: text + "0" * 64 + "  diagnostics.json\n",
    "line ends": lambda text: text.replace("\n", "\r\n"),
    "turned": lambda text: "".join(reversed(text.splitlines(keepends=True))),
    "no text": lambda text: "\0",
}


@pytest.mark.parametrize("change", SEALS.values(), ids=SEALS)
def test_a_damaged_seal_is_none(folder, change):
    path = folder / "done"
    path.write_bytes(change(path.read_text()).encode())
    (found,) = Store.scan(folder.parent).damaged
    assert "seal" in found.reason


def test_a_file_that_a_seal_does_not_name(folder):
    (folder / "diagnostics.json").write_text("{}")
    (found,) = Store.scan(folder.parent).damaged
    assert found.reason == "diagnostics.json is not in its seal, the file done"


def test_a_seal_can_be_checked_without_this_program(folder):
    command = ["sha256sum", "--check", "--strict", "done"]
    assert subprocess.run(command, cwd=folder, capture_output=True).returncode == 0


def test_a_renamed_record_is_the_same(folder):
    other = folder.rename(folder.with_name(f"mine-{folder.name}"))
    assert Store.scan(folder.parent).find(CONFIG).folder == other


def test_two_records_of_one_run_are_refused(folder):
    shutil.copytree(folder, folder.with_name(f"mine-{folder.name}"))
    with pytest.raises(UserError, match=rf"{folder.name} and mine-{folder.name} are records of the same run"):
        Store.scan(folder.parent)


def test_a_record_without_a_seal_is_used_and_told(folder):
    assert Store.scan(folder.parent).remarks() == []
    (folder / "done").write_text("")
    store = Store.scan(folder.parent)
    assert not store.find(CONFIG).sealed
    assert folder.name in store.remarks()[0]
    assert "not sealed" in store.remarks()[0]


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
    (folder / "done").write_text("")
    assert Store.scan(folder.parent).find(CONFIG).digest == before
    path = folder / "rounds.jsonl"
    path.write_text(path.read_text().replace('"loss": 1.0', '"loss": 1.5'))
    assert Store.scan(folder.parent).find(CONFIG).digest != before
