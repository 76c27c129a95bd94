"""The plan of stages, and what every stage sends."""

import dataclasses
import itertools

import pytest
from costs import cost_of

from pfl_benchmark.algorithms.ppfe.hyper import ABLATIONS, PPFEHyper
from pfl_benchmark.algorithms.ppfe.stages import check_stages, divide_rounds, least_rounds, plan_stages
from pfl_benchmark.engine.budget import plan_rounds, planned_bytes
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import NETWORKS

PAPER = (30, 50, 40, 40)
PROPORTIONS = [PAPER, PAPER[:3], PAPER[:2], PAPER[:1], (30, 130), (10, 20, 10, 10), (1, 9, 9, 9), (7, 1, 3)]

per_proportions = pytest.mark.parametrize("proportions", PROPORTIONS, ids=str)


# Rounds of stages


@per_proportions
def test_rounds_are_divided_in_proportion(proportions):
    whole = sum(proportions)
    assert divide_rounds(whole, proportions) == list(proportions)
    assert divide_rounds(3 * whole, proportions) == [3 * part for part in proportions]
    for total in range(1, 2 * whole):
        counts = divide_rounds(total, proportions)
        assert sum(counts) == total
        for count, part in zip(counts, proportions, strict=True):
            assert abs(count - total * part / whole) < 1


@per_proportions
def test_no_stage_is_empty_from_the_least_number_of_rounds_on(proportions):
    least = least_rounds(proportions)
    assert all(0 not in divide_rounds(n, proportions) for n in range(least, 3 * sum(proportions)))
    assert least == len(proportions) or 0 in divide_rounds(least - 1, proportions)


def test_stages_of_the_paper():
    stages = plan_stages(NETWORKS["cifar10"], 160, PPFEHyper())
    assert [(s.number, s.first, s.last, s.personal, s.body_rate) for s in stages] == [
        (1, 1, 30, (), 1.0),
        (2, 31, 80, ("fc3",), 1.0),
        (3, 81, 120, ("fc2", "fc3"), 0.1),
        (4, 121, 160, ("fc1", "fc2", "fc3"), 0.1),
    ]


@pytest.mark.parametrize("ablation", [None, *ABLATIONS])
@pytest.mark.parametrize("rounds", [4, 7, 8, 40, 160, 161])
def test_stages_follow_each_other_without_a_gap(ablation, rounds):
    hyper = PPFEHyper(**ABLATIONS[ablation] if ablation else {})
    network = NETWORKS["digits"]
    check_stages(network, rounds, hyper)
    stages = plan_stages(network, rounds, hyper)
    assert [s.number for s in stages] == list(range(1, hyper.T + 1))
    assert stages[0].first == 1
    assert stages[-1].last == rounds
    assert all(s.first <= s.last for s in stages)
    assert all(b.first == a.last + 1 for a, b in itertools.pairwise(stages))
    for a, b in itertools.pairwise(stages):
        assert set(a.personal) <= set(b.personal)
        assert b.personal == network.names[len(network.names) - len(b.personal) :]


def test_the_run_tells_its_stages(staged, ready):
    notes = ready(staged(rounds=20)).algorithm.notes
    assert len(notes) == 4
    for note, rounds in zip(notes, ("1-4", "5-10", "11-15", "16-20"), strict=True):
        assert f"rounds {rounds}," in note
    assert "personal fc2, fc3;" in notes[2]


def test_the_run_tells_its_masks(staged, ready):
    played = ready(staged({}, "sparse"))
    told = [note for note in played.algorithm.notes if note.startswith("mask")]
    assert sorted(told) == [
        "mask: 4,096 of 8,192 entries of fc1.weight stay 0 while it is personal",
        "mask: 819 of 2,048 entries of fc2.weight stay 0 while it is personal",
        "mask: 96 of 320 entries of fc3.weight stay 0 while it is personal",
    ]


@pytest.mark.parametrize("rounds", [4, 9])
def test_stages_and_their_ends_by_round(rounds, staged, ready):
    algorithm = ready(staged(rounds=rounds)).algorithm
    found = [algorithm.kind(r).stage for r in range(1, rounds + 1)]
    assert found == sorted(found)
    ends = [r for r in range(1, rounds + 1) if algorithm.kind(r).closing]
    assert ends == [r for r in range(1, rounds + 1) if r == rounds or found[r - 1] != found[r]]


# Traffic

