"""Whether runs were made on the same data: on other copies of a dataset they cannot be compared.

Two copies may differ although their name is the same: a part of the samples, another order, other vectors.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.datasets.partitioners.base import Partitioner
from pfl_benchmark.errors import UserError

Source = tuple[str, int]  # a dataset, and the width of the embedding that its texts are read with


def source_of(config: RunConfig) -> Source:
    """What a run reads its data from, whatever it makes of them."""
    return config.dataset, config.embedding


class Kind(NamedTuple):
    """What has to be the same in two runs before their data can be: a copy is one of these."""

    dataset: str
    embedding: int  # width of word vectors
    validation: bool  # training samples are held out, and stand in the place of test samples
    arranged: str = ""  # by which partitioner, where it joins training and test samples or the like

    @classmethod
    def of(cls, config: RunConfig) -> Kind:
        arranges = type(config.partitioner).arranged is not Partitioner.arranged
        partition = config.partition if arranges else ""
        return cls(config.dataset, config.embedding, config.validation > 0, partition)


@dataclass(frozen=True)
class Data:
    """What a run trained and tested on; older records do not tell all of it."""

    kind: Kind
    sizes: tuple[int, ...]  # numbers of training and test samples
    checksum: str  # of all samples and labels

    def differs(self, other: Data) -> bool:
        """Whether the two are known to be different copies of the same dataset."""
        pairs = ((self.checksum, other.checksum), (self.sizes, other.sizes))
        return self.kind == other.kind and any(one and two and one != two for one, two in pairs)

    def __str__(self) -> str:
        """``20,000 and 10,000 samples, checksum 02f5ef655e6f2036``."""
        sizes = self.sizes[:1] if self.kind.validation else self.sizes
        words = " and ".join(f"{size:,}" for size in sizes) + " samples" if sizes else "samples not recorded"
        words += " with some held out" * self.kind.validation
        return f"{words}, checksum {self.checksum}" if self.checksum else words


def data_of(config: RunConfig, split: Mapping[str, Any]) -> Data:
    """The data of a run, from the description of its split that config.json holds."""
    sizes = next((split[name] for name in split if name.startswith("dataset_")), ())
    return Data(Kind.of(config), tuple(map(int, sizes)), str(split.get("data_checksum", "")))


def data_for(config: RunConfig, dataset: datasets.Dataset) -> Data:
    """The data that a run would be made on, from the dataset as it is loaded."""
    dataset = config.partitioner.arranged(dataset)
    if config.validation:  # as `datasets.hold_out` leaves it
        dataset = dataclasses.replace(dataset, test=dataset.train)
    return Data(Kind.of(config), (len(dataset.train), len(dataset.test)), dataset.checksum)


def copies(found: Iterable[Data]) -> dict[Kind, int]:
    """How many copies of each are among them, at least."""
    groups: dict[Kind, dict[tuple[int, ...], set[str]]] = defaultdict(lambda: defaultdict(set))
    for data in found:
        groups[data.kind][data.sizes].add(data.checksum)
    # What is not recorded may be any of the others.
    distinct = {
        kind: sum(len(sums - {""}) or bool(size) for size, sums in by_size.items())
        for kind, by_size in groups.items()
    }
    return {kind: max(1, count) for kind, count in distinct.items()}


def refuse_other_data(root: Path, here: Data, finished: Mapping[str, Data]) -> None:
    """Refuse (UserError) to put runs on the data `here` beside finished ones, by folder, on another copy."""
    others = [(name, there) for name, there in finished.items() if here.differs(there)]
    if others:
        name, there = others[0]
        runs = f"{len(others)} finished run{'s' * (len(others) > 1)}"
        raise UserError(
            f"{root} has {runs} on another copy of '{here.kind.dataset}', with which new ones could not be "
            f"compared ({there} in {name}; {here} here); choose another --results-dir, such as "
            "results/mine, or bring those data back (--data-dir), or remove those runs"
        )
