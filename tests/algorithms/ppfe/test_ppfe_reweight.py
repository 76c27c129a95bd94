"""Reweight and the ensemble, as functions of tensors."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from pfl_benchmark.algorithms.ppfe.ensemble import ensemble_weights, weighted_scores
from pfl_benchmark.algorithms.ppfe.hyper import PPFEHyper
from pfl_benchmark.algorithms.ppfe.reweight import SMALLEST_LOSS, reweight, sample_losses
from pfl_benchmark.engine.ensemble import SPACES, summand

N, CLASSES = 50, 7
LOSSES = ["ce_norm", "zero_one", "ce_raw"]


@pytest.fixture(scope="module")
def case():
    """Logits, labels and uneven weights of a client whose model is right two times in three."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (N,), generator=generator)
    logits = torch.randn(N, CLASSES, generator=generator)
    logits[torch.arange(N), labels] += 2
    weights = torch.rand(N, generator=generator) + 0.5
    return logits, labels, weights * (N / weights.sum())


def play(case, **hyper):
    logits, labels, weights = case
    return reweight(logits, labels, weights, CLASSES, PPFEHyper(**hyper))


def logits_with(losses):
    """Two-class logits of label 0 whose cross-entropies are `losses`."""
    losses = torch.as_tensor(losses, dtype=torch.float64)
    return torch.stack([torch.zeros_like(losses), torch.log(torch.expm1(losses))], dim=1)


@pytest.mark.parametrize("rw_loss", LOSSES)
@pytest.mark.parametrize("changes", [{}, {"rw_sign": -1}, {"rw_double": True}, {"samme": True}])
def test_weights_are_positive_and_sum_to_the_number_of_samples(case, rw_loss, changes):
    result = play(case, rw_loss=rw_loss, **changes)
    assert result.weights.dtype == torch.float32
    assert bool((result.weights > 0).all())
    assert float(result.weights.sum()) == pytest.approx(N, abs=1e-3)
    assert result.beta >= 0
    assert 1 / (2 * N) <= result.epsilon <= 1 - 1 / (2 * N)


def test_default_is_the_specification_in_plain_python(case, boosted):
    logits, labels, weights = case
    epsilon, beta, expected = boosted(logits, labels, weights.tolist())
    result = play(case)
    assert result.epsilon == pytest.approx(epsilon, abs=1e-6)
    assert result.beta == pytest.approx(beta, abs=1e-6)
    torch.testing.assert_close(result.weights, torch.tensor(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rw_loss", LOSSES)
def test_equal_losses_leave_the_weights_as_they_are(case, rw_loss):
    _, _, weights = case
    logits = logits_with([0.4] * N)
    result = reweight(logits, torch.zeros(N, dtype=torch.int64), weights, 2, PPFEHyper(rw_loss=rw_loss))
    torch.testing.assert_close(result.weights, weights)


@pytest.mark.parametrize("rw_loss", LOSSES)
@pytest.mark.parametrize("sign", [1, -1])
def test_weights_grow_where_losses_are_large(case, rw_loss, sign):
    logits, labels, weights = case
    result = play(case, rw_loss=rw_loss, rw_sign=sign)
    assert result.beta > 0
    growth = sign * result.weights / weights
    _, losses = sample_losses(logits, labels, rw_loss)
    order = losses.argsort(stable=True)
    assert bool((growth[order].diff() >= -1e-5).all())
    assert float(growth.max() - growth.min()) > 0.1


def wrong(share, n=20):
    """Logits and labels of a model that is wrong on that share of n samples."""
    labels = torch.zeros(n, dtype=torch.int64)
    logits = torch.tensor([[1.0, -1.0]]).repeat(n, 1)
    logits[: round(share * n)] *= -1
    return logits, labels, torch.ones(n)


def zero_one(share, n=20, **hyper):
    return reweight(*wrong(share, n), 2, PPFEHyper(rw_loss="zero_one", **hyper))


def test_beta_falls_with_the_error_and_is_zero_at_one_half():
    betas = [zero_one(i / 20, beta_neg=True).beta for i in range(21)]
    assert betas == sorted(betas, reverse=True)
    assert betas[10] == 0
    assert betas[20] == pytest.approx(-betas[0])
    assert [zero_one(i / 20).beta for i in range(10, 21)] == [0] * 11


@pytest.mark.parametrize("n", [1, 2, 20, 150])
def test_beta_is_finite_for_perfect_and_for_useless_models(n):
    assert zero_one(0, n).beta == pytest.approx(0.5 * math.log(2 * n - 1))
    assert zero_one(1, n, beta_neg=True).beta == pytest.approx(-0.5 * math.log(2 * n - 1))


@pytest.mark.parametrize("factor", [0.1, 30.0])
def test_scaling_all_losses_changes_nothing(factor):
    losses = torch.linspace(0.05, 2, N)
    labels, weights = torch.zeros(N, dtype=torch.int64), torch.ones(N)
    a, b = (reweight(logits_with(c * losses), labels, weights, 2, PPFEHyper()) for c in (1, factor))
    assert a.beta == pytest.approx(b.beta)
    torch.testing.assert_close(a.weights, b.weights)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.45])
