"""The command `report`, the page at the end of `tables`, and the command line of every run."""

import dataclasses
import json
import os
import shlex

import pytest
from own_studies import FEW, SIZES
from record_folders import write_records

from pfl_benchmark.cli import Parser, main
from pfl_benchmark.commands import run as run_command
from pfl_benchmark.config.fields import setting_in_words
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.present.page.command import command
from pfl_benchmark.records.seal import write_verdict
from pfl_benchmark.records.store import Store
from pfl_benchmark.resolve.run import configure, with_hyper
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.grid import plan

QUICK = PROFILES["quick"]


class Answer:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def call(capsys, tmp_path):
    """``call("report --only few")`` on records below `tmp_path`."""

    def go(words, folder=tmp_path / "results"):
        capsys.readouterr()
        return Answer(main([*words.split(), "--results-dir", str(folder)]), *capsys.readouterr())

    return go


@pytest.fixture
def root(tmp_path, own_catalogue):
    write_records(tmp_path / "results", FEW, QUICK)
    return tmp_path / "results"


def files(root):
    return {str(path.relative_to(root)) for path in root.rglob("*.*") if path.is_file()}


def test_everything_is_made_from_records_alone(call, root):
    records = files(root)
    answer = call("report --only few pair")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("quick: 4 runs; rendered few, pair")
    assert answer.out.splitlines()[-1].endswith("results/report.html")
    made = files(root) - records
    assert {"report.html", "tables/few.md", "tables/few.csv", "tables/few.tex"} <= made
    before = {name: (root / name).read_bytes() for name in made}
    (root / "tables" / "few.md").write_text("edited by hand")
    for name in ("report.html", ".rendered.json", "tables/pair.csv"):
        (root / name).unlink()
    assert call("report --only few pair").code == 0
    assert {name: (root / name).read_bytes() for name in made} == before
    assert records == files(root) - made


def test_records_of_other_code_are_counted(call, root, monkeypatch):
    assert "other code" not in call("report --only few").out
    monkeypatch.setattr("pfl_benchmark.present.page.mixtures.outdated", lambda *_: True)
    answer = call("report --only few pair")
    assert "4 of 4 records were computed by other code" in answer.out  # those of both studies once
    assert (answer.code, answer.err) == (0, "")


def test_records_that_this_code_gives_again_are_counted_apart(call, root, monkeypatch):
    monkeypatch.setattr(
        "pfl_benchmark.present.page.mixtures.outdated", lambda config, summary, verified=None: not verified
    )
    for rounds, record in enumerate(Store.scan(root).records(), start=2):
        verdict = {"record_digest": record.digest, "rounds": rounds}
        write_verdict(record.folder, verdict)
    out = call("report --only few pair").out
    assert "4 of 4 records were computed by other code; `verify` found that this code gives the same" in out
    assert "in the first" in out
    assert "to make them again" not in out


def test_only_the_studies_that_were_asked_for(call, root):
    call("report --only few sizes")
    text = (root / "report.html").read_text()
    assert "study-few" in text
    assert "study-pair" not in text


def test_studies_on_request_stay_once_they_are_there(call, root):
    table = root / "tables" / "choices.md"
    call("report --only few")
    call("report")
    assert not table.exists()
    call("report --only choices")
    table.write_text("of older records")
    call("report --only few")
    assert table.read_text() == "of older records"
    call("report")
    assert "Local Only" in table.read_text()
    assert "study-choices" in (root / "report.html").read_text()


def test_tables_of_another_profile_stay(call, root):
    """`large` is a study of the paper's profile alone."""
    call("report --only few")
    ledger, table = root / ".rendered.json", root / "tables" / "large.md"
    table.write_text("of the paper")
    files = {"fingerprint": "", "files": {"tables/large.md": ""}}
    ledger.write_text(json.dumps({**json.loads(ledger.read_text()), "large": files}))
    for words in ("report", "tables --only few --render-only"):
        assert call(words).code == 0
        assert table.read_text() == "of the paper"


def test_tables_ends_with_the_page(call, root):
    first = call("tables --only few --device cpu")
    assert first.out.splitlines()[-1].endswith("results/report.html")
    text = (root / "report.html").read_text()
    stamp = (root / "report.html").stat().st_mtime_ns
    assert "up to date" in call("tables --only few --device cpu").out
    assert (root / "report.html").stat().st_mtime_ns == stamp
    # Studies rendered before stay on the page.
    assert call("tables --only pair --render-only --device cpu").code == 0
    longer = (root / "report.html").read_text()
    assert "study-few" in longer
    assert "study-pair" in longer
    assert "study-pair" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("report --profile quik", "unknown profile 'quik' (did you mean 'quick'?)"),
        ("report --only man", "unknown study 'man' (did you mean 'main'?)"),
        ("report --seeds 0", "--seeds is '0'"),
        ("report --sedes 1", "did you mean '--seeds'?"),
        ("report", "there is no results folder"),
    ],
)
def test_bad_input_is_one_line(call, own_catalogue, words, message, tmp_path):
    answer = call(words)
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_a_folder_without_records_is_left_as_it_is(call, tmp_path):
    root = tmp_path / "results"
    root.mkdir()
    answer = call("report")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "there is no finished run in" in answer.err
    assert files(root) == set()


