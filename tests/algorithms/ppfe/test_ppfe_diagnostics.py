"""What PPFE puts on record, computed once more from its stage models."""

import itertools
import json
import math

import numpy as np
import pytest
import torch

from pfl_benchmark.algorithms.ppfe.diagnostics import StageRecord, describe
from pfl_benchmark.algorithms.ppfe.ensemble import _simplex, best_common_weights
from pfl_benchmark.engine.ensemble import SPACES, summand

CLIENTS = range(6)
STAGE_KEYS = [
    "stage",
    "rounds",
    "personal",
    "stage_train_accuracy",
    "stage_test_accuracy",
    "ensemble_train_accuracy",
    "ensemble_test_accuracy",
    "hindsight_test_accuracy",
    "error_bound",
    "hindsight_weights",
    "clients",
]
CLIENT_KEYS = ["epsilon", "beta", "edge", "weight_min", "weight_max", "effective_samples"]


def test_every_figure_follows_from_the_stage_models(staged, play, outputs, boosted):
    played = play(staged(learning=True))
    stages, data = played.algorithm.diagnostics()["stages"], played.prepared.task.data
    logits = {part: outputs(played, part) for part in ("train", "test")}
    labels = {part: [data.labels(k, part) for k in CLIENTS] for part in ("train", "test")}
    weights = {k: [1.0] * data.train_sizes[k] for k in CLIENTS}
    betas, edges = [], []
    for t, stage in enumerate(stages):
        betas.append([])
        edges.append([])
        for k in CLIENTS:
            own, truth = logits["train"][t][k], labels["train"][k]
            wrong = (own.argmax(1) != truth).tolist()
            edge = 0.5 - sum(w for w, e in zip(weights[k], wrong, strict=True) if e) / sum(weights[k])
            epsilon, beta, weights[k] = boosted(own, truth, weights[k])
            n = data.train_sizes[k]
            found = {name: stage["clients"][name][k] for name in CLIENT_KEYS}
            assert found == pytest.approx(
                {
                    "epsilon": epsilon,
                    "beta": beta,
                    "edge": edge,
                    "weight_min": min(weights[k]),
                    "weight_max": max(weights[k]),
                    "effective_samples": n**2 / sum(w**2 for w in weights[k]),
                },
                abs=2e-4,
            )
            betas[t].append(beta)
            edges[t].append(edge)
        least = np.clip(np.min(edges, axis=0), 0, None)
        bound = np.exp(-2 * least**2 * (t + 1)).mean()
        assert stage["error_bound"] == pytest.approx(bound, abs=1e-4)
        for part in ("train", "test"):
            alone = together = total = 0
            for k in CLIENTS:
                votes = [b[k] for b in betas]
                votes = votes if any(votes) else [1.0] * len(votes)
                summed = sum(v * logits[part][s][k] for s, v in enumerate(votes))
                alone += int((logits[part][t][k].argmax(1) == labels[part][k]).sum())
                together += int((summed.argmax(1) == labels[part][k]).sum())
                total += len(labels[part][k])
            assert stage[f"stage_{part}_accuracy"] == pytest.approx(alone / total, abs=1e-6)
            assert stage[f"ensemble_{part}_accuracy"] == pytest.approx(together / total, abs=1e-6)
        reached = {
            part: best_common_weights(
                [s[: len(CLIENTS)] for s in logits[part][: t + 1]], labels[part], "logit"
            )
            for part in ("train", "test")
        }
        assert stage["hindsight_test_accuracy"] == pytest.approx(reached["test"][0], abs=1e-6)
        assert stage["hindsight_weights"] == pytest.approx(reached["test"][1].tolist(), abs=1e-6)
        assert reached["train"][0] != reached["test"][0], "otherwise it may be the training samples'"
    assert max(max(b) for b in betas) > 0.1, "otherwise nothing was compared"
    assert played.summary["accuracy"] == pytest.approx(stages[-1]["ensemble_test_accuracy"], abs=1e-6)


@pytest.mark.parametrize("hyper", [{}, {"T": 1}, {"T": 2}, {"beta_neg": True}], ids=str)
def test_the_file_has_every_key_for_every_stage_and_client(hyper, staged, launch, tmp_path):
    run = launch(staged(hyper), tmp_path)
    stages = json.loads((run.folder / "diagnostics.json").read_text())["stages"]
    assert [stage["stage"] for stage in stages] == list(range(1, hyper.get("T", 4) + 1))
    assert stages[0]["rounds"][0] == 1
    assert stages[-1]["rounds"][1] == 8
    for stage in stages:
        assert list(stage) == STAGE_KEYS
        assert list(stage["clients"]) == CLIENT_KEYS
        assert all(len(values) == 6 for values in stage["clients"].values())
        assert all(math.isfinite(value) for values in stage["clients"].values() for value in values)
        assert all(0 <= stage[name] <= 1 for name in STAGE_KEYS[3:9])
        assert all(-0.5 <= edge <= 0.5 for edge in stage["clients"]["edge"])


def record(scores, labels, beta, edge):
    made = StageRecord.empty(len(labels))
    made.scores = {"train": scores, "test": scores}
    made.betas[:], made.edges[:] = torch.tensor(beta), torch.tensor(edge)
    return made


