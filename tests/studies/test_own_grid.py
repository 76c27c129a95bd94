"""Grids of one's own as studies: rows, columns, the points of a curve, and what is selected."""

import itertools

import pytest
from record_folders import write_record

from pfl_benchmark.errors import UserError
from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.grid import configure, plan
from pfl_benchmark.studies.grid_file import Entry, listed, read_entries
from pfl_benchmark.studies.own_grid import make_grid, possible
from pfl_benchmark.studies.selection import selected

MANY = ",".join(map(str, range(1, 500)))


def own(algo, setting="digits-s2", seeds="1", **more):
    """``own("ditto fedper", vary={"lr": "0.1,0.2"})``."""
    entries = {"algo": Entry(tuple(algo.split())), "setting": Entry(tuple(setting.split()))}
    entries |= {f"vary.{name}": listed(text) for name, text in more.pop("vary", {}).items()}
    entries |= {name: Entry((text,), listed=False) for name, text in {"seeds": seeds, **more}.items()}
    return make_grid("mine", entries)


def titles(found):
    grid = found.grid
    return [row.title for row in grid.variants], [column.title for column in grid.columns]


@pytest.mark.parametrize(
    ("found", "rows", "columns", "axis"),
    [
        (lambda: own("fedper"), ["FedPer"], ["Digits (20, 2)"], ""),
        (
            lambda: own("fedper ditto", vary={"ditto.lam": "0.1,1"}),
            ["FedPer", "Ditto, lam=0.1", "Ditto, lam=1.0"],
            ["Digits (20, 2)"],
            "lam",
        ),
        (
            lambda: own("fedper", vary={"lr": "0.01,0.1"}),
            ["FedPer"],
            ["Digits (20, 2), lr 0.01", "Digits (20, 2), lr 0.1"],
            "lr",
        ),
        (
            lambda: own("fedper", vary={"clients": "5,10"}),
            ["FedPer"],
            ["digits-s2, clients 5", "digits-s2, clients 10"],
            "clients",
        ),
        (
            lambda: own("ppfe ppfe:no-reduction", vary={"augment": "yes,no"}),
            ["PPFE", "PPFE, no-reduction"],
            ["Digits (20, 2), augment", "Digits (20, 2), no augment"],
            "",
        ),
        (
            lambda: own("ditto", vary={"lr": "0.1,0.2", "ditto.lam": "0.1,1"}),
            ["Ditto, lam=0.1", "Ditto, lam=1.0"],
            ["Digits (20, 2), lr 0.1", "Digits (20, 2), lr 0.2"],
            "",
        ),
    ],
)  # fmt: skip
def test_rows_columns_and_the_curve(found, rows, columns, axis):
    grid = found()
    assert titles(grid) == (rows, columns)
    assert grid.study.axis == axis
    assert ("sweep" in grid.study.figures) == bool(axis)


@pytest.mark.parametrize("field", [{"rounds": "3"}, {"dirichlet": "0.5"}, {"clients": "7"}])
def test_fields_hold_for_all_runs_and_stand_in_captions(field):
    ((name, text),) = field.items()
    found = own("fedper ditto", seeds="2", **field)
    runs = plan([found.study], found.profile, found.profile.seeds)
    assert len(runs) == 4
    assert {str(getattr(run.config, name)) for run in runs} == {text}
    assert f"In all runs: {name} {text}." in found.profile.warned("")
    assert f"--{name} {text}" in found.profile.again


@pytest.mark.parametrize("vary", [{"lr": "0.08,0.1", "ditto.lam": "1"}, {"ditto.lam": "0.1,1"}])
def test_the_command_of_the_page_makes_the_same_grid(vary):
    found = own("ditto", vary=vary)
    words = found.profile.again.split()
    given = [word.split("=") for before, word in itertools.pairwise(words) if before == "--vary"]
    assert dict(given) == vary


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"algo": "ppfe ppfe"}, "twice"),
        ({"algo": "knn-per", "setting": "synth-tweets", "vary": {"dropout": "0.0,0"}}, "twice"),
        ({"algo": "ditto", "vary": {"lr": MANY, "rounds": MANY}}, "at most 100,000"),
    ],
)
def test_what_makes_no_grid_is_refused(more, told):
    with pytest.raises(UserError, match=told):
        own(**more)


