"""Switches that change who takes part in a stage's end, and what β is measured on."""

import torch

from pfl_benchmark.algorithms.ppfe.hyper import PPFEHyper
from pfl_benchmark.algorithms.ppfe.reweight import reweight
from pfl_benchmark.algorithms.ppfe.weighting import without
from pfl_benchmark.engine.budget import planned_bytes
from pfl_benchmark.resolve.run import with_hyper


def test_options_added_later_leave_the_identity_of_earlier_runs_alone(staged):
    plain = staged()
    assert "beta_data" not in plain.hyper
    assert "full_last_only" not in plain.hyper
    typed = staged({"beta_data": "train", "full_last_only": "no"})
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
    assert float(weights.mean()) - 1 < 1e-6
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
