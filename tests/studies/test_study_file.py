"""Studies from files: what their entries mean, and what is refused with its place."""

import re
from pathlib import Path

import pytest

import pfl_benchmark.papers
from pfl_benchmark.errors import UserError
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.grid import configure, plan
from pfl_benchmark.studies.grid_file import Entry, read_entries
from pfl_benchmark.studies.own_grid import make_grid
from pfl_benchmark.studies.study_file import read_study

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = {path.stem: path for path in Path(pfl_benchmark.papers.__file__).parent.rglob("studies/*.toml")}
SHARED = """
printed_file = "printed.csv"
[lists]
both = ["fedper", "Ditto, strong"]
[rows]
"Ditto, strong" = { algo = "ditto", lam = 2, lr = 0.01, printed = "Ditto" }
[columns]
"α = 0.5, more" = { setting = "digits-dir0.3", dirichlet = 0.5, x=3, printed = ["D", "1", "2"], group = "g" }
"""
OWN = """
title = "Own"
include = "shared.toml"
printed = "main"
tables = "accuracy"
figures = ["sweep"]
ranked = true
eval_every = 7
algo = ["both", "ppfe:no-reduction"]
[quick]
setting = ["digits-s2", "α = 0.5, more"]
[lite]
[lite.columns]
"α = 0.5, more" = { setting = "digits-s2", clients = 10 }
"""
YAML = """
algo: fedper
quick:
  setting: [digits-s2, S = 3]
  columns:
    S = 3: {setting: digits-s2, classes_per_client: 3}
"""


@pytest.fixture
def study(tmp_path):
    """``study(text)``: the study of such a file beside `SHARED`."""

    def made(text, end="toml"):
        (tmp_path / "shared.toml").write_text(SHARED)
        (tmp_path / f"own.{end}").write_text(text)
        return read_study(tmp_path / f"own.{end}")

    return made


def test_what_a_file_says(study, tmp_path):
    found = study(OWN)
    assert (found.name, found.title, found.ranked, found.prints) == ("own", "Own", True, False)
    assert (found.tables, found.figures) == (("accuracy",), ("sweep",))
    assert (found.paper.name, found.paper.file) == ("main", tmp_path / "printed.csv")
    assert [*found.grids] == ["quick", "lite"]
    fedper, ditto, ppfe = found.grids["quick"].variants
    assert (fedper.title, fedper.algo, fedper.hyper, fedper.changes) == ("FedPer", "fedper", {}, {})
    assert (ditto.hyper, ditto.changes, ditto.printed) == ({"lam": 2.0}, {"lr": 0.01}, "Ditto")
    assert (ppfe.title, ppfe.ablation) == ("PPFE, no-reduction", "no-reduction")
    plain, more = found.grids["quick"].columns
    assert (plain.title, plain.changes) == ("Digits (20, 2)", {"eval_every": 7})
    assert more.changes == {"eval_every": 7, "dirichlet": 0.5}
    assert (more.x, more.group, more.paper) == (3, "g", ("D", "1", "2"))
    (other,) = found.grids["lite"].columns  # the section's own in the place of the shared one, as a whole
    assert (other.setting, other.changes) == ("digits-s2", {"eval_every": 7, "clients": 10})
    assert (other.x, other.group, other.paper) == (0, "", None)


def test_a_column_in_which_rows_stand_for_their_methods(study):
    grid = study("""algo = ["fedper", "ditto"]
[quick.columns]
plain = { setting = "digits-s2" }
own = { setting = "digits-s2", rows = ["Ditto, 3"] }
[rows]
"Ditto, 3" = { algo = "ditto", lam = 3, lr = 0.01 }
""").grids["quick"]
    plain, own = grid.columns
    fedper, ditto = grid.variants
    assert configure(ditto, own, PROFILES["quick"]).hyper["lam"] == 3
    assert configure(ditto, own, PROFILES["quick"]).lr == 0.01
    assert configure(ditto, plain, PROFILES["quick"]).lr != 0.01
    assert configure(fedper, own, PROFILES["quick"]) == configure(fedper, plain, PROFILES["quick"])


@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_the_example_of_the_documentation_is_a_study_and_a_grid(study, tmp_path, profile):
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "grid.md").read_text("utf-8"), re.DOTALL)
    grid = study(text).grids[profile]
    entries = read_entries(tmp_path / "own.toml") | {"profile": Entry((profile,), listed=False)}
    own = make_grid("own", entries).grid
    assert [row.title for row in own.variants] == [row.title for row in grid.variants]
    assert [column.title for column in own.columns] == [column.title for column in grid.columns]


def test_yaml_has_the_same_entries(study):
    pytest.importorskip("yaml")
    grid = study(YAML, "yaml").grids["quick"]
    assert [column.title for column in grid.columns] == ["Digits (20, 2)", "S = 3"]
    assert grid.columns[1].changes == {"classes_per_client": 3}


