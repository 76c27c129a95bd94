"""The command `grid`: the same grid from flags, YAML and TOML; its files; selection; bad input."""

import shlex
import sys
from pathlib import Path

import pytest

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.cli import main
from pfl_benchmark.launch import grid as grid_launch
from pfl_benchmark.launch.batch import Batch
from pfl_benchmark.records.sources import SOURCES
from pfl_benchmark.resolve.plugins import LOADED, VARIABLE

ROOT = Path(__file__).resolve().parents[2]
TINY = (
    "--clients 6 --samples-per-client 20 --test-samples-per-client 10 --rounds 2 --local-epochs 1 "
    "--participation 0.5 --device cpu --executor loop"
)
BASE = "--algo fedper ditto --setting digits-s2"
YAML = "algo: [fedper, ditto]\nsetting: digits-s2\n"
TOML = 'algo = ["fedper", "ditto"]\nsetting = "digits-s2"\n'


@pytest.fixture
def grid(capsys, tmp_path):
    """``grid("--algo fedper")``: code, output and errors, with records below `tmp_path`."""

    def go(*words):
        capsys.readouterr()
        try:
            code = main(["grid", "--results-dir", str(tmp_path / "out"), *shlex.split(" ".join(words))])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return go


def written(root):
    return {
        str(path.relative_to(root)) for path in root.rglob("*") if path.parent.name in ("tables", "figures")
    }


def files_of(*names, figures=()):
    tables = {f"tables/{name}.{end}" for name in names for end in ("md", "csv", "tex", "html", "json")}
    return tables | {f"figures/{name}.{end}" for name in figures for end in ("svg", "png", "pdf")}


def test_a_grid_ends_in_a_table_and_figures_in_every_format(grid, tmp_path):
    code, out, err = grid(f"{BASE} --seeds 2 --vary ditto.lam=0.1,1", TINY)
    assert code == 0, err
    assert "grid: all 6 runs done" in out
    root = tmp_path / "out"
    names = files_of("grid", "grid-significance", figures=("grid", "grid-learning-curves"))
    assert written(root) == names
    printed = (root / "tables/grid.md").read_text()
    assert printed in out
    assert all(row in printed for row in ("| FedPer ", "| Ditto, lam=0.1 ", "| Ditto, lam=1.0 ", " ± ", "**"))
    assert (root / "figures/grid.pdf").read_bytes().startswith(b"%PDF")
    assert "<table" in (root / "tables/grid.html").read_text()
    page = (root / "report.html").read_text()
    assert "python -m benchmark grid --algo fedper ditto" in page
    assert "--profile" not in page
    code, again, _ = grid(f"{BASE} --seeds 2 --vary ditto.lam=0.1,1", TINY)
    assert (code, "tables and figures are up to date" in again) == (0, True)
    code, shown, _ = grid(f"{BASE} --seeds 2 --vary ditto.lam=0.1,1 --render-only", TINY)
    assert (code, printed in shown) == (0, True)


def test_values_are_selected_on_validation_and_reported_on_test_data(grid, tmp_path):
    words = f"{BASE} --vary ditto.lam=0.1,1 lr=0.02,0.1 --select-on-validation"
    code, plan, _ = grid(f"{words} --dry-run", TINY)
    assert (code, "6 missing" in plan, "then 2 runs on test data" in plan) == (0, True, True)
    assert not (tmp_path / "out").exists()
    code, out, err = grid(words, TINY)
    assert code == 0, err
    assert "Selected on the validation split: FedPer lr=" in out
    assert "FedPer (2 trials), Ditto (4 trials)" in out
    assert "Instead of test samples" not in out
    assert len([*(tmp_path / "out").glob("*/summary.json")]) == 8
    code, plan, _ = grid(f"{words} --dry-run", TINY)
    assert (code, plan.count("0 missing")) == (0, 2)
    assert grid(words, TINY)[1].count("Selected on the validation split") == 1, "also where all is known"


def test_what_another_grid_has_left_in_the_folder_goes(grid, tmp_path):
    grid(f"{BASE} --vary ditto.lam=0.1,1 --select-on-validation", TINY)
    assert (tmp_path / "out/tables/grid-validation.md").exists()
    code, _, err = grid(BASE, TINY)
    assert code == 0, err
    assert not list((tmp_path / "out/tables").glob("grid-validation*"))
    assert (tmp_path / "out/tables/grid.md").exists()


