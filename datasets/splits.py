"""Which client has which samples: `Split`, what partitioners (`datasets.partitioners`) make."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Split"]


@dataclass(frozen=True, eq=False)
class Split:
    """Per client, int64 indices into the training and into the test samples of a dataset.

    facts: what is worth knowing of how it came about, as JSON values.
    digest: of the data, where they count for the checksum.
    new: so many clients, the last ones, take no part in training.
    turn, later: from this round on some clients have these training and test samples (0: nobody ever has).
    """

    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]
    facts: Mapping[str, int] = field(default_factory=dict)
    digest: str = ""
    new: int = 0
    turn: int = 0
    later: Mapping[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def set_apart(self, new: Sequence[int]) -> Split:
        """The same split with the clients `new` behind the others, as those that take no part in training."""
        order = [*(client for client in range(self.clients) if client not in set(new)), *sorted(new)]
        train, test = (tuple(part[client] for client in order) for part in (self.train, self.test))
        return dataclasses.replace(self, train=train, test=test, new=len(new))

    @property
    def clients(self) -> int:
        """Number of clients K."""
        return len(self.train)

    @property
    def train_sizes(self) -> np.ndarray:
        """Training images per client, int64 [K]."""
        return np.array([len(part) for part in self.train], dtype=np.int64)

    @property
    def test_sizes(self) -> np.ndarray:
        """Test images per client, int64 [K]."""
        return np.array([len(part) for part in self.test], dtype=np.int64)

    @property
    def checksum(self) -> str:
        """First 16 hex digits of the sha256 of all sizes and indices; equal splits have equal checksums."""
        digest = hashlib.sha256(self.digest.encode())
        if self.new:
            digest.update(f"{self.new} new clients".encode())
        # Little-endian on every machine.
        for numbers in (self.train_sizes, self.test_sizes, *self.train, *self.test):
            digest.update(numbers.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def class_counts(self, labels: npt.ArrayLike) -> np.ndarray:
        """Return the training images per client and class, int64 [K, C], from all training labels [N]."""
        labels = np.asarray(labels)
        classes = int(labels.max()) + 1
        client = np.repeat(np.arange(self.clients), self.train_sizes)
        cells = client * classes + labels[np.concatenate(self.train)]
        return np.bincount(cells, minlength=self.clients * classes).reshape(self.clients, classes)
