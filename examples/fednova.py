"""FedNova: clients' changes count by their direction, not by how many steps they have taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from pfl_benchmark.method import Algorithm, LocalResult, Params, along, register

LENGTH = "steps.length"


@register
class FedNova(Algorithm):
    """A client sends its change over the length of its training; the server moves by the mean length.

    Source: Wang et al., NeurIPS 2020, section 4 and equation 9; JYWa/FedNova distoptim/FedNova.py. The length
    a of τ steps with momentum ρ is Σ_t (1 − ρ^t) / (1 − ρ), τ without momentum.

    Deviations: the mean is unweighted unless ``--aggregation samples``, which is the publication's.
    """

    name = "fednova"
    title = "FedNova"
    reference = "Wang et al., NeurIPS 2020; JYWa/FedNova"
    averages = False  # its uploads are changes
    refuses: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("optimizer", "nesterov"), "which knows the length of steps of SGD with momentum alone"
    )

    def upload(self, outcome: LocalResult) -> Params:
        rho, first = self.config.momentum, next(iter(self.server.values()))
        steps = [self.local_steps(client) for client in outcome.clients]
        lengths = [(t - rho * (1 - rho**t) / (1 - rho)) / (1 - rho) for t in steps]
        length, model = torch.tensor(lengths).to(first), outcome.models["model"]
        changes = {n: (old - model[n]) / along(length, model[n]) for n, old in self.server.items()}
        statistics = {name: model[name] for name in self.network.buffers & changes.keys()}
        return {**changes, **statistics, LENGTH: length.unsqueeze(1)}

    def aggregate(self, mean: Params) -> None:
        for name, old in self.server.items():
            moved = old - mean[LENGTH] * mean[name]
            self.server[name] = mean[name] if name in self.network.buffers else moved
