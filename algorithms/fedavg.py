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
    group = "global"
    publication = (
        "Communication-Efficient Learning of Deep Networks from Decentralized Data",
        "McMahan, Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and Agüera y Arcas, Blaise",
        "AISTATS",
        2017,
        "https://arxiv.org/abs/1602.05629",
    )
    pseudocode = (
        "send w to the participants",
        "w_k ← SGD(w) on client k",
        "w ← mean of the w_k",
    )

    def shared_rounds(self) -> list[SharedRounds]:
        return [SharedRounds("fedavg", self.task.rounds)]
