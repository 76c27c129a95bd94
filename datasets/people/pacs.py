"""Pictures of four domains: photographs, art, cartoons, sketches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pfl_benchmark.datasets import cache
from pfl_benchmark.datasets.data import Dataset, DatasetInfo, Samples
from pfl_benchmark.datasets.layouts.base import unreadable
from pfl_benchmark.datasets.layouts.images import Encoded, decode
from pfl_benchmark.errors import UserError

__all__ = ["DOMAINS", "Domains"]

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
_HOMES = ("", "kfold", "PACS", "PACS/kfold", "images", "raw")  # where the domains' folders may be
_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_COLUMNS = ("image", "label", "domain")
_ARRAYS = ("x", "y", "users")


@dataclass(frozen=True)
class Domains:
    """A `datasets.data.Reader`: folders DOMAIN/CLASS/, or parquet files, in `pacs/` or `PACS/`.

    side: pixels that images are scaled to.
    """

    builtin: ClassVar[bool] = False
    side: int = 32

    def load(self, info: DatasetInfo, roots: Sequence[Path], download: bool, embedding: int) -> Dataset:
        """Return all images, users the four domains.

        Raises UserError where files are missing or damaged, or a domain has none.
        """
        places = [root / name for root in roots for name in ("pacs", "PACS")]
        for place in places:
            tables, folders = sorted(place.rglob("*.parquet")), _folders(place)
            if tables or folders:
                break
        else:
            raise UserError(
                f"dataset '{info.name}' was not found: looked for *.parquet and the folders "
                f"{', '.join(DOMAINS)} in {' and '.join(map(str, places))}; get it by `hf download "
                f"flwrlabs/pacs --repo-type dataset --local-dir {places[0]}`, or name another folder with "
                "--data-dir or PFL_DATA_DIR"
            )
        files = tables or folders
        arrays = cache.cached(
            f"{info.name}-{self.side}",
            files,
            place,
            lambda: self._decoded(_rows(tables) if tables else _of_folders(folders)),
            _ARRAYS,
            root=place,
        )
        if lacking := [name for number, name in enumerate(DOMAINS) if number not in arrays["users"]]:
            raise UserError(
                f"{place} has no images of the domain {lacking[0]}; expected all of {', '.join(DOMAINS)}"
            )
        samples = Samples(arrays["x"], arrays["y"])
        source = str(place) + info.partial(len(samples))
        return info.holding(samples, samples, source, users=arrays["users"])

    def _decoded(self, rows: list[tuple[Encoded, int, int]]) -> dict[str, np.ndarray]:
        x = decode([image for image, _, _ in rows], self.side)["x"]
        return {
            "x": np.repeat(x, 3 // x.shape[1], axis=1),
            "y": np.array([label for _, label, _ in rows], dtype=np.int64),
            "users": np.array([domain for _, _, domain in rows], dtype=np.int64),
        }


def _folders(place: Path) -> list[Path]:
    """The images in the folders of the domains."""
    home = next((place / home for home in _HOMES if (place / home / DOMAINS[0]).is_dir()), None)
    if home is None:
        return []
    below = [home / domain / name for domain in DOMAINS for name in _CLASSES]
    return [path for folder in below for path in sorted(folder.glob("*")) if path.suffix.lower() in _ENDINGS]


def _of_folders(paths: Sequence[Path]) -> list[tuple[Encoded, int, int]]:
    return [
        ((str(path), path.read_bytes), _CLASSES.index(path.parts[-2]), DOMAINS.index(path.parts[-3]))
        for path in paths
    ]


def _rows(paths: Sequence[Path]) -> list[tuple[Encoded, int, int]]:
    """The images of parquet files; labels and domains are numbers or names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: list[tuple[Encoded, int, int]] = []
    for path in paths:
        try:
            table = pq.read_table(path, columns=list(_COLUMNS))
            contents = [struct["bytes"] for struct in table.column("image").to_pylist()]
            labels = [_number(value, _CLASSES) for value in table.column("label").to_pylist()]
            domains = [_number(value, DOMAINS) for value in table.column("domain").to_pylist()]
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise unreadable(path, f"the columns {', '.join(_COLUMNS)} of PACS", error) from error
        for row, (content, label, domain) in enumerate(zip(contents, labels, domains, strict=True)):
            rows.append(((f"row {row} of {path}", _content(content)), label, domain))
    return rows


def _content(content: Any) -> Callable[[], bytes]:
    return lambda: content or b""


def _number(value: Any, names: Sequence[str]) -> int:
    """The place of a name, or a number that is one."""
    if isinstance(value, str):
        return names.index(value)
    if not 0 <= int(value) < len(names):
        raise ValueError(f"{value} is none of {len(names)}")
    return int(value)
