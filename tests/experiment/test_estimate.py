"""Expected seconds of runs: from records of this machine, else from a measurement."""

import pytest

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.experiment.estimate import Estimator, together
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.resolve.run import resolve, with_hyper

TINY = RunConfig(
    algo="fedavg",
    dataset="digits",
    clients=6,
    participation=0.4,
    samples_per_client=20,
    test_samples_per_client=10,
    rounds=2,
    local_epochs=1,
)


@pytest.mark.parametrize("algo", ["fedavg", "ppfe", "fedavg-ft"])
def test_planned_samples_are_those_that_are_trained_on(algo, tmp_path):
    config = with_hyper(RunConfig(**{**TINY.to_dict(), "algo": algo, "rounds": 6, "hyper": {}}), {})
    execution = Execution(device="cpu", executor="loop", results_dir=tmp_path)
    summary = run_cell(resolve(config), execution, Quiet())
    estimator = Estimator([], execution)
    seconds = estimator.in_turn([config])[0]
    trained = summary["samples"] + summary["adaptation_samples"]
    assert seconds / estimator.rate(config) == pytest.approx(trained)
    assert "measurement" in estimator.basis["digits"]


def test_estimates_come_from_records_of_this_machine(tmp_path):
    from pfl_benchmark.records.store import Store

    execution = Execution(device="cpu", executor="loop", results_dir=tmp_path)
    summary = run_cell(resolve(with_hyper(TINY, {})), execution, Quiet())
    estimator = Estimator(Store.scan(tmp_path).records(), execution)
    assert estimator.in_turn([with_hyper(TINY, {})])[0] == pytest.approx(summary["seconds"], rel=1e-3)
    assert estimator.basis["digits"] == "from 1 finished run of this machine"
    elsewhere = Estimator(Store.scan(tmp_path).records(), Execution(device="cpu", executor="threads"))
    elsewhere.in_turn([TINY])
    assert "measurement" in elsewhere.basis["digits"]


@pytest.mark.parametrize(
    ("seconds", "jobs", "expected"),
    [([3, 2, 1], 1, 6), ([3, 2, 1], 2, 3), ([1, 1, 4], 2, 5), ([3], 4, 3), ([], 2, 0)],
)
def test_time_of_runs_side_by_side(seconds, jobs, expected):
    assert together(seconds, jobs) == expected


def test_runs_beside_others_are_no_measure_for_runs_alone(tmp_path):
    from pfl_benchmark.records.store import Store

    beside = Execution(device="cpu", executor="loop", results_dir=tmp_path, side_by_side=2)
    summary = run_cell(resolve(with_hyper(TINY, {})), beside, Quiet())
    records = Store.scan(tmp_path).records()
    assert Estimator(records, beside).in_turn([with_hyper(TINY, {})])[0] == pytest.approx(
        summary["seconds"], rel=1e-3
    )
    alone = Estimator(records, Execution(device="cpu", executor="loop"))
    alone.in_turn([TINY])
    assert "measurement" in alone.basis["digits"]


def test_variants_that_differ_in_later_stages_only_have_a_beginning_in_common(tiny):
    estimator = Estimator((), Execution(device="cpu", executor="loop"))
    base = estimator.beginnings(tiny("ppfe", rounds=8))
    assert list(base.values()) == [2, 4]
    assert base == estimator.beginnings(tiny("ppfe", {"reduction": "none"}, rounds=8))
    unweighted = estimator.beginnings(tiny("ppfe", {"reweight": "no"}, rounds=8))
    assert [name in base for name in unweighted] == [True, False]
    assert not base.keys() & estimator.beginnings(tiny("ppfe", rounds=8, seed=1)).keys()
    assert not base.keys() & estimator.beginnings(tiny("ppfe", rounds=8, lr=0.1)).keys()
    assert estimator.beginnings(tiny("fedper")) == {}
    # FedAvg's and PPFE's rounds under a budget are those of as many rounds.
    assert list(estimator.beginnings(tiny("fedavg", rounds=8, budget="bytes")).values()) == [8]
    assert [*estimator.beginnings(tiny("ppfe", rounds=8, budget="samples")).values()] == [1, 3]


def test_what_runs_have_in_common_counts_once(tiny):
    """FedAvg's rounds, and two of PPFE's four stages, in whichever order; other seeds share nothing."""
    estimator = Estimator((), Execution(device="cpu", executor="loop"))
    fedavg, tuned = tiny("fedavg", rounds=8), tiny("fedavg-ft", rounds=8)
    ppfe, dense = tiny("ppfe", rounds=8), tiny("ppfe", {"reduction": "none"}, rounds=8)
    alone = {config.hash: estimator.in_turn([config])[0] for config in (fedavg, tuned, ppfe, dense)}

    first, second = estimator.in_turn([tuned, fedavg])
    assert first == alone[tuned.hash]
    assert second == 0
    first, second = estimator.in_turn([fedavg, tuned])
    assert first + second == pytest.approx(alone[tuned.hash])
    first, second = estimator.in_turn([ppfe, dense])
    assert (first, second) == (alone[ppfe.hash], pytest.approx(alone[dense.hash] / 2))
    other = tiny("fedavg-ft", rounds=8, seed=1)
    assert estimator.in_turn([fedavg, other])[1] == alone[tuned.hash]
