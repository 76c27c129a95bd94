"""How many clients fit on a device at the same time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pfl_benchmark.engine.params import gradients
from pfl_benchmark.models import Network

SHARE = 0.8  # of the free memory that is planned with: allocators and libraries want some too


class _Allocations(TorchDispatchMode):
    """Adds up the memory of all results of all operations; on the `meta` device nothing is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._seen: dict[int, torch.UntypedStorage] = {}  # kept, so that no address is used twice

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._seen:
                    self._seen[storage._cdata] = storage
                    self.bytes += storage.nbytes()
        return result


def result_bytes(compute: Callable[[], object]) -> int:
    """Bytes of the results of all operations of `compute`, none of them freed."""
    with _Allocations() as seen:
        compute()
    return seen.bytes


def step_bytes(network: Network, batch: Tensor, copies: int = 5) -> int:
    """Memory of one client's training step as if nothing were freed on the way: an upper bound.

    Args:
        batch: one client's input [B, ...], of which only shape and dtype matter.
        copies: of the parameters, as `Recipe.copies`.
    """
    params = {
        name: torch.empty(1, *shape, device="meta", requires_grad=True)
        for name, shape in network.shapes().items()
    }
    x = torch.empty_like(batch, device="meta").unsqueeze(0)
    targets = torch.empty(len(batch), dtype=torch.int64, device="meta")

    def step() -> None:
        logits = network.apply_stacked(params, x, 0, None, lambda shape, _: torch.empty(shape, device="meta"))
        gradients(cross_entropy(logits[0], targets), list(params.values()))

    return result_bytes(step) + copies * 4 * network.count()


def free_bytes(device: torch.device) -> int:
    """Memory of a CUDA device that this process can still get, what PyTorch keeps for reuse included."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def ran_out(error: RuntimeError) -> bool:
    """Whether a device's memory was too small: PyTorch's own error, or what allocators and libraries say."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return True
    return any(words in str(error) for words in ("out of memory", "ALLOC_FAILED", "can't allocate memory"))


def clients_that_fit(free: int, each: int) -> int:
    """Clients of `each` bytes that `free` bytes are planned for; at least one is always tried."""
    return max(1, int(SHARE * free) // max(1, each))
