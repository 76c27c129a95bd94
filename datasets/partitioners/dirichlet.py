"""Class shares drawn from a Dirichlet distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.partitioners.base import ByLabels, Dealt, option, register
from pfl_benchmark.datasets.pools import ClassPools
from pfl_benchmark.errors import Unlucky

__all__ = ["Dirichlet", "dirichlet_counts"]

_GROUP = 10  # clients that FedDF divides one part of the data among
_TRIES = 1000
_WHOLE = 1e-3  # an α below which nearly all of a class goes to one client


@register
@dataclass(frozen=True)
class Dirichlet(ByLabels):
    """Class shares drawn from Dir(α) (FedDF, build_non_iid_by_dirichlet); numbers of samples differ."""

    name: ClassVar[str] = "dirichlet"
    sizes: ClassVar[str] = ""
    dirichlet: float = option(
        0.0,
        "concentration α of the shares; smaller: clients differ more",
        "(0, 1e6]",
        such_as=0.3,
        always=True,
    )

    @property
    def slug(self) -> str:
        return f"dir{self.dirichlet:g}"

    def describe(self) -> str:
        return f"Dirichlet {self.dirichlet:g}, {self.samples_per_client} training images each on average"

    def deal(self, labels: np.ndarray, pools: ClassPools, rng: np.random.Generator) -> Dealt:
        classes = len(pools.sizes)
        counts = dirichlet_counts(labels, classes, self.clients, self.samples_per_client, self.dirichlet, rng)
        return pools.take(counts), counts


def dirichlet_counts(
    labels: np.ndarray, classes: int, clients: int, mean: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Return class counts int64 [clients, classes] by FedDF's `build_non_iid_by_dirichlet`.

    `clients * mean` random images are divided into groups of 10 clients (the last may be smaller). In a group
    every class is cut by p ~ Dir(alpha), where clients that already hold `mean` images get nothing more, and
    the whole group is drawn again until everybody has at least half of `mean`.

    Raises Unlucky where 1,000 tries do not reach that.
    """
    chosen = labels[rng.permutation(len(labels))[: clients * mean]]
    groups = math.ceil(clients / _GROUP)
    cells = np.arange(len(chosen)) // (_GROUP * mean) * classes + chosen
    available = np.bincount(cells, minlength=groups * classes).reshape(groups, classes)
    # The last group may have seats without a client.
    taken = (np.arange(groups * _GROUP) < clients).reshape(groups, _GROUP)
    least = max(1, int(0.5 * mean))
    counts = np.zeros((groups, _GROUP, classes), dtype=np.int64)
    todo = np.arange(groups)
    for _ in range(_TRIES):
        drawn = _divide_groups(available[todo], taken[todo], mean, alpha, rng)
        done = ((drawn.sum(axis=2) >= least) | ~taken[todo]).all(axis=1)
        counts[todo[done]] = drawn[done]
        todo = todo[~done]
        if len(todo) == 0:
            return counts[taken]
    raise Unlucky(
        f"--dirichlet {alpha:g} left some client with fewer than {least} training images "
        f"in each of {_TRIES} tries: use a larger one{_instead(alpha, clients)}"
    )


def _instead(alpha: float, clients: int) -> str:
    """What else helps: where clients get whole classes in any case, the partition that deals these."""
    if alpha < _WHOLE:
        return ", or --partition distinct, which deals whole classes"
    return ", or fewer --clients" if clients > 2 else ""


def _divide_groups(
    available: np.ndarray, taken: np.ndarray, mean: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Try to divide available[g, c] images among the seats taken[g]: int64 [G, seats, C], 0 if failed."""
    counts = np.zeros((*taken.shape, available.shape[1]), dtype=np.int64)
    held = np.zeros(taken.shape, dtype=np.int64)
    failed = np.zeros(len(taken), dtype=bool)
    for label, images in enumerate(available.T):
        # Renormalised below: a part of a Dirichlet vector is one itself, so empty seats change nothing.
        share = rng.dirichlet(np.full(taken.shape[1], alpha), size=len(taken)) * (taken & (held < mean))
        ends = np.cumsum(share, axis=1)
        # Where all mass is on full clients FedDF's code divides by zero; a tiny alpha gives NaN.
        dealt = ends[:, -1:] > 0
        failed |= ~dealt[:, 0] & (images > 0)
        ends = np.divide(ends, ends[:, -1:], out=np.zeros_like(ends), where=dealt)
        counts[:, :, label] = np.diff((ends * images[:, None]).astype(np.int64), axis=1, prepend=0)
        held += counts[:, :, label]
    counts[failed] = 0
    return counts
