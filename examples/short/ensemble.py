"""An ensemble: the common model and a model of the client's own vote together."""

from collections.abc import Sequence
from dataclasses import replace

from pfl_benchmark.method import (
    Algorithm,
    ClientStore,
    LocalCall,
    LocalResult,
    Message,
    Phase,
    RunContext,
    StackedModel,
    expand,
    register,
)


@register
class TwoVoices(Algorithm):
    """FedAvg and local training side by side; predictions are the mean of both models' probabilities.

    θ_0, where a client's own model begins, does not count as sent.

    Source: an example of docs/site/extend/method.md.
    """

    name = "two-voices"
    title = "Two voices"
    reference = "an example of docs/site/extend/method.md"
    evaluated = "personal"
    ensemble_space = "probability"

    def __init__(self, task: RunContext, hyper: object) -> None:
        super().__init__(task, hyper)
        self.clients = ClientStore(task.initial, task.data.clients)  # the models of their own

    def phases(self, round: int) -> list[Phase]:
        (common,) = super().phases(round)
        return [common, replace(common, model="own", stream="batches-own")]

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        models = {
            "model": StackedModel(self.network, expand(message.common, len(clients))),
            "own": StackedModel(self.network, self.clients.gather(clients)),
        }
        return LocalCall(round, list(clients), models, self.phases(round))

    def keep(self, outcome: LocalResult) -> None:
        self.clients.scatter(outcome.clients, outcome.models["own"])

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        common = StackedModel(self.network, expand(self.server, len(clients)))
        return [common, StackedModel(self.network, self.clients.gather(clients))]
