"""How exactly a CUDA device multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["precision"]


@contextmanager
def precision(tf32: bool) -> Iterator[None]:
    """Allow or forbid TF32 (factors of 10 instead of 23 bits after the point) for the time of a block.

    PyTorch's own default allows it in cuDNN's convolutions but not in matrix products, so that two ways to
    compute one convolution differ. Here it is both or neither; CPUs are not concerned.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
