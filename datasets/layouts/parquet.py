"""Parquet files as the Hugging Face hub stores image datasets."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pfl_benchmark.datasets.layouts.base import Files, Half, require, unreadable

if TYPE_CHECKING:
    import pyarrow as pa
    from PIL import Image

__all__ = ["ParquetFiles"]

_IMAGES = ("img", "image")
_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.parquet$")


@dataclass(frozen=True)
class ParquetFiles:
    """`train.parquet` and `test.parquet`, or the hub's shards `train-00000-of-00001.parquet`, in one folder.

    Columns: `img` or `image`, a struct whose `bytes` is an encoded image, and the first of `labels` present.

    prepare: makes an image as the dataset has it of one in the files.
    """

    folder: str
    labels: tuple[str, ...] = ("label",)
    prepare: Callable[[Image.Image], Image.Image] | None = None
    title: ClassVar[str] = "Hugging Face parquet files"

    def find(self, root: Path) -> Files | None:
        """Return the files below `root`, None where there is none; UserError where some are missing."""
        folder = root / self.folder
        return require(Files(_half(folder, "train"), _half(folder, "test")), self.title)

    def read(
        self, paths: Sequence[Path], shape: tuple[int, ...], half: Half
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return images uint8 [N, *shape] and labels int64 [N]; UserError for a damaged file."""
        parts = [self._read_file(path, shape) for path in paths]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])

    def _read_file(self, path: Path, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(path) as file:
                image, label = self._columns(path, file.schema_arrow)
                x = np.empty((file.metadata.num_rows, *shape), dtype=np.uint8)
                y = np.empty(len(x), dtype=np.int64)
                row = 0
                for batch in file.iter_batches(batch_size=4096, columns=[image, label]):
                    rows = slice(row, row + len(batch))
                    _decode(path, row, batch.column(image).field("bytes").to_pylist(), x[rows], self.prepare)
                    y[rows] = batch.column(label).fill_null(-1).to_numpy()
                    row += len(batch)
        except (OSError, pa.ArrowException) as error:
            raise unreadable(path, "a complete parquet file", error) from error
        return x, y

    def _columns(self, path: Path, schema: pa.Schema) -> tuple[str, str]:
        """Return the names of the image and the label column."""
        from pyarrow import types

        image = next((name for name in _IMAGES if name in schema.names), None)
        label = next((name for name in self.labels if name in schema.names), None)
        if (
            image is None
            or label is None
            or schema.names.count(image) + schema.names.count(label) > 2
            or not types.is_struct(schema.field(image).type)
            or not _holds_bytes(schema.field(image).type)
            or not types.is_integer(schema.field(label).type)
        ):
            columns = (
                f"{' or '.join(_IMAGES)} (a struct with 'bytes') and {' or '.join(self.labels)} (integers)"
            )
            raise unreadable(path, f"the columns {columns}", f"it has {', '.join(schema.names)}")
        return image, label


def _holds_bytes(image: pa.StructType) -> bool:
    """Whether the column's entries have one `bytes`, which are bytes."""
    from pyarrow import types

    place = image.get_field_index("bytes")  # -1 for none and for several
    return place >= 0 and (types.is_binary(kind := image.field(place).type) or types.is_large_binary(kind))


def _half(folder: Path, half: str) -> tuple[Path, ...]:
    """Return the files of one half: all shards that the names of those present promise, else one file."""
    found = [(path, _SHARD.search(path.name)) for path in sorted(folder.glob(f"{half}-*-of-*.parquet"))]
    shards = [(path, int(match[1])) for path, match in found if match and int(match[1])]
    if not shards:
        return (folder / f"{half}.parquet",)
    count = shards[0][1]
    return tuple(folder / f"{half}-{shard:05d}-of-{count:05d}.parquet" for shard in range(count))


def _decode(
    path: Path,
    first_row: int,
    images: Iterable[bytes | None],
    out: np.ndarray,
    prepare: Callable[[Image.Image], Image.Image] | None,
) -> None:
    """Decode encoded images into `out` [n, C, H, W]."""
    from PIL import Image

    channels, height, width = out.shape[1:]
    for i, data in enumerate(images):
        try:
            with Image.open(io.BytesIO(data or b"")) as file:
                image = file.convert("L" if channels == 1 else "RGB")
        # Pillow's own list: a broken PNG is a SyntaxError.
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise unreadable(path, "an image in every row", f"row {first_row + i} holds none") from error
        try:
            pixels = np.asarray(prepare(image) if prepare else image)
        except ValueError as error:
            raise unreadable(
                path, "images of this dataset", f"row {first_row + i} holds one {error}"
            ) from error
        if pixels.shape[:2] != (height, width):
            size = f"{pixels.shape[0]}x{pixels.shape[1]}"
            raise unreadable(
                path, f"images of {height}x{width}", f"the one in row {first_row + i} has {size}"
            )
        out[i] = pixels.reshape(height, width, channels).transpose(2, 0, 1)
