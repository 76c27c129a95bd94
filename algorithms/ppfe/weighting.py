"""Sample weights of PPFE: what each client trains with, and how the end of a stage changes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pfl_benchmark.algorithms.ppfe.ensemble import ensemble_weights, weighted_scores
from pfl_benchmark.algorithms.ppfe.hyper import PPFEHyper
from pfl_benchmark.algorithms.ppfe.reweight import Reweighted, reweight
from pfl_benchmark.algorithms.ppfe.stages import Stage
from pfl_benchmark.method import LocalCall, Objective, RunContext, Step, as_logits

SMALLEST = 1e-30  # sum of a batch's weights that is divided by; without a sample it is 0
HOLDOUT = 0.2  # share of a client's training samples under ``beta_data=holdout20``


class SampleWeights:
    """The weights ω of all clients, and the samples that β is measured on.

    Attributes:
        values: ω of all clients, one after the other [training samples of all].
        judged: by client, the samples that β is measured on and nothing is trained on, boolean [n]; None: all
            are both.
    """

    def __init__(self, task: RunContext, hyper: PPFEHyper) -> None:
        self._task, self._hyper = task, hyper
        sizes = task.data.train_sizes
        self.values = torch.ones(sum(sizes))
        self._bounds = [0, *torch.tensor(sizes).cumsum(0).tolist()]
        self.judged = [self.draw_judged(client) for client in range(task.data.clients)]

    def of(self, client: int) -> Tensor:
        """A client's weights [n], a view."""
        return self.values[self._bounds[client] : self._bounds[client + 1]]

    def draw_judged(self, client: int) -> Tensor | None:
        """The entry of `judged` of a client. A client with a single sample trains on it."""
        if self._hyper.beta_data == "train":
            return None
        count = self._task.data.train_sizes[client]
        chosen = self._task.streams.get("holdout", client=client).permutation(count)
        judged = torch.zeros(count, dtype=torch.bool)
        judged[chosen[: min(max(1, round(HOLDOUT * count)), count - 1)]] = True
        return judged if judged.any() else None

    def give(
        self, call: LocalCall, stage: Stage, weights: Sequence[Tensor], judged: Sequence[Tensor | None]
    ) -> None:
        """Give a call its clients' weights [n each, mean 1], where the stage has any."""
        reweighted = self._hyper.reweight and stage.number > 1
        if not reweighted and self._hyper.beta_data == "train":
            return
        heard = [without(own, left_out) for own, left_out in zip(weights, judged, strict=True)]
        if self._hyper.rw_apply == "resample" and reweighted:
            call.chances = heard
        else:
            call.sample_weights = [own.to(self._task.data.device) for own in heard]

    def objective(self, stage: Stage) -> Objective | None:
        """The loss of a batch in a stage; None: Σ ω ℓ / |B|, as the engine takes it."""
        return weighted_mean if self._hyper.rw_batch == "weighted_mean" and stage.number > 1 else None

    def judge(
        self,
        scores: Sequence[Tensor],
        before: Sequence[float],
        labels: Tensor,
        weights: Tensor,
        judged: Tensor | None,
    ) -> Reweighted:
        """Algorithm 1's Reweight for one client after a stage.

        Args:
            scores: of the client in all closed stages [n, C].
            before: its β of the earlier ones.
        """
        classes, space = self._task.data.classes, self._hyper.ens_space
        result = reweight(scores[-1], labels, weights, classes, self._hyper, judged)
        if self._hyper.rw_target == "ensemble":
            # β of this stage is part of the ensemble that sets it: the stage's own value is provisional.
            betas = [torch.tensor([beta], dtype=torch.float64) for beta in (*before, result.beta)]
            together = weighted_scores(scores, ensemble_weights(betas)[0], space)
            result = reweight(as_logits(together, space), labels, weights, classes, self._hyper, judged)
        return result if self._hyper.reweight else replace(result, weights=weights)


def weighted_mean(step: Step) -> Tensor:
    """Σ ω ℓ / Σ ω of each client's batch [m]; 0 where all weights of the batch are."""
    return step.cross_entropy() / step.sample_weights.sum(1).clamp(min=SMALLEST)


def without(weights: Tensor, judged: Tensor | None) -> Tensor:
    """Weights [n] that are 0 for judged samples, mean 1 over all of the client's samples."""
    if judged is None:
        return weights
    weights = weights * ~judged
    return weights * (len(weights) / weights.sum())
