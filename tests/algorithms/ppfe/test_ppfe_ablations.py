"""Ablations by name do what they say, and all of a seed share one FedAvg."""

import json

import pytest

from pfl_benchmark.algorithms.ppfe.hyper import ABLATIONS
from pfl_benchmark.engine.executors import LoopExecutor
from pfl_benchmark.models import Linear, LowRank
from pfl_benchmark.resolve.run import with_hyper

EVERYONE = range(6)
FC = ("fc1", "fc2", "fc3")


@pytest.fixture(scope="module")
def finished(tiny, launch, tmp_path_factory):
    """All ablations of one seed, run one after the other in one results folder.

    Returns:
        Records by ablation (None: the method itself), and the rounds trained in that order.
    """
    root, trained, train = tmp_path_factory.mktemp("ablations"), [], LoopExecutor.train

    def watched(self, call):
        trained[-1].append(call.round)
        return train(self, call)

    records = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopExecutor, "train", watched)
        for name in [None, *ABLATIONS]:
            trained.append([])
            records[name] = launch(with_hyper(tiny("ppfe", rounds=8, eval_every=3), {}, name), root)
    return records, dict(zip(records, trained, strict=True))


def test_stages_in_common_are_trained_once(finished):
    """Stage 1 by the default; stage 2 by it too, and by the first that does without reweighting."""
    _, trained = finished
    two_stages = ("no-reduction", "no-progression", "no-reweighting", "width")
    for name, rounds in trained.items():
        assert rounds == list(range(5 if name in two_stages else 3 if name else 1, 9)), name


@pytest.mark.parametrize("name", list(ABLATIONS))
def test_records_do_not_show_who_trained_the_fedavg_stage(name, finished, staged, launch, tmp_path):
    alone = launch(staged({}, name), tmp_path)
    assert alone.content() == finished[0][name].content()
    assert alone.folder.name == finished[0][name].folder.name
    assert alone.folder.name.startswith(f"ppfe-{name}-digits")


def test_fedavg_and_ppfe_share_the_beginning_both_ways(tiny, staged, launch, trained_rounds, tmp_path):
    fedavg = tiny("fedavg", rounds=2, eval_every=3)
    alone = launch(fedavg, tmp_path / "alone"), launch(staged(), tmp_path / "alone2")
    trained_rounds.clear()
    together = launch(staged(), tmp_path / "both"), launch(fedavg, tmp_path / "both")
    assert trained_rounds == list(range(1, 9))
    assert together[0].content() == alone[1].content()
    assert together[1].content() == alone[0].content()


@pytest.mark.parametrize("first", [0.5, 2.0])
def test_another_rate_in_the_first_stage_is_not_fedavg(first, tiny, staged, launch, tmp_path):
    fedavg = tiny("fedavg", rounds=2, eval_every=3)
    slower = staged({"body_rate": f"{first},1,0.1,0.1"})
    alone = launch(fedavg, tmp_path / "a"), launch(slower, tmp_path / "b")
    together = launch(slower, tmp_path / "c"), launch(fedavg, tmp_path / "c")
    assert together[0].content() == alone[1].content()
    assert together[1].content() == alone[0].content()
    assert together[0].lines[0]["loss"] != together[1].lines[0]["loss"]
    again = launch(slower, tmp_path / "a")
    assert again.content() == alone[1].content()


# What each of them is


def kinds(network):
    return [type(network.layer(name)) for name in FC]


@pytest.mark.parametrize("name", [None, *ABLATIONS])
def test_personal_layers_networks_and_predicting_stages(name, staged, ready):
    algorithm = ready(staged({}, name)).algorithm
    hyper, stages, networks = algorithm.hyper, algorithm.stages, algorithm.networks
    dense = algorithm.task.network
    assert networks[1] == networks[2] == dense
    progressive = [(), FC[2:], FC[1:], FC]
    if name and name.startswith("fixed-head"):
        count = int(name[-1])
        assert [s.personal for s in stages] == [(), FC[3 - count :]]
        assert [s.last for s in stages] == [2, 8]
        assert (hyper.ensemble, hyper.reweight) == ("last", False)
        assert all(s.body_rate == 1 for s in stages)
        return
    fixed = name in ("no-progression", "no-progression-no-reweighting")
    assert [s.personal for s in stages] == ([(), *[FC[2:]] * 3] if fixed else progressive)
    assert hyper.ensemble == "all"
    assert hyper.reweight == (name not in ("no-reweighting", "no-progression-no-reweighting"))
    assert [s.body_rate for s in stages] == [1, 1, 0.1, 0.1]
    for stage in (3, 4):
        if name in (None, "no-reweighting"):
            assert kinds(networks[stage]) == [LowRank] * 3
        else:
            assert kinds(networks[stage]) == [Linear] * 3
            assert (networks[stage] == dense) == (name != "width")
    masked = [bool(algorithm.phases(s.first)[0].masks) for s in stages]
    assert masked == ([False, True, True, True] if name == "sparse" else [False] * 4)
    if name == "width":
        assert networks[3].layer("fc2").outputs == round(32 * 3**-0.25)
        assert networks[4].layer("fc1").outputs == round(64 * 4**-0.25)


@pytest.mark.parametrize("name", [None, *ABLATIONS])
def test_what_predicts_at_the_end(name, finished):
    record = finished[0][name]
    stages = json.loads((record.folder / "diagnostics.json").read_text())["stages"]
    fixed = bool(name and name.startswith("fixed-head"))
    assert len(stages) == (2 if fixed else 4)
    predicting = "stage_test_accuracy" if fixed else "ensemble_test_accuracy"
    assert record.summary["accuracy"] == pytest.approx(stages[-1][predicting], abs=1e-6)
    assert record.summary["evaluated"] == "personal"
    assert [line["participants"] for line in record.lines] == (
        [3, 6, 3, 3, 3, 3, 3, 6] if fixed else [3, 6] * 4
    )


def test_without_reweighting_beta_and_ensemble_stay(staged, play):
    played = play(staged({}, "no-progression-no-reweighting", learning=True, rounds=4))
    members = played.algorithm.members(EVERYONE)
    assert len(members) == 4
    assert len({float(w) for member in members for w in member.weights}) > 4
    stages = played.algorithm.diagnostics()["stages"]
    for stage in stages:
        assert set(stage["clients"]["weight_min"]) == set(stage["clients"]["weight_max"]) == {1.0}


def test_variants_differ(finished):
    records, _ = finished
    losses = {name: tuple(line["loss"] for line in record.lines) for name, record in records.items()}
    assert len({values[:2] for values in losses.values()}) == 1
    different = {name: values[2:] for name, values in losses.items()}
    # With errors above one half no sample is reweighted: only then may a pair without it coincide.
    assert len(set(different.values())) >= len(different) - 2
