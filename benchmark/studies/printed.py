"""The figures that a publication prints, to stand beside ours."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pfl_benchmark.errors import UserError


@dataclass(frozen=True)
class PrintedTable:
    """One table of a publication.

    Attributes:
        name: as in the file's column ``table``.
        file: a CSV file with the columns table, dataset, K, S_or_alpha, method, accuracy (in percent).
    """

    name: str
    file: Path = field(repr=False)

    def accuracy(self, place: tuple[str, str, str] | None, method: str) -> float | None:
        """The printed accuracy (0..1) of one cell; None where there is none.

        Args:
            place: dataset, K, and S or alpha, as the file writes them.

        Raises:
            UserError: the file is not there.
        """
        return None if place is None else _figures(self.file).get((self.name, *place, method))

    def digest(self) -> str:
        """Changes with the file."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest() if self.file.exists() else ""


@cache
def _figures(file: Path) -> dict[tuple[str, ...], float]:
    """By table, dataset, K, S or alpha, and method."""
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
    except OSError as error:
        raise UserError(
            f"cannot read the printed figures: {file}: {error.strerror}; the file belongs to the checkout"
        ) from error
    keys = ("table", "dataset", "K", "S_or_alpha", "method")
    return {tuple(row[key] for key in keys): float(row["accuracy"]) / 100 for row in rows if row["accuracy"]}
