"""The round loop, with every registered method."""

import csv
import dataclasses
import json

import numpy as np
import pytest
import torch
from costs import cost_of

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.dry import Costs
from pfl_benchmark.engine.executors import EXECUTORS, LoopExecutor
from pfl_benchmark.engine.local import Phase
from pfl_benchmark.engine.params import clone, expand
from pfl_benchmark.engine.rounds import mean_weights
from pfl_benchmark.engine.sgd import LocalWork
from pfl_benchmark.errors import UserError

FIRST = 1


def open_round(played, number=FIRST):
    """Start a round of a fresh method; returns its cohort and the local work of that cohort."""
    algorithm = played.algorithm
    algorithm.start_round(number)
    cohort = played.prepared.task.schedule.cohort(number, algorithm.kind(number).full_participation)
    return cohort, algorithm.begin(cohort, algorithm.message(cohort, number), number)


# Common to all methods of a seed


def test_methods_of_a_seed_share_split_initial_model_and_cohorts(algo, tiny, ready, differing):
    ours = ready(tiny(algo)).prepared
    fedavg = ready(tiny("fedavg", adapters=ours.config.adapters)).prepared
    assert ours.split.checksum == fedavg.split.checksum
    common = {name: ours.task.initial[name] for name in fedavg.task.initial}
    assert differing(common, fedavg.task.initial) == []
    for number in range(1, 5):
        for full in (False, True):
            assert ours.task.schedule.cohort(number, full) == fedavg.task.schedule.cohort(number, full)


def test_another_seed_changes_split_initial_model_and_cohorts(tiny, ready, differing):
    a, b = (ready(tiny("fedavg", seed=seed)).prepared for seed in (0, 1))
    assert a.split.checksum != b.split.checksum
    assert differing(a.task.initial, b.task.initial) == list(a.task.initial)
    assert any(a.task.schedule.cohort(n, False) != b.task.schedule.cohort(n, False) for n in range(1, 6))


def test_one_local_epoch_trains_every_layer_of_every_client(algo, tiny, play):
    played = play(tiny(algo, participation=1.0))
    network, initial = played.prepared.task.network, played.prepared.task.initial
    adapted = {layer for phase in played.algorithm.adaptation() for layer in phase.rates}
    for member in played.algorithm.members(range(6)):
        layers = [layer for layer in member.network.names if layer in network.names and layer not in adapted]
        for name in set(member.network.keys(layers)) & set(member.network.trainable) & set(initial):
            if member.params[name].shape[1:] == initial[name].shape:  # not a reduced one
                assert not (member.params[name] == initial[name]).flatten(1).all(1).any(), name


def test_methods_of_a_seed_share_the_batch_order(algo, tiny, ready, monkeypatch):
    seen, epochs = [], LocalWork._epochs

    def watched(self, network, params, phase, *args):
        for x, permutation, start in epochs(self, network, params, phase, *args):
            seen.append((phase.stream, permutation.tolist()))
            yield x, permutation, start

    monkeypatch.setattr(LocalWork, "_epochs", watched)
    played = ready(tiny(algo, local_epochs=2))
    cohort, call = open_round(played)
    for position, client in enumerate(cohort):
        seen.clear()
        played.prepared.task.executor._work.train(call, position)
        main = [permutation for stream, permutation in seen if stream == "batches-main"]
        stream = played.prepared.task.streams.get("batches-main", FIRST, client)
        assert main, "every method trains in the first round"
        assert main == [stream.permutation(20).tolist() for _ in main]


# Participation


def test_everyone_takes_part_where_a_stage_closes(algo, tiny, ready, unbroken):
    algorithm, lines = ready(tiny(algo)).algorithm, unbroken(algo).lines
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        assert line["participants"] == (6 if algorithm.kind(line["round"]).full_participation else 3)
        assert line["stage"] == algorithm.kind(line["round"]).stage
    assert lines[-1]["participants"] == 6


def test_clients_that_were_not_sampled_keep_their_state(algo, tiny, ready, play, monkeypatch, differing):
    checked = []

    def watch(method):
        keep = method.keep

        def watched(self, outcome):
            others = [client for client in range(6) if client not in outcome.clients]
            before = self.clients.gather(others)
            keep(self, outcome)
            assert differing(self.clients.gather(others), before) == []
            checked.append(len(others))

        monkeypatch.setattr(method, "keep", watched)

    watch(ALGORITHMS[algo])
    stages = ready(tiny(algo)).algorithm.kind(4).stage
    rounds = 3 * stages  # an ordinary one in each stage, also where a method's first one takes everyone
    played = play(tiny(algo, rounds=rounds, eval_every=0)).algorithm
    ordinary = [number for number in range(1, rounds + 1) if not played.kind(number).full_participation]
    assert checked.count(3) == len(ordinary) >= stages


