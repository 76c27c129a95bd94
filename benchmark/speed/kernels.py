"""Ways to compute one training step of ten clients: what the executors' choices rest on.

A step is forward and backward of the whole network, for ten clients with parameters and batches of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from pfl_benchmark.datasets.api import DATASETS
from pfl_benchmark.engine.executors.replay import Recorder
from pfl_benchmark.engine.params import expand, row
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.models import Conv, Network, Params, build_network
from pfl_benchmark.speed.clock import timed, wait_for
from pfl_benchmark.speed.workload import COHORT

__all__ = ["WAYS", "kernels"]

BATCH = 10
STEPS = 10  # in a timed call

Way = Callable[[Network, Params, Tensor, Tensor], Params]


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over clients of their mean losses; `logits` [..., B, C]."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum") / targets.shape[-1]


def _gradients(loss: Tensor, params: Params) -> Params:
    return dict(zip(params, torch.autograd.grad(loss, list(params.values())), strict=True))


def one_by_one(network: Network, params: Params, x: Tensor, y: Tensor) -> Params:
    """Client after client, as the executor `loop`."""
    found = []
    for k in range(len(x)):
        own = {name: tensor.requires_grad_() for name, tensor in row(params, k).items()}
        found.append(_gradients(_loss(network.apply(own, x[k]), y[k]), own))
    return {name: torch.stack([one[name] for one in found]) for name in params}


def stacked(way: str) -> Way:
    """All clients at once, convolutions computed by the method of `Conv` called `way`."""

    class Convolution(Conv):
        def apply_stacked(self, params: Any, x: Tensor, dropout: Any = None) -> Tensor:
            return getattr(self, way)(params, x)

    def gradients(network: Network, params: Params, x: Tensor, y: Tensor) -> Params:
        convolutions = [layer for layer in network.layers if isinstance(layer, Conv)]
        network = network.with_layers({layer.name: Convolution(**vars(layer)) for layer in convolutions})
        own = {name: tensor.detach().requires_grad_() for name, tensor in params.items()}
        return _gradients(_loss(network.apply_stacked(own, x), y), own)

    return gradients


def mapped(network: Network, params: Params, x: Tensor, y: Tensor) -> Params:
    """All clients at once, `torch.func.vmap` over the plain network."""

    def loss(own: Params, batch: Tensor, targets: Tensor) -> Tensor:
        return _loss(network.apply(own, batch), targets)

    return vmap(grad(loss))(params, x, y)


# As patches times kernels in one batched product; as one convolution with a group for each client.
WAYS: dict[str, Way] = {
    "loop": one_by_one,
    "bmm": stacked("by_patches"),
    "grouped": stacked("by_groups"),
    "vmap": mapped,
}


def kernels(execution: Execution, repeats: int, cells: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Milliseconds of a step by each way, in turn, with PyTorch's default threads and with one."""
    device = execution.pick_device()
    default = torch.get_num_threads()
    for cell in cells:
        network, rng = build_network(cell), np.random.default_rng(0)
        params = expand(network.init(rng, device), COHORT)
        params = {name: tensor.contiguous() for name, tensor in params.items()}
        x = torch.randn(COHORT, BATCH, *DATASETS[cell].shape, device=device)
        y = torch.arange(COHORT * BATCH, device=device).view(COHORT, BATCH) % DATASETS[cell].classes

        def steps(name: str) -> Callable[[], int]:
            def step() -> None:
                WAYS[name](network, params, x, y)  # noqa: B023

            # On a CUDA device what the executors would do with it: a launch for each kernel, or one for all.
            replay = step if name == "loop" else Recorder(device).record(step, lambda: None)

            def call() -> int:
                for _ in range(STEPS):
                    replay()
                wait_for(device)
                return STEPS * COHORT * BATCH

            return call

        for threads in sorted({1, default}) if device.type == "cpu" else [default]:
            torch.set_num_threads(threads)
            try:
                with precision(execution.tf32):
                    results = timed({name: steps(name) for name in WAYS}, repeats)
            finally:
                torch.set_num_threads(default)
            for name, (seconds, samples) in results.items():
                yield {
                    "cell": cell,
                    "way": name,
                    "threads": threads,
                    "clients": COHORT,
                    "milliseconds": 1000 * seconds / STEPS,
                    "samples_per_second": samples / seconds,
                }
