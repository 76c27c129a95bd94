"""FedFomo: every client mixes the models of a few others by how much they lower its own validation loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.method import (
    Algorithm,
    ClientStore,
    LocalCall,
    LocalResult,
    Message,
    Params,
    RunContext,
    StackedModel,
    add_prefix,
    along,
    option,
    register,
    row,
    select,
    strip_prefix,
)

FIRST, SENDERS, ROW = "first", "senders", "preferences.row"


@dataclass(frozen=True)
class FedFomoHyper:
    """Hyper-parameters of FedFomo."""

    models: int = option(
        4,
        "other clients' models M that a participant receives",
        least=1,
        search=(2, 4, 9),
    )
    holdout: float = option(
        0.2,
        "part of the training samples for validation",
        least=0,
        below=1,
        search=(0.1, 0.2, 0.3),
    )
    epsilon: float = option(
        0.3,
        "chance ε of a random model in place of the best",
        least=0,
        most=1,
        search=(0.1, 0.3, 1.0),
    )
    epsilon_decay: float = option(0.05, "by how much ε falls in every round", least=0)


@register
class FedFomo(Algorithm):
    """Personal models: a participant adds the models that it receives, in proportion to their gains.

    Source: Zhang et al., ICLR 2021, equations 3 to 5; NVlabs/FedFomo federation.py, client.py. A gain is
    (L(first) − L(model)) / ‖model − first‖₁ with the client's validation loss L; `first` is what its last
    training began with, and what it led to is a candidate, too. Models of positive gain are added in shares
    v_n of a sum of 1, w = first + Σ v_n (w_n − first). The server sends models of the last round, those with
    the highest sum of gains so far (clients send that row), each time over the sum of all, or random ones.

    Defaults: M = 4 (or 9), 20 % to validate, ε = 0.3 less 0.05 a round (README.md); L1 norm (args.py). There
    15 clients take part in every round; with a part of them, ε is 0 before most have met.

    Deviations: Validation samples keep their places in the batches, with weight 0, and count as processed:
    batch orders are common to all methods. The model of a client that has not trained yet has no gain. M is
    at most the participants less one. A client begins at θ_0; where not all take part, the official code
    first trains everyone for an epoch. No weight decay (1e-4 there). Clients are evaluated after local
    training (there also before).

    Traps: Clients also receive averages of clusters of clients (`federated_model_dicts` of server.py), which
    the paper does not have. NumPy is seeded alike before each draw of participants: always the same ones.
    """

    name = "fedfomo"
    title = "FedFomo"
    reference = "Zhang et al., ICLR 2021; NVlabs/FedFomo"
    group = "clustered"
    publication = (
        "Personalized Federated Learning with First Order Model Optimization",
        "Zhang, Michael and Sapra, Karan and Fidler, Sanja and Yeung, Serena and Alvarez, Jose M.",
        "ICLR",
        2021,
        "https://arxiv.org/abs/2012.08565",
    )
    pseudocode = (
        "receive models w_n of others",
        "v_n ∝ max(0, (L_k(w) − L_k(w_n)) / ‖w_n − w‖) on validation data",
        "w ← w + Σ_n v_n (w_n − w), then w_k ← SGD(w)",
    )
    Hyper = FedFomoHyper
    tuning = ({"models": 2}, {"models": 9}, {"holdout": 0.1}, {"epsilon": 1.0, "epsilon_decay": 0.0})
    learns_little = True  # messages of several models: fewer rounds under a byte budget

    def __init__(self, task: RunContext, hyper: FedFomoHyper) -> None:
        super().__init__(task, hyper)
        self._models = min(hyper.models, task.schedule.cohort_size - 1)
        start, zeros = task.initial, torch.zeros(task.data.clients, device=task.data.device)
        self.clients = ClientStore({**start, **add_prefix(FIRST, start), ROW: zeros}, task.data.clients)

    def shared_layers(self) -> tuple[str, ...]:
        return ()

    def message(self, clients: Sequence[int], round: int) -> Message:
        """Models of others, and whose they are; what a client has sent last is what it keeps."""
        if round == 1:
            return Message()
        before = self.task.schedule.cohort(round - 1, self.kind(round - 1).full_participation)
        pairs = zip(clients, self.clients.gather(clients)[ROW].tolist(), strict=True)
        chosen = [self._choose(client, before, own, round) for client, own in pairs]
        sent: Params = {SENDERS: torch.tensor(chosen, device=self.task.data.device).long()}
        for number, others in enumerate(zip(*chosen, strict=True)):
            sent |= add_prefix(f"peer{number}", select(self.clients.gather(others), self.network.shapes()))
        return Message(per_client=sent)

    def _choose(self, client: int, uploaded: list[int], preferences: list[float], round: int) -> list[int]:
        rng, found = self.task.streams.get("peers", round, client), list[int]()
        others = rng.permutation([other for other in uploaded if other != client]).tolist()
        best = sorted(others, key=lambda other: -preferences[other])  # ties in random order
        chance = self.hyper.epsilon - (round - 1) * self.hyper.epsilon_decay
        for _ in range(self._models):
            order = rng.permutation(others).tolist() if rng.random() < chance else best
            found.append(next(other for other in order if other not in found))
        return found

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        kept = self.clients.gather(clients)
        start, preferences = select(kept, self.network.shapes()), kept[ROW]
        if message.per_client:
            received = [strip_prefix(f"peer{number}", message.per_client) for number in range(self._models)]
            start, gains = self._mixture(clients, strip_prefix(FIRST, kept), [start, *received])
            preferences = preferences.scatter_add(1, message.per_client[SENDERS], gains[:, 1:])
        models = {
            "model": StackedModel(self.network, {**start, **add_prefix(FIRST, start), ROW: preferences})
        }
        return LocalCall(round, list(clients), models, self.phases(round), list(map(self._weighted, clients)))

    def _mixture(self, clients: Sequence[int], first: Params, models: list[Params]) -> tuple[Params, Tensor]:
        """The clients' mixtures of `first` and N `models`, and the gains [m, N], scaled for preferences."""
        losses = torch.stack([self._losses(clients, model) for model in [first, *models]], 1)
        steps = [{name: model[name] - old for name, old in first.items()} for model in models]
        trained = [select(step, self.network.trainable) for step in steps]
        sizes = [torch.stack([t.abs().flatten(1).sum(1) for t in step.values()]).sum(0) for step in trained]
        gains = (losses[:, :1] - losses[:, 1:]) / torch.stack(sizes, 1)
        gains = gains.nan_to_num(0)  # 0 / 0: it is `first`
        shares, mixed = F.normalize(gains.clamp(min=0), p=1, dim=1), dict(first)
        for share, step in zip(shares.T, steps, strict=True):
            mixed = {name: old + along(share, old) * step[name] for name, old in mixed.items()}
        return mixed, gains / gains.sum(1, keepdim=True).abs().clamp(min=1e-9)

    def _losses(self, clients: Sequence[int], models: Params) -> Tensor:
        """Mean losses [m] on the clients' validation samples."""
        data, held = self.task.data, list(map(self._held_out, clients))
        self.meter.charge(sum(map(len, held)))
        return torch.stack([
            F.cross_entropy(self.network.apply(row(models, m), data.inputs(k)[rows]), data.labels(k)[rows])
            for m, (k, rows) in enumerate(zip(clients, held, strict=True))
        ])  # fmt: skip

    def _held_out(self, client: int) -> list[int]:
        """Positions of a client's validation samples; a single sample serves for both."""
        count = self.task.data.train_sizes[client]
        most = max(1, min(round(self.hyper.holdout * count), count - 1))
        return self.task.streams.get("holdout", client=client).permutation(count)[:most].tolist()

    def _weighted(self, client: int) -> Tensor:
        weights = torch.ones(self.task.data.train_sizes[client])
        weights[self._held_out(client)[: len(weights) - 1]] = 0
        return (weights / weights.mean()).to(self.task.data.device)

    def upload(self, outcome: LocalResult) -> Params:
        return select(outcome.models["model"], [*self.network.shapes(), ROW])

    def aggregate(self, mean: Params) -> None:
        """Nothing: the server hands on the models themselves."""

    def closing(self, clients: Sequence[int]) -> Message:
        return Message()
