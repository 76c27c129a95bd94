"""`Picture`: a figure drawn by Matplotlib, and the settings under which it is drawn and written.

Matplotlib's objects are used directly, without pyplot, so that figures can be made anywhere.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from pfl_benchmark.render.style import SETTINGS

_DPI = 150
_COLOURS = 256  # of a PNG file: documents show these files, which so stay below 100 KB


@dataclass(frozen=True)
class Picture:
    """A finished figure.

    Attributes:
        name: of its files.
        caption: what it shows.
    """

    name: str
    title: str
    caption: str
    figure: Figure

    def to_svg(self) -> str:
        """The figure as text of an SVG file; letters are drawn as shapes, so no font is needed."""
        return self._saved("svg", {"Date": None}).decode()

    def to_png(self) -> bytes:
        """The figure as a PNG file, of few colours so that it is small."""
        drawn = Image.open(io.BytesIO(self._saved("png", {"Software": None}))).convert("RGB")
        buffer = io.BytesIO()
        few = drawn.quantize(_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(buffer, "png", optimize=True, dpi=(_DPI, _DPI))
        return buffer.getvalue()

    def to_pdf(self) -> bytes:
        """The figure as a PDF file, its letters as text."""
        return self._saved("pdf", {"CreationDate": None})

    def _saved(self, kind: str, metadata: dict[str, None]) -> bytes:
        buffer = io.BytesIO()
        with styled():
            self.figure.savefig(buffer, format=kind, dpi=_DPI, metadata=metadata)
        return buffer.getvalue()


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's settings while a figure is made or saved."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a person's own settings must not change the figures
        matplotlib.rcParams.update(SETTINGS)
        yield