@pytest.mark.parametrize("double", [False, True])
def test_new_weighted_error_under_zero_one_loss(share, double):
    result = zero_one(share, rw_double=double)
    assert result.epsilon == pytest.approx(share)
    new = float(result.weights[: round(20 * share)].sum() / result.weights.sum())
    a, b = math.sqrt(share), math.sqrt(1 - share)
    assert new == pytest.approx(0.5 if double else a / (a + b), abs=1e-6)


def test_a_fitted_client_is_left_alone():
    logits = torch.tensor([[80.0, 0.0]]).repeat(5, 1)
    result = reweight(logits, torch.zeros(5, dtype=torch.int64), torch.ones(5), 2, PPFEHyper())
    assert result.epsilon == 0.1
    assert torch.equal(result.weights, torch.ones(5))


def test_raw_cross_entropy_cannot_overflow():
    logits = torch.tensor([[0.0, 5000.0], *[[5.0, 0.0]] * 40])
    result = reweight(
        logits, torch.zeros(41, dtype=torch.int64), torch.ones(41), 2, PPFEHyper(rw_loss="ce_raw")
    )
    assert bool(torch.isfinite(result.weights).all())
    assert float(result.weights.sum()) == pytest.approx(41)


def test_raw_cross_entropy_counts_in_the_exponent_and_not_in_the_error(case):
    logits, labels, weights = case
    raw, normalised = play(case, rw_loss="ce_raw"), play(case)
    assert raw.epsilon == normalised.epsilon
    assert raw.beta == normalised.beta
    losses = F.cross_entropy(logits, labels, reduction="none")
    expected = weights * torch.exp(raw.beta * losses)
    torch.testing.assert_close(raw.weights, expected * (N / expected.sum()), rtol=1e-4, atol=1e-6)


def test_samme_adds_the_logarithm_of_the_other_classes(case):
    plain, samme = play(case, beta_neg=True), play(case, beta_neg=True, samme=True)
    assert samme.beta - plain.beta == pytest.approx(0.5 * math.log(CLASSES - 1))


def test_earlier_weights_count(case):
    logits, labels, weights = case
    heavy = weights.clone()
    heavy[sample_losses(logits, labels, "ce_norm")[0].argmax()] *= 20
    assert play((logits, labels, heavy)).epsilon > play(case).epsilon


# The ensemble


@pytest.fixture(scope="module")
def stages():
    """Logits of four stages on ten samples, and a client's β."""
    generator = torch.Generator().manual_seed(1)
    scores = [torch.randn(10, CLASSES, generator=generator) for _ in range(4)]
    return scores, torch.tensor([0.2, 1.1, 0.0, 0.7], dtype=torch.float64)


@pytest.mark.parametrize("space", SPACES)
def test_scaling_all_betas_changes_no_prediction(stages, space):
    scores, beta = stages
    a, b = (weighted_scores(scores, c * beta, space) for c in (1, 37.5))
    assert torch.equal(a.argmax(1), b.argmax(1))
    torch.testing.assert_close(37.5 * a, b)