QUICK = '[quick]\nsetting = "digits-s2"\n'
ROW = 'algo = "R"\n[quick]\nsetting = "digits-s2"\n[rows]\n'
COLUMN = 'algo = "fedper"\n[quick]\nsetting = "C"\n[columns]\n'
BAD = [
    ('algo = "fedper"\nsetting = "digits-s2"\n', ["section for a profile"]),
    (QUICK, ["--algo is required"]),
    ('algo = "fedper"\n[quick]\nrounds = 3\n', ["--setting is required"]),
    (f'algo = "fedpe"\n{QUICK}', ["line 1", "did you mean 'fedper'"]),
    (f'algo = ["fedper", "fedper"]\n{QUICK}', ["line 1", "fedper twice"]),
    ('algo = "fedper"\n[quick]\nsetting = "digit-s2"\n', ["line 3", "did you mean 'digits-s2'"]),
    (f'algo = "fedper"\n{QUICK}[quik]\nsetting = "digits-s2"\n', ["line 5", "did you mean 'quick'"]),
    (f'algo = "fedper"\nseeds = 3\n{QUICK}', ["line 2", "seeds", "only the command grid"]),
    (f'algo = "fedper"\n{QUICK}[vary]\nlr = [0.1, 0.2]\n', ["line 5", "vary.lr", "only the command grid"]),
    (f'algo = "fedper"\n{QUICK}vary.lr = [0.1, 0.2]\n', ["line 4", "vary.lr"]),
    (f'algo = "fedper"\nprinted = "main"\n{QUICK}', ["line 2", "printed_file"]),
    (f'algo = "fedper"\nranked = 3\n{QUICK}', ["line 2", "true or false"]),
    (f'algo = "fedper"\nhighligt = "x"\n{QUICK}', ["line 2", "did you mean 'highlight'"]),
    (f'algo = "fedper"\ninclude = "none.toml"\n{QUICK}', ["none.toml cannot be read"]),
    (f'algo = "fedper"\ninclude = "own.toml"\n{QUICK}', ["own.toml, line 2", "cannot include"]),
    (f'include = "shared.toml"\nalgo = "Ditto, strng"\n{QUICK}', ["line 2", "did you mean 'Ditto, strong'"]),
    (f'{ROW}R = {{ algo = "dito" }}\n', ["line 5", "did you mean 'ditto'"]),
    (f'{ROW}R = {{ algo = "ppfe:no-reductio" }}\n', ["line 5", "did you mean 'no-reduction'"]),
    (f'{ROW}R = {{ algo = "ditto", lamb = 2 }}\n', ["line 5", "did you mean 'lam'"]),
    (f'{ROW}R = {{ algo = "ditto", lam = [1, 2] }}\n', ["line 5", "lam=1,2 does not fit"]),
    (f'{ROW}R = {{ algo = "ditto", lr = "x" }}\n', ["line 5", "a number"]),
    (f'{ROW}R = {{ algo = "ditto", x = "y" }}\n', ["line 5", "x is 'y'"]),
    (f"{ROW}R = {{ lam = 2 }}\n", ["line 5", "'R' has no algo"]),
    (f'{ROW}[rows."a.b"]\nlam = 2\n', ["line 6", "'a.b' has no algo"]),
    (f'{COLUMN}C = {{ setting = "digits" }}\n', ["line 5", "it is a dataset"]),
    (f'{COLUMN}C = {{ setting = "digits-s2", lam = 2 }}\n', ["line 5", "unknown field 'lam'"]),
    (f'{COLUMN}C = {{ setting = "digits-s2", printed = "x" }}\n', ["line 5", "dataset, K, and S"]),
    (f'{COLUMN}C = {{ setting = "digits-s2", rows = "R" }}\n', ["line 5", "unknown row 'R'"]),
    (f"{COLUMN}C = {{ clients = 3 }}\n", ["line 5", "'C' has no setting"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), BAD)
def test_bad_files_are_one_line_with_the_place(study, text, told):
    with pytest.raises(UserError) as refused:
        study(text)
    message = str(refused.value)
    assert "\n" not in message
    assert message.count(", line ") <= 1
    assert all(words in message for words in told), message


PLACES = [(name, "quick") for name in SHIPPED if name in STUDIES and "quick" in STUDIES[name].grids]


@pytest.mark.parametrize(("name", "profile"), [*PLACES, ("tuned", "paper")])
def test_the_command_grid_makes_the_runs_of_a_shipped_study(name, profile):
    entries = read_entries(SHIPPED[name]) | {"profile": Entry((profile,), listed=False)}
    own = make_grid(name, entries, "FILE")
    made = {run.config.hash for run in plan([own.study], own.profile, (0,))}
    assert made == {run.config.hash for run in plan([STUDIES[name]], PROFILES[profile], (0,))}
    assert own.study.tables == STUDIES[name].tables
    assert own.profile.again == f"python -m benchmark grid FILE --profile {profile}"
