"""Clients that take no part in training: untouched until the end, and what they begin with is counted."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from answers import refused
from record_folders import amend
from stopping import Stop

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.algorithms.ppfe.ensemble import ensemble_weights
from pfl_benchmark.cli import main
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.dry import Costs
from pfl_benchmark.engine.executors import EXECUTORS, LoopExecutor
from pfl_benchmark.engine.params import clone
from pfl_benchmark.errors import NotDefined
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.records.record import BadRecord, read_record
from pfl_benchmark.resolve.run import resolve

ABLE = sorted(name for name, method in ALGORITHMS.items() if not method.no_newcomers)
NEW = {"clients": 8, "new_clients": 0.25, "adapt_epochs": 2}  # six clients train, as in the tiny federation


@pytest.fixture(scope="module")
def begun(tiny, launch, tmp_path_factory):
    """``begun("ditto", "threads")``: a finished run with two new clients, made once."""
    made = {}

    def get(algo, executor="loop"):
        if (algo, executor) not in made:
            root = tmp_path_factory.mktemp("begun")
            made[algo, executor] = launch(tiny(algo, **NEW), root, executor=executor)
        return made[algo, executor]

    return get


def rows(run):
    return np.loadtxt(run.folder / "clients.csv", delimiter=",", skiprows=1)


# Every method


@pytest.mark.parametrize("algo", ABLE)
def test_new_clients_are_not_reached_before_the_end(algo, tiny, ready, play, monkeypatch):
    """Nothing of them can be, since their samples are not in the data; and nothing is asked for."""
    admitted, trained, before, after = [], [], set(), set()
    admit, train, forward = FederatedData.admit, LoopExecutor.train, LoopExecutor.forward

    def opened(self):
        with pytest.raises(IndexError):
            self.rows(6)
        admitted.append(True)
        admit(self)

    def trains(self, call):
        (after if admitted else before).update(call.clients)
        trained.append(call)
        return train(self, call)

    def passes(self, network, params, clients, *rest, **more):
        (after if admitted else before).update(clients)
        return forward(self, network, params, clients, *rest, **more)

    monkeypatch.setattr(FederatedData, "admit", opened)
    monkeypatch.setattr(LoopExecutor, "train", trains)
    monkeypatch.setattr(LoopExecutor, "forward", passes)
    played = play(tiny(algo, **NEW))
    assert admitted == [True]
    assert before == set(range(6))
    assert after == {6, 7}
    assert played.algorithm.task.data.newcomers == range(6, 8)


@pytest.mark.parametrize("algo", ABLE)
def test_the_others_fare_as_without_them(algo, begun, tiny, launch, monkeypatch, tmp_path):
    """The run of the clients that train is that of a federation of them alone."""
    run = begun(algo)

    def alone(resolved, execution, dataset=None, prepare=prepare):
        """The same split without the new clients."""
        many = dataclasses.replace(resolved.config, clients=8, new_clients=0.25)
        found = prepare(resolve(many), execution, dataset)
        split = datasets.Split(found.split.train[:6], found.split.test[:6])
        monkeypatch.setattr("pfl_benchmark.experiment.prepare._split", lambda config, dataset: split)
        return prepare(resolved, execution, dataset)

    monkeypatch.setattr("pfl_benchmark.experiment.runner.prepare", alone)
    other = launch(tiny(algo), tmp_path)
    assert run.lines == other.lines
    assert (rows(run)[:6] == rows(other)).all()
    assert {k: v for k, v in run.content()["summary"].items() if k != "new_clients"} == other.content()[
        "summary"
    ]


@pytest.mark.parametrize("algo", ABLE)
def test_what_they_cost_is_bounded_and_counted(algo, tiny, play, monkeypatch):
    calls, admitted, train, admit = [], [], LoopExecutor.train, FederatedData.admit
    monkeypatch.setattr(FederatedData, "admit", lambda self: (admitted.append(True), admit(self)))

    def trains(self, call):
        outcome = train(self, call)
        if admitted:
            calls.append((call, outcome))
        return outcome

    monkeypatch.setattr(LoopExecutor, "train", trains)
    played = play(tiny(algo, **NEW))
    new = played.summary["new_clients"]
    epochs = sum(phase.epochs for call, _ in calls for phase in call.phases if phase.rates)
    assert epochs <= 2
    trained = sum(outcome.samples for _, outcome in calls)
    metered = new["samples"] - trained
    most = max(Costs().evaluation(played.algorithm), 10) if metered else 0
    assert 0 <= metered <= most * 2 * 20
    assert new["clients"] == 2
    whole = sum(t.nbytes for t in played.prepared.task.initial.values())
    assert 0 <= new["bytes_down"] <= 2 * 10 * whole
    assert new["bytes_down"] % 2 == 0
    assert (new["bytes_down"] > 0) == bool(
        played.algorithm.server or played.algorithm.message([0], 5).per_client
    )


@pytest.mark.parametrize(
    ("algo", "models", "samples"),
    [
        ("fedavg", 1, 0),
        ("fedper", 1, 2),  # with the head that everybody begins with
        ("ditto", 1, 2),
        ("feddpa", 1, 2),
        ("local", 0, 2),  # θ_0 is known
        ("ppfe", None, 2),
        ("ifca", 2, 2),  # passes through both models choose
        ("fedem", 3, 3),  # passes through three models, to weigh them
    ],
)
def test_what_they_receive_and_train_on(algo, models, samples, begun, tiny, ready):
    """Models, each once, and passes over their 20 samples."""
    new = begun(algo).summary["new_clients"]
    whole = sum(t.nbytes for t in ready(tiny(algo)).prepared.task.initial.values())
    assert models is None or new["bytes_down"] == 2 * models * whole
    assert new["samples"] == 2 * 20 * samples


@pytest.mark.parametrize("algo", ABLE)
def test_what_the_server_and_others_hold_stays(algo, tiny, play, differing, monkeypatch):
    seen, held, admit = [], [], FederatedData.admit

    def opened(self):
        algorithm = seen[-1]
        held.append((clone(algorithm.server), algorithm.clients.gather(range(6))))
        admit(self)

    monkeypatch.setattr(FederatedData, "admit", opened)
    algorithm = play(tiny(algo, **NEW), watch=lambda algorithm, line: seen.append(algorithm)).algorithm
    ((server, clients),) = held
    assert differing(server, algorithm.server) == []
    assert differing(clients, algorithm.clients.gather(range(6))) == []


OTHERS = sorted(set(EXECUTORS) - {"loop"})


@pytest.mark.parametrize("executor", OTHERS)
@pytest.mark.parametrize("algo", ABLE)
def test_executors_agree_on_new_clients(executor, algo, able, begun):
    able(executor)
    loop, other = begun(algo), begun(algo, executor)
    one, two = loop.summary["new_clients"], other.summary["new_clients"]
    assert {k: v for k, v in one.items() if isinstance(v, int)} == {
        k: v for k, v in two.items() if isinstance(v, int)
    }
    np.testing.assert_allclose(rows(loop)[:, 4], rows(other)[:, 4], rtol=1e-3, atol=1e-3)
    assert abs(rows(loop)[:, 2] - rows(other)[:, 2]).max() <= 1


@pytest.mark.parametrize("algo", ABLE)
def test_a_run_that_is_killed_begins_them_alike(algo, begun, tiny, launch, tmp_path):
    config = tiny(algo, **NEW)
    with pytest.raises(KeyboardInterrupt):
        launch(config, tmp_path, Stop(3))
    again = launch(config, tmp_path)
    assert again.summary["resumed"] == 1
    assert again.content() == begun(algo).content()


def test_methods_in_which_they_cannot_begin_say_so(algo, tiny):
    config = tiny(algo, **NEW)
    if algo in ABLE:
        resolve(config)
    else:
        with pytest.raises(NotDefined, match=f"--new-clients: clients cannot begin later with '{algo}', "):
            resolve(config)


# Particular methods


@pytest.mark.parametrize(
    ("algo", "layers"),
    [("fedper", {"fc3"}), ("fedrep", {"fc3"}), ("lg-fedavg", {"conv1", "conv2", "fc1"}), ("fedavg", set())],
)
def test_new_clients_train_what_is_personal(algo, layers, tiny, play, monkeypatch):
    calls, train = [], LoopExecutor.train

    def trains(self, call):
        calls.append(call)
        return train(self, call)

    monkeypatch.setattr(LoopExecutor, "train", trains)
    algorithm = play(tiny(algo, **NEW)).algorithm
    (phases,) = [call.phases for call in calls if 6 in call.clients] or [[]]
    names = {*algorithm.personal_layers()}
    assert {name for phase in phases for name in phase.rates} == names
    assert bool(names) == bool(layers)
    assert [phase.epochs for phase in phases] == ([2] if layers else [])
    shared = algorithm.shared_tensors()
    (member,) = algorithm.members([6])
    for name in shared:
        assert torch.equal(member.params[name][0], algorithm.server[name])


def test_fine_tuning_is_cut(tiny, play):
    """Five epochs of its own, two allowed; and with three of its own, three of five."""
    cut = play(tiny("fedavg-ft", {"ft_epochs": 5}, **NEW)).summary["new_clients"]
    assert cut["samples"] == 2 * 20 * 2
    whole = play(tiny("fedavg-ft", {"ft_epochs": 3}, **{**NEW, "adapt_epochs": 5})).summary["new_clients"]
    assert whole["samples"] == 2 * 20 * 3


def test_without_epochs_they_are_evaluated_as_they_come(tiny, play):
    for algo in ("fedper", "ditto", "ppfe", "fedavg-ft"):
        assert play(tiny(algo, **{**NEW, "adapt_epochs": 0})).summary["new_clients"]["samples"] == 0


def test_a_new_client_of_ditto_begins_as_the_global_model(tiny, play):
    algorithm = play(tiny("ditto", **{**NEW, "adapt_epochs": 0})).algorithm
    (member,) = algorithm.members([6])
    for name, tensor in algorithm.server.items():
        assert torch.equal(member.params[name][0], tensor)


def test_a_new_client_of_ppfe_has_its_own_weights(tiny, play):
    algorithm = play(tiny("ppfe", {"beta_neg": True}, **NEW)).algorithm
    members = algorithm.members([6, 7])
    assert len(members) == 4
    betas = algorithm._betas([6, 7])
    assert (betas[0] != betas[1]).any()
    weights = ensemble_weights([*betas.T])
    for member, column in zip(members, weights.T, strict=True):
        torch.testing.assert_close(member.weights.cpu(), column)


@pytest.mark.parametrize(
    "hyper",
    [
        {"fc_init": "prev"},
        {"rw_target": "ensemble"},
        {"personal_start": "average"},
        {"rw_apply": "resample"},
        {"beta_data": "holdout20"},
        {"ensemble": "last"},
        {"T": 1},
    ],
)
def test_every_reading_of_ppfe_takes_new_clients(hyper, tiny, play):
    if hyper == {"T": 1}:
        hyper = {"T": 1, "reweight": False}
    new = play(tiny("ppfe", hyper, **NEW)).summary["new_clients"]
    assert 0 <= new["samples"] <= 2 * 20 * 2


# Records


def test_who_is_new_depends_on_the_seed_alone(tiny, launch, tmp_path):
    found = {}
    for algo, seed in (("fedavg", 0), ("local", 0), ("fedavg", 1), ("fedavg", 2)):
        run = launch(tiny(algo, seed=seed, **NEW), tmp_path)
        split = json.loads((run.folder / "config.json").read_text())["split"]
        found[algo, seed] = (split["new_clients"], split["checksum"])
    assert found["fedavg", 0] == found["local", 0]
    assert len({tuple(new) for new, _ in found.values()}) > 1
    more = launch(tiny("fedavg", **{**NEW, "new_clients": 0.5}), tmp_path)
    split = json.loads((more.folder / "config.json").read_text())["split"]
    assert set(found["fedavg", 0][0]) < set(split["new_clients"])
    assert split["checksum"] != found["fedavg", 0][1]


def test_old_and_new_are_read_apart(begun):
    record = read_record(begun("fedper").folder)
    assert (len(record.accuracies), len(record.newcomers.total)) == (6, 2)
    correct = rows(begun("fedper"))[6:, 2].sum()
    assert record.summary["new_clients"]["accuracy"] == pytest.approx(correct / 20, abs=1e-6)
    assert record.summary["accuracy"] == record.rounds[-1]["accuracy"]


@pytest.mark.parametrize(
    "change",
    [
        lambda summary: summary["new_clients"].update(accuracy=0.123),
        lambda summary: summary["new_clients"].update(clients=3),
        lambda summary: summary["new_clients"].pop("samples"),
        lambda summary: summary["new_clients"].update(bytes_down=-1),
        lambda summary: summary.pop("new_clients"),
    ],
)
def test_records_that_contradict_themselves_are_not_used(change, tiny, launch, tmp_path):
    run = launch(tiny("fedavg", **NEW, rounds=1), tmp_path)
    amend(run.folder / "summary.json", change)
    with pytest.raises(BadRecord, match="new_clients"):
        read_record(run.folder)


def test_verify_compares_new_clients(tiny, launch, tmp_path, capsys):
    run = launch(tiny("fedper", **NEW), tmp_path)
    assert main(["verify", str(run.folder), "--all", "--executor", "loop"]) == 0
    amend(run.folder / "summary.json", lambda summary: summary["new_clients"].update(samples=99))
    with pytest.raises(SystemExit):
        main(["verify", str(run.folder), "--all", "--executor", "loop"])
    assert "new_clients.samples: 99 recorded" in capsys.readouterr().out


def test_everyone_new_counts_in_a_held_out_split(tiny, ready):
    prepared = ready(tiny("fedavg", **NEW, validation=0.2)).prepared
    assert (prepared.task.data.clients, prepared.split.new) == (6, 2)


def test_the_command_shows_both(tmp_path, capsys):
    words = "--algo fedper --dataset digits --rounds 2 --local-epochs 1 --new-clients 0.2 --adapt-epochs 1"
    assert main([*words.split(), "--results-dir", str(tmp_path)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("new clients"))
    assert "4 clients that took no part in training" in line
    words = "--algo fedper --dataset digits --adapt-epochs 1"
    code = main([*words.split(), "--results-dir", str(tmp_path)])
    refused((code, *capsys.readouterr()), "--adapt-epochs", "--new-clients")
