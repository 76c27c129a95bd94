"""A last round like any other (``--last-round cohort``), and evaluations of a sample (``--eval-clients``)."""

import dataclasses

import pytest
from stopping import Stop

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.budget import left_out, ordinary_samples, planned_bytes, whole_model_bytes
from pfl_benchmark.engine.rounds import Diverged
from pfl_benchmark.errors import UserError
from pfl_benchmark.resolve.run import resolve

EVALUATED = ("evaluated", "eval_clients", "accuracy", "test_loss", "brier", "ece", "seconds")
SMALL = {"last_round": "cohort", "rounds": 6}


def spent(lines):
    return sum(line[f"bytes_{way}"] for line in lines for way in ("up", "down", "broadcast"))


def trained(line):
    """What a round's line says besides its evaluation and the clock."""
    return {name: value for name, value in line.items() if not name.startswith(EVALUATED)}


# Every method


def test_a_run_costs_what_was_planned_and_a_sample_changes_nothing(algo, tiny, play, differing):
    """Bytes, participants and the end do not depend on who is evaluated on the way; nor do parameters."""
    config = tiny(algo, last_round="cohort")
    lines, sampled = [], []
    plain = play(config, watch=lambda _, line: lines.append(line))
    other = play(dataclasses.replace(config, eval_clients=4), watch=lambda _, line: sampled.append(line))
    algorithm = plain.algorithm
    assert spent(lines) == planned_bytes(algorithm)
    for line in lines:
        assert line["participants"] == (6 if algorithm.kind(line["round"]).full_participation else 3)
    assert lines[-1]["participants"] == 3
    assert list(map(trained, sampled)) == list(map(trained, lines))
    for ours, theirs in zip(other.history, plain.history, strict=True):
        assert differing(ours, theirs) == []
    everyone = list(range(6))
    assert differing(other.algorithm.clients.gather(everyone), algorithm.clients.gather(everyone)) == []
    assert [line.get("eval_clients") for line in sampled] == [None, 4, None, 6]
    assert {**sampled[-1], **dict.fromkeys(("seconds", "seconds_closing", "eval_clients"))} == {
        **lines[-1], **dict.fromkeys(("seconds", "seconds_closing", "eval_clients"))
    }  # fmt: skip


def test_the_sample_is_that_of_the_seed(algo, tiny, ready):
    schedule, common = (ready(tiny(name)).prepared.task.schedule for name in (algo, "fedavg"))
    assert schedule.sample(4) == common.sample(4) == sorted({*common.sample(4)})
    assert len(common.sample(4)) == 4
    assert common.sample(6) == list(range(6))


# Particular methods


@pytest.mark.parametrize("algo", ["fedavg", "fedper", "floco", "feddbe", "lg-fedavg", "ppfe"])
@pytest.mark.parametrize("budget", ["bytes", "samples"])
def test_a_budget_counts_the_last_round_as_it_is(algo, budget, tiny, launch, tmp_path):
    run = launch(tiny(algo, budget=budget, eval_every=0, **SMALL), tmp_path)
    assert run.lines[-1]["participants"] == 3
    found = run.summary["budget"]
    assert found["planned"] <= found["limit"]
    if budget == "bytes":
        assert spent(run.lines) == found["planned"]


@pytest.mark.parametrize("algo", ["fedper", "ppfe"])
def test_killed_and_resumed_equals_unbroken(algo, tiny, launch, tmp_path):
    config = tiny(algo, eval_clients=4, eval_every=1, **SMALL)
    with pytest.raises(KeyboardInterrupt):
        launch(config, tmp_path / "killed", Stop(4))
    resumed = launch(config, tmp_path / "killed")
    assert resumed.summary["resumed"] == 1
    assert resumed.content() == launch(config, tmp_path / "unbroken").content()


