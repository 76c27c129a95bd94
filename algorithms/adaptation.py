"""Fine-tuning before evaluation, shared by the methods that end with it (no method by itself)."""

from __future__ import annotations

from dataclasses import dataclass

from pfl_benchmark.method import Algorithm, Network, Phase, UserError, option


@dataclass(frozen=True)
class FineTuning:
    """How clients adapt a copy of the final model."""

    ft_part: str = option(
        "full",
        "layers that are fine-tuned: all, the last one, or all but it",
        choices=("full", "head", "body"),
        search=("full", "head"),
    )
    ft_epochs: int = option(
        5,
        "epochs of fine-tuning; with 0 of these and of ft_head_epochs the global model is evaluated",
        least=0,
        search=(1, 2, 5, 10),
    )
    ft_head_epochs: int = option(0, "epochs of the last layer alone, before those (LP-FT)", least=0, absent=0)
    ft_lr: float = option(
        0.0,
        "learning rate of fine-tuning; 0: --lr",
        least=0,
        absent=0.0,
    )


def check_fine_tuning(hyper: FineTuning) -> None:
    """Refuse a learning rate for fine-tuning that does not happen."""
    if hyper.ft_lr and not hyper.ft_epochs + hyper.ft_head_epochs:
        raise UserError(
            f"ft_lr={hyper.ft_lr:g}: ft_epochs=0 says that nothing is fine-tuned; drop one of them"
        )


def fine_tuning(algorithm: Algorithm) -> list[Phase]:
    """The phases that ``algorithm.hyper`` (a `FineTuning`) asks for."""
    hyper = algorithm.hyper
    stages = [("head", hyper.ft_head_epochs), (hyper.ft_part, hyper.ft_epochs)]
    lr = hyper.ft_lr or algorithm.config.lr
    return [Phase.of(_part(algorithm.network, part), lr, epochs) for part, epochs in stages if epochs]


def _part(network: Network, part: str) -> tuple[str, ...]:
    return {"full": network.names, "head": network.names[-1:], "body": network.names[:-1]}[part]