def test_what_a_participant_keeps_is_what_it_trained(algo, tiny, ready, differing):
    played = ready(tiny(algo))
    cohort, call = open_round(played)
    outcome = played.prepared.task.executor.train(call)
    played.algorithm.upload(outcome)
    played.algorithm.keep(outcome)
    if not played.algorithm.keeps_trained:
        pytest.skip("what it keeps is neither trained nor found")
    kept = played.algorithm.clients.gather(cohort)
    trained = [own for own in (*outcome.models.values(), outcome.found) if kept.keys() <= own.keys()]
    assert any(differing(kept, {name: model[name] for name in kept}) == [] for model in trained)


# Local work


def test_layers_outside_the_phases_are_bit_equal(algo, tiny, ready, differing):
    played = ready(tiny(algo))
    _, call = open_round(played)
    before = {slot: clone(model.params) for slot, model in call.models.items()}
    outcome = played.prepared.task.executor.train(call)
    for slot in call.models:
        rates = {
            layer: rate
            for phase in call.phases
            if phase.model == slot and phase.epochs
            for layer, rate in phase.rates.items()
        }
        trained = {layer for layer, rate in rates.items() if rate > 0}
        assert {name.split(".")[0] for name in differing(outcome.models[slot], before[slot])} == trained


def test_the_server_does_not_move_while_clients_train(algo, tiny, ready, differing):
    played = ready(tiny(algo))
    _, call = open_round(played)
    before = clone(played.algorithm.server)
    outcome = played.prepared.task.executor.train(call)
    played.algorithm.upload(outcome)
    played.algorithm.keep(outcome)
    assert differing(played.algorithm.server, before) == []


def test_aggregating_one_model_returns_it(algo, tiny, ready, differing):
    """Uploads that are all equal to what was sent leave the server as it was, whatever the weights."""
    played = ready(tiny(algo, partition="dirichlet", dirichlet=1.0, aggregation="samples"))
    algorithm = played.algorithm
    if not algorithm.averages:
        pytest.skip("its uploads are not what it sends")
    algorithm.start_round(FIRST)
    cohort = [0, 2, 3]
    sent, aggregator = clone(algorithm.message(cohort, FIRST).common), algorithm.aggregator()
    aggregator.add(cohort, expand(sent, len(cohort)), mean_weights(algorithm, cohort))
    algorithm.aggregate(aggregator.value())
    assert differing(algorithm.message(cohort, FIRST).common, sent) == []


# Weights of the mean


@pytest.mark.parametrize("rule", ["uniform", "samples", "method"])
def test_weights_of_the_mean(algo, rule, tiny, ready):
    config = tiny(algo, partition="dirichlet", dirichlet=0.3, aggregation=rule)
    played = ready(config)
    sizes = played.prepared.split.train_sizes.tolist()
    assert len(set(sizes)) > 1
    chosen = ALGORITHMS[algo].aggregation if rule == "method" else rule
    weights = mean_weights(played.algorithm, [4, 1, 0]).tolist()
    assert weights == ([sizes[4], sizes[1], sizes[0]] if chosen == "samples" else [1, 1, 1])


# Costs


def test_the_ledger_is_what_a_dry_participation_costs(algo, tiny, ready, unbroken):
    played = ready(tiny(algo))
    algorithm, schedule = played.algorithm, played.prepared.task.schedule
    met = {}
    for line in unbroken(algo).lines:
        number = line["round"]
        traffic = cost_of(algorithm, number)
        cohort = set(schedule.cohort(number, algorithm.kind(number).full_participation))
        before = met.setdefault(algorithm.kind(number).stage, set())
        assert line["bytes_down"] == len(cohort) * traffic.down + len(cohort - before) * traffic.first
        before |= cohort
        assert line["bytes_up"] == line["participants"] * traffic.up
        assert line["bytes_broadcast"] == 6 * traffic.closing
        assert traffic.closing == 0 or algorithm.kind(number).closing