@pytest.mark.parametrize("algo", ["ditto", "ppfe"])
@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_executors_agree(algo, executor, tiny, play):
    config = tiny(algo, **SMALL)
    ours, loop = [], []
    play(config, executor, watch=lambda _, line: ours.append(line))
    play(config, watch=lambda _, line: loop.append(line))
    for one, other in zip(ours, loop, strict=True):
        assert {**one, "loss": 0}.keys() == {**other, "loss": 0}.keys()
        assert one["participants"] == other["participants"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
    assert ours[-1]["accuracy"] == pytest.approx(loop[-1]["accuracy"], abs=0.04)


def test_those_that_never_took_part_receive_the_start_at_the_end(tiny, play, ready):
    """FedPer sends its heads in the first round of a client; those left out are evaluated with them, too."""
    config = tiny("fedper", rounds=1, last_round="cohort")
    lines = []
    algorithm = play(config, watch=lambda _, line: lines.append(line)).algorithm
    assert left_out(algorithm, 1) == 3
    names = algorithm.clients.initial
    head = 4 * sum(tensor.numel() for tensor in names.values())
    server = 4 * sum(tensor.numel() for tensor in algorithm.server.values())
    assert lines[0]["bytes_broadcast"] == 6 * server + 3 * head
    assert left_out(ready(tiny("fedper", rounds=1)).algorithm, 1) == 0


def test_what_fedavg_costs_is_the_budget(tiny, ready):
    usual, ordinary = (
        ready(tiny("fedavg", rounds=8, last_round=who)).algorithm for who in ("everyone", "cohort")
    )
    whole = 4 * usual.task.network.count()
    assert whole_model_bytes(usual.task) - whole_model_bytes(ordinary.task) == 3 * 2 * whole
    assert whole_model_bytes(ordinary.task) == planned_bytes(ordinary)
    assert ordinary_samples(usual) - ordinary_samples(ordinary) == 3 * 20


@pytest.mark.parametrize("algo", ["fedavg-ft", "fedbabu"])
def test_fine_tuned_copies_of_a_sample_leave_the_end_as_it_is(algo, tiny, launch, tmp_path):
    config = tiny(algo, eval_adapted=True)
    plain, sampled = launch(config, tmp_path), launch(dataclasses.replace(config, eval_clients=2), tmp_path)
    assert sampled.content()["clients"] == plain.content()["clients"]
    assert sampled.content()["summary"] == plain.content()["summary"]
    assert sampled.lines[1]["eval_clients"] == 2
    assert sampled.lines[1]["accuracy"] != plain.lines[1]["accuracy"]


def test_a_figure_that_is_not_finite_is_told_of_the_client_that_has_it(tiny, play, monkeypatch, ready):
    drawn = ready(tiny("fedavg")).prepared.task.schedule.sample(2)
    scores = Algorithm.scores
    broken = lambda self, *given: [own * float("nan") for own in scores(self, *given)]  # noqa: E731
    monkeypatch.setattr(Algorithm, "scores", broken)
    with pytest.raises(Diverged, match=f"the loss of client {drawn[0]} is not a number in round 2"):
        play(tiny("fedavg", eval_clients=2))


# What cannot be


@pytest.mark.parametrize(
    ("algo", "hyper", "names"),
    [
        ("fedper", {"final_round": "frozen"}, "final_round=frozen"),
        ("fedrep", {"final_round": "frozen"}, "final_round=frozen"),
        ("local", {"total_epochs": 4}, "total_epochs=4"),
        ("floco", {"tau": 1.0}, "tau=1"),
        ("ppfe", {"full_last_only": True}, "full_last_only=true"),
        ("ppfe", {"closing_body": "own"}, "closing_body=own"),
        ("ppfe", {"personal_start": "average"}, "personal_start=average"),
    ],
)
def test_what_needs_everyone_at_the_end_is_refused(algo, hyper, names, tiny):
    resolve(tiny(algo, hyper))
    with pytest.raises(UserError, match=f"^{names}.*--last-round.*cohort") as refused:
        resolve(tiny(algo, hyper, last_round="cohort"))
    assert "\n" not in str(refused.value)


def test_a_method_of_ones_own_that_ends_with_everyone_is_refused(tiny, ready, play, monkeypatch):
    kind = ALGORITHMS["fedavg"].kind
    monkeypatch.setattr(
        ALGORITHMS["fedavg"],
        "kind",
        lambda self, n: dataclasses.replace(kind(self, n), full_participation=n == self.task.rounds),
    )
    with pytest.raises(UserError, match="`kind` has everyone in the last round under --last-round cohort"):
        play(tiny("fedavg", last_round="cohort"))


@pytest.mark.parametrize(
    ("changes", "most"),
    [({"clients": 6}, 6), ({"clients": 10, "new_clients": 0.2}, 8)],
)
def test_more_clients_than_there_are_cannot_be_evaluated(changes, most):
    config = RunConfig(**changes, eval_clients=most + 1)
    with pytest.raises(UserError, match=f"^--eval-clients is {most + 1}, .*at most {most}") as refused:
        config.validate()
    assert "\n" not in str(refused.value)
    RunConfig(**changes, eval_clients=most).validate()


def test_a_sample_of_all_is_no_sample():
    assert RunConfig(eval_clients=100).settled() == RunConfig()
    assert RunConfig(eval_clients=10, eval_every=0).settled() == RunConfig(eval_every=0)
    assert RunConfig(eval_clients=99).settled() != RunConfig()
    assert not {"eval_clients", "last_round"} & RunConfig().to_record().keys()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--eval-clients 21", "--eval-clients is 21, and there are 20 clients; expected at most 20"),
        ("--eval-clients -1", "--eval-clients is -1; expected"),
        ("--eval-clients many", "--eval-clients is 'many'; expected a whole number"),
        ("--eval-clients 5 --eval-every 0", "--eval-clients does nothing under --eval-every 0"),
        ("--last-round nobody", "--last-round is 'nobody'; expected one of: everyone, cohort"),
        ("--algo local --set total_epochs=4 --last-round cohort", "total_epochs=4 trains everyone"),
    ],
)
def test_bad_input_is_one_line(words, told, tmp_path, capsys):
    results = tmp_path / "runs"
    given = words.split() if "--algo" in words else ["--algo", "fedavg", *words.split()]
    assert main([*given, "--setting", "digits-s2", "--results-dir", str(results)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert not results.exists()
