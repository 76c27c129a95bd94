"""pFedFDA: shared body, and a head computed from class statistics instead of trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from pfl_benchmark.algorithms.gaussian_head import START, Gaussians, class_prior, fit, head, one_thread
from pfl_benchmark.method import (
    Algorithm,
    ClientStore,
    LocalCall,
    LocalResult,
    Message,
    Params,
    Phase,
    RunContext,
    StackedModel,
    finest,
    option,
    register,
)

EVALUATION = 0  # the "round" of the folds drawn in evaluations, so that each evaluation draws the same ones
LEAST_EVALUATED = 3  # samples below which an evaluated client takes the common mean of a class

# A client's features [N, d] and labels [N], in float64 on the CPU.
Sample = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class PFedFDAHyper:
    """Hyper-parameters of pFedFDA."""

    cov_reg: str = option(
        "official",
        "regularisation of a client's covariance: 1e-4 everywhere + I as in the official code, or 1e-4 I",
        choices=("official", "eps_I"),
        search=("official", "eps_I"),
    )
    fda_feats: str = option(
        "all_epochs",
        "features that training statistics are made of: those seen in all local epochs or in the last one, "
        "or those of one pass after training",
        choices=("all_epochs", "last_epoch", "eval_pass"),
    )
    single_beta: bool = option(
        False,
        "one interpolation coefficient for means and covariance",
        search=(False, True),
    )
    few_samples: str = option(
        "common",
        "what the features of an evaluated client's classes of one or two samples are centred on for its "
        "covariance: the common mean, or the client's own one, as in the official code",
        choices=("common", "own"),
        absent="common",
    )


@register
class PFedFDA(Algorithm):
    """The body is trained under a frozen Gaussian head; body and class statistics are averaged.

    The server holds the body, class means M [C, d] and one covariance Σ [d, d] (d = inputs of the last layer,
    which is never sent). Every participant sets its last layer to the Bayes rule of (M, Σ) with its own class
    frequencies, trains the body, estimates means and covariance of its features and sends them interpolated
    with (M, Σ); cross-validation chooses the coefficients (b_μ, b_Σ). A client is evaluated with the head of
    its statistics under the last body, interpolated with the last (M, Σ) in the same way; there is no
    fine-tuning.

    Source: McLaughlin and Su, NeurIPS 2024; cj-mclaughlin/pFedFDA clients/client_fedfda.py and
    servers/server_fedfda.py.

    Defaults: the official ones but `few_samples` (traps), I added to the covariance included. Without it
    (``eps_I``) the head's weights grow with one over the smallest variance: on the digits training collapses
    or diverges at a learning rate of 0.01 or 0.001, not at 0.0001. The aggregation is weighted by samples,
    unlike that of the other methods here. Official weight decay: ``--weight-decay 5e-4`` (there also on
    biases, which the flag spares).

    The passes over a client's training data that give its statistics do not count as samples.

    Deviations: the last short batch of an epoch is kept; there it is dropped, also from the features that an
    evaluated client's statistics are made of. The coefficients are found by SLSQP in the unit square, there
    by L-BFGS with clipping (torchmin). Halves for the cross-validation are dealt class by class, there by
    scikit-learn's StratifiedKFold with the same seed every time.

    Traps: an evaluated client's classes of one or two samples take the common mean. The official guard that
    would centre their features on it, too, counts all samples instead of the class's and never fires: they
    are centred on the client's own mean, as here with ``--set few_samples=own``. With ``all_epochs``, as
    official, copies of a sample fall into both folds, which favours the local statistics during training (not
    in evaluation); the other values of `fda_feats` avoid that.
    """

    name = "pfedfda"
    title = "pFedFDA"
    reference = "McLaughlin and Su, NeurIPS 2024; cj-mclaughlin/pFedFDA"
    group = "prototypes"
    publication = (
        "Personalized Federated Learning via Feature Distribution Adaptation",
        "McLaughlin, Connor J. and Su, Lili",
        "NeurIPS",
        2024,
        "https://arxiv.org/abs/2411.00329",
    )
    pseudocode = (
        "head ← Bayes rule of the class means M and covariance Σ",
        "θ_k ← SGD(θ) under that head; (M_k, Σ_k) ← features', interpolated with (M, Σ)",
        "(θ, M, Σ) ← means of the (θ_k, M_k, Σ_k)",
    )
    images_only = True
    needs_bias = True
    Hyper = PFedFDAHyper
    refuses: ClassVar[Mapping[str, str]] = {
        "local_steps": "whose statistics are those of the features seen in whole epochs"
    }
    tuning = ({"cov_reg": "eps_I"}, {"fda_feats": "eval_pass"}, {"single_beta": True})
    aggregation = "samples"

    def __init__(self, task: RunContext, hyper: PFedFDAHyper) -> None:
        super().__init__(task, hyper)
        self._last = task.network.names[-1]
        weight = task.initial[f"{self._last}.weight"]
        classes, width = weight.shape
        means = task.streams.get("init", 1).random((classes, width))  # round 0 of this stream is θ_0
        self.server["means"] = torch.from_numpy(means).to(weight)
        self.server["covariance"] = torch.eye(width).to(weight)
        # Coefficients of the last participation: what a failed search falls back on.
        start = torch.tensor(START, dtype=finest(weight.device), device=weight.device)
        self.clients = ClientStore({"coefficients": start}, task.data.clients)
        self._evaluated: dict[int, tuple[float, float]] = {}  # of the last evaluation, for the record only

    @property
    def remedies(self) -> list[str]:
        """The regularisation without which weights of the head explode."""
        return [*super().remedies, *["--set cov_reg=official"] * (self.hyper.cov_reg != "official")]

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names[:-1]

    def personal_layers(self) -> tuple[str, ...]:
        return ()

    def phases(self, round: int) -> list[Phase]:
        body = Phase.of(self.shared_layers(), self.config.lr, self.local_work)
        return [body if self.hyper.fda_feats == "eval_pass" else replace(body, collect=self._last)]

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        self._install(call.models["model"].params, [_gaussians(message.common)] * len(clients), clients)
        return call

    def upload(self, outcome: LocalResult) -> Params:
        model, clients = outcome.models["model"], outcome.clients
        fits = self._fit(clients, self._seen(outcome), _gaussians(self.server), outcome.round, least=1)
        like = self.server["means"]
        sent = {name: model[name] for name in self.network.keys(self.shared_layers())}
        sent["means"] = torch.stack([mixed.means for _, mixed in fits]).to(like)
        sent["covariance"] = torch.stack([mixed.covariance for _, mixed in fits]).to(like)
        chosen = torch.tensor([b for b, _ in fits], dtype=finest(like.device), device=like.device)
        outcome.found = {"coefficients": chosen}
        return sent

    def keep(self, outcome: LocalResult) -> None:
        self.clients.scatter(outcome.clients, outcome.found)

    def shared_model(self) -> Params | None:
        return None  # its head is fitted to each client's samples

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        params = self.assemble(clients, self.server)
        samples = self._pass(params, clients)
        fits = self._fit(clients, samples, _gaussians(self.server), EVALUATION, LEAST_EVALUATED)
        self._evaluated.update(zip(clients, (b for b, _ in fits), strict=True))
        self._install(params, [mixed for _, mixed in fits], clients)
        return [StackedModel(self.network, params)]

    def diagnostics(self) -> dict[str, Any]:
        """Coefficients (b_μ, b_Σ) that the clients were last evaluated with, in the order of the clients."""
        pairs = [self._evaluated[client] for client in sorted(self._evaluated)]
        return {
            name: {"mean": sum(b) / len(b), "min": min(b), "max": max(b), "clients": list(b)}
            for name, b in zip(("b_means", "b_covariance"), zip(*pairs, strict=True), strict=False)
        }

    # -- helpers --------------------------------------------------------------------------------

    @one_thread()
    def _install(self, params: Params, gaussians: Sequence[Gaussians], clients: Sequence[int]) -> None:
        """Make each client's last layer the head of its Gaussians."""
        layers = [head(own, self._prior(k)) for own, k in zip(gaussians, clients, strict=True)]
        for name, tensors in zip(("weight", "bias"), zip(*layers, strict=True), strict=True):
            key = f"{self._last}.{name}"
            params[key] = torch.stack(tensors).to(params[key])

    def _prior(self, client: int) -> Tensor:
        data = self.task.data
        return class_prior(data.labels(client).cpu(), data.classes)

    def _seen(self, outcome: LocalResult) -> list[Sample]:
        """The features that the statistics of a participation are made of."""
        if self.hyper.fda_feats == "eval_pass":
            return self._pass(outcome.models["model"], outcome.clients)
        samples = [_sample(*pair) for pair in outcome.features]
        if self.hyper.fda_feats == "last_epoch":
            sizes = [self.task.data.train_sizes[client] for client in outcome.clients]
            samples = [(z[-n:], y[-n:]) for (z, y), n in zip(samples, sizes, strict=True)]
        return samples

    def _pass(self, params: Params, clients: Sequence[int]) -> list[Sample]:
        """Features of the clients' training data in evaluation mode."""
        stop = self.network.index(self._last)
        outputs = self.task.executor.forward(self.network, params, clients, "train", stop)
        return [
            _sample(z.flatten(1), self.task.data.labels(k)) for z, k in zip(outputs, clients, strict=True)
        ]

    @one_thread()
    def _fit(
        self, clients: Sequence[int], samples: list[Sample], common: Gaussians, round: int, least: int
    ) -> list[tuple[tuple[float, float], Gaussians]]:
        """Each client's coefficients and its Gaussians interpolated with the common ones."""
        previous = self.clients.gather(clients)["coefficients"].tolist()
        return [
            fit(
                *sample,
                common,
                self._prior(client),
                self.task.streams.get("folds", round, client),
                cov_reg=self.hyper.cov_reg,
                single=self.hyper.single_beta,
                least=least,
                previous=before,
                centre=self.hyper.few_samples,
            )
            for client, sample, before in zip(clients, samples, previous, strict=True)
        ]


def _gaussians(message: Params) -> Gaussians:
    return Gaussians(message["means"].cpu().double(), message["covariance"].cpu().double())


def _sample(features: Tensor, labels: Tensor) -> Sample:
    return features.cpu().double(), labels.cpu()
