"""The clients' data on the device: one copy of the raw samples, per-client index lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.datasets.api import Dataset, Split
from pfl_benchmark.datasets.data import PADDING
from pfl_benchmark.datasets.standardise import moments

Part = Literal["train", "test"]


class FederatedData:
    """A dataset and its split, resident on `device` as raw samples.

    Raw samples become float32 inputs of networks. Images: uint8 pixels, normalised per channel by the
    dataset's constants. Series: normalised per channel by the training samples of all clients. Words: int32
    rows of the word vectors [n, T] become [n, T, d + 1], vectors, and a last channel that is 1 for words
    (known or not) and 0 behind the end. Characters: numbers in the alphabet [n, T], which stay as they are.

    Clients that take no part in training come last (`Split.new`). Until they are admitted nothing of them can
    be reached.

    Attributes:
        clients: number of clients K that take part in training.
        newcomers: the others.
        classes: number of classes C.
        train_sizes, test_sizes: samples per client.
        turn: from this round on some clients have other samples (`reach`); 0: nobody ever has.
    """

    def __init__(self, dataset: Dataset, split: Split, device: torch.device) -> None:
        self.clients = split.clients - split.new
        self.newcomers = range(self.clients, split.clients)
        self.classes = dataset.classes
        self.device = device
        self._x = {"train": torch.from_numpy(dataset.train.x).to(device)}
        self._y = {"train": torch.from_numpy(dataset.train.y).to(device)}
        if dataset.test is dataset.train:
            self._x["test"], self._y["test"] = self._x["train"], self._y["train"]
        else:
            self._x["test"] = torch.from_numpy(dataset.test.x).to(device)
            self._y["test"] = torch.from_numpy(dataset.test.y).to(device)
        self._split, self._turned = split, False
        self._places: dict[Part, Tensor] = {}  # of rows of the dataset, where not all are held (`hold`)
        self.turn = split.turn
        self._index: dict[Part, list[Tensor]] = {"train": [], "test": []}
        self.train_sizes: list[int] = []
        self.test_sizes: list[int] = []
        self._open(range(self.clients))
        self._vectors: Tensor | None = None
        if dataset.vectors is not None:
            vectors = torch.from_numpy(dataset.vectors)
            is_word = torch.arange(len(vectors)) != PADDING
            self._vectors = torch.cat([vectors, is_word[:, None].float()], 1).to(device)
        self._scale, self._shift = (one.to(device) for one in _normalisation(dataset, split))

    def reach(self, round: int) -> None:
        """Before a round begins: from `Split.turn` on some clients have other samples, as many as before."""
        if self._turned or not 0 < self.turn <= round:
            return
        self._turned = True
        for client, rows in self._split.later.items():
            for part, own in zip(self._index, rows, strict=True):
                if client < len(self._index[part]):
                    self._index[part][client] = self._located(part, own)

    @property
    def moment(self) -> tuple[bool, int]:
        """Whose samples are here: whether clients' data have changed (`reach`), and how many clients."""
        return self._turned, len(self.train_sizes)

    def follow(self, moment: tuple[bool, int]) -> None:
        """Do what has been done to other data of the run since."""
        turned, clients = moment
        if turned:
            self.reach(self.turn)
        if clients > len(self.train_sizes):
            self.admit()

    def admit(self) -> None:
        """Let the clients in that took no part in training."""
        self._open(self.newcomers[len(self.train_sizes) - self.clients :])

    def _open(self, clients: Sequence[int]) -> None:
        for client in clients:
            now = (self._split.train[client], self._split.test[client])
            for part, own in zip(
                self._index, self._split.later.get(client, now) if self._turned else now, strict=True
            ):
                self._index[part].append(self._located(part, own))
            self.train_sizes.append(len(self._split.train[client]))
            self.test_sizes.append(len(self._split.test[client]))

    def _located(self, part: Part, rows: np.ndarray) -> Tensor:
        """Where rows of the dataset are among the stored samples."""
        own = torch.from_numpy(rows).to(self.device)
        return self._places[part][own] if part in self._places else own

    def used(self, part: Part) -> Tensor:
        """Rows of the dataset that any client ever has, new ones included, in their order."""
        split = self._split
        whose = split.train if part == "train" else split.test
        later = [pair[part == "test"] for pair in split.later.values()]
        return torch.from_numpy(np.unique(np.concatenate([*whose, *later]))).to(self.device)

    def hold(self, part: Part, rows: Tensor, inputs: Tensor) -> None:
        """Hold network inputs [n, ...] in place of the stored samples.

        Args:
            rows: of the dataset, whose they are: all that clients ever have.
        """
        places = torch.full((len(self._y[part]),), -1, device=self.device)
        places[rows] = torch.arange(len(rows), device=self.device)
        self._index[part] = [places[own] for own in self._index[part]]
        self._places[part] = places
        self._x[part], self._y[part] = inputs, self._y[part][rows]
        self._vectors = None
        self._scale, self._shift = (value.to(self.device) for value in (torch.ones(()), torch.zeros(())))

    def stored(self, part: Part = "train") -> tuple[Tensor, Tensor]:
        """Everybody's samples as stored, and their labels; `rows` says whose they are."""
        return self._x[part], self._y[part]

    def rows(self, client: int, part: Part = "train") -> Tensor:
        """Where a client's samples are among the stored ones, int64 [n]."""
        return self._index[part][client]

    def raw(self, client: int, part: Part = "train") -> Tensor:
        """A client's samples as stored: uint8 [n, C, H, W] or int32 [n, T]."""
        return self._x[part][self._index[part][client]]

    def labels(self, client: int, part: Part = "train") -> Tensor:
        """A client's labels, int64 [n]."""
        return self._y[part][self._index[part][client]]

    def encode(self, raw: Tensor) -> Tensor:
        """Stored samples to network input, float32; further axes may come first."""
        if self._vectors is not None:
            return F.embedding(raw, self._vectors)
        return raw.to(torch.float32, copy=True).mul_(self._scale).add_(self._shift)

    def inputs(self, client: int, part: Part = "train") -> Tensor:
        """A client's samples as network input, without augmentation."""
        return self.encode(self.raw(client, part))

    def augment(self, raw: Tensor, crops: np.ndarray, padding: int) -> Tensor:
        """Crop and mirror every image of `raw` [n, C, H, W] as `draw_crops` has drawn it."""
        count, _, height, width = raw.shape
        top, left, mirrored = torch.from_numpy(crops).to(raw.device).unbind(1)
        padded = F.pad(raw, [padding] * 4)
        rows = top[:, None] + torch.arange(height, device=raw.device)
        columns = torch.arange(width, device=raw.device).expand(count, width)
        columns = left[:, None] + torch.where(mirrored[:, None] > 0, width - 1 - columns, columns)
        which = torch.arange(count, device=raw.device)[:, None, None]
        return padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _normalisation(dataset: Dataset, split: Split) -> tuple[Tensor, Tensor]:
    """Scale and shift per channel, with which ``float32(x) · scale + shift = (x − mean) / std``."""
    if dataset.kind == "images":
        std, mean = (
            torch.tensor(values, dtype=torch.float32).view(-1, 1, 1) for values in (dataset.std, dataset.mean)
        )
        return 1 / (255 * std), -mean / std
    if dataset.kind == "series":
        mean, std = (torch.tensor(value, dtype=torch.float32) for value in moments(dataset, split))
        return 1 / std, -mean / std
    return torch.ones(()), torch.zeros(())


def draw_crops(count: int, rng: np.random.Generator, padding: int) -> np.ndarray:
    """Random crops of `count` images padded by `padding` pixels a side.

    Returns:
        int64 [count, 3]: first row and column in the padded image, and 1 for images to be mirrored.
    """
    top, left = rng.integers(0, 2 * padding + 1, count), rng.integers(0, 2 * padding + 1, count)
    return np.stack([top, left, rng.random(count) < 0.5], axis=1)
