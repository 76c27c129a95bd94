"""Encoded images as one array."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pfl_benchmark.datasets.layouts.base import one_line
from pfl_benchmark.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Encoded", "decode"]

_GREY, _COLOURED = ("1", "L", "LA"), ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV")
_MOST = 16 * 2**30  # bytes of decoded images

Encoded = tuple[str, Callable[[], bytes]]  # where an image is, for messages, and its content


def decode(images: Sequence[Encoded], side: int) -> np.ndarray:
    """Decode images.

    Args:
        side: height and width that all are scaled to; 0: they must have one size.

    Returns:
        uint8 [N, C, H, W]; C is 1 if all images are grey, else 3.

    Raises:
        UserError: an image is damaged, of another size or not of 8 bits; or all together are too large.
    """
    modes: set[str] = set()
    sizes: dict[tuple[int, int], str] = {}
    for place, read in images:
        mode, size = _header(place, read)
        modes.add(mode)
        sizes.setdefault(size, place)
    if not side and len(sizes) > 1:
        (one, first), (other, second) = list(sizes.items())[:2]
        raise UserError(
            f"images have different sizes: {one[0]}x{one[1]} in {first}, {other[0]}x{other[1]} in {second}; "
            "add a side behind PATH to scale all, such as PATH@32"
        )
    width, height = (side, side) if side else next(iter(sizes))
    channels = 1 if modes <= {*_GREY} else 3
    bytes_needed = len(images) * channels * height * width
    if bytes_needed > _MOST:
        raise UserError(
            f"{len(images):,} images of {height}x{width} pixels take {bytes_needed / 2**30:.0f} GiB of "
            "memory; add a side behind PATH to scale them down, such as PATH@64"
        )
    x = np.empty((len(images), channels, height, width), dtype=np.uint8)
    for row, (place, read) in enumerate(images):
        x[row] = _pixels(place, read, channels, side)
    return x


def _open(place: str, read: Callable[[], bytes]) -> Image.Image:
    from PIL import Image

    try:
        return Image.open(io.BytesIO(read()))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _damaged(place, error) from error


def _damaged(place: str, error: Exception) -> UserError:
    why = (
        "it is no image in a format that Pillow knows" if "cannot identify" in str(error) else one_line(error)
    )
    return UserError(f"{place} could not be read as an image: {why}; replace or remove it")


def _header(place: str, read: Callable[[], bytes]) -> tuple[str, tuple[int, int]]:
    with _open(place, read) as image:
        if image.mode not in (*_GREY, *_COLOURED):
            raise UserError(
                f"{place} is an image of mode {image.mode}; expected 8 bits a channel: convert it, for "
                "example to PNG of mode L or RGB"
            )
        return image.mode, image.size


def _pixels(place: str, read: Callable[[], bytes], channels: int, side: int) -> np.ndarray:
    from PIL import Image

    with _open(place, read) as image:
        try:
            plain = image.convert("L" if channels == 1 else "RGB")
            if side:
                plain = plain.resize((side, side), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, ValueError) as error:  # a file that was cut off
            raise _damaged(place, error) from error
        pixels = np.asarray(plain)
    return pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)
