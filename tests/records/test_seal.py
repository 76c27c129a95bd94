"""The command `seal`: what it seals, what it leaves alone, what it says."""

import pytest
from record_folders import with_seed, write_record

from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.records.seal import SEALED
from pfl_benchmark.records.store import Store

CONFIG = RunConfig(
    dataset="digits", clients=6, samples_per_client=20, test_samples_per_client=10, rounds=8, eval_every=2
)


@pytest.fixture
def folders(tmp_path):
    """Two records of an older version and one of this."""
    made = [write_record(tmp_path / "runs", with_seed(CONFIG, seed)) for seed in range(3)]
    for folder in made[:2]:
        (folder / "done").write_text("")
    return made


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name in SEALED}


def test_records_are_sealed_and_nothing_else_is_written(folders, capsys):
    before = [contents(folder) for folder in folders]
    root = folders[0].parent
    assert main(["seal", str(root)]) == 0
    assert capsys.readouterr().out.endswith("2 sealed now, 1 before, 0 damaged\n")
    store = Store.scan(root)
    assert (len(store.records()), store.remarks()) == (3, [])
    assert [contents(folder) for folder in folders] == before
    assert main(["seal", str(folders[0]), str(folders[2])]) == 0
    assert capsys.readouterr().out.count("0 sealed now, 1 before") == 2


def test_damaged_records_are_named_and_not_sealed(folders, capsys):
    for folder in (folders[0], folders[2]):
        path = folder / "summary.json"
        path.write_text(path.read_text().replace('"resumed": 0', '"resumed": -1'))
    seals = [(folder / "done").read_text() for folder in folders]
    with pytest.raises(SystemExit, match="1"):
        main(["seal", str(folders[0].parent)])
    told = capsys.readouterr()
    assert f"{folders[0].name}: summary.json: resumed is -1" in told.err
    assert f"{folders[2].name}: summary.json is not as it was sealed" in told.err
    assert told.out.endswith("1 sealed now, 0 before, 2 damaged\n")
    assert [(folder / "done").read_text() == old for folder, old in zip(folders, seals, strict=True)] == [
        True, False, True,
    ]  # fmt: skip


def test_bad_folders(folders, tmp_path, capsys):
    (folders[0] / "done").unlink()
    for words in (tmp_path / "none", tmp_path, folders[0]):
        assert main(["seal", str(words)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
