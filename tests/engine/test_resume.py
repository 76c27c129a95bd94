"""A run that was stopped, at any moment and for any reason, ends as if nothing had happened."""

import dataclasses
import json
import os
import random
import shutil
import time
from contextlib import contextmanager

import pytest
import torch

import pfl_benchmark.engine.clients as pieces
import pfl_benchmark.engine.shared_rounds as shared_rounds
import pfl_benchmark.experiment.prepare as prepare
import pfl_benchmark.experiment.runner as runner
import pfl_benchmark.records.environment as origins
from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.algorithms.adaptation import FineTuning
from pfl_benchmark.engine.algorithm import Algorithm, SharedRounds
from pfl_benchmark.engine.executors import LoopExecutor
from pfl_benchmark.engine.rounds import Diverged
from pfl_benchmark.engine.shared_rounds import SharedRoundsStore
from pfl_benchmark.errors import UserError
from pfl_benchmark.resolve.code import code_of


class Killer:
    """An observer that stops the run after some round, as Ctrl-C does."""

    def __init__(self, last):
        self.last, self.heard, self.done = last, [], None

    def start(self, rounds, done):
        self.done = done

    def round(self, line):
        self.heard.append(line["round"])
        if line["round"] == self.last:
            raise KeyboardInterrupt


class Counter(Killer):
    """An observer that only listens."""

    def __init__(self):
        super().__init__(last=None)


def kill(launch, config, folder, after):
    with pytest.raises(KeyboardInterrupt):
        launch(config, folder, Killer(after))


def record_in(folder):
    (record,) = folder.glob("*-*-*")
    return record


@pytest.fixture
def diverging(monkeypatch):
    """Let training return a loss that is not a number from some round on."""

    def arm(round, client=2):
        train = LoopExecutor.train

        def broken(self, call):
            outcome = train(self, call)
            if call.round == round and client in call.clients:
                outcome.loss[call.clients.index(client)] = float("nan")
            return outcome

        monkeypatch.setattr(LoopExecutor, "train", broken)

    return arm


# Kill and go on


def test_killed_and_resumed_equals_unbroken(algo, tiny, launch, unbroken, tmp_path, monkeypatch):
    """Also where clients are trained and evaluated in other chunks: six in one, or four and two."""
    monkeypatch.setattr(pieces, "CHUNK", 4)
    last = random.Random(algo).randint(1, 3)
    kill(launch, tiny(algo), tmp_path, last)
    assert not (record_in(tmp_path) / "done").exists()
    counter = Counter()
    resumed = launch(tiny(algo), tmp_path, counter)
    assert resumed.content() == unbroken(algo).content()
    assert resumed.summary["resumed"] == 1
    assert counter.done == last
    assert counter.heard == [1, 2, 3, 4]
    assert sorted(path.name for path in resumed.folder.iterdir() if path.name != "diagnostics.json") == [
        "clients.csv", "config.json", "done", "rounds.jsonl", "summary.json",
    ]  # fmt: skip


def test_killed_after_every_round_equals_unbroken(tiny, launch, unbroken, tmp_path):
    for last in (1, 2, 3):
        kill(launch, tiny("fedper"), tmp_path, last)
    resumed = launch(tiny("fedper"), tmp_path)
    assert resumed.content() == unbroken("fedper").content()
    assert resumed.summary["resumed"] == 3


