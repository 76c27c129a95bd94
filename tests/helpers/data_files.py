"""Small files of a made-up image dataset in two layouts, for tests that damage them."""

import gzip
import io
import struct

import numpy as np

from pfl_benchmark.datasets.api import DatasetInfo
from pfl_benchmark.datasets.layouts import ParquetFiles
from pfl_benchmark.datasets.layouts.idx import IdxFiles


def _idx(root, rng):
    for half, count in (("train", 30), ("t10k", 20)):
        x, y = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8), np.arange(count, dtype=np.uint8) % 10
        images = struct.pack(">4B3i", 0, 0, 8, 3, count, 28, 28) + x.tobytes()
        labels = struct.pack(">4B1i", 0, 0, 8, 1, count) + y.tobytes()
        (root / f"{half}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (root / f"{half}-labels-idx1-ubyte").write_bytes(labels)


def _parquet(root, rng):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    for half, count in (("train", 30), ("test", 20)):
        images = []
        for _ in range(count):
            buffer = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (28, 28), dtype=np.uint8)).save(buffer, "PNG")
            images.append({"bytes": buffer.getvalue(), "path": None})
        columns = {"image": images, "label": np.arange(count) % 10}
        pq.write_table(pa.table(columns), root / f"{half}.parquet")


def info_of(name, layout):
    """A dataset that has these files and no others."""
    return DatasetInfo(
        name, name, tuple("0123456789"), (1, 28, 28), (30, 20), (0.5,), (0.5,), layouts=(layout,)
    )


LAYOUTS = {
    "idx": (IdxFiles("files", "train", "t10k"), _idx),
    "parquet": (ParquetFiles("files"), _parquet),
}
