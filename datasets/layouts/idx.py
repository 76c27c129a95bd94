"""MNIST's idx files, gzipped or not: torchvision's folder and Debian's package have them."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.layouts.base import Files, Half, require, unreadable

__all__ = ["IdxFiles"]

_UBYTE = 8  # idx's code for unsigned bytes


@dataclass(frozen=True)
class IdxFiles:
    """`<train>-images-idx3-ubyte`, `<train>-labels-idx1-ubyte` and the same for `<test>`, each perhaps `.gz`.

    transposed: the files hold rows and columns exchanged.
    """

    folder: str
    train: str
    test: str
    transposed: bool = False
    title: ClassVar[str] = "idx files"

    def find(self, root: Path) -> Files | None:
        """Return the files below `root`, None where there is none; UserError where some are missing."""
        folder = root / self.folder
        return require(Files(_pair(folder, self.train), _pair(folder, self.test)), self.title)

    def read(
        self, paths: Sequence[Path], shape: tuple[int, ...], half: Half
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return images uint8 [N, *shape] and labels int64 [N]; UserError for a damaged file."""
        images, labels = paths
        x, y = _read_array(images, ndim=3), _read_array(labels, ndim=1)
        if len(x) != len(y):
            raise unreadable(
                labels, f"as many labels as {images.name} has images ({len(x)})", f"it has {len(y)}"
            )
        return (x.transpose(0, 2, 1) if self.transposed else x)[:, None], y.astype(np.int64)


def _pair(folder: Path, prefix: str) -> tuple[Path, ...]:
    """Return the image and the label file, the plain one where both kinds are there."""
    plain = [folder / f"{prefix}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")]
    gzipped = [path.with_name(path.name + ".gz") for path in plain]
    return tuple(g if g.is_file() and not p.is_file() else p for p, g in zip(plain, gzipped, strict=True))


def _read_array(path: Path, ndim: int) -> np.ndarray:
    """Return the array of an idx file: magic (0, 0, type, ndim), big-endian int32 sizes, then the bytes."""
    expected = f"a complete idx{ndim}-ubyte file"
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, expected, error) from error
    header = 4 + 4 * ndim
    if len(content) < header or tuple(content[:4]) != (0, 0, _UBYTE, ndim):
        raise unreadable(path, expected, "it does not begin like one")
    sizes = [int(size) for size in np.frombuffer(content, dtype=">i4", count=ndim, offset=4)]
    if min(sizes) < 0 or len(content) - header != math.prod(sizes):
        raise unreadable(
            path, expected, f"it holds {len(content) - header} bytes instead of {' x '.join(map(str, sizes))}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(sizes)