def test_a_constant_on_one_stage_changes_no_prediction(stages):
    scores, beta = stages
    shifted = [*scores[:1], scores[1] + torch.linspace(-5, 5, 10).unsqueeze(1), *scores[2:]]
    plain, moved = (weighted_scores(s, beta, "logit") for s in (scores, shifted))
    assert torch.equal(plain.argmax(1), moved.argmax(1))
    torch.testing.assert_close(plain.softmax(1), moved.softmax(1))


def test_log_probabilities_and_logits_agree(stages):
    scores, beta = stages
    a = weighted_scores(scores, beta, "logit")
    b = weighted_scores([score.log_softmax(1) for score in scores], beta, "logit")
    torch.testing.assert_close(a.softmax(1), b.softmax(1))


@pytest.mark.parametrize("space", SPACES)
def test_one_beta_is_one_stage(stages, space):
    scores, _ = stages
    for stage in range(4):
        found = weighted_scores(scores, F.one_hot(torch.tensor(stage), 4), space)
        expected = summand(scores[stage], space)
        assert torch.equal(found, expected)


def test_clients_without_any_beta_weigh_all_stages_alike():
    betas = [torch.tensor([0.0, 0.0, 0.3]), torch.tensor([0.0, 0.5, -0.3])]
    expected = torch.tensor([[1.0, 1.0], [0.0, 0.5], [0.3, -0.3]])
    assert torch.equal(ensemble_weights(betas), expected)


@pytest.mark.parametrize(
    ("hyper", "single"),
    [({"ens_space": space}, space) for space in SPACES],
)
def test_target_ensemble_uses_the_loss_of_the_ensemble(hyper, single, staged, play):
    """Specification 7.2: a provisional β from the stage alone, then ε, ω and β from the ensemble."""
    hyper = {"rw_target": "ensemble", "fc_init": "prev", **hyper}
    algorithm = play(staged(hyper, learning=True, rounds=4)).algorithm
    state, data, found = algorithm.state(), algorithm.task.data, []
    for k, n in enumerate(data.train_sizes):
        labels, weights, betas = data.labels(k), torch.ones(n), []
        for count, record in enumerate(state["records"], start=1):
            alone = reweight(record["scores"]["train"][k], labels, weights, 10, PPFEHyper())
            logits = [r["scores"]["train"][k] for r in state["records"][:count]]
            shares = torch.tensor([*betas, alone.beta])
            shares = shares if bool(shares.any()) else torch.ones(count)
            if single == "logit":
                summed = sum(s * z for s, z in zip(shares, logits, strict=True))
            elif single == "probability":
                summed = sum(s * z.softmax(1) for s, z in zip(shares, logits, strict=True)).log()
            else:
                votes = (torch.eye(10)[z.argmax(1)] for z in logits)
                summed = sum(s * v for s, v in zip(shares, votes, strict=True)).clamp(min=1e-12).log()
            result = reweight(summed, labels, weights, 10, PPFEHyper())
            betas.append(result.beta)
            weights = result.weights
            assert record["betas"][k] == pytest.approx(result.beta, abs=1e-4)
            assert record["epsilons"][k] == pytest.approx(result.epsilon, abs=1e-4)
        found += betas
    assert max(found) > 0.1


def test_every_loss_on_offer_is_tested_here():
    (spec,) = [spec for spec in dataclasses.fields(PPFEHyper) if spec.name == "rw_loss"]
    assert sorted(spec.metadata["choices"]) == sorted(LOSSES)


def test_losses_that_are_only_rounding_count_as_none():
    scores, labels = torch.tensor([[30.0, 0.0], [25.0, 0.0]]), torch.tensor([0, 0])
    normalised, exponent = sample_losses(scores, labels, "ce_norm")
    assert 0 < sample_losses(scores, labels, "ce_raw")[1].max() < SMALLEST_LOSS
    assert normalised.tolist() == exponent.tolist() == [0.0, 0.0]
