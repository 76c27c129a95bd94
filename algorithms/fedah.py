"""FedAH: FedRep whose head begins, element by element, between the client's own and the average one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pfl_benchmark.algorithms.fedala import FedALA, FedALAHyper
from pfl_benchmark.method import Between, Phase, option, register


@dataclass(frozen=True)
class FedAHHyper(FedALAHyper):
    """Hyper-parameters of FedAH."""

    layers: int = option(1, "last layers that are the head", least=1, search=(1, 2, 3))
    part: float = option(
        1.0, "part of the training samples that the mixture is learned on", least=1e-6, most=1
    )
    eta: float = option(1.0, "learning rate η of the mixture", least=0, search=Between(0.1, 10))
    head_epochs: int = option(1, "epochs of the head, with the body frozen, first", least=0, search=(1, 4))


@register
class FedAH(FedALA):
    """The whole model is averaged; a client mixes heads, trains its head and then the body.

    Source: Zhou et al., arXiv 2412.01295; heyuepeng/FedAH system/flcore/clients/clientah.py. The mixture is
    FedALA's (`FedALA`), of the head and on all training samples. What a client keeps between its
    participations is the head that it has sent.

    Defaults: η = 1, one epoch of the mixture and one of the head (`plocal_epochs`); the body trains for
    --local-epochs.

    Deviations: the mixture is learned by participants and in evaluations, officially by all clients in every
    round. The head that the official code mixes next is the last mixture, here as there if the client has
    taken part since; if not, here the head that it has trained last.

    Traps: FL-bench's version leaves the frozen part to momentum and weight decay, as it sets gradients to 0.
    """

    name = "fedah"
    title = "FedAH"
    reference = "Zhou et al., arXiv 2412.01295; heyuepeng/FedAH"
    group = "decoupled"
    publication = (
        "FedAH: Aggregated Head for Personalized Federated Learning",
        "Zhou, Pengzhan and He, Yuepeng and Zhai, Yijun and Gao, Kaixin and Chen, Chao and Qin, Zhida and "
        "Zhang, Chong and Guo, Songtao",
        "arXiv 2412.01295",
        2024,
        "https://arxiv.org/abs/2412.01295",
    )
    pseudocode = (
        "learn W_k in [0, 1]: head ← h_k + W_k ⊙ (h − h_k), with the body θ",
        "h_k ← SGD(head) with θ frozen, then θ_k ← SGD(θ) with h_k frozen",
        "(θ, h) ← mean of the (θ_k, h_k)",
    )
    Hyper = FedAHHyper
    refuses: ClassVar[Mapping[str, str]] = {
        "local_steps": "which leaves open how long the head trains (head_epochs)"
    }
    tuning: ClassVar[tuple[Mapping[str, Any], ...]] = ({"layers": 2}, {"head_epochs": 4}, {"eta": 0.1})

    def phases(self, round: int) -> list[Phase]:
        layers, lr = self.network.names, self.config.lr
        return [
            Phase.of(layers[self._start :], lr, self.hyper.head_epochs),
            Phase.of(layers[: self._start], lr, self.config.local_epochs),
        ]
