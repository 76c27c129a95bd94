"""FedDPA: a LoRA that is averaged and a personal one, whose outputs are mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from pfl_benchmark.method import (
    Algorithm,
    ClientStore,
    Ledger,
    LocalCall,
    LocalResult,
    Message,
    Params,
    Phase,
    RunContext,
    StackedModel,
    expand,
    low_rank_updates,
    option,
    register,
    select,
    take_part,
    with_second_lora,
)

PERSONAL = "personal"


@dataclass(frozen=True)
class FedDPAHyper:
    """Hyper-parameters of FedDPA."""

    share: float = option(
        0.5, "share of the personal adapter in the sum; the global one has the rest", least=0, most=1,
        search=(0.25, 0.5, 0.75),
    )  # fmt: skip


@register
class FedDPA(Algorithm):
    """A global adapter is trained as by FedAvg; a personal one trains on top of it, and both are evaluated.

    Weights are W + (1 − a) G + a P, with G and P of the same rank. While P trains, G is as received.

    Source: Yang et al., NeurIPS 2024; Lydia-yang/FedDPA code/main.py, code/fed_utils/client.py and
    code/peft/tuners/lora/layer.py. Runs need ``--adapters lora:r=…``.

    Defaults: share 0.5 (``local_weight``); P trains for as many epochs as G. The README has rank 8, 8 clients
    that all take part, and 10 epochs of AdamW at 3e-4; main.py a factor of 2 (``alpha=16``).

    Deviations: one share for all samples. Officially it follows each test sample: the mean cosine similarity
    of its last hidden state to those of some training samples, times 0.5. The last layer, which trains here
    and has no counterpart there, is twofold: one is averaged with G, one is P's own. P trains from the first
    round on (officially from the second), and LoRA has no dropout (0.05 there). While P trains, its gradient
    passes through G's output, as the loss has it; their code detaches that output, so layers below learn less
    from it. This is FedDPA-T; FedDPA-F, where P begins as G after the last round and trains alone, is
    FedAvg+FT for a share of 1. Their code trains language models of gigabytes, so it was read and not run
    beside this one.

    Traps: in training ``local_weight`` is the share of P; in code/GlobalModel_generated.py the similarity
    weights G, and P has the rest.
    """

    name = "feddpa"
    title = "FedDPA"
    reference = "Yang et al., NeurIPS 2024; Lydia-yang/FedDPA"
    group = "ensembles"
    publication = (
        "Dual-Personalizing Adapter for Federated Foundation Models",
        "Yang, Yiyuan and Long, Guodong and Shen, Tao and Jiang, Jing and Blumenstein, Michael",
        "NeurIPS",
        2024,
        "https://arxiv.org/abs/2403.19211",
    )
    pseudocode = (
        "P_k ← SGD on the weights W + (1 − a) G + a P_k, G fixed",
        "G_k ← SGD on the weights W + G_k; G ← mean of the G_k, P_k stays",
        "evaluate W + (1 − a) G + a P_k",
    )
    Hyper = FedDPAHyper
    tuning = ({"share": 0.25}, {"share": 0.75})
    needs_adapters = "lora"

    def __init__(self, task: RunContext, hyper: FedDPAHyper) -> None:
        super().__init__(task, hyper)
        self.both = with_second_lora(self.network, PERSONAL, hyper.share)
        rng = task.streams.get("init personal")
        self.adapter = {
            name: torch.from_numpy(value).to(task.data.device)
            for update in low_rank_updates(self.both)
            if update.kind == PERSONAL
            for name, value in update.draw(rng).items()
        }  # P at the start
        last = select(task.initial, self.network.keys(self.network.names[-1:]))
        self.clients = ClientStore({**self.adapter, **last}, task.data.clients)

    def phases(self, round: int) -> list[Phase]:
        return [self._own_phase(), *super().phases(round)]

    def _own_phase(self) -> Phase:
        """Training of the personal adapter and the last layer; the global adapter does not move."""
        (common,) = super().phases(1)
        fixed = [name for update in low_rank_updates(self.network) for name in update.names]
        masks = {name: torch.zeros_like(self.task.initial[name]) for name in fixed}
        return replace(common, model=PERSONAL, stream="batches-personal", masks=masks)

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server, first=self.clients.initial)

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        call.models[PERSONAL] = self._both_of(clients, message.common)
        return call

    def _both_of(self, clients: Sequence[int], message: Params) -> StackedModel:
        """The model of both adapters, with the personal last layer where there is one."""
        common = expand({**message, **self.adapter}, len(clients))
        return StackedModel(self.both, {**common, **self.clients.gather(clients)})

    def keep(self, outcome: LocalResult) -> None:
        self.clients.scatter(outcome.clients, outcome.models[PERSONAL])

    def assemble(self, clients: Sequence[int], message: Params) -> Params:
        """The global model, of which nothing is kept."""
        return expand(message, len(clients))

    def admit(self, clients: Sequence[int], epochs: int, ledger: Ledger) -> None:
        take_part(self, clients, [replace(self._own_phase(), epochs=epochs)], ledger)

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        return [self._both_of(clients, self.server)]

    def capacities(self) -> list[tuple[int, int]]:
        return [(self.network.count(), sum(tensor.numel() for tensor in self.clients.initial.values()))]
