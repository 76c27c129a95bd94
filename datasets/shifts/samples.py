"""Clients' samples while shifts change them: copies only of what is changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from pfl_benchmark.datasets.data import Dataset, Samples
from pfl_benchmark.datasets.splits import Split

Half = Literal["train", "test"]
HALVES: tuple[Half, ...] = ("train", "test")
Pair = tuple[np.ndarray, np.ndarray]  # samples and labels


class ClientSamples:
    """The samples of every client; what two clients share is not shared any more once it is changed.

    Attributes:
        clients: the number of clients that are here.
        numbers: by which each of them draws.
        everyone: the number of all clients; `numbers` are below it.
    """

    def __init__(self, dataset: Dataset, split: Split, numbers: Sequence[int]) -> None:
        self.dataset, self.clients, self.numbers = dataset, split.clients, list(numbers)
        self.everyone = split.clients
        self._split = split
        self._rows = {half: list(getattr(split, half)) for half in HALVES}
        self._own: dict[Half, dict[int, Pair]] = {"train": {}, "test": {}}
        self._later: dict[Half, dict[int, Pair]] = {"train": {}, "test": {}}
        self._turn = 0

    def get(self, client: int, half: Half) -> Pair:
        """A client's samples and labels, which may not be changed in place."""
        if client in self._own[half]:
            return self._own[half][client]
        rows, samples = self._rows[half][client], getattr(self.dataset, half)
        return samples.x[rows], samples.y[rows]

    def pool(self, half: Half) -> np.ndarray:
        """The rows of the dataset that a client may be given in a half, each once.

        Where both halves are of one array they are those that some client has in this one, so that nothing
        that is tested has been trained on. New clients' training samples are not among them.
        """
        rows = np.arange(len(getattr(self.dataset, half)))
        if self.dataset.train is self.dataset.test:
            rows = np.unique(np.concatenate(getattr(self._split, half)))
        if half == "train" and (new := self._split.new):
            rows = np.setdiff1d(rows, np.concatenate(self._split.train[-new:]))
        return rows

    def put(self, client: int, half: Half, x: np.ndarray | None = None, y: np.ndarray | None = None) -> None:
        """Give a client other samples or labels; None: those that it has."""
        old_x, old_y = self.get(client, half)
        self._own[half][client] = (old_x if x is None else x, old_y if y is None else y)

    def keep(self, client: int, half: Half, which: np.ndarray) -> None:
        """Leave a client only the samples in these places."""
        if client in self._own[half]:
            x, y = self._own[half][client]
            self._own[half][client] = (x[which], y[which])
        self._rows[half][client] = self._rows[half][client][which]

    def later(self, turn: int, clients: Sequence[int], change: Callable[[ClientSamples], None]) -> None:
        """From round `turn` on these clients have what `change` makes of the samples that they have now.

        `change` is given them alone, in this order. Raises ValueError where it changes their numbers.
        """
        other = ClientSamples(self.dataset, self._split, self.numbers)
        other.clients, other.numbers = len(clients), [self.numbers[client] for client in clients]
        for half in HALVES:
            rows, own = self._rows[half], self._own[half]
            other._rows[half] = [rows[client] for client in clients]
            other._own[half] = {place: own[client] for place, client in enumerate(clients) if client in own}
        change(other)
        self._turn = turn
        for half in HALVES:
            self._later[half] = {client: other.get(place, half) for place, client in enumerate(clients)}
            if any(len(self.get(client, half)[1]) != len(y) for client, (_, y) in self._later[half].items()):
                raise ValueError("data drift to other numbers of samples; such a shift has `resizes = True`")

    def result(self, digest: str) -> tuple[Dataset, Split]:
        """The dataset, with the changed samples, and the split of it.

        Of a half in which no client's samples are changed the dataset's own are used; else everybody's are
        copied, client by client.
        """
        made: dict[str, Samples] = {}
        index: dict[Half, list[np.ndarray]] = {}
        later: dict[Half, dict[int, np.ndarray]] = {}
        for half in HALVES:
            if not self._own[half] and not self._later[half]:
                made[half], index[half] = getattr(self.dataset, half), self._rows[half]
                continue
            now = [self.get(client, half) for client in range(self.clients)]
            parts = [*now, *self._later[half].values()]
            x, y = zip(*parts, strict=True)
            ends = np.cumsum([len(labels) for labels in y])
            places = [np.arange(end - len(labels), end) for end, labels in zip(ends, y, strict=True)]
            made[half] = Samples(np.concatenate(x), np.concatenate(y))
            index[half] = places[: self.clients]
            later[half] = dict(zip(self._later[half], places[self.clients :], strict=True))
        split = dataclasses.replace(
            self._split, train=tuple(index["train"]), test=tuple(index["test"]), digest=digest
        )
        if self._turn:
            changed = {client: (rows, later["test"][client]) for client, rows in later["train"].items()}
            split = dataclasses.replace(split, turn=self._turn, later=changed)
        if made["train"] is self.dataset.train and made["test"] is self.dataset.test:
            return self.dataset, split
        # Whose rows these are the split says; what else the dataset tells of its rows is theirs no longer.
        train, test = made["train"], made["test"]
        own = dataclasses.replace(
            self.dataset, train=train, test=test, users=None, groups=None, held_out=None
        )
        return own, split