def test_killed_on_threads_equals_unbroken_on_threads(algo, tiny, launch, unbroken, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        launch(tiny(algo), tmp_path, Killer(2), executor="threads")
    resumed = launch(tiny(algo), tmp_path, executor="threads")
    assert resumed.content() == unbroken(algo, "threads").content()


@pytest.fixture
def as_other_code(monkeypatch):
    """Lets what runs inside of it pass for another commit's code."""

    @contextmanager
    def other():
        with monkeypatch.context() as patch:
            patch.setattr(runner, "code_of", lambda *_: "another commit's")
            patch.setattr(shared_rounds, "digest", lambda sources: "another commit's")
            yield

    return other


def test_rounds_of_other_code_are_told_apart(tiny, launch, as_other_code, tmp_path):
    config = tiny("fedper")
    kill(launch, config, tmp_path, 1)
    with as_other_code():
        kill(launch, config, tmp_path, 3)  # goes on, and is stopped again
    found = launch(config, tmp_path).summary["origins"]
    ours = code_of(config)
    assert [(origin["from_round"], origin["code"]) for origin in found] == [
        (1, ours), (2, "another commit's"), (4, ours),
    ]  # fmt: skip
    (line,) = origins.foreign_rounds(found)  # round 1 is as the last one
    assert line.startswith("rounds 2-3 were computed with other code")


def test_rounds_of_another_executor_are_told_apart(tiny, launch, tmp_path):
    kill(launch, tiny("fedper"), tmp_path, 1)
    found = launch(tiny("fedper"), tmp_path, executor="threads").summary["origins"]
    assert [(origin["from_round"], origin["executor"]) for origin in found] == [(1, "loop"), (2, "threads")]
    assert origins.foreign_rounds(found) == ["round 1 was computed with executor loop"]


def test_a_checkpoint_that_does_not_tell_its_code_is_used_and_told(tiny, launch, unbroken, tmp_path):
    kill(launch, tiny("fedper"), tmp_path, 2)
    path = record_in(tmp_path) / "checkpoint.pt"
    state = torch.load(path, weights_only=True)
    del state["origins"]
    torch.save(state, path)
    resumed = launch(tiny("fedper"), tmp_path)
    assert resumed.lines == unbroken("fedper").lines
    (line,) = origins.foreign_rounds(resumed.summary["origins"])
    assert line.startswith("rounds 1-2 were computed with unknown code")


def test_a_run_resumed_by_the_same_code_has_one_origin(tiny, launch, tmp_path):
    kill(launch, tiny("fedper"), tmp_path, 2)
    assert "origins" not in launch(tiny("fedper"), tmp_path).summary


def test_random_training_resumes_exactly(tiny, launch, tmp_path):
    config = tiny("fedper", augment=True, dropout=0.3)
    kill(launch, config, tmp_path / "killed", 2)
    whole = launch(config, tmp_path / "whole")
    assert launch(config, tmp_path / "killed").content() == whole.content()


def test_killed_before_the_first_checkpoint_starts_again(tiny, launch, unbroken, tmp_path, monkeypatch):
    def interrupted(self, call):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LoopExecutor, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            launch(tiny("fedper"), tmp_path)
    resumed = launch(tiny("fedper"), tmp_path)
    assert resumed.content() == unbroken("fedper").content()
    assert resumed.summary["resumed"] == 0


@pytest.mark.parametrize("damage", [b"", b"no tensors in here", None], ids=["empty", "text", "cut"])
def test_a_damaged_checkpoint_is_set_aside(damage, tiny, launch, unbroken, tmp_path):
    kill(launch, tiny("fedper"), tmp_path, 2)
    checkpoint = record_in(tmp_path) / "checkpoint.pt"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: len(content) // 2] if damage is None else damage)
    counter = Counter()
    again = launch(tiny("fedper"), tmp_path, counter)
    assert counter.done == 0
    assert again.content() == unbroken("fedper").content()
    assert (again.folder / "checkpoint.damaged.pt").exists()


def test_a_checkpoint_that_cannot_be_opened_stays(tiny, launch, tmp_path):
    """Here a folder, elsewhere a file of another user: it may be whole."""
    kill(launch, tiny("fedper"), tmp_path, 2)
    checkpoint = record_in(tmp_path) / "checkpoint.pt"
    checkpoint.unlink()
    checkpoint.mkdir()
    with pytest.raises(UserError, match=r"cannot read .*checkpoint\.pt: Is a directory; give your"):
        launch(tiny("fedper"), tmp_path)
    assert checkpoint.is_dir()


def test_a_checkpoint_of_another_configuration_is_not_used(tiny, launch, unbroken, tmp_path):
    kill(launch, tiny("fedper"), tmp_path / "a", 2)
    kill(launch, tiny("fedper", seed=1), tmp_path / "b", 2)
    ours, other = (record_in(tmp_path / name) / "checkpoint.pt" for name in "ab")
    ours.write_bytes(other.read_bytes())
    assert launch(tiny("fedper"), tmp_path / "a").content() == unbroken("fedper").content()


# Finished runs


def test_a_finished_run_is_not_run_again(algo, unbroken, launch, tiny, monkeypatch):
    run = unbroken(algo)
    before = {path: path.stat().st_mtime_ns for path in run.folder.iterdir()}

    def forbidden(*args):
        raise AssertionError("a finished run needs no data")

    monkeypatch.setattr(runner, "prepare", forbidden)
    again = launch(tiny(algo), run.folder.parent)
    assert again.folder == run.folder
    assert {path: path.stat().st_mtime_ns for path in run.folder.iterdir()} == before
    assert {k: v for k, v in again.summary.items() if k != "record"} == json.loads(
        (run.folder / "summary.json").read_text()
    )


def test_a_run_that_another_process_finished_meanwhile_is_not_run_again(tiny, launch, tmp_path, monkeypatch):
    prepare, counter = runner.prepare, Counter()

    def slow(resolved, execution):
        monkeypatch.setattr(runner, "prepare", prepare)
        launch(resolved.config, tmp_path)  # the other process is faster
        return prepare(resolved, execution)

    monkeypatch.setattr(runner, "prepare", slow)
    launch(tiny("fedper"), tmp_path, counter)
    assert counter.heard == []


# Divergence


def test_a_diverged_run_says_where_and_leaves_its_rounds(tiny, launch, diverging, tmp_path):
    diverging(3, client=5)
    config = tiny("fedper", participation=1.0)
    with pytest.raises(Diverged, match=r"client 5 .* round 3 \(stage 1\)"):
        launch(config, tmp_path)
    record = record_in(tmp_path)
    failed = json.loads((record / "failed.json").read_text())
    assert "round 3" in failed["reason"]
    assert failed["environment"]["executor"] == "loop"
    assert str(tmp_path) not in json.dumps(failed), "records name no path"
    assert not (record / "done").exists()
    assert len((record / "rounds.jsonl").read_text().splitlines()) == 2


def test_the_checkpoint_of_a_diverged_run_is_usable(
    algo, tiny, launch, unbroken, tmp_path, diverging, monkeypatch
):
    diverging(4)
    with pytest.raises(Diverged):
        launch(tiny(algo), tmp_path)
    monkeypatch.undo()
    counter = Counter()
    mended = launch(tiny(algo), tmp_path, counter)
    assert counter.done == 3
    assert mended.content() == unbroken(algo).content()
    assert not (mended.folder / "failed.json").exists()


def test_real_divergence_in_training(tiny, launch, tmp_path):
    with pytest.raises(Diverged, match="try a smaller --lr"):
        launch(tiny("fedavg", lr=1e6), tmp_path)


@pytest.mark.parametrize(
    ("algo", "hyper", "changes"),
    [
        ("fedavg", {}, {"lr": 1e30, "rounds": 1, "batch_size": 20}),  # the last step overflows
        ("fedavg-ft", {"ft_epochs": 50}, {"lr": 2.0, "rounds": 1, "batch_size": 20}),
        ("fedavg", {}, {"lr": 1e30, "rounds": 2, "batch_size": 20, "eval_every": 1}),
    ],
    ids=["last step", "fine-tuning", "on the way"],
)
def test_divergence_that_only_the_evaluation_sees(algo, hyper, changes, tiny, launch, tmp_path):
    with pytest.raises(Diverged):
        launch(tiny(algo, hyper, **changes), tmp_path)


def test_divergence_of_a_model_that_is_not_trained_last(tiny, launch, tmp_path, monkeypatch):
    """Ditto's common copies diverge, its personal models do not: no such aggregate may be kept."""
    ditto = ALGORITHMS["ditto"]
    phases = ditto.phases

    def uneven(self, round):
        common, personal = phases(self, round)
        return [dataclasses.replace(common, rates=dict.fromkeys(common.rates, 1e6)), personal]

    monkeypatch.setattr(ditto, "phases", uneven)
    with pytest.raises(Diverged, match="round 1 "):
        launch(tiny("ditto", {"lam": 0}), tmp_path)


# Common beginnings


TRUNKED = sorted(
    name for name, method in ALGORITHMS.items() if method.shared_rounds is not Algorithm.shared_rounds
)


@pytest.mark.parametrize("algo", TRUNKED)
def test_sharing_a_beginning_changes_nothing(algo, tiny, ready, launch, trained_rounds, tmp_path):
    """What FedAvg leaves after so many rounds, or else what the method itself has left."""
    config = tiny(algo, {"lg_warm": 2} if algo == "lg-fedavg" else {})
    alone = launch(config, tmp_path / "alone").content()
    shared = next(iter(shared_rounds.shared_rounds_of(ready(config).algorithm)), SharedRounds("fedavg", 0))
    if shared.key == "fedavg":
        launch(tiny("fedavg", rounds=shared.round or 4), tmp_path / "shared")
    else:
        (tmp_path / "shared").mkdir()
        shutil.copytree(tmp_path / "alone" / ".cache", tmp_path / "shared" / ".cache")
    trained_rounds.clear()
    assert launch(config, tmp_path / "shared").content() == alone
    assert min(trained_rounds, default=5) == shared.round + 1


def test_a_shared_beginning_is_trained_once(tiny, launch, trained_rounds, tmp_path):
    launch(tiny("fedavg"), tmp_path)
    assert trained_rounds == [1, 2, 3, 4]
    trained_rounds.clear()
    launch(tiny("fedavg-ft"), tmp_path)
    assert trained_rounds == [5]  # the fine-tuning
    trained_rounds.clear()
    assert launch(tiny("fedavg-ft", {"ft_epochs": 0}), tmp_path).summary["shared_rounds"] == 4
    assert trained_rounds == []


def steps_of_nothing(self, round):
    return []


@pytest.mark.parametrize(
    ("own", "shares"),
    [
        ({}, True),
        ({"adaptation": lambda self: []}, True),
        ({"help_nobody_calls": lambda self: None}, True),
        ({"phases": steps_of_nothing}, False),
        ({"__init__": lambda self, task, hyper: Algorithm.__init__(self, task, hyper)}, False),
        ({"aggregation": "samples"}, False),
        ({"aggregate": lambda self, mean: None}, False),
        (
            {"phases": steps_of_nothing, "shared_rounds": lambda self: [SharedRounds("halved", 2)]},
            True,
        ),  # says so itself
    ],
)
@pytest.mark.parametrize("place", ["subclass", "mixin before", "mixin behind"])
def test_what_trains_otherwise_shares_nothing(own, shares, place, tiny, ready, monkeypatch):
    """A method made from FedAvg must neither take over FedAvg's rounds nor leave FedAvg its own."""
    naming = {"name": "halved", "title": "Halved", "reference": "none"}
    fedavg = ALGORITHMS["fedavg"]
    if place == "subclass":
        halved = type("Halved", (fedavg,), {**naming, **own})
    elif place == "mixin before":
        halved = type("Halved", (type("Own", (Algorithm,), own), fedavg), naming)
    else:  # between FedAvg, which names the beginning, and the base, which has the hooks
        halved = type("Halved", (fedavg, type("Own", (Algorithm,), own)), naming)
        shares = shares and "shared_rounds" not in own
    monkeypatch.setitem(ALGORITHMS, "halved", halved)
    assert bool(shared_rounds.shared_rounds_of(ready(tiny("halved")).algorithm)) == shares


def test_no_registered_method_loses_its_beginning(algo, tiny, ready, play, differing):
    """Unless it trains otherwise than the method from which it inherits it."""
    algorithm = ready(tiny(algo)).algorithm
    if shared_rounds.shared_rounds_of(algorithm) != algorithm.shared_rounds():
        home = next(base for base in type(algorithm).__mro__ if "shared_rounds" in vars(base))
        ours, theirs = play(tiny(algo)).algorithm.server, play(tiny(home.name)).algorithm.server
        assert differing(ours, theirs) == list(theirs)


def test_other_samples_train_their_own_beginning(tiny, launch, trained_rounds, monkeypatch, tmp_path):
    """Pixels that were mended leave the split as it was."""
    shutil.rmtree(launch(tiny("fedavg"), tmp_path).folder)  # beside which no run would be allowed
    trained_rounds.clear()
    mend_pixels(monkeypatch)
    launch(tiny("fedavg-ft"), tmp_path)
    assert trained_rounds == [1, 2, 3, 4, 5]


def test_a_run_does_not_go_on_with_other_samples(tiny, launch, monkeypatch, tmp_path):
    kill(launch, tiny("fedper"), tmp_path, 2)
    mend_pixels(monkeypatch)
    with pytest.raises(UserError, match="the data have changed since"):
        launch(tiny("fedper"), tmp_path)


@pytest.mark.parametrize("text", [None, "{", "[]", "{}", '{"split": "old"}'])
def test_a_checkpoint_without_what_tells_of_its_data_is_left_as_it_is(text, tiny, launch, tmp_path):
    kill(launch, tiny("fedper"), tmp_path, 2)
    folder = record_in(tmp_path)
    path = folder / "config.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(UserError, match=r"its config\.json is missing or damaged"):
        launch(tiny("fedper"), tmp_path)
    assert (folder / "checkpoint.pt").exists()
    assert path.exists() == (text is not None)


def test_a_run_begun_before_samples_were_told_goes_on(tiny, launch, unbroken, tmp_path):
    kill(launch, tiny("fedper"), tmp_path, 2)
    path = record_in(tmp_path) / "config.json"
    about = json.loads(path.read_text())
    del about["split"]["data_checksum"]
    path.write_text(json.dumps(about))
    assert launch(tiny("fedper"), tmp_path).content() == unbroken("fedper").content()


def mend_pixels(monkeypatch):
    load = prepare.datasets.load

    def mended(*words, **options):
        dataset = load(*words, **options)
        train = dataclasses.replace(dataset.train, x=255 - dataset.train.x)
        return dataclasses.replace(dataset, train=train)

    monkeypatch.setattr(prepare.datasets, "load", mended)


@pytest.mark.parametrize("algo", [name for name in TRUNKED if ALGORITHMS[name].Hyper is FineTuning])
def test_fine_tuning_starts_from_the_rounds_there_are(algo, tiny, launch, unbroken, trained_rounds, tmp_path):
    launch(tiny(algo, {"ft_epochs": 1, "ft_part": "head"}), tmp_path)
    trained_rounds.clear()
    again = launch(tiny(algo), tmp_path).content()
    assert trained_rounds == [5]
    assert again == unbroken(algo).content()


@pytest.mark.parametrize(
    "changes", [{"seed": 1}, {"lr": 0.04}, {"rounds": 3}, {"eval_every": 0}, {"aggregation": "samples"}]
)
def test_another_protocol_shares_nothing(changes, tiny, launch, trained_rounds, tmp_path):
    launch(tiny("fedavg"), tmp_path)
    trained_rounds.clear()
    launch(tiny("fedavg-ft", {"ft_epochs": 0}, **changes), tmp_path)
    assert trained_rounds == list(range(1, changes.get("rounds", 4) + 1))


def test_other_code_trains_its_own_beginning(tiny, launch, trained_rounds, as_other_code, tmp_path):
    launch(tiny("fedavg"), tmp_path)
    trained_rounds.clear()
    with as_other_code():
        launch(tiny("fedavg-ft"), tmp_path)
    assert trained_rounds == [1, 2, 3, 4, 5]


def test_rounds_of_two_codes_are_nobodys_beginning(tiny, launch, trained_rounds, as_other_code, tmp_path):
    kill(launch, tiny("fedavg"), tmp_path, 2)
    with as_other_code():
        launch(tiny("fedavg"), tmp_path)
        trained_rounds.clear()
        launch(tiny("fedavg-ft"), tmp_path)
    assert trained_rounds == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("part", ["torch", "numpy", "processor", "cores", "device", "executor"])
def test_another_machine_trains_its_own_beginning(part, tiny, launch, trained_rounds, monkeypatch, tmp_path):
    """Floats may differ there: a run has the same with a common beginning and without."""
    launch(tiny("fedavg"), tmp_path)
    trained_rounds.clear()
    environment = runner.environment
    monkeypatch.setattr(runner, "environment", lambda *of: {**environment(*of), part: "another"})
    summary = launch(tiny("fedavg-ft"), tmp_path).summary
    assert trained_rounds == [1, 2, 3, 4, 5]
    assert summary["shared_rounds"] == 0


@pytest.mark.parametrize("part", ["split", "samples", "tf32"])
def test_a_beginning_belongs_to_its_data_and_precision(part, tiny, tmp_path):
    shared = SharedRounds("fedavg", 2)
    facts = {"split": "one", "samples": "these", "tf32": False}

    def store(facts):
        data = (facts["split"], facts["samples"])
        return SharedRoundsStore(tmp_path, tiny("fedavg"), data, {"tf32": facts["tf32"]})

    store(facts).save(shared, {"weights": torch.ones(1)}, [{"round": 1}])
    assert store(facts).load(shared, torch.device("cpu"))["lines"] == [{"round": 1}]
    assert store({**facts, part: "another"}).load(shared, torch.device("cpu")) is None


def test_a_damaged_beginning_is_trained_again(tiny, launch, unbroken, trained_rounds, tmp_path):
    launch(tiny("fedavg"), tmp_path)
    (shared,) = (tmp_path / ".cache").glob("shared-*.pt")
    shared.write_bytes(b"no tensors in here")
    trained_rounds.clear()
    assert launch(tiny("fedavg-ft"), tmp_path).content() == unbroken("fedavg-ft").content()
    assert trained_rounds[:4] == [1, 2, 3, 4]
    assert torch.load(shared, weights_only=True)["lines"]


@pytest.mark.parametrize("broken", ["cache", "shared rounds"])
def test_beginnings_that_cannot_be_opened_are_no_error(broken, tiny, launch, unbroken, tmp_path, capsys):
    if broken == "cache":
        (tmp_path / ".cache").write_text("no folder")
    else:
        launch(tiny("fedavg"), tmp_path)
        (shared,) = (tmp_path / ".cache").glob("shared-*.pt")
        shared.unlink()
        shared.mkdir()
    assert launch(tiny("fedavg-ft"), tmp_path).content() == unbroken("fedavg-ft").content()
    assert "common rounds are" in capsys.readouterr().err


def test_beginnings_that_nobody_uses_are_deleted(tiny, launch, tmp_path):
    def kept():
        return {path.name for path in (tmp_path / ".cache").glob("shared-*.pt")}

    launch(tiny("fedavg"), tmp_path)
    used = kept()
    launch(tiny("fedavg", seed=1), tmp_path)
    unused = kept() - used
    (tmp_path / ".cache" / ".shared-0.pt.1-2.tmp").write_bytes(b"a killed process left this")
    for name in os.listdir(tmp_path / ".cache"):
        os.utime(tmp_path / ".cache" / name, (time.time() - 31 * 24 * 3600,) * 2)
    launch(tiny("fedavg-ft"), tmp_path)
    assert kept() == used | unused  # nothing has been added
    launch(tiny("fedavg", seed=2), tmp_path)
    assert used < kept()
    assert not unused & kept()
    assert not list((tmp_path / ".cache").glob(".shared-*"))


def test_killed_in_the_beginning_of_a_shared_run(tiny, launch, unbroken, tmp_path):
    kill(launch, tiny("fedavg"), tmp_path, 2)
    launch(tiny("fedavg"), tmp_path)
    assert launch(tiny("fedavg-ft"), tmp_path).content() == unbroken("fedavg-ft").content()
