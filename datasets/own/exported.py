"""What our own exports say besides the samples, so that read again they are the same data, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pfl_benchmark.datasets.data import Dataset, DatasetInfo
from pfl_benchmark.datasets.layouts.base import one_line
from pfl_benchmark.datasets.own.found import Found
from pfl_benchmark.errors import UserError

__all__ = ["VECTORS", "facts_of", "with_facts"]

VECTORS = "vectors.npy"  # of words, beside the samples
_TYPES = {
    "images": np.uint8,
    "words": np.int32,
    "characters": np.int32,
    "series": np.float32,
    "rows": np.float64,
}


def facts_of(info: DatasetInfo, dataset: Dataset) -> dict[str, Any]:
    """What the samples do not tell, as JSON values."""
    return {
        "kind": info.kind,
        "shape": list(info.shape),
        "classes": list(info.class_names),
        "mean": list(dataset.mean),
        "std": list(dataset.std),
        "numeric": list(info.numeric),
        "symbols": info.symbols,
    }


def with_facts(root: Path, found: Found, facts: Mapping[str, Any]) -> Found:
    """What was found in files of ours, in the form of the data that were exported.

    Its labels are numbers of classes.

    Raises UserError where samples and facts do not fit each other.
    """
    try:
        kind, classes = facts["kind"], tuple(map(str, facts["classes"]))
        x = np.asarray(found.x).reshape(len(found.labels), *facts["shape"]).astype(_TYPES[kind])
        vectors = np.load(root / VECTORS, allow_pickle=False) if kind == "words" else None
        return dataclasses.replace(
            found,
            x=x.astype(np.uint8) if kind == "characters" and facts["symbols"] <= 256 else x,
            labels=[classes[int(label)] for label in found.labels],
            class_names=classes,
            kind=kind,
            numeric=tuple(map(int, facts["numeric"])),
            symbols=int(facts["symbols"]),
            vectors=vectors,
            scale=(tuple(map(float, facts["mean"])), tuple(map(float, facts["std"]))),
        )
    except (KeyError, ValueError, TypeError, IndexError, OSError) as error:
        raise UserError(
            f"{root} was exported by this program and changed since ({type(error).__name__}: "
            f"{one_line(error)}); export it again"
        ) from error
