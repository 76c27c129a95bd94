"""Switches that change who takes part in a stage's end, and what β is measured on."""

from types import SimpleNamespace

import pytest
import torch

from pfl_benchmark.algorithms.ppfe.hyper import PPFEHyper
from pfl_benchmark.algorithms.ppfe.reweight import reweight
from pfl_benchmark.algorithms.ppfe.weighting import weighted_mean, without
from pfl_benchmark.engine.budget import planned_bytes
from pfl_benchmark.errors import UserError
from pfl_benchmark.resolve.run import resolve, with_hyper


def test_options_added_later_leave_the_identity_of_earlier_runs_alone(staged):
    plain = staged()
    assert "beta_data" not in plain.hyper
    assert "full_last_only" not in plain.hyper
    assert not {"rw_batch", "closing_body"} & plain.hyper.keys()
    typed = staged(
        {"beta_data": "train", "full_last_only": "no", "rw_batch": "mean", "closing_body": "shared"}
    )
    assert typed.hash == plain.hash
    changed = staged({"beta_data": "holdout20"})
    assert changed.hash != plain.hash
    assert changed.hyper["beta_data"] == "holdout20"
    assert with_hyper(changed, changed.hyper).hash == changed.hash


# beta_data=holdout20


def test_beta_is_measured_on_the_judged_samples_alone():
    labels = torch.zeros(10, dtype=torch.long)
    scores = torch.tensor([[4.0, 0.0]] * 8 + [[0.0, 4.0]] * 2)  # right eight times, then wrong twice
    judged, ones = torch.arange(10) >= 6, torch.ones(10)
    hyper = PPFEHyper(rw_loss="zero_one")
    assert reweight(scores, labels, ones, 2, hyper).epsilon == 0.2
    result = reweight(scores, labels, ones, 2, hyper, judged)
    assert result.epsilon == 0.5
    assert result.beta == 0
    # What is clipped away is half a sample of those judged.
    assert reweight(scores, labels, ones, 2, hyper, torch.arange(10) < 4).epsilon == 1 / 8


def test_held_out_samples_are_trained_on_in_no_stage(staged, ready, advance, differing):
    config = staged({"beta_data": "holdout20"}, learning=True)
    played, other = ready(config), ready(config)
    sizes = played.prepared.task.data.train_sizes
    held = played.algorithm.weights.judged
    assert [int(own.sum()) for own in held] == [max(1, round(0.2 * size)) for size in sizes]
    # Their labels turned around: the models do not notice.
    data = other.prepared.task.data
    for client, own in enumerate(held):
        rows = data._index["train"][client][own]
        data._y["train"][rows] = (data._y["train"][rows] + 1) % data.classes
    for end in (2, 4):
        for one in (played, other):
            advance(one, range(end - 1, end + 1), {end})
        if end == 2:  # ε is measured on them; through the weights the models would notice
            assert not torch.equal(
                played.algorithm._records[0].epsilons, other.algorithm._records[0].epsilons
            )
            assert differing(played.algorithm.server, other.algorithm.server) == []
            other.algorithm.weights.values = played.algorithm.weights.values.clone()
    assert differing(played.algorithm.server, other.algorithm.server) == []
    weights = without(played.algorithm.weights.of(0), played.algorithm.weights.judged[0])
    assert float(weights.mean()) == pytest.approx(1, abs=1e-6)
    assert bool((weights[held[0]] == 0).all())


def test_a_first_stage_that_is_no_common_fedavg_is_not_shared(staged, ready):
    def shares_fedavg(hyper):
        return "fedavg" in [shared.key for shared in ready(staged(hyper)).algorithm.shared_rounds()]

    assert shares_fedavg({})
    assert not shares_fedavg({"beta_data": "holdout20"})
    assert not shares_fedavg({"full_last_only": "yes"})


# full_last_only


def test_only_the_last_round_of_the_run_takes_everyone(staged, ready, launch, tmp_path):
    config = staged({"full_last_only": "yes"})
    run, plain = launch(config, tmp_path), launch(staged(), tmp_path)
    assert [line["participants"] for line in run.lines] == [3, 3, 3, 3, 3, 3, 3, 6]
    assert [line["participants"] for line in plain.lines] == [3, 6, 3, 6, 3, 6, 3, 6]
    # Everyone still needs each stage's model to measure β.
    assert [line["bytes_broadcast"] > 0 for line in run.lines] == [False, True] * 4
    spent = sum(run.summary[name] for name in ("bytes_up", "bytes_down", "bytes_broadcast"))
    played = ready(config)
    assert spent == planned_bytes(played.algorithm)


# rw_batch=weighted_mean


def test_a_batch_is_divided_by_its_weights_and_one_without_any_has_no_loss():
    weights = torch.tensor([[0.5, 10.0, 1.0], [0.0, 0.0, 0.0]])
    losses = torch.tensor([[2.0, 3.0, 1.0], [5.0, 5.0, 5.0]], requires_grad=True)
    shares = weights / 3
    step = SimpleNamespace(cross_entropy=lambda: (losses * shares).sum(1), sample_weights=shares)
    found = weighted_mean(step)
    assert found.tolist() == pytest.approx([(1 + 30 + 1) / 11.5, 0])
    found.sum().backward()
    assert torch.isfinite(losses.grad).all()
    assert float(losses.grad[0].sum()) == pytest.approx(1)  # no step is larger than that of a single sample


@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_executors_agree(executor, staged, launch, tmp_path):
    config = staged({"rw_batch": "weighted_mean"}, learning=True)
    loop, other = (launch(config, tmp_path / name, executor=name).lines for name in ("loop", executor))
    assert [line["loss"] for line in loop] == pytest.approx([line["loss"] for line in other], abs=1e-5)


def test_only_weighted_stages_change(staged, launch, tmp_path):
    batches = ("mean", "weighted_mean")
    mean, weighted = (launch(staged({"rw_batch": b}, learning=True), tmp_path / b).lines for b in batches)
    same = [one["loss"] == other["loss"] for one, other in zip(mean, weighted, strict=True)]
    first = [line["stage"] == 1 for line in mean]
    assert all(equal for equal, stage in zip(same, first, strict=True) if stage)
    assert not all(same)


@pytest.mark.parametrize("more", [{"reweight": "false"}, {"rw_apply": "resample"}])
def test_without_weighted_losses_it_is_refused(more, staged):
    with pytest.raises(UserError, match="weighs no losses; leave one out") as caught:
        resolve(staged({"rw_batch": "weighted_mean", **more}))
    assert "\n" not in str(caught.value)


# closing_body=own


def test_own_bodies_judge_and_predict_but_train_nothing(staged, play):
    own, shared = (
        play(staged({"closing_body": body, "reweight": "false"}, learning=True)) for body in ("own", "shared")
    )
    for one, other in zip(own.history, shared.history, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    everyone = range(own.prepared.config.clients)
    for mine, theirs in zip(own.algorithm.members(everyone), shared.algorithm.members(everyone), strict=True):
        common = [
            name for name in theirs.params if bool((theirs.params[name] == theirs.params[name][:1]).all())
        ]
        assert common
        assert any(not torch.equal(mine.params[name][0], mine.params[name][1]) for name in common)


def test_own_bodies_need_everyone_at_the_end_of_a_stage(staged):
    with pytest.raises(UserError, match="not everyone trains in a stage's last round"):
        resolve(staged({"closing_body": "own", "full_last_only": "true"}))
