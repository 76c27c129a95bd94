"""Whether runs were made on the same data: on other copies of a dataset they cannot be compared.

Two copies may differ although their name is the same: a part of the samples, another order, other vectors.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from benchmark.engine.config import RunConfig
from benchmark.errors import UserError

__all__ = ["Data", "copies", "data_for", "data_of", "refuse_other_data"]


@dataclass(frozen=True)
class Data:
    """What a run trained and tested on.

    Attributes:
        kind: what has to be the same in two runs before their data can be: dataset, width of word vectors and
            whether training samples were held out for validation.
        sizes: numbers of training and test samples; empty in records that do not tell (older ones).
        checksum: of all samples and labels; likewise.
    """

    kind: tuple[str, int, bool]
    sizes: tuple[int, ...]
    checksum: str

    def differs(self, other: Data) -> bool:
        """Whether the two are known to be different copies of the same dataset."""
        pairs = ((self.checksum, other.checksum), (self.sizes, other.sizes))
        return self.kind == other.kind and any(one and two and one != two for one, two in pairs)

    def __str__(self) -> str:
        counts = " and ".join(f"{size:,}" for size in self.sizes) or "samples that are not recorded"
        return f"{counts} (checksum {self.checksum})" if self.checksum else counts


def data_of(config: RunConfig, split: Mapping[str, Any]) -> Data:
    """The data of a run, from the description of its split that config.json holds."""
    sizes: tuple[int, ...] = next((tuple(split[name]) for name in split if name.startswith("dataset_")), ())
    return Data(_kind(config), sizes, split.get("data_checksum", ""))


def data_for(config: RunConfig, dataset: datasets.Dataset) -> Data:
    """The data that a run would be made on, from the dataset as it is loaded."""
    if config.validation:  # as `datasets.hold_out` leaves it
        dataset = dataclasses.replace(dataset, test=dataset.train)
    return Data(_kind(config), (len(dataset.train), len(dataset.test)), dataset.checksum)


def _kind(config: RunConfig) -> tuple[str, int, bool]:
    return config.dataset, config.embedding, config.validation > 0


def copies(found: Iterable[Data]) -> int:
    """How many copies of a dataset are among them, at least; of the dataset that has most."""
    groups: dict[tuple[Any, ...], dict[tuple[int, ...], set[str]]] = defaultdict(lambda: defaultdict(set))
    for data in found:
        groups[data.kind][data.sizes].add(data.checksum)
    return max((_distinct(sizes) for sizes in groups.values()), default=0)


def _distinct(sizes: Mapping[tuple[int, ...], set[str]]) -> int:
    """Different copies among the checksums by size; what is not recorded may be any of them."""
    return max(1, sum(len(sums - {""}) or bool(size) for size, sums in sizes.items()))


def refuse_other_data(root: Path, here: Data) -> None:
    """Refuse to put runs on some data beside finished ones on another copy of the dataset.

    Args:
        root: the results folder.
        here: what the new runs would be made on.

    Raises:
        UserError: a finished record of `root` has other data.
    """
    dataset = here.kind[0]
    for there in _finished(root, dataset):
        if here.differs(there):
            raise UserError(
                f"{root} has runs on another copy of '{dataset}', with which new ones could not be compared "
                f"(training and test samples there: {there}, here: {here}); choose another --results-dir, "
                "such as results/mine, or name the folder of those data with --data-dir"
            )


def _finished(root: Path, dataset: str) -> Iterator[Data]:
    """The data of the finished records of a dataset; what cannot be read is not for here to tell."""
    for marker in root.glob(f"*-{dataset}-*/done"):
        try:
            about = json.loads((marker.parent / "config.json").read_text(encoding="utf-8"))
            yield data_of(RunConfig.from_dict(about["config"]), about["split"])
        except (OSError, ValueError, KeyError, TypeError, UserError):
            continue
