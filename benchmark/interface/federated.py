"""`federated`: arrays or a dataset of PyTorch as clients' data."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pfl_benchmark.config.own_data import register_own
from pfl_benchmark.datasets.own.describe import HELD_OUT, describe_found
from pfl_benchmark.datasets.own.found import Found, in_order, padded
from pfl_benchmark.errors import UserError

_PIXEL = 255
_STEP = 0.01  # how far from a whole number a pixel may be
_FEW = 16  # levels of grey, that something else than pixels may have
_EXPECTED = "expected arrays (x_train, y_train, x_test, y_test), or (x, y)"


@dataclass(frozen=True)
class FederatedData:
    """Data of one's own, for ``run(..., dataset=...)`` and ``grid(..., setting=...)`` in this process.

    Attributes:
        name: of the dataset and of its setting; it ends with a checksum of the data.
    """

    name: str


def federated(
    dataset: Any = None,
    *,
    clients: Sequence[Sequence[Any]] | None = None,
    partition: Sequence[Any] | None = None,
    test: Any = None,
    name: str = "arrays",
) -> FederatedData:
    """Make clients' data of arrays, or of a dataset of PyTorch.

    ```python
    data = federated(clients=[(x_train, y_train, x_test, y_test), ...])
    run("fedper", dataset=data, rounds=10)

    train, test = (torchvision.datasets.MNIST("data", train=half) for half in (True, False))
    run("fedper", dataset=federated(train, test=test), partition="dirichlet", dirichlet=0.1)
    ```

    Args:
        dataset: whose items are pairs of a sample and a class: a `torch.utils.data.Dataset`, say.
        clients: in place of `dataset`, arrays of each client: x and y of training and test samples; or x and
            y alone, of which a part is held out for testing.
        partition: of `dataset`, the numbers of each client's samples, or a pair of these for training and
            test samples; None: clients are made by a partitioner (``partition="dirichlet"`` of `run`).
        test: of `dataset` without `partition`, a dataset for testing; None: every fifth sample.
        name: beginning of the dataset's name in records.

    Samples are images, uint8 [N, H, W] or [N, channels, H, W] (or channels last, as pictures of PIL and
    NumPy), or the same as floats in 0..1; rows of features [N, F]; or series [N, channels, T]. Floats
    [N, H, W] are images where all are multiples of 1/255 in 0..1, of more than 16 values, else series.
    Classes are whole numbers or text, in their order (`Record.classes`). Clients keep their numbers. No
    sample may be for training and for testing.

    Raises:
        UserError: arrays of other shapes or values, or too few samples.
    """
    if not isinstance(name, str):
        raise UserError(f"name is {name!r:.40}; expected text")
    if (dataset is None) == (clients is None):
        raise UserError("federated needs a dataset, or clients=[(x_train, y_train, x_test, y_test), ...]")
    if clients is not None:
        if partition is not None or test is not None:
            raise UserError("partition and test are for a dataset, and clients have both; drop them")
        return _register(name, *_of_clients(clients), told=f"arrays of {len(clients)} clients")
    x, y = _items(dataset)
    if partition is not None:
        if test is not None:
            raise UserError("test is for a dataset without partition; give pairs of numbers in partition")
        return _register(name, *_of_numbers(x, y, partition), told=f"{len(partition)} clients of one dataset")
    if test is None:
        return _register(name, x, y, None, None, told="one dataset")
    x_test, y_test = _items(test)
    if x.shape[1:] != x_test.shape[1:]:
        raise UserError(
            f"training samples are {_shape(x)}, test samples {_shape(x_test)}; expected equal shapes"
        )
    held_out = np.arange(len(y) + len(y_test)) >= len(y)
    whole = np.concatenate([x, x_test]), np.concatenate([y, y_test])
    return _register(name, *whole, None, held_out, told="training and test samples")


_Parts = tuple[np.ndarray, np.ndarray, list[int] | None, np.ndarray | None]


def _check_clients(users: Sequence[int], held_out: np.ndarray | None, clients: int) -> None:
    """Refuse clients that could not take part: all others would get other numbers."""
    owners = np.array(users, dtype=np.int64)
    parts = [owners] if held_out is None else [owners[~held_out], owners[held_out]]
    least = HELD_OUT if held_out is None else 1
    counts = np.min([np.bincount(part, minlength=clients) for part in parts], axis=0)
    if poor := np.flatnonzero(counts < least).tolist():
        expected = "some of both halves" if least == 1 else f"{least}, of which a fifth are for testing,"
        named = ", ".join(map(str, poor[:5])) + ", …" * (len(poor) > 5)
        raise UserError(
            f"client {named} has too few samples; expected {expected} of each client: leave others out"
        )


def _of_clients(clients: Sequence[Sequence[Any]]) -> _Parts:
    """Samples, classes, whose they are, and which are for testing."""
    if not all(isinstance(own, tuple | list) for own in clients):
        raise UserError(f"a client is no tuple; {_EXPECTED}, of each")
    lengths = {len(own) for own in clients}
    if lengths not in ({2}, {4}):
        raise UserError(
            f"clients have {', '.join(map(str, sorted(lengths))) or 'no'} arrays; {_EXPECTED}, of each"
        )
    xs: list[np.ndarray] = []
    ys: list[np.ndarray] = []
    users, held_out = [], []
    for number, own in enumerate(clients):
        for half in range(len(own) // 2):
            told = f"client {number}: {_EXPECTED} in one tuple"
            x, y = _array(own[2 * half], told), _labels(own[2 * half + 1], told)
            if len(x) != len(y):
                raise UserError(
                    f"client {number} has {len(x):,} samples and {len(y):,} classes; expected one each"
                )
            if xs and x.shape[1:] != xs[0].shape[1:]:
                raise UserError(
                    f"client {number} has samples of shape {_shape(x)}, the first one {_shape(xs[0])}; "
                    "expected equal shapes"
                )
            if len(x) and len(y):
                if xs and x.ndim > 3 and (x.dtype.kind == "f") != (xs[0].dtype.kind == "f"):
                    types = f"{x.dtype}, the first one of {xs[0].dtype}"
                    raise UserError(f"client {number} has samples of {types}; expected one type")
                xs.append(x)
                ys.append(y)
            users += [number] * len(y)
            held_out += [half == 1] * len(y)
    tests = np.array(held_out, dtype=bool) if lengths == {4} else None
    _check_clients(users, tests, len(clients))
    if len({y.dtype.kind == "U" for y in ys}) > 1:
        raise UserError("some clients have classes in words, others numbers; expected one of the two")
    return np.concatenate(xs), np.concatenate(ys), users, tests


def _of_numbers(x: np.ndarray, y: np.ndarray, partition: Sequence[Any]) -> _Parts:
    rows: list[np.ndarray] = []
    users, held_out = [], []
    if not len(partition):
        raise UserError("partition has no clients; expected the numbers of each client's samples")
    pairs = all(
        isinstance(own, tuple | list) and len(own) == 2 and isinstance(own[0], Sized) for own in partition
    )
    for number, own in enumerate(partition):
        for half, part in enumerate(own if pairs else [own]):
            told = f"partition of client {number}: expected numbers of samples from 0 to {len(y) - 1}"
            found = _array(part, told)
            if (
                found.ndim != 1
                or (len(found) and found.dtype.kind not in "iu")
                or ((found < 0) | (found >= len(y))).any()
            ):
                raise UserError(told)
            rows.append(found)
            users += [number] * len(found)
            held_out += [half == 1] * len(found)
    chosen = np.concatenate(rows)
    halves = np.array(held_out, dtype=bool)
    _check_clients(users, halves if pairs else None, len(partition))
    if not pairs and len(chosen) > len(set(chosen.tolist())):
        twice = np.flatnonzero(np.bincount(chosen) > 1)[0]
        raise UserError(
            f"sample {twice} is given twice, and might be trained on and tested; give each once, or pairs of "
            "numbers for training and for testing"
        )
    tested, trained = (set(chosen[halves == half].tolist()) for half in (True, False))
    if both := sorted(tested & trained):
        raise UserError(f"sample {both[0]} is for training and for testing; give each sample to one of them")
    return x[chosen], y[chosen], users, halves if pairs else None


def _items(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """All samples of a dataset, and their classes."""
    if not (hasattr(dataset, "__getitem__") and isinstance(dataset, Sized)) or not len(dataset):
        raise UserError(f"{dataset!r:.60} is no dataset with samples; expected pairs of a sample and a class")
    samples: Any = dataset
    if hasattr(dataset, "iloc"):
        raise UserError(f"a {type(dataset).__name__} of pandas holds no pairs; give clients=[(x, y), ...]")
    items = [samples[number] for number in range(len(samples))]
    if not all(isinstance(item, Sequence) and len(item) == 2 for item in items):
        raise UserError("the items of the dataset are no pairs; expected a sample and a class each")
    xs = [_array(sample, "a sample has no shape of its own; expected an array") for sample, _ in items]
    if len({x.shape for x in xs}) > 1:
        shapes = sorted({_shape(x[None]) for x in xs})
        raise UserError(f"samples have different shapes ({', '.join(shapes[:3])}); expected one")
    return np.stack(xs), _labels([label for _, label in items], "a class has no shape; expected one number")


def _plain(value: Any) -> Any:
    if getattr(value, "mode", None) in ("P", "1"):  # a picture whose numbers are no grey levels
        raise UserError(f"a picture has the mode {value.mode}; expected L or RGB, as convert('RGB') makes it")
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def _labels(given: Any, told: str) -> np.ndarray:
    """Classes as whole numbers or text [N]; what is missing or between is refused, no array with `told`."""
    y = _array(given, told)
    if y.dtype == object and all(isinstance(label, str) for label in y.flat):
        y = y.astype(str)  # a column of pandas
    if y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8")
    # NumPy makes the text nan of NaN among texts.
    missing = y.dtype.kind == "U" and any(isinstance(label, float) for label in given)
    if y.ndim != 1 or y.dtype.kind not in "iubU" or missing:
        found = "missing in some places" if missing else f"{y.dtype} of shape {list(y.shape)}"
        raise UserError(f"classes are {found}; expected whole numbers or text")
    return y


def _array(value: Any, told: str) -> np.ndarray:
    """An array; what has parts of different shapes, such as a pair of arrays, is refused with `told`."""
    try:
        return np.asarray(_plain(value))
    except ValueError as error:
        raise UserError(told) from error


def _shape(x: np.ndarray) -> str:
    return " x ".join(map(str, x.shape[1:])) or "one number"


def _register(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    users: list[int] | None,
    held_out: np.ndarray | None,
    told: str,
) -> FederatedData:
    if not len(y):
        raise UserError("there are no samples")
    labels = [str(label) for label in y]
    kind = {2: "rows", 3: "series"}.get(x.ndim, "images")
    if x.ndim == 3 and (x.dtype == np.uint8 or _in_steps(x)):
        kind, x = "images", x[:, None]
    elif x.ndim == 3 and _are_pixels(x):
        raise UserError(
            f"samples {_shape(x)} are whole numbers from 0 to 255 of {x.dtype}; give images as uint8; from "
            "series subtract 0.5, which changes nothing, since they are normalised"
        )
    x = _images(x) if kind == "images" else _measured(x, kind)
    own = None if users is None else padded([str(user) for user in users])
    features = tuple(f"x{number}" for number in range(x.shape[1])) if kind == "rows" else ()
    found = Found(
        x,
        labels,
        tuple(in_order(labels)),
        own,
        held_out,
        told,
        kind,  # type: ignore[arg-type]  # one of three
        features,
        tuple(range(len(features))),
    )
    return FederatedData(register_own(*describe_found(Path(name), found)))


def _in_steps(x: np.ndarray) -> bool:
    """Whether these are floats that stand for the 256 values of pixels, for more than 16 of them."""
    if x.dtype.kind != "f" or not x.size or not ((x >= 0) & (x <= 1)).all():
        return False
    return _off(x) <= _STEP and len(np.unique(np.rint(x * _PIXEL))) > _FEW


def _are_pixels(x: np.ndarray) -> bool:
    """Whether numbers of another type may be pixels: whole, 0 to 255, of more than 16 values, in a square."""
    if x.dtype.kind not in "fiu" or not x.size or x.shape[1] != x.shape[2]:
        return False
    whole = ((x >= 0) & (x <= _PIXEL) & (x == np.rint(x))).all()
    return bool(whole) and len(np.unique(x)) > _FEW


def _off(x: np.ndarray) -> float:
    """How far floats in 0..1 are at most from the 256 values of pixels."""
    return float(np.abs(np.rint(x * _PIXEL) - x * _PIXEL).max())


def _measured(x: np.ndarray, kind: str) -> np.ndarray:
    if x.dtype.kind not in "fiub" or not (np.abs(x) <= np.finfo(np.float32).max).all():
        raise UserError("samples hold what is no number, or not finite; expected numbers of float32")
    return np.ascontiguousarray(x, np.float64 if kind == "rows" else np.float32)


def _images(x: np.ndarray) -> np.ndarray:
    """Images as uint8 [N, channels, H, W]."""
    if x.ndim != 4:
        raise UserError(
            f"samples have shape {_shape(x)}; expected images [N, H, W] or [N, channels, H, W], rows [N, F] "
            "or series [N, channels, T]"
        )
    if x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    elif x.shape[1] not in (1, 3) and x.shape[3] in (2, 4) and x.shape[3] < min(x.shape[1:3]):
        raise UserError(
            f"images have {x.shape[3]} channels last, perhaps with transparency; expected 1 or 3, as "
            "image.convert('RGB') makes them"
        )
    if x.dtype != np.uint8:
        pixels = np.rint(x * _PIXEL) if x.dtype.kind == "f" else x
        if x.dtype.kind not in "fiu" or not ((pixels >= 0) & (pixels <= _PIXEL)).all():
            raise UserError(
                f"images are {x.dtype} from {x.min():.3g} to {x.max():.3g}; expected uint8, or floats from 0 "
                "to 1 (as ToTensor makes them, without Normalize: images are normalised here)"
            )
        if x.dtype.kind == "f" and _off(x) > _STEP:
            raise UserError(
                "images are floats between the 256 values of pixels; expected uint8, or what ToTensor makes "
                "of it"
            )
        x = pixels.astype(np.uint8)
    return np.ascontiguousarray(x)
