"""From ``folder:PATH`` and the like to a dataset and to values that suit it."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pfl_benchmark.datasets.data import Dataset, DatasetInfo, Samples
from pfl_benchmark.datasets.own.csv import read_csv
from pfl_benchmark.datasets.own.folder import read_folder
from pfl_benchmark.datasets.own.found import Found
from pfl_benchmark.datasets.own.hub import read_hub
from pfl_benchmark.datasets.own.leaf import read_leaf_data
from pfl_benchmark.datasets.own.parquet import read_parquet
from pfl_benchmark.datasets.own.pfllib import read_pfllib
from pfl_benchmark.datasets.own.place import LEAST, parts
from pfl_benchmark.errors import UserError

__all__ = ["HELD_OUT", "OWN_DATA", "describe_found", "describe_own"]

OWN_DATA = "PFL_OWN_DATA"  # of the environment: what a process has read, one a line

_READERS: dict[str, Callable[..., Found]] = {
    "folder": read_folder,
    "parquet": read_parquet,
    "csv": read_csv,
    "hf": read_hub,
    "leaf": read_leaf_data,
    "pfllib": read_pfllib,
}
_COARSE = 20  # test samples of a client below which its accuracy has coarse steps
HELD_OUT = 5  # one in so many samples is for testing where the data do not say
_SMALL = 16  # pixels a side: below the first the network for digits is the default
_ONE = {"images": "image", "rows": "row"}  # what one sample is called
_TITLES = {"rows": "table", "words": "text", "characters": "text"}
_NETWORKS = {"rows": "mlp", "words": "rnn-tweets", "characters": "rnn-characters", "series": "cnn-series"}


def describe_own(text: str) -> tuple[DatasetInfo, Mapping[str, Any]]:
    """Read what ``folder:PATH`` and the like name; ``PATH@32`` scales all images to 32 × 32 pixels,
    ``parquet:PATH?image=img`` says what columns are called.

    Where the data do not say what is for testing, every fifth sample of a class is, at even distances. A
    dataset with clients has users, who are divided by the partitioner `natural`.

    Returns:
        The dataset, and fields of `RunConfig` that suit it.

    Raises:
        UserError: it cannot be read, or is not enough for training.
    """
    kind, _, place = text.partition(":")
    path, side, columns = parts(kind, place)
    found = _READERS[kind](path, side, *([columns] if columns else []))
    scaled = f"; scaled to {side}x{side}" * (side > 0)
    return describe_found(path, dataclasses.replace(found, told=f"{kind} {path}: {found.told}{scaled}"))


def describe_found(path: Path, found: Found) -> tuple[DatasetInfo, Mapping[str, Any]]:
    """What was found as a dataset, whose name begins with that of `path`; returns and raises as above."""
    _check(path, found)
    number = {name: label for label, name in enumerate(found.class_names)}
    y = np.array([number[label] for label in found.labels], dtype=np.int64)
    info = DatasetInfo(
        name="",
        title=f"own {_TITLES.get(found.kind, found.kind)}",
        class_names=found.class_names,
        shape=found.x.shape[1:],
        sizes=(len(y), 0),
        mean=(),
        std=(),
        kind=found.kind,
        features=found.features,
        numeric=found.numeric,
        symbols=found.symbols,
        network=_network(found),
    )
    if found.clients is not None:
        return _with_clients(info, path, found, y, found.told)
    return _pooled(info, path, found, y, found.told)


def _network(found: Found) -> str:
    if found.kind in _NETWORKS:
        return _NETWORKS[found.kind]
    return "cnn-digits" if min(found.x.shape[2:]) < _SMALL else "cnn-cifar10"


def _check(path: Path, found: Found) -> None:
    if len(found.class_names) < 2:
        raise UserError(f"{path} has one class, '{found.class_names[0]}'; expected two or more")
    if found.kind == "images" and min(found.x.shape[2:]) < LEAST:
        height, width = found.x.shape[2:]
        raise UserError(f"{path} has images of {height}x{width} pixels; expected {LEAST} a side or more")
    if found.test is not None and found.clients is None:
        labels = np.array(found.labels)
        if without := sorted(set(labels[found.test]) - set(labels[~found.test])):
            raise UserError(
                f"{path} has test {_many(found)} of class '{without[0]}' and none for training; add some"
            )


def _many(found: Found | DatasetInfo) -> str:
    """What samples are called."""
    return f"{_ONE.get(found.kind, 'sample')}s"


def _named(
    info: DatasetInfo, path: Path, found: Found, parts: Sequence[np.ndarray], names: Sequence[str]
) -> DatasetInfo:
    """`info` with its name and the constants of normalisation, from the training images.

    Where clients are divided later, from all of their images.
    """
    digest = hashlib.sha256("\n".join([*info.class_names, *names, *found.features]).encode())
    for array in parts:
        digest.update(f"{array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:40] or _many(info)
    x = parts[0] if found.test is None or found.clients is None else found.x[~found.test]
    mean, std = _normalisation(x) if info.kind == "images" else ((), ())
    if found.scale is not None:
        mean, std = found.scale
        digest.update(f"{found.scale}".encode())
    return dataclasses.replace(info, name=f"{stem}-{digest.hexdigest()[:8]}", mean=mean, std=std)


def _normalisation(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation per channel of x / 255, to four decimals; a constant channel keeps its scale."""
    counts = [np.bincount(x[:, channel].ravel(), minlength=256) for channel in range(x.shape[1])]
    levels = np.arange(256) / 255
    means = [float(np.average(levels, weights=count)) for count in counts]
    stds = [
        float(np.sqrt(np.average((levels - mean) ** 2, weights=count)))
        for mean, count in zip(means, counts, strict=True)
    ]
    return tuple(round(mean, 4) for mean in means), tuple(round(std, 4) or 1.0 for std in stds)