@pytest.fixture
def two():
    """Two stages, two clients, two classes: the first stage is right, the second wrong everywhere."""
    labels = [torch.tensor([0, 1]), torch.tensor([1, 1, 0])]
    right = [torch.nn.functional.one_hot(own, 2).float() for own in labels]
    wrong = [-scores for scores in right]
    return right, wrong, labels


def told(records, labels, space="logit"):
    plan = [(t, t, t, []) for t in range(1, len(records) + 1)]
    return describe(records, plan, {"train": labels, "test": labels}, space)["stages"]


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(
    ("betas", "accuracy"),
    [
        (([1.0, 1.0], [0.5, 0.5]), 1.0),
        (([0.5, 0.5], [1.0, 1.0]), 0.0),
        (([1.0, 0.5], [0.5, 1.0]), 0.4),
        (([1.0, 1.0], [-1.0, -1.0]), 1.0),
    ],
)
def test_the_ensemble_follows_each_clients_own_weights(two, space, betas, accuracy):
    right, wrong, labels = two
    made = [record(s, labels, b, [0.0, 0.0]) for s, b in zip((right, wrong), betas, strict=True)]
    found = told(made, labels, space)
    assert found[1]["ensemble_test_accuracy"] == pytest.approx(accuracy)
    # Alone, a stage is judged by its own predictions, whatever its β.
    assert [stage["stage_test_accuracy"] for stage in found] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("edges", "bounds"),
    [
        (([0.5, 0.5], [0.5, 0.5]), (math.exp(-0.5), math.exp(-1))),
        (
            ([0.5, 0.3], [0.2, 0.4]),
            ((math.exp(-0.5) + math.exp(-0.18)) / 2, (math.exp(-0.16) + math.exp(-0.36)) / 2),
        ),
        (([0.5, -0.1], [0.5, 0.5]), ((math.exp(-0.5) + 1) / 2, (math.exp(-1) + 1) / 2)),
        (([0.0, -0.5], [0.5, 0.5]), (1, 1)),
    ],
)
def test_the_bound_uses_each_clients_smallest_edge(two, edges, bounds):
    right, wrong, labels = two
    made = [record(s, labels, [1.0, 1.0], e) for s, e in zip((right, wrong), edges, strict=True)]
    assert [stage["error_bound"] for stage in told(made, labels)] == pytest.approx(bounds, abs=1e-6)


@pytest.mark.parametrize("space", SPACES)
def test_hindsight_is_the_best_of_all_common_weights(space):
    """Four random models: against every combination of tenths, one by one."""
    draws = torch.Generator().manual_seed(3)
    labels = [torch.randint(3, (n,), generator=draws) for n in (9, 5)]
    scores = [[2 * torch.randn(len(own), 3, generator=draws) for own in labels] for _ in range(4)]
    grid = [w for w in itertools.product(range(11), repeat=4) if sum(w) == 10]

    def accuracy(weights):
        made = [summand(torch.cat(stage), space) for stage in scores]
        summed = sum(w / 10 * s.double() for w, s in zip(weights, made, strict=True))
        return float((summed.argmax(1) == torch.cat(labels)).double().mean())

    best, chosen = best_common_weights(scores, labels, space)
    weights = chosen.tolist()
    assert best == pytest.approx(max(map(accuracy, grid)))
    assert accuracy([10 * w for w in weights]) == pytest.approx(best)
    assert sum(weights) == pytest.approx(1)
    assert max(accuracy(w) for w in grid) > accuracy((10, 0, 0, 0)), "otherwise nothing was combined"


@pytest.mark.parametrize(("space", "best"), [("logit", 1.0), ("probability", 0.0), ("vote", 0.0)])
def test_hindsight_sums_what_the_ensemble_sums(space, best):
    """The true class is second in both stages: it wins a sum of logits, and no sum of probabilities."""
    scores = [torch.tensor([p]).log() for p in ([0.899, 0.1, 0.001], [0.001, 0.1, 0.899])]
    labels = [torch.tensor([1])]
    made = [record([own], labels, [1.0], [0.0]) for own in scores]
    first, second = told(made, labels, space)
    assert first["hindsight_test_accuracy"] == 0.0
    assert second["hindsight_test_accuracy"] == best


def test_hindsight_gives_a_wrong_stage_no_say(two):
    right, wrong, labels = two
    made = [record(s, labels, [1.0, 1.0], [0.0, 0.0]) for s in (wrong, right)]
    first, second = told(made, labels)
    assert (first["hindsight_test_accuracy"], first["hindsight_weights"]) == (0.0, [1.0])
    assert second["hindsight_test_accuracy"] == 1.0
    assert second["hindsight_weights"][1] > 0.5


@pytest.mark.parametrize("stages", [1, 2, 5, 9])
def test_hindsight_looks_through_a_bounded_number_of_weights(stages):
    found = [tuple(weights.tolist()) for weights in _simplex(stages)]
    assert len(set(found)) == len(found) <= 1001
    assert all(sum(weights) == pytest.approx(1) for weights in found)
    assert all(tuple(row) in found for row in torch.eye(stages).tolist()), "every stage alone is among them"


def test_records_survive_saving(two):
    right, _, labels = two
    before = record(right, labels, [0.3, 0.7], [0.1, 0.2])
    after = StageRecord.load(before.state())
    assert told([after], labels) == told([before], labels)
