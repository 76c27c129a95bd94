"""`grid` from Python: the records, and the files of the command."""

import pytest

from pfl_benchmark import grid, load_records
from pfl_benchmark.cli import main
from pfl_benchmark.errors import UserError
from pfl_benchmark.launch import grid as grid_launch
from pfl_benchmark.launch.batch import Batch
from tests.helpers.python import TINY, cell

SMALL = {name: value for name, value in TINY.items() if name not in ("dataset", "progress")}
SMALL |= {"setting": "digits-s2", "rounds": 2}
WORDS = "--setting digits-s2 --clients 4 --samples-per-client 20 --test-samples-per-client 10 --rounds 2"
WORDS += " --local-epochs 1 --eval-every 1 --device cpu --executor loop"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("grid")


def test_it_is_the_grid_of_the_command_line(root, tmp_path):
    records = grid(["fedper", "ditto"], seeds=2, vary={"ditto.lam": [0.1, 1]}, results_dir=root, **SMALL)
    frame = load_records(*records)
    assert sorted(frame["seed"]) == [0, 0, 0, 1, 1, 1]
    assert sorted(frame["hyper.lam"].dropna()) == [0.1, 0.1, 1.0, 1.0]
    words = ["grid", "--algo", "fedper", "ditto", "--seeds", "2", "--vary", "ditto.lam=0.1,1", *WORDS.split()]
    assert main([*words, "--results-dir", str(tmp_path)]) == 0
    for name in ("grid.md", "grid.tex", "grid.csv"):
        assert (root / "tables" / name).read_text() == (tmp_path / "tables" / name).read_text()
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in root.iterdir()}


def test_tables_of_ones_choice(root):
    grid("local", tables=["accuracy", "worst10"], results_dir=root, **SMALL)
    assert (root / "tables" / "grid-worst10.md").exists()
    with pytest.raises(UserError, match="table 'differences': there is no reference"):
        grid("local", tables="differences", results_dir=root, **SMALL)
    with pytest.raises(UserError, match="tables is None; expected a list"):
        grid("local", tables=None, results_dir=root, **SMALL)
    with pytest.raises(UserError, match="table 'claims': it is of a paper's study"):
        grid("local", tables="claims", results_dir=root, **SMALL)
    with pytest.raises(UserError, match="unknown table 'best'"):
        grid("local", tables="best", results_dir=root, **SMALL)


def test_a_budget_of_all_runs_is_named(root):
    grid("local", tables=["spent"], budget="samples", results_dir=root / "budget", **SMALL)
    lines = (root / "budget" / "tables" / "grid.csv").read_text().splitlines()
    assert dict(zip(*(line.split(",") for line in lines[:2]), strict=True))["budget"] == "samples"


def test_select_on_validation(root):
    (record,) = grid(
        "fedprox", vary={"fedprox.mu": [0.01, 1.0]}, select_on_validation=True, results_dir=root, **SMALL
    )
    assert record.config.validation == 0
    assert record.config.tuning_trials == 2


def test_a_class_of_a_notebook_runs_in_this_process_alone(root, without_cells):
    mine = cell("Mine", "self.network.names[:-1]", 1)
    (record, _) = grid([mine, "fedavg"], results_dir=root, **SMALL)
    assert record.method == "in-a-cell"
    with pytest.raises(UserError, match="'in-a-cell' is known in this process alone; give jobs=1"):
        grid([mine, "fedavg"], jobs=2, results_dir=root, **SMALL)


@pytest.mark.parametrize(
    ("keywords", "part"),
    [
        ({"algo": []}, "algo is empty"),
        ({"algo": ["fedper", "fedper"]}, "twice"),
        ({"vary": {"lr": 0.1}}, r"expected a list of values"),
        ({"vary": {"lr": [0.1, 0.1]}}, "twice"),
        ({"vary": {"ditto.lam": [1]}}, "'ditto' is not in the grid"),
        ({"vary": {"lamb": [1]}}, "lamb"),
        ({"seeds": 0}, "seeds"),
        ({"plugins": "mine.py"}, "expected a list of Python files"),
        ({"roundz": 3}, "roundz"),
        ({"lr": [0.1, 0.2]}, "lr"),
    ],
)
def test_bad_input(keywords, part, tmp_path):
    given = {"algo": "fedper", **SMALL, "results_dir": tmp_path / "new", **keywords}
    with pytest.raises(UserError, match=part) as found:
        grid(**given)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "new").exists()


def test_more_than_a_week_asks_for_yes(tmp_path, monkeypatch):
    monkeypatch.setattr(Batch, "expected", lambda self: grid_launch._WEEK)  # of the search, and of the rest
    with pytest.raises(UserError, match="more than a week; give yes=True") as error:
        grid("fedper", results_dir=tmp_path, **SMALL)
    assert "--" not in str(error.value)
    monkeypatch.setattr(Batch, "fill", lambda self: 0)
    assert grid("fedper", results_dir=tmp_path, yes=True, **SMALL) == []
