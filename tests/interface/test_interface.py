"""The Python interface: the same runs, records and tests as on the command line."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import pfl_benchmark
from pfl_benchmark import compare_records, grid, load_records, run
from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.cli import main
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.local import Phase
from pfl_benchmark.errors import UserError
from pfl_benchmark.interface.keywords import in_keywords
from pfl_benchmark.records.record import read_record
from tests.helpers.python import TINY, cell

ROOT = Path(__file__).resolve().parents[2]
WORDS = "--dataset digits --clients 4 --samples-per-client 20 --test-samples-per-client 10 --rounds 3"
WORDS += " --local-epochs 1 --eval-every 1 --device cpu --executor loop --json"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def records(root):
    made = [run("fedavg", results_dir=root, **TINY), run("fedper", results_dir=root, **TINY)]
    return [*made, run("fedper", results_dir=root, seed=1, **TINY)]


def test_importing_it_is_cheap():
    code = "import sys, benchmark; print(dir(benchmark)); assert not {'torch', 'numpy'} & {*sys.modules}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "'run'" in done.stdout
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        _ = pfl_benchmark.walk


def test_the_run_of_the_command_line(records, tmp_path, capsys):
    assert main(["--algo", "fedper", *WORDS.split(), "--results-dir", str(tmp_path)]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    other, record = read_record(Path(summary["record"])), records[1]
    assert record.folder.name == other.folder.name
    assert record.summary["accuracy"] == summary["accuracy"]
    np.testing.assert_array_equal(record.accuracies, other.accuracies)
    assert repr(record) == f"Record('{record.folder}', accuracy {100 * record.summary['accuracy']:.2f} %)"


def test_hyper_parameters_and_ablations(root):
    assert run("ditto", hyper={"lam": 0.5}, results_dir=root, **TINY).config.hyper["lam"] == 0.5
    variant = run("ppfe", ablation="no-reduction", results_dir=root, **{**TINY, "rounds": 6})
    assert variant.method == "ppfe-no-reduction"


def test_numbers_of_numpy_and_another_folder(root, records, monkeypatch, tmp_path):
    given = {**TINY, "lr": np.float64(TINY.get("lr", 0.03)), "rounds": np.int64(TINY["rounds"])}
    monkeypatch.chdir(tmp_path)
    (one, two) = run("local", seed=np.arange(2), results_dir="here", **given)
    assert [one.config.seed, two.config.seed] == [0, 1]
    assert type(one.config.rounds) is int
    monkeypatch.chdir(tmp_path.parent)
    assert len(load_records(one, two)) == 2


def test_clients_that_took_no_part_are_rows_too(root):
    given = {**TINY, "clients": 4, "new_clients": 0.25, "rounds": 2}
    frame = load_records(run("fedavg", results_dir=root, **given), level="clients")
    assert frame["new"].tolist() == [False, False, False, True]
    assert frame[["accuracy", "loss"]].notna().all(axis=None)


def _interrupted(*_):
    raise KeyboardInterrupt


def test_a_finished_run_is_read_and_again_repeats_it(records, root, capsys, monkeypatch):
    folder = records[0].folder
    before = (folder / "done").stat().st_mtime_ns
    run("fedavg", results_dir=root, **{**TINY, "progress": True})
    assert "already finished" in capsys.readouterr().err
    assert (folder / "done").stat().st_mtime_ns == before
    repeated = run("fedavg", results_dir=root, again=True, **TINY)
    assert (folder / "done").stat().st_mtime_ns > before
    assert repeated.summary["accuracy"] == records[0].summary["accuracy"]
    assert not list(root.glob("*.old"))
    with pytest.raises(UserError, match="cuda"):
        run("fedavg", results_dir=root, again=True, **{**TINY, "device": "cuda:99"})
    monkeypatch.setattr("pfl_benchmark.experiment.runner.run", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("fedavg", results_dir=root, again=True, **TINY)
    assert read_record(folder).digest == repeated.digest, "neither bad input nor an interruption loses it"
    assert not list(root.glob("*.old"))


def test_frames(records):
    runs = load_records(*records)
    assert list(runs.columns[:4]) == ["method", "setting", "seed", "record"]
    assert runs["accuracy"].tolist() == [record.summary["accuracy"] for record in records]
    assert (runs["clients"] == 4).all()
    assert str(runs["bytes_up"].dtype) == "int64"
    rounds = load_records(*records, level="rounds")
    assert len(rounds) == sum(record.summary["rounds"] for record in records)
    assert rounds["bytes_up"].sum() == runs["bytes_up"].sum()
    clients = load_records(records[1], level="clients")
    np.testing.assert_array_equal(clients["accuracy"], records[1].accuracies)
    assert clients["test_samples"].tolist() == records[1].test_samples.tolist()


def test_comparison_is_that_of_the_command_line(records, capsys):
    found = compare_records(*records)
    main(["compare", *(str(record.folder) for record in records), "--json"])
    (group,) = json.loads(capsys.readouterr().out)
    assert found["title"].tolist() == [one["title"] for one in group["runs"]]
    for column in ("accuracy", "difference", "p_holm", "pairs"):
        told = [one.get(column) for one in group["runs"]]
        assert [None if np.isnan(value) else value for value in found[column].astype(float)] == told
    against = compare_records(*records, against=records[0])
    assert set(against["reference"]) == {"fedavg"}


def test_a_method_in_a_cell(without_cells, tmp_path, capsys):
    """The text of the cell is its code: after a change, the old record is said to be of other code."""
    first = cell("Mine", "self.network.names[:-1]", 1)
    record = run(first, results_dir=tmp_path, **TINY)
    assert record.method == "in-a-cell"
    assert run(first, results_dir=tmp_path, **TINY).summary["bytes_up"] == record.summary["bytes_up"]
    assert "other code" not in capsys.readouterr().err
    second = cell("Mine", "self.network.names[:-2]", 2)
    assert run(second, results_dir=tmp_path, **TINY).summary["bytes_up"] == record.summary["bytes_up"]
    assert "other code" in capsys.readouterr().err
    fresh = run(second, results_dir=tmp_path, again=True, **TINY)
    assert fresh.summary["bytes_up"] < record.summary["bytes_up"]


def by_global(value):
    return cell("Mine", "self.network.names[:COUNT]", 3, COUNT=value)


def by_attribute(value):
    return cell("Mine", "self.network.names[: self.counts[0]]", 4, "counts = [COUNT]", COUNT=value)


def by_default(value):
    return cell(
        "Mine", "self.network.names[: self.count()]", 5, "def count(self, n=COUNT): return n", COUNT=value
    )


def by_base(value):
    return cell(
        "Mine",
        "super().shared_layers()",
        7,
        base="Base",
        Base=cell("Base", f"self.network.names[:{value}]", 6),
    )


@pytest.mark.parametrize("made", [by_global, by_attribute, by_default, by_base])
def test_what_a_cell_takes_from_others_is_code(made, without_cells, tmp_path, capsys):
    def again(cls):
        capsys.readouterr()
        run(cls, results_dir=tmp_path, **TINY)
        return "other code" in capsys.readouterr().err

    first = made(1)
    run(first, results_dir=tmp_path, **TINY)
    assert [again(first), again(made(1)), again(made(2))] == [False, False, True]
    assert not again(made(np.int64(1)))
    first.more = 0.5
    assert again(first), "the same class, changed"


def test_a_refused_class_leaves_the_known_one(without_cells, tmp_path):
    record = run(cell("Mine", "self.network.names[:1]", 8), results_dir=tmp_path, **TINY)
    with pytest.raises(UserError, match="cannot be found"):
        run(type("Other", (Algorithm,), {"name": "in-a-cell", "__module__": "none"}), **TINY)
    assert run("in-a-cell", results_dir=tmp_path, **TINY).digest == record.digest


@dataclass
class NoMethod:
    name: str = "x"


def test_a_refused_class_is_not_known(tmp_path):
    def made(rate):
        class Logged(ALGORITHMS["fedavg"]):
            name, title, reference = "logged", "Logged", "a test"

            def phases(self, round):
                return [Phase.of(self.network.names, rate, epochs=1)]

        return Logged

    with pytest.raises(UserError, match="Logged takes 'rate' from the function around it"):
        run(made(0.1), results_dir=tmp_path, **TINY)
    assert "logged" not in ALGORITHMS


def test_bad_input(records, tmp_path, without_cells):
    taken = type("Taken", (Algorithm,), {"name": "fedavg", "title": "T", "reference": "r"})
    nameless = type("Nameless", (Algorithm,), {"title": "N", "reference": "r"})
    unseen = type("Unseen", (Algorithm,), {"name": "u", "title": "U", "reference": "r", "__module__": "none"})
    cases = [
        (lambda: run("fedvag", **TINY), "did you mean 'fedavg'"),
        (lambda: run(NoMethod, **TINY), "a subclass of Algorithm"),
        (lambda: run(taken, **TINY), "there is a method 'fedavg' already"),
        (lambda: run(nameless, **TINY), "has no `name`"),
        (lambda: run(unseen, **TINY), "cannot be found"),
        (lambda: run("fedavg", round=3, **TINY), "did you mean 'rounds'"),
        (lambda: run("fedavg", learning_rate=0.1, **TINY), "did you mean 'lr'"),
        (lambda: run("fedavg", seeds=3, **TINY), "did you mean 'seed'"),
        (lambda: run("fedavg", alpha=0.3, **TINY), "did you mean 'dirichlet'"),
        (lambda: run("feddyn", alpha=0.3, **TINY), r"give it as hyper=\{\"alpha\": 0.3\}$"),
        (lambda: run("ditto", lam=0.1, **TINY), r"give it as hyper=\{\"lam\": 0.1\}$"),
        (lambda: run("fedavg", lam=0.1, **TINY), "hyper-parameter of ditto, .*, not of 'fedavg'"),
        (lambda: run("fedavg", dirichlet=0.3, partition="iid", **TINY), "under partition='iid'; remove it"),
        (lambda: run("fedavg", new_clients=0.9, **TINY), "^new_clients=0.9 leaves 0 of 4"),
        (lambda: run("fedavg", **{**TINY, "rounds": "3"}), "rounds is '3'; expected int"),
        (lambda: run("fedavg", **{**TINY, "rounds": 0}), "^rounds is 0"),
        (
            lambda: run("fedavg", **{**TINY, "test_share": 0.2}),
            "^samples_per_client has no effect",
        ),
        (lambda: run("ditto", hyper={"lam": True}, **TINY), "lam=True does not fit"),
        (lambda: run("fedavg", lr=True, **TINY), "lr is True; expected float"),
        (lambda: run("ditto", hyper={"lamb": 1}, **TINY), "did you mean 'lam'"),
        (lambda: run("ditto", hyper="lam=1", **TINY), "hyper is 'lam=1'; expected a dictionary"),
        (lambda: run("fedavg", **{**TINY, "device": None}), "device is None; expected a name"),
        (lambda: run("fedavg", results_dir=3, **TINY), "results_dir is 3; expected a folder"),
        (lambda: run("fedavg", results_dir="", **TINY), "results_dir is ''; expected a folder"),
        (lambda: run("fedavg", trackings=[3], **TINY), "expected a list of trackers"),
        (lambda: grid("fedavg", setting="digits-s2", trackings=["wandb"]), "expected a list of trackers"),
        (lambda: load_records(records), r"load_records\(\*records\)"),
        (lambda: load_records(), "no runs are given"),
        (lambda: load_records(tmp_path), "holds no finished run"),
        (lambda: load_records(tmp_path / "none"), "none"),
        (lambda: load_records(records[0], level="steps"), "expected one of: runs, rounds, clients"),
        (lambda: compare_records(records[0]), "cannot be compared"),
        (lambda: compare_records(records[0], against=records[2]), "cannot be compared"),
        (lambda: compare_records(*records, against=records[0].folder.parent), "is no record of a run"),
    ]
    for call, message in cases:
        with pytest.raises(UserError, match=message):
            call()
    assert not list(tmp_path.iterdir())


def test_divergence_and_data_speak_of_keywords_too(tmp_path):
    cases = [
        ("fedavg", {"lr": 1e30}, "try a smaller lr"),
        ("ditto", {"hyper": {"lam": 1e6}}, r'try a smaller hyper\["lam"\] or a smaller lr'),
        ("fedavg", {"test_samples_per_client": 5000}, "^test_samples_per_client is 5,000"),
    ]
    for algo, fields, message in cases:
        with pytest.raises(UserError, match=message):
            run(algo, results_dir=tmp_path, **{**TINY, **fields})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("use --partition iid", "use partition='iid'"),
        ("--augment or --no-augment", "augment=True or augment=False"),
        (
            "--set lam, --set lam=0.5, --set fc=prev",
            'hyper["lam"], hyper={"lam": 0.5}, hyper={"fc": "prev"}',
        ),
        ("--lr is 3; drop the flag", "lr is 3; drop the keyword"),
        ("fewer --clients, --test-samples-per-client", "fewer clients, test_samples_per_client"),
        ("--lr 0.5 (--test-share 0.1); --plugin FILE", "lr=0.5 (test_share=0.1); --plugin FILE"),
    ],
)
def test_flags_in_the_words_of_python(text, told):
    with pytest.raises(UserError) as error, in_keywords():
        raise UserError(text)
    assert str(error.value) == told


@pytest.mark.parametrize(
    ("keywords", "parts"),
    [
        ({"seed": [0, 0]}, ["seed is [0, 0]", "each once", "seed=[0, 1, 2]"]),
        ({"seed": []}, ["seed is []", "seed=[0, 1, 2]"]),
        ({"plugins": "mine.py"}, ["plugins is 'mine.py'", "a list"]),
        ({"on_round": "print"}, ["on_round is 'print'", "a function"]),
        ({"lr": (0.1, 0.01)}, ["one value", "lr=0.01", 'call grid with vary={"lr"']),
        ({"lr": "0.1"}, ["expected float", "lr=0.1"]),
        ({"augment": 1}, ["expected bool", "augment=True"]),
        ({"dataset": Path("own")}, ["dataset='folder:own'"]),
        ({"dataset": "./own"}, ["dataset='folder:./own'"]),
        ({"dataset": "digits-s2"}, ["it is a setting", "setting='digits-s2'"]),
        ({"dataset": None, "setting": "digits"}, ["it is a dataset", "dataset='digits'"]),
        ({"setting": ["digits-s2"]}, ["setting is ['digits-s2']", "a name"]),
        ({"setting": 3}, ["setting is 3", "a name"]),
        ({"ablation": True}, ["ablation is True", "a name"]),
        ({"ablation": ["none"]}, ["ablation is ['none']", "a name"]),
        ({"hyper": {"lr": 0.1}}, ["'lr' is no hyper-parameter of 'ditto'", "lr=0.1"]),
        ({"device": 0}, ["device is 0", "'cpu'"]),
        ({"gpu": 0}, ["did you mean 'device'"]),
        ({"set": "lam=1"}, ["did you mean 'hyper'"]),
        ({"plugin": "mine.py"}, ["did you mean 'plugins'"]),
        ({"participation": 10.0}, ["0.1 for 10 %"]),
        ({"dataset": "parquet:x", "columns": {"img": "image"}}, ['{"image": "img", "label": "fine_label"}']),
    ],
    ids=str,
)
def test_mistakes_in_python(keywords, parts, tmp_path):
    with pytest.raises(UserError) as error:
        run("ditto", results_dir=tmp_path, **{"dataset": "digits", **keywords})
    for part in parts:
        assert part in str(error.value)
    assert "--" not in str(error.value)
