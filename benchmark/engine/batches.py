"""Batches that batch normalisation can take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from pfl_benchmark.engine.local import Phase
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import Network


def check_batches(
    network: Network, batch_size: int, sizes: Sequence[int], phases: Iterable[Phase], sample: Tensor
) -> None:
    """Refuse batches of which a network's batch normalisation can make no statistics.

    That is every batch at ``--batch-size 1``; else a client's last batch of an epoch, if it has one sample
    and the network some channel with a single value for it (images of 1 × 1 pixels), which PyTorch refuses,
    or if a step's rule divides it and leaves one part empty. PFLlib drops last batches that are not full,
    FL-bench those of one sample; here every sample is used in every epoch.

    Args:
        sizes: training samples of each client.
        phases: of a participation.
        sample: one network input, of which only shape and type matter.

    Raises:
        UserError: says which numbers do not go together.
    """
    other = "or a --network with group normalisation, such as resnet8-gn"
    if batch_size == 1:
        raise UserError(
            f"--batch-size is 1, and batch normalisation needs several samples; give 2 or more, {other}"
        )
    parts = max((phase.batches for phase in phases), default=1)
    least = 2 if _refuses_one(network, sample) else 1
    for client, size in enumerate(sizes):
        if smallest_batch(size, batch_size, parts) < least:
            choices = (
                n
                for n in range(2, 4 * batch_size)
                if all(smallest_batch(size, n, parts) >= least for size in sizes)
            )
            nearest = min(choices, key=lambda n: abs(n - batch_size), default=None)
            instead = f"give --batch-size {nearest}" if nearest else "give clients other numbers of samples"
            raise UserError(
                f"client {client} has {size} training samples, and --batch-size {batch_size} leaves a batch "
                f"of {smallest_batch(size, batch_size, parts)}, of which batch normalisation can make no "
                f"statistics; {instead}, {other}"
            )


def smallest_batch(size: int, batch_size: int, parts: int = 1) -> int:
    """Samples in the smallest batch of an epoch of `size` samples, where a step takes `parts` batches."""
    left = size % (batch_size * parts)
    return left // parts if left else batch_size


def _refuses_one(network: Network, sample: Tensor) -> bool:
    """Whether some channel has a single value for one sample; nothing is computed."""
    params = {name: torch.empty(shape, device="meta") for name, shape in network.shapes().items()}
    x = torch.empty_like(sample, device="meta").unsqueeze(0)
    try:
        network.apply(params, x, dropout=lambda shape, rate: torch.empty(shape, device="meta"))
    except ValueError:  # PyTorch's "Expected more than 1 value per channel when training"
        return True
    return False
