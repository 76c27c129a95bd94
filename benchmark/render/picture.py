"""`Picture`: a figure drawn by Matplotlib, and the settings under which it is drawn and written.

Matplotlib's objects are used directly, without pyplot, so that figures can be made anywhere.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure

grey = "#5f5f5f"
_STYLE: dict[Any, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": grey,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.color": grey,
    "ytick.color": grey,
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
    "text.color": "#222222",
    "axes.labelcolor": "#222222",
    "lines.linewidth": 1.3,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "pfl-benchmark",  # the same figure is the same file
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
}
_DPI = 160


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
        """The figure as a PNG file."""
        return self._saved("png", {"Software": None})

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
        matplotlib.rcParams.update(_STYLE)
        yield
