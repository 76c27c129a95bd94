"""Local training as anybody would write it: as PFLlib and FL-bench train, without tricks or handicaps.

One client after the other, an ordinary `torch.nn.Sequential` (convolution, ReLU, pooling, in PyTorch's
default layout), `torch.optim.SGD`, PyTorch's default threads. Start, data and batches are the engine's, so
that the result is that of the executor `loop` and only the time differs.
"""

from __future__ import annotations

import torch
from torch import nn

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.local import LocalCall, LocalResult
from pfl_benchmark.engine.params import row
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.models import Conv, Linear, Network


def plain_network(network: Network) -> nn.Sequential:
    """The same network of PyTorch's own modules, its parameters in the order of ``network.keys()``.

    A layer that is neither a `Conv` nor a `Linear` without dropout is a TypeError.
    """
    modules: list[nn.Module] = []
    for layer in network.layers:
        if isinstance(layer, Conv):
            sizes = (layer.channels_in, layer.channels_out, layer.kernel)
            modules += [nn.Conv2d(*sizes, padding=layer.padding), nn.ReLU(), nn.MaxPool2d(2)]
        elif isinstance(layer, Linear) and not layer.drops:
            if not any(isinstance(module, nn.Flatten) for module in modules):
                modules.append(nn.Flatten())
            modules += [nn.Linear(layer.inputs, layer.outputs, layer.bias), *[nn.ReLU()] * layer.activation]
        else:
            raise TypeError(f"the plain trainer has no module for {layer}")
    return nn.Sequential(*modules)


class PlainTrainer:
    """Carries out calls of one phase that trains the whole model, as FedAvg's are."""

    def __init__(self, config: RunConfig, data: FederatedData, streams: Streams) -> None:
        self.config, self.data, self.streams = config, data, streams

    def train(self, call: LocalCall) -> LocalResult:
        """Train the call's clients, one after the other."""
        return LocalResult.join([self._train(call, position) for position in range(len(call.clients))])

    def _train(self, call: LocalCall, position: int) -> LocalResult:
        (phase,) = call.phases
        (slot, start), client = next(iter(call.models.items())), call.clients[position]
        model, criterion = plain_network(start.network).to(self.data.device), nn.CrossEntropyLoss()
        names, own = start.network.keys(), row(start.params, position)
        own = dict(zip(model.state_dict(), (own[name] for name in names), strict=True))
        model.load_state_dict(own)
        (rate,) = set(phase.rates.values())
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=self.config.momentum)
        x, y = self.data.inputs(client), self.data.labels(client)
        order, steps, total = self.streams.get(phase.stream, call.round, client), 0, torch.zeros(())
        epochs = phase.epochs
        assert isinstance(epochs, int), "what is measured trains by epochs"
        for _ in range(epochs):
            permutation = torch.from_numpy(order.permutation(len(x))).to(self.data.device)
            total = torch.zeros((), device=self.data.device)
            for batch in permutation.split(self.config.batch_size):
                loss = criterion(model(x[batch]), y[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(batch)
                steps += 1
        trained = (parameter.detach().unsqueeze(0) for parameter in model.parameters())
        models, loss = {slot: dict(zip(names, trained, strict=True))}, (total / len(x)).view(1)
        return LocalResult(call.round, [client], models, loss, len(x) * epochs, steps)
