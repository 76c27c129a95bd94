"""How exactly a CUDA device multiplies, and whether always in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def precision(tf32: bool) -> Iterator[None]:
    """Allow or forbid TF32 (factors of 10 instead of 23 bits after the point) for the time of a block.

    PyTorch's own default allows it in cuDNN's convolutions but not in matrix products, so that two ways to
    compute one convolution differ. Here it is both or neither. And cuDNN is kept to algorithms that give the
    same bits every time, for resumed runs to be equal. CPUs are not concerned.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    matmul.allow_tf32 = cudnn.allow_tf32 = tf32
    cudnn.deterministic = True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before
