"""A network with one client's tensors as a `torch.nn.Module`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from pfl_benchmark.models.network import Network


class ClientModel(nn.Module):
    """One client's model.

    Its ``state_dict`` has the names of the network's tensors, such as ``conv1.weight``. ``forward`` takes
    samples as the network was trained on them; `preprocess` makes these of images.

    Args:
        network: what to compute.
        tensors: its parameters and buffers by name.
        mean, std: per channel, of images scaled to 0..1; empty for other samples.
    """

    def __init__(
        self, network: Network, tensors: Mapping[str, Tensor], mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.network = network
        self._names = network.keys()
        self._mean, self._std = tuple(mean), tuple(std)
        for name in self._names:
            *parts, last = name.split(".")
            place: nn.Module = self
            for part in parts:
                if part not in dict(place.named_children()):
                    place.add_module(part, nn.Module())
                place = place.get_submodule(part)
            if name in network.buffers:
                place.register_buffer(last, tensors[name].clone())
            else:
                place.register_parameter(last, nn.Parameter(tensors[name].clone()))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, C] of the samples `x` [B, ...]."""
        tensors = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        return self.network.apply(tensors, x, dropout=partial(_mask, x.device) if self.training else None)

    def preprocess(self, images: Tensor) -> Tensor:
        """What `forward` takes, of images uint8 [B, channels, height, width].

        Raises:
            TypeError: the network reads no images.
        """
        if not self._mean:
            raise TypeError("this network reads no images; give forward its samples as they are stored")
        mean, std = (
            torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (self._mean, self._std)
        )
        return (images.float() / 255 - mean) / std


def _mask(device: torch.device, shape: tuple[int, ...], rate: float) -> Tensor:
    """A dropout mask, scaled."""
    return torch.bernoulli(torch.full(shape, 1 - rate, device=device)) / (1 - rate)