def in_a_file(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text)
    return make_grid("mine", read_entries(tmp_path / "mine.toml"), "mine.toml")


FAR = """
algo = ["fedprox", "ditto"]
setting = ["A"]
rounds = 2
rows."far" = {{ algo = "ditto", lam = 7.0, x = 3.0, group = "Ditto" }}
columns.A = {{ setting = "digits-s2", rows = ["far"] }}
{}
"""


def test_a_row_that_a_column_names_stays_where_others_are_selected(tmp_path):
    for more in ("", 'select_on_validation = true\nvary."fedprox.mu" = [0.01, 0.1]'):
        found = in_a_file(tmp_path, FAR.format(more))
        (row,) = (row for row in found.grid.variants if row.title == "Ditto")
        (column,) = found.grid.columns
        assert configure(row, column, found.profile).hyper["lam"] == 7.0
    with pytest.raises(UserError, match="'A' fixes the values of 'Ditto', which are selected"):
        in_a_file(tmp_path, FAR.format("select_on_validation = true\nvary.lr = [0.1, 1.0]"))


def test_a_row_of_a_file_keeps_its_place_and_line(tmp_path):
    text = 'algo = ["far"]\nsetting = "digits-s2"\n'
    text += 'rows.far = { algo = "ditto", lam = 7.0, x = 3.0, group = "D" }'
    (row,) = in_a_file(tmp_path, text).grid.variants
    assert (row.x, row.group) == (3.0, "D")


def test_what_a_named_row_sets_is_not_said_of_all(tmp_path):
    text = FAR.format("").replace("lam = 7.0", "lr = 0.02").replace("rounds = 2", "lr = 0.05")
    with pytest.raises(UserError, match="'far' has its own lr, which is also set or varied for all"):
        in_a_file(tmp_path, text)


def test_the_best_on_validation_is_reported_with_the_number_of_trials(tmp_path):
    """Per setting; a value that lacks a seed cannot be selected."""
    found = own(
        "fedper ditto",
        "digits-s2 digits-dir0.3",
        "2",
        vary={"ditto.lam": "0.1,1,2"},
        select_on_validation="yes",
    )
    levels = {("digits-s2", 0.1): 0.8, ("digits-dir0.3", 1.0): 0.8}
    for column in found.search.grids["mine"].columns:
        for row in found.search.grids["mine"].variants:
            lam = row.hyper["lam"]
            for seed in (0,) if lam == 2 else (0, 1):
                config = configure(row, column, found.profile, seed)
                assert config.validation == 0.2
                level = 0.95 if lam == 2 else levels.get((column.setting, lam), 0.4)
                write_record(tmp_path, config, level)
    best = selected(found, Store.scan(tmp_path))
    runs = {
        (row.algo, column.setting): configure(row, column, best.profile)
        for row in best.grid.variants
        for column in best.grid.columns
    }
    assert runs["ditto", "digits-s2"].hyper["lam"] == 0.1
    assert runs["ditto", "digits-dir0.3"].hyper["lam"] == 1
    assert {runs["ditto", name].tuning_trials for name in ("digits-s2", "digits-dir0.3")} == {3}
    assert {(run.validation, run.tuning_trials) for key, run in runs.items() if key[0] == "fedper"} == {
        (0, 0)
    }
    assert "Ditto lam=0.1 on Digits (20, 2) and lam=1.0 on Digits, Dirichlet 0.3" in best.profile.warning
    known = {run.config.hash for run in plan(possible(found), found.profile, (0, 1))}
    assert {run.config.hash for run in plan([best.study], best.profile, (0, 1))} <= known