def test_damaged_records_alone_are_no_records(call, root):
    for path in root.glob("*/clients.csv"):
        path.unlink()
    answer = call("report")
    assert answer.code == 2
    assert answer.err.count("clients.csv: No such file or directory") == 3
    assert answer.err.count("\n") == 1
    assert not (root / "report.html").exists()


def test_a_damaged_record_is_named_and_stays(call, root):
    damaged = next(root.glob("fedavg-ft*"))
    (damaged / "clients.csv").unlink()
    answer = call("report --only few")
    assert answer.code == 0
    assert f"damaged record, not used: {damaged.name}" in answer.err
    assert damaged.exists()


def test_a_folder_of_another_version_is_refused(call, root):
    (root / "store.json").write_text('{"format": 99}')
    answer = call("report")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "format 99" in answer.err


@pytest.mark.parametrize("in_the_way", ["report.html", "tables/few.md"])
def test_what_cannot_be_written_is_one_line(call, root, in_the_way):
    (root / in_the_way).mkdir(parents=True)  # which not even root can replace by a file
    answer = call("report --only few")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "cannot write" in answer.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(call, root):
    root.chmod(0o555)
    try:
        answer = call("report --only few")
    finally:
        root.chmod(0o755)
    assert (answer.code, answer.err.count("\n")) == (2, 1)


# -- the command line of a run ------------------------------------------------------------------------


def parsed(words):
    """The configuration that the command `run` makes of a command line."""
    parser = Parser(allow_abbrev=False)
    run_command.add_arguments(parser)
    program, *rest = shlex.split(words)
    assert [program, *rest[:2]] == ["python", "-m", "benchmark"]
    return configure(parser.parse(rest[2:]))[1].config


@pytest.mark.parametrize("profile", PROFILES)
def test_the_command_of_a_cell_is_that_cell(profile):
    cells = plan(STUDIES.values(), PROFILES[profile], (3,))
    assert cells
    for cell in cells:
        assert parsed(command(cell.config)).identity == cell.config.identity


@pytest.mark.parametrize(
    ("values", "hyper"),
    [
        ({"partition": "shards", "dataset": "digits"}, {}),
        ({"partition": "iid", "dataset": "digits", "augment": True, "lr": 0.05}, {}),
        ({"partition": "dirichlet", "dirichlet": 0.7, "dataset": "fmnist"}, {}),
        ({"partition": "iid", "dataset": "cifar100", "samples_per_client": 400}, {}),
        ({"partition": "dirichlet", "dirichlet": 0.7, "dataset": "emnist"}, {}),
        ({"partition": "shards", "augment": True, "crop_padding": 2}, {}),
        ({"algo": "ditto", "budget": "bytes", "byte_budget": 10**9}, {"lam": "0.5"}),
        ({"algo": "ppfe", "rounds": 40}, {"stage_rounds": "10,10,10,10", "reduction": "none"}),
    ],
)
def test_the_command_of_an_odd_run_is_that_run(values, hyper):
    config = with_hyper(RunConfig(**values), hyper)
    assert parsed(command(config)).identity == config.identity


def test_what_the_profile_changes_needs_no_mention():
    profile = dataclasses.replace(QUICK, changes={"rounds": 24})
    (cell, *_) = plan([SIZES], profile, (0,))
    assert setting_in_words(cell.config) == "digits-s2, samples per client 20, rounds 24"
    assert setting_in_words(cell.config, common=profile.changes) == "digits-s2, samples per client 20"
    other = dataclasses.replace(cell.config, rounds=3)
    assert setting_in_words(other, common=profile.changes) == "digits-s2, samples per client 20, rounds 3"


def test_augmentation_in_words():
    flips = with_hyper(RunConfig(**SETTINGS["cifar10-s5"].values), {})
    plain = dataclasses.replace(flips, augment=False).settled()
    assert setting_in_words(flips) == "cifar10-s5"
    assert setting_in_words(plain) == "cifar10-s5, no augment"
    assert command(plain).endswith("--setting cifar10-s5 --no-augment --seed 0")
    crops = dataclasses.replace(flips, crop_padding=4)
    assert setting_in_words(crops) == "cifar10-s5, crop padding 4"
