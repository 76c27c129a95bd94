"""FedAvg: one global model, the mean of the participants' local models."""

from __future__ import annotations

from pfl_benchmark.method import Algorithm, SharedRounds, register


@register
class FedAvg(Algorithm):
    """All layers are shared, and every client is evaluated with the last aggregate.

    Source: McMahan et al., AISTATS 2017; paper, equation 3. There is no official code.

    Defaults: those of the common protocol; the publication tunes rate, batch size and epochs.

    Deviations: the mean is unweighted, as in the paper's Algorithm 1 (``--aggregation samples`` for McMahan's
    weights).
    """

    name = "fedavg"
    title = "FedAvg"
    reference = "McMahan et al., AISTATS 2017"

    def shared_rounds(self) -> list[SharedRounds]:
        return [SharedRounds("fedavg", self.task.rounds)]
