"""Budgets: equal rounds, or as many rounds as fit into equal bytes or equal samples."""

import dataclasses
import re

import pytest
from costs import cost_of

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.engine import budget
from pfl_benchmark.engine.budget import Plan, plan_rounds, planned_bytes, planned_epochs, planned_samples
from pfl_benchmark.errors import UserError

MEGABYTE = 1_000_000


@pytest.fixture
def plan(ready):
    """The plan of a configuration, and the object that made it."""

    def make(config):
        prepared = ready(config).prepared
        return plan_rounds(config, prepared.make), prepared

    return make


def epochs_allowed(config, schedule):
    ordinary = (config.rounds - 1) * schedule.cohort_size + schedule.clients
    return config.compute_cap * ordinary * config.local_epochs


# Every method


@pytest.mark.parametrize("bytes_", [0, 4 * MEGABYTE, 20 * MEGABYTE])
def test_a_byte_budget_is_used_up_but_never_exceeded(algo, bytes_, tiny, plan):
    config = tiny(algo, budget="bytes", byte_budget=bytes_, rounds=12)
    found, prepared = plan(config)
    method, allowed = prepared.make(found.rounds), epochs_allowed(config, prepared.task.schedule)
    assert found.planned == planned_bytes(method) <= found.limit
    assert found.limit == bytes_ or bytes_ == 0
    assert planned_epochs(method) <= allowed
    more = prepared.make(found.rounds + 1)
    assert (planned_bytes(more) > found.limit) == (found.set_by == "bytes")
    if found.set_by == "compute":
        assert planned_epochs(more) > allowed


@pytest.mark.parametrize("samples", [0, 3000, 9000])
def test_a_sample_budget_is_used_up_but_never_exceeded(algo, samples, tiny, plan):
    found, prepared = plan(tiny(algo, budget="samples", sample_budget=samples, rounds=20))
    method = prepared.make(found.rounds)
    assert found.set_by == "samples"
    assert found.planned == planned_samples(method) <= found.limit
    assert planned_samples(prepared.make(found.rounds + 1)) > found.limit
    assert found.limit == samples or samples == 0


def test_a_run_trains_on_the_samples_that_were_planned(algo, tiny, plan, launch, tmp_path):
    """On clients of different sizes; the samples of fine-tuning and of passes count."""
    config = tiny(
        algo, budget="samples", sample_budget=1200, partition="dirichlet", dirichlet=1.0, eval_every=0
    )
    expected, prepared = plan(config)
    assert len(set(prepared.task.data.train_sizes)) > 1
    run = launch(config, tmp_path)
    spent = run.summary["samples"] + run.summary["adaptation_samples"]
    parts = cost_of(prepared.make(expected.rounds), 2).epochs % 1  # of epochs, rounded for each client
    assert abs(spent - expected.planned) <= bool(parts) * 0.02 * spent
    assert expected.planned <= expected.limit == 1200
    assert run.summary["budget"] == dataclasses.asdict(expected)
    assert len(run.lines) == expected.rounds
    assert run.lines[-1]["participants"] == 6


def test_what_some_rounds_cost_is_a_budget_of_these_rounds(algo, tiny, plan, ready):
    config = tiny(algo, rounds=7)
    method = ready(config).algorithm
    bytes_, samples = planned_bytes(method), planned_samples(method)
    assert plan(dataclasses.replace(config, budget="samples", sample_budget=samples))[0].rounds == 7
    found, _ = plan(dataclasses.replace(config, budget="bytes", byte_budget=bytes_ or 1, compute_cap=50.0))
    assert found.rounds == 7 or found.set_by == "compute"


@pytest.mark.parametrize("algo", ["ditto", "ppfe", "fedavg-ft", "pfedfda"])
@pytest.mark.parametrize("budget", ["bytes", "samples"])
def test_a_budget_sets_nothing_but_the_rounds(algo, budget, tiny, plan, launch, tmp_path):
    """Which is why studies show the run of as many rounds in its place."""
    hyper = {"ft_epochs": 1} if algo == "fedavg-ft" else {}
    config = tiny(algo, hyper, budget=budget, rounds=8, eval_every=1)
    rounds = plan(config)[0].rounds
    assert rounds < 8 or (algo, budget) in (
        ("ditto", "bytes"),
        ("fedavg-ft", "bytes"),
        ("pfedfda", "samples"),
    )
    under, plain = launch(config, tmp_path), launch(tiny(algo, hyper, rounds=rounds, eval_every=1), tmp_path)
    found, expected = under.content(), plain.content()
    assert found["summary"].pop("budget") != expected["summary"].pop("budget")
    assert found == expected


def test_a_budget_of_rounds_is_the_number_of_rounds(algo, tiny, plan):
    found, _ = plan(tiny(algo, rounds=9, byte_budget=1))
    assert found == Plan(9, "rounds")


def test_a_run_costs_what_was_planned_and_learns(algo, tiny, plan, launch, tmp_path):
    """Two of ten classes a client: far above the 10 % of guessing."""
    config = tiny(algo, budget="bytes", rounds=8, local_epochs=3, lr=0.1, compute_cap=1.5, eval_every=0)
    expected, _ = plan(config)
    run = launch(config, tmp_path)
    spent = sum(run.summary[name] for name in ("bytes_up", "bytes_down", "bytes_broadcast"))
    assert spent == expected.planned <= expected.limit
    assert run.summary["budget"] == dataclasses.asdict(expected)
    assert len(run.lines) == run.summary["rounds"] == expected.rounds
    assert run.lines[-1]["participants"] == 6
    assert run.summary["accuracy"] > (0.15 if ALGORITHMS[algo].learns_little else 0.3)


