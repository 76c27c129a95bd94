"""A step of the server: it goes a part of the way to the mean of the models."""

from dataclasses import dataclass

from pfl_benchmark.method import Algorithm, Params, option, register


@dataclass(frozen=True)
class SlowServerHyper:
    """Hyper-parameters of the example."""

    server_rate: float = option(0.5, "how far the server goes to the mean", least=0, most=1)


@register
class SlowServer(Algorithm):
    """FedAvg whose server moves slowly.

    Source: an example of docs/site/extend/method.md.
    """

    name = "slow-server"
    title = "Slow server"
    reference = "an example of docs/site/extend/method.md"
    Hyper = SlowServerHyper

    def aggregate(self, mean: Params) -> None:
        rate = self.hyper.server_rate
        self.server = {name: old + rate * (mean[name] - old) for name, old in self.server.items()}
