"""A network with one client's tensors as a `torch.nn.Module`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from pfl_benchmark.models.network import Network

_IMAGE = 3  # dimensions of an image


class ClientModel(nn.Module):
    """One client's model.

    Its ``state_dict`` has the names of the network's tensors, such as ``conv1.weight``. ``forward`` takes
    samples as the network was trained on them; `preprocess` makes these of samples as the dataset has them.

    Args:
        network: what to compute.
        tensors: its parameters and buffers by name.
        shape: of a sample.
        mean, std: by which samples are normalised, as `datasets.standardise.moments`; None: texts.
    """

    def __init__(
        self,
        network: Network,
        tensors: Mapping[str, Tensor],
        shape: tuple[int, ...],
        mean: Tensor | None,
        std: Tensor | None,
    ) -> None:
        super().__init__()
        self._network, self._names = network, network.keys()  # layers may have any other name
        self._shape, self._mean, self._std = shape, mean, std
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
        return self._network.apply(tensors, x, dropout=partial(_mask, x.device) if self.training else None)

    def preprocess(self, samples: Tensor | np.ndarray) -> Tensor:
        """What `forward` takes, of samples as the dataset has them.

        Args:
            samples: images uint8 [B, channels, height, width], series [B, channels, steps] or rows [B, F],
                of categories in the order of `Record.features`.

        Raises:
            TypeError: images of other numbers than uint8, or a network that reads texts.
            ValueError: samples of another shape.
        """
        if self._mean is None or self._std is None:
            raise TypeError("this network reads texts; expected images, series or rows")
        x = torch.as_tensor(samples)
        if tuple(x.shape[1:]) != self._shape:
            raise ValueError(f"samples have shape {list(x.shape)}; expected {['B', *self._shape]}")
        if self._mean.ndim == _IMAGE and x.dtype != torch.uint8:
            raise TypeError(f"images are {x.dtype}; expected torch.uint8, pixels from 0 to 255")
        x = x if x.is_floating_point() else x.float()
        return ((x - self._mean.to(x)) / self._std.to(x)).float()


def _mask(device: torch.device, shape: tuple[int, ...], rate: float) -> Tensor:
    """A dropout mask, scaled."""
    return torch.bernoulli(torch.full(shape, 1 - rate, device=device)) / (1 - rate)