FLOATS = {
    "cifar10": (307_842, 307_192, 279_448, 107_328),
    "cifar100": (1_075_044, 1_062_144, 901_248, 209_792),
    "emnist": (245_274, 243_584, 219_456, 104_128),
}


@pytest.mark.parametrize("name", FLOATS)
def test_traffic_of_the_paper_is_the_table_of_the_specification(name, made_data, ready, tiny):
    made_data(name)
    changes = {"dataset": name, "partition": "iid", "samples_per_client": 4, "rounds": 160}
    algorithm = ready(tiny("ppfe", clients=4, test_samples_per_client=4, **changes)).algorithm
    for stage, floats in zip(algorithm.stages, FLOATS[name], strict=True):
        for round in (stage.first, stage.last):
            assert cost_of(algorithm, round).up == cost_of(algorithm, round).down == 4 * floats
    sent = sum((100 if algorithm.kind(r).closing else 10) * cost_of(algorithm, r).up for r in range(1, 161))
    total = {"cifar10": "1.963", "cifar100": "6.361", "emnist": "1.592"}[name]
    assert f"{sent / 1e9:.3f}" == total


def test_what_cifar100_clients_transmit_in_a_real_run(made_data, tiny, launch, tmp_path):
    whole = 4 * made_data("cifar100").count()
    config = tiny(
        "ppfe",
        {"stage_rounds": "1,1,1,1"},
        dataset="cifar100",
        partition="iid",
        clients=2,
        samples_per_client=4,
        test_samples_per_client=2,
        eval_every=0,
    )
    run = launch(config, tmp_path)
    shares = [100 * line["bytes_up"] / line["participants"] / whole for line in run.lines]
    assert [f"{share:.2f}" for share in shares] == ["100.00", "98.80", "83.83", "19.51"]
    for line in run.lines:
        assert line["bytes_down"] == line["bytes_up"] == line["bytes_broadcast"]
    notes = run.summary["notes"]
    for note, count in zip(notes[2:], ("951,276", "877,176"), strict=True):
        assert f"; {count} parameters" in note


@pytest.mark.parametrize("ablation", [None, *ABLATIONS])
def test_the_ledger_agrees_with_the_traffic_declared(ablation, staged, launch, ready, tmp_path):
    config = staged({}, ablation, rounds=5)
    algorithm = ready(config).algorithm
    run = launch(config, tmp_path)
    for line in run.lines:
        traffic, closing = cost_of(algorithm, line["round"]), algorithm.kind(line["round"]).closing
        assert line["bytes_up"] == line["participants"] * traffic.up
        assert line["bytes_down"] == line["participants"] * traffic.down
        assert line["bytes_broadcast"] == (6 * traffic.down if closing else 0)
    spent = sum(run.summary[name] for name in ("bytes_up", "bytes_down", "bytes_broadcast"))
    assert spent == planned_bytes(algorithm)


# Bytes as the budget


def test_a_byte_budget_is_divided_among_the_stages(staged, launch, ready, tmp_path):
    config = staged(budget="bytes", compute_cap=50.0, byte_budget=6_000_000, eval_every=0)
    run = launch(config, tmp_path)
    plan, prepared = run.summary["budget"], ready(config).prepared
    assert plan["set_by"] == "bytes"
    assert plan["rounds"] > 8
    spent = sum(run.summary[name] for name in ("bytes_up", "bytes_down", "bytes_broadcast"))
    assert spent == plan["planned"] <= 6_000_000
    assert planned_bytes(prepared.make(plan["rounds"] + 1)) > 6_000_000
    found = [line["stage"] for line in run.lines]
    assert [found.count(stage) for stage in (1, 2, 3, 4)] == divide_rounds(plan["rounds"], PAPER)


@pytest.mark.parametrize("proportions", [PAPER, (1, 9, 9, 9)], ids=str)
def test_no_byte_budget_leaves_a_stage_empty(proportions, staged, ready):
    text = ",".join(map(str, proportions))
    least = least_rounds(proportions)
    config = staged({"stage_rounds": text}, rounds=30, budget="bytes", compute_cap=50.0)
    prepared = ready(config).prepared
    needed = planned_bytes(prepared.make(least))
    for limit in range(needed, 2 * needed, needed // 16):
        plan = plan_rounds(dataclasses.replace(config, byte_budget=limit), prepared.make)
        assert 0 not in divide_rounds(plan.rounds, proportions)
    short = dataclasses.replace(config, byte_budget=needed - 1)
    with pytest.raises(UserError, match=f"the least .* {least} round"):
        plan_rounds(short, prepared.make)
