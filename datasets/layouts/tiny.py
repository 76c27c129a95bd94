"""Tiny ImageNet's folders, as the archive unpacks them or with its validation images sorted by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.layouts.base import Files, Half, unreadable
from pfl_benchmark.errors import UserError

__all__ = ["TinyFolders"]

_ENDINGS = (".jpeg", ".jpg", ".png")
_NOTES = "val_annotations.txt"


@dataclass(frozen=True)
class TinyFolders:
    """`train/CLASS/images/*.JPEG`, and `val/images/*.JPEG` with `val/val_annotations.txt`, or sorted as well.

    classes: names of the classes' folders, in their order.
    """

    folder: str
    classes: tuple[str, ...]
    title: ClassVar[str] = "Tiny ImageNet's folders"

    def find(self, root: Path) -> Files | None:
        """Return the images below `root`, None where there is no folder; UserError where a half is missing.

        (The archive's `test` has no labels: `val` is what is tested on.)
        """
        home = root / self.folder
        halves = [home / "train", home / "val"]
        if not any(half.is_dir() for half in halves):
            return None
        train, test = (
            tuple(path for path in sorted(half.rglob("*")) if path.suffix.lower() in _ENDINGS)
            for half in halves
        )
        if not train or not test:
            empty = halves[bool(train)]
            raise UserError(
                f"{self.title} in {home} are incomplete: {empty.name} has no images; unpack it again"
            )
        notes = home / "val" / _NOTES
        return Files(train, ((notes, *test) if notes.is_file() else test))

    def read(
        self, paths: Sequence[Path], shape: tuple[int, ...], half: Half
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return images uint8 [N, *shape] and labels int64 [N]; UserError for a damaged file."""
        from PIL import Image

        noted: dict[str, str] = {}
        if paths[0].name == _NOTES:
            lines = [line.split("\t") for line in paths[0].read_text(encoding="utf-8").splitlines()]
            noted = {cells[0]: cells[1] for cells in lines if len(cells) > 1}
            paths = paths[1:]
        number = {name: label for label, name in enumerate(self.classes)}
        x = np.empty((len(paths), *shape), dtype=np.uint8)
        y = np.empty(len(paths), dtype=np.int64)
        for row, path in enumerate(paths):
            folders = [part for part in path.parts[:-1] if part in number]
            name = folders[-1] if folders else noted.get(path.name, "")
            if name not in number:
                raise unreadable(
                    path, f"an image in a folder of a class, or named in {_NOTES}", "it is in none"
                )
            y[row] = number[name]
            try:
                with Image.open(path) as image:
                    pixels = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
            except (OSError, SyntaxError, ValueError) as error:
                raise unreadable(path, "an image", error) from error
            if pixels.shape != shape:
                raise unreadable(path, f"an image of {shape[1]}x{shape[2]}", f"it has {pixels.shape[1:]}")
            x[row] = pixels
        return x, y
