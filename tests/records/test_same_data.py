"""Runs on other copies of a dataset are refused beside those that are there, and told where they mix."""

import json
from dataclasses import replace

import pytest
from record_folders import amend, write_records

from pfl_benchmark.cli import main
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.present.page.mixtures import cautions, in_words, mixed
from pfl_benchmark.records.same_data import Data, Kind, copies, data_for, data_of
from pfl_benchmark.records.store import Store
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.studies.catalogue import STUDIES, find_profile

KIND = Kind("cifar10", 0, False)
OURS = Data(KIND, (20_000, 10_000), "aa")


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (OURS, False),
        (replace(OURS, checksum="bb"), True),
        (replace(OURS, sizes=(50_000, 10_000), checksum=""), True),
        (replace(OURS, checksum=""), False),  # an older record does not tell
        (replace(OURS, sizes=(), checksum=""), False),
        (
            replace(OURS, kind=KIND._replace(validation=True), checksum="bb"),
            False,
        ),  # held-out samples instead of test
        (replace(OURS, kind=KIND._replace(dataset="cifar100"), checksum="bb"), False),
    ],
)
def test_copies_differ_by_what_is_recorded(other, differs):
    assert OURS.differs(other) is other.differs(OURS) is differs
    assert copies([OURS, other, OURS])[KIND] == 1 + differs


def test_what_is_not_recorded_is_no_further_copy():
    silent = replace(OURS, sizes=(), checksum="")
    assert copies([]) == {}
    assert copies([silent, silent]) == {KIND: 1}
    assert copies([silent, OURS, replace(OURS, checksum=""), replace(OURS, checksum="bb")]) == {KIND: 2}


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_what_a_run_records_is_what_was_foreseen(unbroken, tiny, launch, tmp_path, validation):
    config = tiny("fedavg", validation=validation)
    folder = launch(config, tmp_path).folder if validation else unbroken("fedavg").folder
    recorded = data_of(config, json.loads((folder / "config.json").read_text())["split"])
    assert recorded.checksum
    assert recorded == data_for(config, datasets.load("digits"))
    prepared = prepare(resolve(config), Execution(device="cpu", executor="loop"))
    assert recorded.sizes == (len(prepared.dataset.train), len(prepared.dataset.test))


def pretend(folder, **changes):
    """Change what a record tells of its data."""
    amend(folder / "config.json", lambda about: about["split"].update(changes))


def test_a_run_is_refused_beside_runs_on_other_data(tiny, launch, tmp_path):
    first = launch(tiny("local"), tmp_path)
    pretend(first.folder, data_checksum="another", dataset_images=[50_000, 10_000])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="1 finished run on another copy of 'digits'") as told:
        launch(tiny("fedavg"), tmp_path)
    for word in ("50,000 and 10,000 samples, checksum another", first.folder.name, "--results-dir"):
        assert word in str(told.value)
    assert "\n" not in str(told.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert launch(tiny("local"), tmp_path).summary["accuracy"] == first.summary["accuracy"]
    held_out = tiny("fedavg", validation=0.2)  # tested on other samples, it stands beside none of them
    assert launch(held_out, tmp_path).summary["rounds"] == 4


def test_samples_joined_by_the_partition_are_no_other_copy(tiny, launch, tmp_path):
    launch(tiny("local"), tmp_path)
    joined = tiny("local", partition="pooled", dirichlet=1.0, test_share=0.25)
    assert launch(joined, tmp_path).summary["rounds"] == 4
    assert max(copies(record.data for record in Store.scan(tmp_path).records()).values()) == 1


@pytest.mark.parametrize("broken", ["nothing", "[]", '{"config": {}, "split": []}'])
def test_what_is_no_finished_record_refuses_nothing(tiny, launch, tmp_path, broken):
    damaged, unfinished, aside = (
        launch(tiny(algo), tmp_path).folder for algo in ("local", "ditto", "fedper")
    )
    for folder in (unfinished, aside):
        pretend(folder, data_checksum="another")
    (damaged / "config.json").write_text(broken)
    (unfinished / "done").unlink()
    aside.rename(aside.with_name(f"{aside.name}.damaged"))
    assert launch(tiny("fedavg"), tmp_path).summary["rounds"] == 4


def test_tables_are_refused_before_the_first_run(capsys, tmp_path):
    quick = find_profile("quick")
    (folder, *_) = write_records(tmp_path, STUDIES["methods"], quick, skip=("fedavg",))
    pretend(folder, data_checksum="another", dataset_images=[1, 2])
    flags = ["tables", "--only", "methods", "--results-dir", str(tmp_path), "--device", "cpu"]
    before = sorted(tmp_path.rglob("*"))
    assert main([*flags, "--dry-run"]) == 0
    plan = capsys.readouterr().out
    assert plan.splitlines()[-1].startswith("nothing of it would be run: ")
    assert sorted(tmp_path.rglob("*")) == before
    assert main(flags) == 2
    told = capsys.readouterr()
    (line,) = (line for line in told.err.splitlines() if line.startswith("error: "))
    assert "1 and 2 samples, checksum another" in line
    assert sorted(tmp_path.rglob("*")) == before
    assert main([*flags, "--render-only"]) == 0


def test_copies_that_mix_are_told(tmp_path):
    quick, study = find_profile("quick"), STUDIES["methods"]
    folders = write_records(tmp_path, study, quick)
    for folder in folders:
        pretend(folder, data_checksum="one", dataset_images=[10, 5])
    assert mixed(Store.scan(tmp_path).records()) == {}
    pretend(folders[0], data_checksum="other")
    found = Store.scan(tmp_path)
    assert in_words(mixed(found.records())) == "2 copies of a dataset"
    assert cautions([study], quick, found) == [
        "records of several copies of a dataset share a table: methods"
    ]
    assert main(["report", "--only", "methods", "--results-dir", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert (
        f"10 and 5 samples, checksum one ({len(folders) - 1}); 10 and 5 samples, checksum other (1)" in page
    )
