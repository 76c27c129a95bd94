"""FedAvg+FT: FedAvg, then every client fine-tunes a copy of the final model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pfl_benchmark.algorithms.adaptation import FineTuning, check_fine_tuning, fine_tuning
from pfl_benchmark.algorithms.fedavg import FedAvg
from pfl_benchmark.method import Network, Phase, RunConfig, register


@register
class FedAvgFT(FedAvg):
    """Trains exactly as FedAvg (and shares its run); nothing of the fine-tuning is sent.

    The ablation "lp-ft" is LP-FT (Kumar et al., ICLR 2022): the last layer alone, then everything, by default
    for as many epochs each as the fine-tuning takes, so that its samples are twice those.

    Source: pFedFDA servers/server_fedavg.py, FedRep models/Update.py. The paper says "client-side fine-tuning
    in the final round" without epochs or layers.

    Defaults: 5 epochs on all layers, a local call of the paper's settings as in server_fedavg.py, whatever
    ``--local-epochs`` and ``--local-steps`` are. FedRep fine-tunes the head for 10 epochs: ``--set
    ft_part=head --set ft_epochs=10``.

    Deviations: none known.
    """

    name = "fedavg-ft"
    title = "FedAvg+FT"
    reference = "fine-tuned FedAvg; pFedFDA servers/server_fedavg.py, FedRep models/Update.py"
    group = "fine-tuning"
    pseudocode = (
        "train w as FedAvg",
        "after the last round, on every client: v_k ← SGD(w)",
        "evaluate v_k",
    )
    Hyper = FineTuning
    too_large = ("ft_lr",)
    ablations: ClassVar[Mapping[str, Mapping[str, Any]]] = {"lp-ft": {"ft_head_epochs": 5}}
    tuning = (
        {"ft_epochs": 1},
        {"ft_epochs": 10},
        {"ft_part": "head"},
        {"ft_part": "head", "ft_epochs": 10},  # FedRep models/Update.py
    )

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: FineTuning) -> None:
        check_fine_tuning(hyper)

    def adaptation(self) -> list[Phase]:
        return fine_tuning(self)