# -- without clients: a partitioner divides them -----------------------------------------------------------


def _pooled(
    info: DatasetInfo, path: Path, found: Found, y: np.ndarray, told: str
) -> tuple[DatasetInfo, dict[str, Any]]:
    test = found.test
    if test is None:
        test, told = (
            _held_out(y, len(found.class_names)),
            f"{told}; one {_ONE.get(info.kind, 'sample')} in {HELD_OUT} held out for testing",
        )
    halves = Samples(found.x[~test], y[~test]), Samples(found.x[test], y[test])
    classes = len(found.class_names)
    trained, held = (np.bincount(half.y, minlength=classes) for half in halves)
    if found.test is None and not min(trained.min(), held.min()):
        poor = found.class_names[int(np.argmin(np.minimum(trained, held)))]
        raise UserError(
            f"{path} has too few {_many(info)} of class '{poor}'; expected two or more, one for testing"
        )
    if untested := [name for name, count in zip(found.class_names, held, strict=True) if not count]:
        listed = f"{', '.join(map(repr, untested[:5]))}{', …' * (len(untested) > 5)}"
        told += f"; no test {_many(info)} of class {listed}"
    clients = int(np.clip(len(halves[0]) // 50, 2, 20))
    tested = max(1, len(halves[1]) // clients)
    if (smallest := int(held[held > 0].min())) < tested:  # a client may have that class alone
        tested = smallest
        told += f"; at most {tested} test {_many(info)} a client, as many as the smallest class has"
    told += _few(tested, _many(info))
    info = _named(info, path, found, [halves[0].x, halves[0].y, halves[1].x, halves[1].y], ())
    info = dataclasses.replace(
        info, sizes=(len(halves[0]), len(halves[1])), builtin=lambda: halves, origin=told
    )
    return info, {
        "partition": "dirichlet",
        "dirichlet": 0.3 if classes >= 5 else 1.0,  # with few classes smaller ones leave clients empty
        "clients": clients,
        "samples_per_client": max(1, len(halves[0]) // clients),
        "test_samples_per_client": tested,
        **_protocol(clients),
    }


def _few(tested: int, many: str) -> str:
    """A warning where accuracies of clients have large steps; empty: there is no reason."""
    if tested >= _COARSE:
        return ""
    step = 100 / tested
    return (
        f"; few test {many} a client ({tested}: one is {step:.3g} % of its accuracy): give fewer --clients, "
        f"--test-samples-per-client, or more {many} for testing"
    )


def _held_out(y: np.ndarray, classes: int) -> np.ndarray:
    """One in `HELD_OUT` images of each class and at least one, at even distances, bool [N]."""
    test = np.zeros(len(y), dtype=bool)
    for label in range(classes):
        where = np.flatnonzero(y == label)
        count = min(len(where) - 1, max(1, len(where) // HELD_OUT))
        test[where[(2 * np.arange(count) + 1) * len(where) // max(1, 2 * count)]] = True
    return test


def _protocol(clients: int) -> dict[str, Any]:
    """About five participants a round; 100 rounds."""
    return {"participation": min(1.0, max(0.1, round(5 / clients, 2))), "rounds": 100}


# -- with clients: everyone has what is theirs --------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Theirs:
    """A `datasets.data.Reader` of what was read already."""

    builtin: ClassVar[bool] = True
    samples: Samples
    users: np.ndarray
    digest: str
    held_out: np.ndarray | None = None
    vectors: np.ndarray | None = None

    def load(self, info: DatasetInfo, roots: Sequence[Path], download: bool, embedding: int) -> Dataset:
        """The dataset; nothing can fail any more."""
        source = f"{info.title} ({info.origin})"
        return info.holding(
            self.samples,
            self.samples,
            source,
            vectors=self.vectors,
            users=self.users,
            digest=self.digest,
            held_out=self.held_out,
        )


def _with_clients(
    info: DatasetInfo, path: Path, found: Found, y: np.ndarray, told: str
) -> tuple[DatasetInfo, dict[str, Any]]:
    assert found.clients is not None
    names, users = np.unique(np.array(found.clients), return_inverse=True)
    if found.test is not None:
        return _as_given(info, path, found, y, told, list(map(str, names)), users.astype(np.int64))
    owned = np.bincount(users)
    clients = int((owned >= HELD_OUT).sum())
    if clients < 2:
        raise UserError(
            f"{path} has {len(names)} client{'s' * (len(names) != 1)}, of whom {clients} have {HELD_OUT} "
            f"{_many(info)} or more; expected two or more such clients"
        )
    listed = ", ".join(str(name) for name in names[:5]) + ", …" * (len(names) > 5)
    told += f"; {len(names)} clients ({listed})"
    if clients < len(names):
        told += f", of whom {len(names) - clients} have fewer than {HELD_OUT} {_many(info)} and are left out"
    info = _named(info, path, found, [found.x, y, users], list(map(str, names)))
    reader = _Theirs(Samples(found.x, y), users.astype(np.int64), info.name, vectors=found.vectors)
    info = dataclasses.replace(info, reader=reader, origin=told)
    return info, {
        **_embedding(found),
        "partition": "natural",
        "test_share": 1 / HELD_OUT,
        "least_test": 1,
        "clients": clients,
        "samples_per_client": max(1, len(y) * (HELD_OUT - 1) // HELD_OUT // len(names)),
        "test_samples_per_client": max(1, len(y) // HELD_OUT // len(names)),
        **_protocol(clients),
    }


def _as_given(
    info: DatasetInfo,
    path: Path,
    found: Found,
    y: np.ndarray,
    told: str,
    names: list[str],
    users: np.ndarray,
) -> tuple[DatasetInfo, dict[str, Any]]:
    """Clients with training and test samples of their own, which the partitioner `given` leaves so."""
    assert found.test is not None
    trained, tested = (np.bincount(users[rows], minlength=len(names)) for rows in (~found.test, found.test))
    clients = int(((trained > 0) & (tested > 0)).sum())
    if clients < 2:
        raise UserError(
            f"{path} has {clients} client{'s' * (clients != 1)} with training and test samples; expected "
            "two or more"
        )
    if clients < len(names):
        told += f"; {len(names) - clients} clients lack training or test samples and are left out"
    extra = [] if found.vectors is None else [found.vectors]
    info = _named(info, path, found, [found.x, y, users, found.test, *extra], names)
    reader = _Theirs(Samples(found.x, y), users, info.name, found.test, found.vectors)
    info = dataclasses.replace(info, reader=reader, origin=f"{told}; {len(names):,} clients")
    return info, {
        **_embedding(found),
        "partition": "given",
        "clients": clients,
        "samples_per_client": max(1, int(trained.sum()) // len(names)),
        "test_samples_per_client": max(1, int(tested.sum()) // len(names)),
        **_protocol(clients),
    }


def _embedding(found: Found) -> dict[str, Any]:
    return {} if found.vectors is None else {"embedding": found.vectors.shape[1]}
