"""Handwritten characters by their writers, as LEAF and the Hugging Face Hub have them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets import cache
from pfl_benchmark.datasets.data import Dataset, DatasetInfo, Samples
from pfl_benchmark.datasets.layouts.base import unreadable
from pfl_benchmark.datasets.people.leaf_files import leaf_files, read_leaf
from pfl_benchmark.errors import UserError

__all__ = ["Writers"]

_ARRAYS = ("x", "y", "users", "held_out")
_COLUMNS = ("image", "writer_id", "character")
_PIXELS = 28


@dataclass(frozen=True)
class Writers:
    """A `datasets.data.Reader`: LEAF's JSON files, or parquet files with writers, in `femnist/`."""

    builtin: ClassVar[bool] = False

    def load(self, info: DatasetInfo, roots: Sequence[Path], download: bool, embedding: int) -> Dataset:
        """Return all characters, black on white, users in the order of their names.

        Raises UserError where files are missing or damaged.
        """
        for folder in (root / "femnist" for root in roots):
            tables = sorted([*folder.glob("*.parquet"), *folder.glob("data/*.parquet")])
            leaf = {} if tables else leaf_files(folder)
            files = tables or [path for paths in leaf.values() for path in paths]
            if files:
                break
        else:
            looked = [str(root / "femnist") for root in roots]
            raise UserError(
                f"dataset '{info.name}' was not found: looked for LEAF's data/train/*.json and "
                f"data/test/*.json and for *.parquet in {' and '.join(looked)}; make it with LEAF's "
                "preprocess.sh, or get it by `hf download flwrlabs/femnist --repo-type dataset --local-dir "
                f"{looked[0]}`, or name another folder with --data-dir or PFL_DATA_DIR"
            )
        arrays = cache.cached(
            info.name,
            files,
            folder,
            lambda: _of_tables(tables) if tables else _of_leaf(leaf),
            _ARRAYS,
        )
        if arrays["y"].min() < 0 or arrays["y"].max() >= info.classes:
            raise UserError(
                f"{folder} has labels beyond 0..{info.classes - 1}: it is not {info.title}; replace it"
            )
        samples = Samples(arrays["x"], arrays["y"])
        held_out = arrays["held_out"] if arrays["held_out"].any() else None
        source = str(folder) + info.partial(len(samples))
        return info.holding(samples, samples, source, users=arrays["users"], held_out=held_out)


def _of_leaf(files: dict[str, list[Path]]) -> dict[str, np.ndarray]:
    people = read_leaf(files)
    first = next(iter(files.values()))[0]
    names = sorted(people.x)
    try:
        x = np.array([x for name in names for x in people.x[name]], dtype=np.float64)
        x = np.round(255 * x.reshape(-1, 1, _PIXELS, _PIXELS))
        y = np.array([y for name in names for y in people.y[name]], dtype=np.int64)
        if not len(x) or x.min() < 0 or x.max() > 255:
            raise ValueError("pixels are not within 0 and 1")
    except (ValueError, TypeError) as error:
        raise unreadable(first, f"images of {_PIXELS}x{_PIXELS} grey levels from 0 to 1", error) from error
    sizes = [len(people.y[name]) for name in names]
    held = [
        np.arange(size) >= size - people.held_out.get(name, 0)
        for name, size in zip(names, sizes, strict=True)
    ]
    users = np.repeat(np.arange(len(names)), sizes)
    return {"x": x.astype(np.uint8), "y": y, "users": users, "held_out": np.concatenate(held)}


def _of_tables(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    x, y, writers = [], [], []
    for path in paths:
        try:
            for batch in pq.ParquetFile(path).iter_batches(batch_size=4096, columns=list(_COLUMNS)):
                for content in batch.column("image").field("bytes").to_pylist():
                    with Image.open(io.BytesIO(content or b"")) as image:
                        x.append(np.asarray(image.convert("L")))
                y += batch.column("character").to_pylist()
                writers += batch.column("writer_id").to_pylist()
            if wrong := next((one.shape for one in x if one.shape != (_PIXELS, _PIXELS)), None):
                raise ValueError(f"an image has {wrong}")
        except (OSError, ValueError, KeyError, TypeError, SyntaxError, pa.ArrowException) as error:
            raise unreadable(
                path, f"the columns {', '.join(_COLUMNS)} with images of 28x28", error
            ) from error
    _, users = np.unique(np.array(writers), return_inverse=True)
    order = np.argsort(users, kind="stable")
    labels = np.array(y, dtype=np.int64)
    return {
        "x": np.stack(x)[order][:, None],
        "y": labels[order],
        "users": users[order].astype(np.int64),
        "held_out": np.zeros(len(labels), dtype=bool),
    }
