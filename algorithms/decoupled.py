"""Methods that split the network into shared and personal layers (no method by itself)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pfl_benchmark.method import Algorithm, LocalResult, Message, Params, UserError, option, select


@dataclass(frozen=True)
class DecoupledHyper:
    """Hyper-parameters of methods with personal layers."""

    personal_start: str = option(
        "initial",
        "personal layers of a client that has not taken part: the common start, or the mean of those sent in "
        "the last round, as in FedRep's main_fedrep.py; personal layers are then sent as well, and charged",
        choices=("initial", "average"),
        absent="initial",
    )


def check_start(hyper: DecoupledHyper, split: str, shared: bool, personal: bool) -> None:
    """Refuse an averaged start where nothing is personal, or where no server could average it.

    Args:
        split: the hyper-parameter that divides the layers, as typed.
        shared, personal: whether there are such layers.
    """
    if hyper.personal_start == "average" and not (shared and personal):
        lacking = "server to average them" if personal else "personal layers to average"
        raise UserError(f"personal_start=average: {split} leaves no {lacking}; drop it or change the other")


class Decoupled(Algorithm):
    """Keeps personal layers, whose common start may follow the training (``personal_start=average``).

    FedRep's official code averages all entries of the clients' state dicts in place, and a client that is met
    for the first time begins from what it finds there.
    """

    @property
    def _averaging(self) -> bool:
        return self.hyper.personal_start == "average"

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server, first=self.clients.initial if self.server else {})

    def upload(self, outcome: LocalResult) -> Params:
        shared = super().upload(outcome)
        if not self._averaging:
            return shared
        return {**shared, **select(outcome.models["model"], self.clients.initial)}

    def aggregate(self, mean: Params) -> None:
        start = self.clients.initial
        start.update({name: tensor for name, tensor in mean.items() if name in start})
        super().aggregate({name: tensor for name, tensor in mean.items() if name not in start})
