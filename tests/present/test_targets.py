"""What a method spends to reach an accuracy: the search, the table and the command `cost`."""

import json

import pytest
from answers import refused
from own_studies import PROFILE, REACHED, results_of
from record_folders import amend, with_seed, write_record, write_records

from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.present.tables import make_table
from pfl_benchmark.records.record import read_record
from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.targets import Cost, Reached, Target, at_last, cost_to, reached

CONFIG = RunConfig(
    dataset="digits", clients=20, samples_per_client=20, test_samples_per_client=40, rounds=4, eval_every=2
)


def config_of(algo, seed=0, **changes):
    return with_seed(RunConfig(**{**CONFIG.to_dict(), "algo": algo, **changes}), seed)


def record_of(root, algo, *accuracies, seed=0, **changes):
    """A record whose evaluations on the way, in rounds 2, 4 and so on, have found these accuracies."""
    folder = write_record(root, config_of(algo, seed, rounds=2 * len(accuracies) + 2, **changes), 0.5)

    def change(lines):
        for line, accuracy in zip(lines[1::2], accuracies, strict=False):
            line["accuracy"] = accuracy

    amend(folder / "rounds.jsonl", change)
    return read_record(folder)


def test_the_first_evaluation_with_the_accuracy_counts(tmp_path):
    record = record_of(tmp_path, "fedper", 0.3, 0.6, 0.4, 0.7)
    lines = record.rounds
    found = cost_to(record, 0.6)
    assert found.rounds == 4
    assert found.bytes == sum(line["bytes_up"] + line["bytes_down"] for line in lines[:4])
    assert found.samples == sum(line["samples"] for line in lines[:4])
    assert cost_to(record, 0.61).rounds == 8
    assert cost_to(record, record.summary["accuracy"]).rounds <= len(lines)
    assert cost_to(record, 0.75) is None


def test_broadcasts_of_closed_stages_are_charged_and_the_evaluations_own_is_not(tmp_path):
    record = record_of(tmp_path, "ppfe", 0.3, 0.6)
    for line, sent in zip(record.rounds, (0, 100, 0, 1000, 0, 10**4), strict=True):
        line["bytes_broadcast"] = sent
    trained = sum(line["bytes_up"] + line["bytes_down"] for line in record.rounds[:4])
    assert cost_to(record, 0.6).bytes == trained + 100


@pytest.mark.parametrize(("adapted", "expected"), [(False, (4, True)), (True, (2, False))])
def test_evaluations_of_another_kind_of_model_do_not_count(tmp_path, adapted, expected):
    record = record_of(tmp_path, "fedavg-ft", 0.45, eval_adapted=adapted)
    found = cost_to(record, 0.45)
    assert (found.rounds, found.at_most) == expected


def test_all_seeds_have_to_reach_it():
    costs = [Cost(2, 10, 100, at_most=False), Cost(4, 30, 300, at_most=False)]
    assert Reached(costs, 2).mean("rounds") == 3
    assert Reached(costs, 3).mean("rounds") is None
    assert Reached([], 0).mean("rounds") is None


def test_targets_are_those_of_the_same_seed(tmp_path):
    records = {seed: record_of(tmp_path, "fedper", 0.5, 0.6, seed=seed) for seed in (0, 1)}
    found = reached(records, Target("", {0: 0.6, 1: 0.5, 7: 0.9}))
    assert ([cost.rounds for cost in found.costs], found.seeds) == ([4, 2], 2)
    last = at_last("last", records)
    assert last.at == {seed: record.summary["accuracy"] for seed, record in records.items()}


def test_every_method_stands_in_the_table_for_every_target(tmp_path):
    write_records(tmp_path, REACHED, PROFILE, (0, 1), skip=("fedrep",))
    results = results_of(REACHED, Store.scan(tmp_path))
    lines = make_table(results, "targets").facts()[1]
    assert len(lines) == 2 * 2 * len(results.rows)
    for line in lines:
        if line["method"] == "FedRep":
            assert "rounds" not in line
        elif line["rounds"] is None:
            assert line["reached"] < 2
        else:
            assert line["reached"] == line["seeds"] == 2
            assert line["accuracy"] + 0.01 >= line["target_accuracy"]
    own = [line for line in lines if line["method"] == "FedAvg" and line["target"] == "FedAvg's"]
    assert all(line["rounds"] <= results.configs["FedAvg", line["setting"]].rounds for line in own)


@pytest.fixture
def cost(capsys):
    def go(*words):
        code = main(["cost", *map(str, words)])
        return code, *capsys.readouterr()

    return go


def test_the_command_finds_its_targets(tmp_path, cost):
    for algo, level in (("fedavg", 0.4), ("local", 0.6), ("fedper", 0.5)):
        write_record(tmp_path, config_of(algo), level)
    code, out, _ = cost(tmp_path, "--json")
    assert code == 0
    lines = {(line["target"], line["method"]): line for line in json.loads(out)}
    assert len(lines) == 6
    assert lines["Local Only's", "fedavg"]["rounds"] is None
    assert lines["FedAvg's", "fedavg"]["rounds"] == 4
    (line,) = (line for line in cost(tmp_path)[1].splitlines() if "| fedavg" in line and "Local" in line)
    assert " never |" in line


def test_the_command_takes_targets(tmp_path, cost):
    write_record(tmp_path, config_of("fedper"), 0.5)
    code, out, _ = cost(tmp_path, "--targets", "0.01", "0.999", "--json")
    assert code == 0
    assert [line["rounds"] for line in json.loads(out)] == [2, None]


@pytest.mark.parametrize("text", ["0", "1", "1.2", "-0.5", "60", "nan", "x", "", "1_0", "60%"])
def test_targets_that_are_no_accuracies(text, tmp_path, cost):
    write_record(tmp_path, config_of("fedper"), 0.5)
    refused(cost(tmp_path, "--targets", text), "--targets", "expected a number", "such as 0.6")


def test_what_says_no_target_is_refused(tmp_path, cost):
    write_record(tmp_path, config_of("fedper"), 0.5)
    refused(cost(tmp_path), "no run of FedAvg or Local Only", "--targets")
    for rate in (0.1, 0.2):
        write_record(tmp_path, config_of("fedavg", lr=rate), 0.5)
    refused(cost(tmp_path), "both of 'fedavg'", "leave one out")