# Particular methods


def test_the_default_budget_is_that_of_sharing_the_whole_model(tiny, plan):
    found, prepared = plan(tiny("fedavg", budget="bytes", rounds=12))
    assert (found.rounds, found.set_by) == (12, "bytes")
    size, rounds = 4 * prepared.task.network.count(), 11 * 3 + 6
    assert found.limit == found.planned == size * (2 * rounds + 6)


@pytest.mark.parametrize("algo", ["local", "lg-fedavg"])
def test_methods_that_send_little_are_capped_by_compute(algo, tiny, plan):
    config = tiny(algo, budget="bytes", rounds=12, compute_cap=3.0)
    found, _ = plan(config)
    assert found.set_by == "compute"
    # 3 · (11 · 3 + 6) participations = (rounds − 1) · 3 + 6
    assert found.rounds == 1 + (3 * (11 * 3 + 6) - 6) // 3 == 38


def test_the_summary_says_what_set_the_rounds(tiny, launch, tmp_path):
    run = launch(tiny("local", budget="bytes", compute_cap=1.0, eval_every=0), tmp_path)
    assert run.summary["budget"]["set_by"] == "compute"
    assert run.summary["budget"]["planned"] == 0
    assert run.summary["rounds"] == 4


def test_twice_the_local_work_is_half_the_rounds_under_a_tight_cap(tiny, plan):
    found, _ = plan(tiny("ditto", budget="bytes", rounds=12, compute_cap=1.0))
    assert found.set_by == "compute"
    assert found.rounds == 1 + ((11 * 3 + 6) // 2 - 6) // 3


def test_a_budget_that_is_too_small_says_what_would_do(tiny, plan):
    one_round = 4 * plan(tiny("fedavg"))[1].task.network.count() * 3 * 6
    with pytest.raises(UserError, match=f"too small.*{one_round:,} bytes; give at least that"):
        plan(tiny("fedavg", budget="bytes", byte_budget=one_round - 1))
    found, _ = plan(tiny("fedavg", budget="bytes", byte_budget=one_round))
    assert found == Plan(1, "bytes", one_round, one_round)


def test_compute_that_does_not_fit_is_not_blamed_on_the_bytes(tiny, plan):
    with pytest.raises(UserError, match="compute"):
        plan(tiny("local", {"total_epochs": 100}, budget="bytes"))


def test_costs_that_do_not_grow_with_the_rounds_end_the_search(tiny, plan, monkeypatch):
    asked, phases = [], ALGORITHMS["local"].phases

    def counted(self, round):
        asked.append(round)
        assert len(asked) < 10_000, "still searching"
        return phases(self, round)

    monkeypatch.setattr(ALGORITHMS["local"], "phases", counted)
    found, _ = plan(tiny("local", {"total_epochs": 5}, budget="bytes"))
    assert found.rounds >= 1


def test_the_default_samples_are_those_of_fedavg(tiny, plan, launch, tmp_path):
    found, _ = plan(tiny("fedavg", budget="samples", rounds=12, local_epochs=2))
    assert found == Plan(12, "samples", limit=1560, planned=1560)  # 20 samples · 2 epochs · (11 · 3 + 6)
    run = launch(tiny("fedavg", budget="samples"), tmp_path / "samples")
    plain = launch(tiny("fedavg"), tmp_path / "rounds")
    assert run.lines == plain.lines
    assert run.summary["samples"] == plain.summary["samples"] == run.summary["budget"]["limit"]


def test_fine_tuning_counts_against_the_samples(tiny, plan):
    """Five epochs of all six clients are ten rounds of three clients."""
    found, _ = plan(tiny("fedavg-ft", {"ft_epochs": 5}, budget="samples", rounds=12))
    assert found.rounds == 12 - 10


def test_samples_that_do_not_grow_with_the_rounds_leave_the_rounds(tiny, plan):
    found, _ = plan(tiny("local", {"total_epochs": 5}, budget="samples", sample_budget=2000, rounds=9))
    assert found == Plan(9, "rounds", limit=2000, planned=600)


@pytest.mark.parametrize("name", ["byte", "sample"])
def test_a_budget_of_more_rounds_than_anybody_trains_is_refused(name, tiny, plan, monkeypatch):
    monkeypatch.setattr(budget, "_MOST", 100)
    values = {"budget": f"{name}s", f"{name}_budget": 10**12, "compute_cap": 100.0}
    with pytest.raises(UserError, match=rf"128 rounds or more.*less.* by --{name}-budget") as caught:
        plan(tiny("fedavg", rounds=50, **values))
    cost = int(re.search(r"which cost ([\d,]+)", str(caught.value))[1].replace(",", ""))
    assert plan(tiny("fedavg", rounds=50, **{**values, f"{name}_budget": cost - 1}))[0].rounds == 127


def test_a_sample_budget_that_is_too_small_says_what_would_do(tiny, plan):
    with pytest.raises(UserError, match=r"--sample-budget 119 is too small.*120 samples; give at least that"):
        plan(tiny("fedavg", budget="samples", sample_budget=119))
    found, _ = plan(tiny("fedavg", budget="samples", sample_budget=120))
    assert found == Plan(1, "samples", 120, 120)


def test_phases_without_layers_cost_no_epochs(tiny, ready, launch, tmp_path):
    """FedRep without a head: two of its three epochs train nothing."""
    config = tiny("fedrep", {"n_personal": 0}, local_epochs=3, rounds=2, eval_every=0)
    planned = planned_epochs(ready(config).algorithm)
    assert planned == 3 + 6
    assert launch(config, tmp_path).summary["samples"] == planned * 20