def test_a_file_that_is_called_as_the_page(grid, tmp_path):
    more = '[rows]\n"Ours $\\\\small$" = { algo = "ditto", lam = 2.0 }\n'
    (tmp_path / "report.toml").write_text(TOML.replace('"ditto"', '"Ours $\\\\small$"') + more)
    code, _, err = grid(f"{tmp_path / 'report.toml'}", TINY)
    assert code == 0, err
    assert (tmp_path / "out/tables/grid-report.md").exists()
    assert "benchmark grid " in (page := (tmp_path / "out/report.html").read_text())
    assert "report.toml" in page


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine.yaml", YAML + "seeds: 2\nrounds: 3\nvary:\n  lr: [0.01, 1e-1]\n  ditto.lam: [0.1, 1]\n"),
        ("mine.yml", YAML + "seeds: 2\nrounds: 3\nvary: {lr: [0.01, 0.1], ditto: {lam: [0.1, 1]}}\n"),
        ("mine.toml", TOML + "seeds = 2\nrounds = 3\n[vary]\nlr = [0.01, 0.1]\nditto.lam = [0.1, 1]\n"),
    ],
)
def test_a_file_is_the_same_grid_as_flags(grid, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    flags = grid(f"{BASE} --seeds 2 --rounds 3 --vary lr=0.01,0.1 ditto.lam=0.1,1 --dry-run --device cpu")
    file = grid(f"{tmp_path / name} --dry-run --device cpu")
    runs = [line.split("  ")[0] for line in flags[1].splitlines() if "missing, about" in line]
    assert file[0] == flags[0] == 0
    assert runs == [line.split("  ")[0] for line in file[1].splitlines() if "missing, about" in line]
    assert len(runs) == 12
    for more in ("--set seeds=1", "--seeds 1", "--set vary.lr=0.5"):
        assert "6 runs, 0 done" in grid(f"{tmp_path / name} {more} --dry-run --device cpu")[1]


@pytest.fixture
def forgotten(monkeypatch):
    """Plugins of a test are gone after it."""
    monkeypatch.setenv(VARIABLE, "")
    registries = (ALGORITHMS, SOURCES, LOADED, sys.modules)
    before = [dict(registry) for registry in registries]
    yield
    for registry, old in zip(registries, before, strict=True):
        for name in registry.keys() - old.keys():
            if registry is not sys.modules or name.startswith("plugin_"):
                del registry[name]


@pytest.mark.usefixtures("forgotten")
def test_the_example_and_its_command_line_are_the_same_grid(grid):
    """Both as they stand in the file, at a tiny scale."""
    example = ROOT / "examples" / "grid.yaml"
    lines = [line.lstrip("# ").rstrip("\\") for line in example.read_text().splitlines()[3:5]]
    words = " ".join(lines).removeprefix("python -m benchmark grid").replace("examples/", f"{ROOT}/examples/")
    code, out, err = grid(f"{example} --seeds 1", TINY)
    assert code == 0, err
    assert "all 12 runs done" in out
    assert "FedNTD" in out
    words = words.replace("--seeds 3", "--seeds 1").replace("--rounds 20", "")  # TINY says it
    code, plan, err = grid(f"{words} --dry-run", TINY)
    assert (code, "12 runs, 12 done" in plan) == (0, True), err


def test_more_than_a_week_asks_for_yes(grid, tmp_path, monkeypatch):
    monkeypatch.setattr(Batch, "expected", lambda self: grid_launch._WEEK + 1)
    code, _, err = grid(BASE, TINY)
    assert (code, err.count("\n")) == (2, 1)
    assert "more than a week" in err
    assert "--yes" in err
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(Batch, "fill", lambda self: 0)
    assert grid(f"{BASE} --yes", TINY)[0] == 0


FLAGS = [
    ("", ["--algo is required"]),
    ("--algo fedper", ["--setting is required"]),
    ("--algo dito --setting digits-s2", ["did you mean 'ditto'"]),
    ("--algo fedper --setting digit-s2", ["did you mean 'digits-s2'"]),
    ("--algo ppfe:no-reductio --setting digits-s2", ["did you mean 'no-reduction'"]),
    (f"{BASE} --algo ditto", ["algo has ditto twice"]),
    (f"{BASE} --setting digits-s2", ["setting has digits-s2 twice"]),
    (f"{BASE} --seeds 0", ["seeds is '0'"]),
    (f"{BASE} --vary lr", ["KEY=VALUE"]),
    (f"{BASE} --vary lr=", ["--vary lr", "no values"]),
    (f"{BASE} --vary lr=0.1,0.10", ["lr has 0.1 twice"]),
    (f"{BASE} --vary ditto.lam=1,1.0", ["lam has 1.0 twice"]),
    (f"{BASE} --vary lr=0.1 lr=0.2", ["lr is given twice"]),
    (f"{BASE} --vary lam=0.1,1", ["write ditto.lam"]),
    (f"{BASE} --vary mu=0.1,1", ["fedprox", "none of them is in the grid"]),
    (f"{BASE} --vary fedper.lam=0.1,1", ["unknown hyper-parameter 'lam' of 'fedper'"]),
    (f"{BASE} --vary fedprox.mu=0.1,1", ["'fedprox' is not in the grid"]),
    (f"{BASE} --vary learning_rate=0.1,1", ["did you mean 'lr'"]),
    (f"{BASE} --vary seed=0,1", ["the number of seeds"]),
    (f"{BASE} --vary lr=x,1", ["--lr is 'x'"]),
    (f"{BASE} --vary lr=-1,1", ["--lr is -1"]),
    (f"{BASE} --vary lr=1,2 --lr 1", ["also set for all runs"]),
    (f"{BASE} --vary crop_padding=1,2", ["without augmentation"]),
    (f"{BASE} --vary clients=10,20 --select-on-validation", ["nothing to select"]),
    (f"{BASE} --vary ditto.lam=1,2 --select-on-validation --validation 0", ["--validation is 0"]),
    (f"{BASE} --set seeds=2", ["there is none"]),
    ("nowhere.yaml", ["nowhere.yaml cannot be read"]),
    ("grid.json", ["ends in .yaml, .yml or .toml"]),
]


@pytest.mark.parametrize(("words", "told"), FLAGS)
def test_bad_flags_are_one_line(grid, tmp_path, words, told):
    _is_refused(grid(words, "--device cpu"), tmp_path, told)


FILES = [
    ("yaml", "", ["--algo is required"]),
    ("yaml", "- a\n", ["line 1", "key: value"]),
    ("yaml", "algo: [fedper\nsetting: x\n", ["line 2", "expected YAML"]),
    ("yaml", "algo: &a [x]\nsetting: *a\n", ["line 2", "no alias"]),
    ("yaml", "[" * 5000, ["line 1", "5000 brackets"]),
    ("yaml", "algo: []\nsetting: digits-s2\n", ["line 1", "algo is empty"]),
    ("yaml", f"{YAML}vary:\n\tlr: [1]\n", ["line 4", "tab"]),
    ("yaml", f"{YAML}sedes: 3\n", ["line 3", "unknown entry 'sedes'", "did you mean 'seeds'"]),
    ("yaml", f"{YAML}methods: x\n", ["line 3", "did you mean 'algo'"]),
    ("yaml", f"{YAML}seeds: three\n", ["line 3", "'three'"]),
    ("yaml", f"{YAML}seeds: [0, 1]\n", ["line 3", "is a list"]),
    ("yaml", f"{YAML}rounds: 2.5\n", ["line 3", "a whole number"]),
    ("yaml", f"{YAML}rounds: true\n", ["line 3", "a whole number"]),
    ("yaml", f"{YAML}augment: 3\n", ["line 3", "true or false"]),
    ("yaml", f"{YAML}tables: []\n", ["line 3", "tables is empty"]),
    ("yaml", f"{YAML}highlight: Lokal\n", ["unknown row (highlight) 'Lokal'"]),
    ("yaml", f"{YAML}tables: over-settings\n", ["expected 4 settings or more"]),
    ("yaml", f"{YAML}figures: sweep\n", ["no row and no column has a place on its axis"]),
    ("yaml", f"{YAML}vary: 3\n", ["line 3", "a list of values for each name"]),
    ("yaml", f"{YAML}vary:\n  lr: {{a: 1}}\n", ["line 4", "expected values of lr"]),
    ("yaml", f"{YAML}vary:\n  lr: [0.1, 0.1]\n", ["line 4", "twice"]),
    ("yaml", f"{YAML}vary:\n  lr: [0.1, null]\n", ["line 4", "nothing"]),
    ("yaml", f"{YAML}vary:\n  lr: [-1, 2]\n", ["line 4", "--lr is -1"]),
    ("yaml", f"{YAML}algo: ditto\n", ["line 3", "given twice"]),
    ("yaml", f"{YAML}plugins: [none.py]\n", ["line 3", "none.py: cannot be read"]),
    ("yaml", "algo: dito\nsetting: digits-s2\n", ["line 1", "did you mean 'ditto'"]),
    ("yaml", "algo: ditto\nsetting: digits-s3\n", ["line 2", "did you mean 'digits-s2'"]),
    ("toml", f"{TOML}seeds = three\n", ["line 3", "expected TOML"]),
    ("toml", f"{TOML}rounds = true\n", ["line 3", "a whole number"]),
    ("toml", f"{TOML}[vary]\nditto.lamb = [1, 2]\n", ["line 4", "did you mean 'lam'"]),
    ("toml", f"{TOML}x = 2020-01-01\n", ["line 3", "unknown entry 'x'"]),
]


@pytest.mark.parametrize(("end", "text", "told"), FILES)
def test_bad_files_are_one_line_with_the_place(grid, tmp_path, end, text, told):
    file = tmp_path / f"mine.{end}"
    file.write_text(text)
    _is_refused(grid(str(file), "--device cpu"), tmp_path, told)


def test_without_pyyaml_the_line_says_what_to_do(grid, tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(YAML)
    monkeypatch.setitem(sys.modules, "yaml", None)
    _is_refused(grid(str(tmp_path / "mine.yaml")), tmp_path, ["pip install pyyaml", "as TOML"])


STUDY = 'algo = ["fedper", "Own"]\ninclude = "rows.toml"\n[quick]\nsetting = "digits-s2"\n'
ROWS = '[rows]\nOwn = { algo = "ditto", lam = 2 }\n'


def test_a_file_with_titles_of_its_own_ends_in_its_tables(grid, tmp_path):
    (tmp_path / "mine.toml").write_text(f'tables = ["accuracy", "spread"]\n{STUDY}')
    (tmp_path / "rows.toml").write_text(ROWS)
    code, out, err = grid(f"{tmp_path / 'mine.toml'} --profile quick", TINY)
    assert code == 0, err
    assert all(row in out for row in ("| FedPer ", "| Own "))
    assert written(tmp_path / "out") >= files_of("mine", "mine-spread")
    again = f"python -m benchmark grid {tmp_path / 'mine.toml'} --profile quick --clients 6"
    assert again in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", ["a section for each profile", "--profile: quick"]),
        ("--profile quik", ["--profile is 'quik'", "quick"]),
        ("--profile quick --vary ditto.lam=1,2", ["'Own' has its own lam", "drop one"]),
        ("--profile quick --set tables=accurcy", ["unknown table 'accurcy'", "did you mean 'accuracy'"]),
        ("--profile quick --set figures=curves", ["unknown figure 'curves'"]),
        (
            "--profile quick --set tables=differences",
            ["table 'differences': there is no reference", "title of a row"],
        ),
        ("--profile quick --set tables=differences --set reference=owl", ["unknown row (reference) 'owl'"]),
        ("--profile quick --set tables=rates --vary lr=0.01,0.2", ["all columns change lr"]),
        (
            "--profile quick --set figures=budgets-bytes --vary budget=bytes,samples",
            ["expected a column of equal rounds"],
        ),
        ("--profile quick --set rows.Owl.lam=3", ["'Owl' has no algo"]),
    ],
)
def test_what_does_not_fit_a_file_with_sections_is_one_line(grid, tmp_path, words, told):
    (tmp_path / "mine.toml").write_text(STUDY)
    (tmp_path / "rows.toml").write_text(ROWS)
    _is_refused(grid(f"{tmp_path / 'mine.toml'} {words}", "--device cpu"), tmp_path, told)


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("", 2),
        ("--seeds 2", 4),
        ("--algo fedavg", 1),
        ("--setting digits-s2 digits-dir0.3", 4),
        ("--set quick.setting=digits-dir0.3", 2),
        ("--vary lr=0.1,0.2", 4),
        ("--vary fedper.n_personal=1,2", 3),
    ],
)
def test_flags_override_sections(grid, tmp_path, words, runs):
    (tmp_path / "mine.toml").write_text(STUDY)
    (tmp_path / "rows.toml").write_text(ROWS)
    code, out, err = grid(f"{tmp_path / 'mine.toml'} --profile quick --dry-run {words}", TINY)
    assert (code, f"mine: {runs} runs" in out) == (0, True), out + err


SHIPPED = sorted((ROOT / "benchmark" / "papers").rglob("studies/*.toml"))


@pytest.mark.skipif(not SHIPPED, reason="no paper has a study in a file")
@pytest.mark.parametrize("name", ["fixed-heads", "targets"])
def test_shipped_studies_are_examples(grid, name):
    (file,) = (path for path in SHIPPED if path.stem == name)
    code, out, err = grid(f"{file} --profile quick --dry-run", TINY.replace("--rounds 2", "--rounds 8"))
    assert (code, f"{name}: " in out) == (0, True), err


def _is_refused(answer, folder, told):
    code, out, err = answer
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert all(text in err for text in told), err
    assert not (folder / "out").exists()
