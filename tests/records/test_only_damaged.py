"""The only usable record is damaged: every command names it and the reason, and says nothing else."""

import pytest
from damages import CONFIG, command, damages
from record_folders import write_record

COMMANDS = {
    "compare": "compare {root}",
    "across": "compare --across {root}",
    "cost": "cost {root}",
    "board": "board {root} --out {out}/board.html",
    "pack": "pack {root} --out {out}/some.zip",
    "verify": "verify {root} --rounds 1",
    "verify the record": "verify {folder} --rounds 1",
    "report": "report --results-dir {root}",
}
KINDS = [
    "clients.csv: empty", "clients.csv: a digit", "config.json: half", "config.json: nothing",
    "summary.json: a digit", "summary.json: deep", "rounds.jsonl: a line less", "rounds.jsonl: turned",
    "done: half", "done: no text",
]  # fmt: skip


def damage(folder, kind):
    if kind == "config.json: gone":
        (folder / "config.json").unlink()
    elif kind == "clients.csv: unreadable":
        (folder / "clients.csv").unlink()
        (folder / "clients.csv").mkdir()
    else:
        name, edit = damages()[kind]
        (folder / name).write_bytes(edit((folder / name).read_bytes()))


@pytest.mark.parametrize("which", COMMANDS)
@pytest.mark.parametrize("kind", [*KINDS, "config.json: gone", "clients.csv: unreadable"])
def test_it_is_named_with_the_reason(kind, which, tmp_path):
    folder = write_record(tmp_path / "runs", CONFIG)
    damage(folder, kind)
    words = COMMANDS[which].format(root=tmp_path / "runs", folder=folder, out=tmp_path / "out")
    code, out, err = command(words.split())
    assert (code, out) == (2, "")
    assert err.count("error: ") == err.count("\n") == 1, err
    assert folder.name in err
    file = kind.partition(":")[0]
    assert file in err or "done" in err or "seal" in err, err
    assert not (tmp_path / "out").exists()


def test_of_two_records_the_damaged_one_is_left_out_once(tmp_path):
    """`cost` asks for FedAvg: it is here, and damaged."""
    other = write_record(tmp_path, CONFIG)
    import dataclasses

    folder = write_record(tmp_path, dataclasses.replace(CONFIG, algo="fedper"))
    assert other != folder
    damage(other, "summary.json: a digit")
    code, _, err = command(["cost", str(tmp_path)])
    assert code == 2
    assert err.count(other.name) == 1
    assert err.index("left out: damaged record") < err.index("error: there is no run of FedAvg")