def test_compute_is_what_the_phases_say(algo, tiny, ready, unbroken):
    algorithm = ready(tiny(algo)).algorithm
    for line in unbroken(algo).lines:
        phases, epochs = algorithm.phases(line["round"]), cost_of(algorithm, line["round"]).epochs
        assert epochs >= sum(phase.epochs * phase.passes for phase in phases)
        assert line["samples"] == line["participants"] * epochs * 20
        steps = sum(phase.epochs * -(-20 // (8 * phase.batches)) for phase in phases)
        assert line["steps"] == line["participants"] * steps
    adapting = Costs().evaluation(algorithm)
    assert [line["adaptation_samples"] for line in unbroken(algo).lines] == [0, 0, 0, 6 * 20 * adapting]


@pytest.mark.parametrize(
    ("hook", "value", "problem"),
    [
        ("shared_layers", ("nope",), "'fedavg' shares or keeps a layer 'nope'; expected a tuple of"),
        ("shared_layers", "fc1", "shares or keeps a layer 'f'"),
        ("personal_layers", ("fc9",), "shares or keeps a layer 'fc9'"),
        ("phases", [Phase({"Conv1": 0.1}, 1)], "a phase has a rate for 'Conv1'; the model has conv1, "),
        ("phases", [Phase({"conv1": 0.1}, 1, model="own")], r"a phase trains 'own'; .* are \['model'\]"),
        ("phases", None, "`phases` gives None; expected a list of `Phase`"),
        ("phases", Phase({"conv1": 0.1}, 1), "expected a list of `Phase`"),
    ],
)
def test_mistakes_of_a_method_are_told(hook, value, problem, tiny, play, monkeypatch):
    monkeypatch.setattr(ALGORITHMS["fedavg"], hook, lambda self, *round: value)
    with pytest.raises(UserError, match=problem):
        play(tiny("fedavg"))


def test_totals_of_the_summary_are_sums_of_the_rounds(algo, unbroken):
    run = unbroken(algo)
    for name in ("bytes_up", "bytes_down", "bytes_broadcast", "samples", "steps", "adaptation_samples"):
        assert run.summary[name] == sum(line[name] for line in run.lines)
    assert run.summary["rounds"] == 4
    assert run.summary["budget"]["set_by"] == "rounds"


# Evaluation


def test_evaluations_are_where_they_are_due(algo, unbroken):
    run = unbroken(algo)
    assert [line["round"] for line in run.lines if "accuracy" in line] == [2, 4]
    for name in ("accuracy", "accuracy_unweighted", "accuracy_worst10", "accuracy_std", "evaluated"):
        assert run.lines[-1][name] == run.summary[name]
    assert run.summary["evaluated"] in ("global", "personal")


def test_evaluations_on_the_way_change_nothing(algo, tiny, launch, unbroken, tmp_path):
    silent = launch(tiny(algo, eval_every=0), tmp_path)
    assert [line["round"] for line in silent.lines if "accuracy" in line] == [4]
    clients = (silent.folder / "clients.csv").read_text()
    assert clients == (unbroken(algo).folder / "clients.csv").read_text()


ADAPTING = ("fedavg-ft", "fedbabu", "per-fedavg")


@pytest.mark.parametrize("algo", ADAPTING)
def test_adapted_evaluations_on_the_way_cost_and_change_nothing(algo, tiny, launch, unbroken, tmp_path):
    plain, adapted = unbroken(algo), launch(tiny(algo, eval_adapted=True), tmp_path)
    for one, other in zip(plain.lines, adapted.lines, strict=True):
        scores = [
            name for name in one if name.startswith(("accuracy", "ece", "brier", "test_loss", "evaluated"))
        ]
        assert {k: v for k, v in one.items() if k not in scores} == {
            k: v for k, v in other.items() if k not in scores
        }
    assert plain.content()["clients"] == adapted.content()["clients"]
    assert plain.content()["summary"] == adapted.content()["summary"]
    before, after = plain.lines[1], adapted.lines[1]
    assert (before["evaluated"], after["evaluated"]) == ("global", "personal")
    assert after["test_loss"] < before["test_loss"]


@pytest.mark.parametrize("algo", ADAPTING)
def test_an_evaluation_on_the_way_is_that_of_a_run_which_ends_there(algo, tiny, launch, tmp_path):
    """But for the last round, in which everyone takes part: here everyone always does."""
    config = tiny(algo, participation=1.0, eval_adapted=True)
    longer, shorter = launch(config, tmp_path), launch(dataclasses.replace(config, rounds=2), tmp_path)
    assert longer.lines[1]["accuracy"] == shorter.lines[1]["accuracy"] == shorter.summary["accuracy"]


def test_lines_of_adapted_models_are_not_shared(tiny, launch, trained_rounds, tmp_path):
    """FedAvg's rounds serve FedAvg+FT, whose lines would tell FedAvg's accuracy on the way."""
    launch(tiny("fedavg"), tmp_path)
    done = len(trained_rounds)
    run = launch(tiny("fedavg-ft", eval_adapted=True), tmp_path)
    assert len(trained_rounds) > done + 4
    assert run.summary["shared_rounds"] == 0
    assert run.lines[1]["evaluated"] == "personal"
    assert launch(tiny("fedavg-ft"), tmp_path).summary["shared_rounds"] == 4


def test_the_headline_is_the_mean_of_the_clients_table(algo, unbroken):
    run = unbroken(algo)
    with (run.folder / "clients.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["client"]) for row in rows] == list(range(6))
    correct, total = (sum(int(row[name]) for row in rows) for name in ("correct", "test_samples"))
    assert run.summary["accuracy"] == pytest.approx(correct / total, abs=1e-6)
    accuracies = [float(row["accuracy"]) for row in rows]
    assert run.summary["accuracy_unweighted"] == pytest.approx(np.mean(accuracies), abs=1e-5)
    assert run.summary["accuracy_worst10"] == pytest.approx(min(accuracies), abs=1e-6)


# Executors


OTHERS = sorted(set(EXECUTORS) - {"loop"})


@pytest.mark.parametrize("executor", OTHERS)
def test_executors_equal_loop(executor, algo, able, unbroken):
    """Equal up to the order of float sums, which may flip a prediction that is nearly a tie."""
    able(executor)
    loop, other = unbroken(algo), unbroken(algo, executor)
    for a, b in zip(loop.lines, other.lines, strict=True):
        assert {k: v for k, v in a.items() if isinstance(v, (int, str))} == {
            k: v for k, v in b.items() if isinstance(v, (int, str))
        }
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-3, abs=1e-4)
    ours, theirs = (
        np.loadtxt(run.folder / "clients.csv", delimiter=",", skiprows=1) for run in (loop, other)
    )
    np.testing.assert_allclose(ours[:, 4], theirs[:, 4], rtol=1e-3, atol=1e-3)
    assert abs(ours[:, 2] - theirs[:, 2]).max() <= 1


@pytest.mark.parametrize("executor", OTHERS)
def test_executors_train_the_same_models(executor, algo, able, tiny, ready):
    able(executor)
    outcomes = []
    for name in ("loop", executor):
        played = ready(tiny(algo, partition="dirichlet", dirichlet=0.5), name)  # uneven clients
        _, call = open_round(played)
        outcomes.append(played.prepared.task.executor.train(call))
        played.prepared.task.executor.close()
    loop, other = outcomes
    assert (loop.samples, loop.steps, loop.clients) == (other.samples, other.steps, other.clients)
    torch.testing.assert_close(loop.models, other.models, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loop.loss, other.loss, rtol=1e-4, atol=1e-5)


# Lines


def test_lines_hold_what_scripts_rely_on(algo, unbroken):
    for text in (unbroken(algo).folder / "rounds.jsonl").read_text().splitlines():
        line = json.loads(text)
        assert {
            "round", "stage", "participants", "bytes_up", "bytes_down", "samples", "seconds",
        } <= line.keys()  # fmt: skip


def test_the_base_class_by_itself_is_fedavg(tiny, ready):
    task = ready(tiny("fedavg")).prepared.task
    base = Algorithm(task, None)
    assert base.shared_layers() == task.network.names
    assert base.personal_layers() == ()
    assert base.phases(1) == [Phase.of(task.network.names, 0.05, 1)]
    assert base.adaptation() == []


def test_the_recorded_loss_does_not_depend_on_chunks(tiny, launch, tmp_path, monkeypatch):
    """A large loss does not swallow the others, as it would in a float32 sum over a chunk."""
    train = LoopExecutor.train

    def uneven(self, call):
        outcome = train(self, call)
        outcome.loss = torch.tensor([2.0**24 if client == 0 else 1.0 for client in outcome.clients])
        return outcome

    monkeypatch.setattr(LoopExecutor, "train", uneven)
    (line,) = launch(tiny("fedavg", rounds=1), tmp_path).lines
    assert line["loss"] == pytest.approx((2.0**24 + 5) / 6, abs=1e-6)
