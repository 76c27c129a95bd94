"""Encoded images as one array."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pfl_benchmark.datasets.layouts.base import one_line
from pfl_benchmark.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Encoded", "decode", "describe"]

_GREY, _COLOURED = ("1", "L", "LA"), ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr", "LAB", "HSV")
_ORIENTATION = 274  # EXIF's tag; 1 is upright,
_TURNS, _QUARTERS = range(2, 9), range(5, 9)  # and of these the second have sides exchanged
_MOST = 16 * 2**30  # bytes of decoded images

Encoded = tuple[str, Callable[[], bytes]]  # where an image is, for messages, and its content


def decode(images: Sequence[Encoded], side: int) -> dict[str, np.ndarray]:
    """Decode images: turned as their EXIF data say, transparent ones on white.

    Args:
        side: height and width that all are scaled to; 0: they must have one size.

    Returns:
        x uint8 [N, C, H, W]; C is 1 if all images are grey, else 3. ``transparent``, ``turned`` []:
        how many images are.

    Raises:
        UserError: an image is damaged, of another size, not of 8 bits or too large; or all together are.
    """
    modes: set[str] = set()
    sizes: dict[tuple[int, int], str] = {}
    sides: list[int] = []
    transparent = turned = 0
    for where, read in images:
        content = read()
        with _open(where, content) as image:
            _check_depth(where, image, content)
            modes.add(image.mode)
            transparent += image.has_transparency_data
            turned += (turn := _turn(image)) in _TURNS
            size = image.size[::-1] if turn in _QUARTERS else image.size
        sizes.setdefault(size, where)
        sides += size
    if not side and len(sizes) > 1:
        (one, first), (other, second) = list(sizes.items())[:2]
        raise UserError(
            f"images have different sizes: {one[0]}x{one[1]} in {first}, {other[0]}x{other[1]} in {second}; "
            f"add a side behind PATH to scale all; the median is {np.median(sides):g}: "
            f"PATH@{_proposed(sides)}"
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
    for row, (where, read) in enumerate(images):
        x[row] = _pixels(where, read, channels, side)
    return {"x": x, "transparent": np.array(transparent), "turned": np.array(turned)}


def _proposed(sides: Sequence[int]) -> int:
    """The median side, as a multiple of eight that is allowed."""
    return int(np.clip(round(float(np.median(sides)) / 8), 1, 128)) * 8


def describe(decoded: Mapping[str, np.ndarray]) -> str:
    """What `decode` did to images, and whether they are all alike, in words; empty: nothing to tell."""
    x, told = decoded["x"], []
    if count := int(decoded["transparent"]):
        told.append(f"{count:,} images have transparency, shown on white")
    if count := int(decoded["turned"]):
        told.append(f"{count:,} were turned as their EXIF data say")
    if len(x) > 1 and all((image == x[0]).all() for image in x):
        told.append("all images are equal, so that nothing can be learned of them")
    return "".join(f"; {part}" for part in told)


def _open(where: str, content: bytes) -> Image.Image:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(content))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        most = (Image.MAX_IMAGE_PIXELS or 0) / 1e6
        raise UserError(
            f"{where} has more than {most:.0f} megapixels; expected images that fit into memory by the "
            "thousand: scale it down in its file, or remove it"
        ) from error
    except (OSError, SyntaxError, ValueError) as error:
        raise _damaged(where, error) from error


def _damaged(where: str, error: Exception) -> UserError:
    why = (
        "it is no image in a format that Pillow knows" if "cannot identify" in str(error) else one_line(error)
    )
    return UserError(f"{where} could not be read as an image: {why}; replace or remove it")


def _check_depth(where: str, image: Image.Image, content: bytes) -> None:
    """Refuse more than 8 bits a channel, of which Pillow would keep 8 in coloured images."""
    depth = _depth(image, content)
    if depth > 8 or image.mode not in (*_GREY, *_COLOURED):
        what = f"{depth} bits a channel" if depth > 8 else f"mode {image.mode}"
        raise UserError(
            f"{where} is an image of {what}; expected 8 bits a channel: convert it, for example to PNG of "
            "mode L or RGB"
        )


def _depth(image: Image.Image, content: bytes) -> int:
    """Bits a channel in the file."""
    if image.mode.startswith("I;16"):
        return 16
    if image.format == "PNG":
        return content[24]  # of the IHDR chunk
    if image.format == "TIFF":
        return max(getattr(image, "tag_v2", {}).get(258, (8,)))
    if image.format == "PPM":
        numbers = re.sub(rb"#[^\n]*", b"", content[:200]).split()[1:4]
        return 16 if len(numbers) == 3 and numbers[2].isdigit() and int(numbers[2]) > 255 else 8
    return 8


def _turn(image: Image.Image) -> int:
    """How the camera was held, by EXIF. (Pillow reads whole PNG files in search of it.)"""
    searched = image.format != "PNG" or "exif" in image.info
    return image.getexif().get(_ORIENTATION, 1) if searched else 1


def _pixels(where: str, read: Callable[[], bytes], channels: int, side: int) -> np.ndarray:
    from PIL import Image, ImageOps

    with _open(where, read()) as image:
        try:
            plain = ImageOps.exif_transpose(image) if _turn(image) in _TURNS else image
            if plain.has_transparency_data:
                shown = Image.new("RGBA", plain.size, "white")
                plain = Image.alpha_composite(shown, plain.convert("RGBA"))
            plain = plain.convert("L" if channels == 1 else "RGB")
            if side:
                plain = plain.resize((side, side), Image.Resampling.BILINEAR)
        except (OSError, SyntaxError, ValueError) as error:  # a file that was cut off
            raise _damaged(where, error) from error
        pixels = np.asarray(plain)
    return pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)
