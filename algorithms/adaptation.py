"""Fine-tuning before evaluation, shared by the methods that end with it (no method by itself)."""

from __future__ import annotations

from dataclasses import dataclass

from benchmark.engine.algorithm import Algorithm
from benchmark.engine.hyper import option
from benchmark.engine.local import Phase
from benchmark.models import Network

__all__ = ["FineTuning", "fine_tuning"]


@dataclass(frozen=True)
class FineTuning:
    """How clients adapt a copy of the final model."""

    ft_part: str = option(
        "full",
        "layers that are fine-tuned: all, the last one, or all but it",
        choices=("full", "head", "body"),
    )
    ft_epochs: int = option(5, "epochs of fine-tuning; 0 evaluates the global model", least=0)
    ft_lr: float = option(
        0.0,
        "learning rate of fine-tuning; 0: that of the training (FedBABU analysis.ipynb: 0.001)",
        least=0,
        added=True,
    )


def fine_tuning(algorithm: Algorithm) -> list[Phase]:
    """The phases that ``algorithm.hyper`` (a `FineTuning`) asks for."""
    hyper = algorithm.hyper
    if not hyper.ft_epochs:
        return []
    layers = _part(algorithm.network, hyper.ft_part)
    return [Phase.of(layers, hyper.ft_lr or algorithm.config.lr, hyper.ft_epochs)]


def _part(network: Network, part: str) -> tuple[str, ...]:
    return {"full": network.names, "head": network.names[-1:], "body": network.names[:-1]}[part]
