"""Brier score and calibration error against other formulas of the same."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import brier_score_loss

from pfl_benchmark.engine.calibration import calibration, calibration_error, predicted, scaled, temperature

HALVES = ("train", "test")


def made(count, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(2 * rng.standard_normal((count, classes))), torch.from_numpy(
        rng.integers(0, classes, count)
    )


@pytest.mark.parametrize("cuts", [(), (7,), (3, 50, 51)])
def test_brier_score_is_that_of_all_samples(cuts):
    logits, labels = made(90)
    parts = [
        predicted([one], [other])
        for one, other in zip(torch.tensor_split(logits, cuts), torch.tensor_split(labels, cuts), strict=True)
    ]
    probabilities = torch.softmax(logits, 1).numpy()
    expected = np.mean(((probabilities - np.eye(4)[labels]) ** 2).sum(1))
    found = calibration(parts)
    assert found["brier"] == pytest.approx(expected, abs=1e-12)
    twofold = [brier_score_loss(labels == c, probabilities[:, c]) for c in range(4)]
    assert found["brier"] == pytest.approx(sum(twofold), abs=1e-12)


@pytest.mark.parametrize("count", [1, 2, 14, 15, 16, 100, 1000])
def test_calibration_error_by_bins_of_equal_mass(count):
    logits, labels = made(count)
    confidence, right, *_ = predicted([logits], [labels])
    error, debiased = calibration_error(confidence, right)
    order = np.argsort(confidence, kind="stable")
    bins = [b for b in np.array_split(order, min(15, count)) if len(b)]
    expected = sum(len(b) * abs(confidence[b].mean() - right[b].mean()) for b in bins) / count
    if count % min(15, count) == 0:
        assert error == pytest.approx(expected, abs=1e-12)
    else:  # which bins have one more
        assert error == pytest.approx(expected, abs=0.1)
    assert 0 <= debiased <= error + 1e-12


def test_bins_count_by_their_samples():
    """Two of 0.3 and 0.5 on average, one of 0.9 and 1."""
    error, _ = calibration_error(np.array([0.2, 0.4, 0.9]), np.array([True, False, True]), 2)
    assert error == pytest.approx((2 * 0.2 + 0.1) / 3)


def test_debiased_error_is_that_of_draws():
    """As in the uncertainty-calibration library of Kumar et al., which draws; here the mean is computed."""
    logits, labels = made(300)
    confidence, right, *_ = predicted([logits], [labels])
    error, debiased = calibration_error(confidence, right)
    bins = np.array_split(np.argsort(confidence, kind="stable"), 15)
    means, targets = (np.array([v[b].mean() for b in bins]) for v in (right, confidence))
    deviations = np.sqrt(means * (1 - means) / 20)
    draws = np.random.default_rng(0).normal(means, deviations, (20_000, 15))
    assert debiased == pytest.approx(2 * error - np.abs(draws - targets).mean(), abs=2e-3)


def test_debiased_error_is_nearer_the_truth_of_calibrated_predictions():
    rng, errors = np.random.default_rng(0), []
    for _ in range(50):
        confidence = rng.uniform(0.3, 1, 300)
        errors.append(calibration_error(confidence, rng.random(300) < confidence))
    plain, debiased = np.mean(errors, 0)
    assert debiased < 0.7 * plain


def test_what_is_not_finite_has_no_score():
    assert calibration([predicted([torch.full((3, 2), torch.nan)], [torch.zeros(3, dtype=torch.long)])]) == {}


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_a_temperature_makes_labels_likeliest(factor):
    logits, labels = made(200)
    logits[torch.arange(200), labels] += 1
    found = temperature(factor * logits, labels)
    losses = {t: F.cross_entropy(factor * logits / t, labels) for t in (found / 1.02, found, found * 1.02)}
    assert min(losses, key=losses.get) == found
    assert found == pytest.approx(factor * temperature(logits, labels), rel=1e-3)


def test_where_all_is_right_the_temperature_is_the_lowest():
    labels = torch.arange(4)
    assert temperature(torch.eye(4)[labels], labels) == pytest.approx(1 / 20, rel=1e-3)


def test_scaled_scores_have_a_loss():
    logits, labels = made(50)
    found = scaled([predicted([logits], [labels])])
    assert found["scaled_test_loss"] == pytest.approx(float(F.cross_entropy(logits, labels)))
    assert found["scaled_ece"] == calibration([predicted([logits], [labels])])["ece"]


def test_temperatures_are_those_of_each_clients_training_samples(tiny, play):
    played = play(tiny("fedavg", temperature_scaling=True))
    task, losses = played.algorithm.task, []
    for client in range(6):
        scores = [task.network.apply(played.algorithm.server, task.data.inputs(client, p)) for p in HALVES]
        cooled = scores[1] / temperature(scores[0], task.data.labels(client))
        losses.append(float(F.cross_entropy(cooled, task.data.labels(client, "test"))))
    assert played.summary["scaled_test_loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert played.summary["scaled_test_loss"] != pytest.approx(played.summary["test_loss"], rel=1e-2)


def test_a_temperature_changes_no_result_of_any_method(algo, tiny, unbroken, launch, tmp_path):
    plain, cooled = unbroken(algo), launch(tiny(algo, temperature_scaling=True), tmp_path)
    more = {name for name in cooled.summary if name.startswith("scaled_")}
    assert more == {"scaled_test_loss", "scaled_brier", "scaled_ece", "scaled_ece_debiased"}
    assert plain.content()["clients"] == cooled.content()["clients"]
    for one, other in zip(plain.lines, cooled.lines, strict=True):
        assert one == {k: v for k, v in other.items() if k not in more}
