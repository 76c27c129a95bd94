"""``leaf:PATH``: any data set in LEAF's JSON, of images, features or text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfl_benchmark.datasets.own.exported import with_facts
from pfl_benchmark.datasets.own.found import Found, in_order, padded
from pfl_benchmark.datasets.own.vectors import of_vectors
from pfl_benchmark.datasets.people.leaf_files import People, leaf_files, read_leaf
from pfl_benchmark.datasets.people.plays import ALPHABET
from pfl_benchmark.errors import UserError

__all__ = ["SPELLED", "read_leaf_data"]

_LONGEST = 140  # characters of a text whose class is to be told, as of a tweet
_TEXT = 4  # where LEAF's Sent140 has the text among a tweet's facts


def read_leaf_data(root: Path, side: int) -> Found:
    """Read LEAF's files below `root`; users are clients.

    x may be numbers (images where they can be, else features), a text before the character that is to be
    told, or a text of which y is the class.

    Raises:
        UserError: there are no such files, they are damaged, or x is something else.
    """
    if side:
        raise UserError(f"{root}@{side}: LEAF's images have one size; drop @{side}")
    if not root.exists():
        raise UserError(f"{root} does not exist; expected a folder with train/*.json and test/*.json of LEAF")
    files = leaf_files(root)
    if not files:
        raise UserError(
            f"{root} has no JSON files; expected train/*.json and test/*.json, as LEAF writes them"
        )
    people = read_leaf(files)
    names = [name for name in people.x if people.x[name]]
    if not names:
        raise UserError(f"{root} has no samples; expected some of every user")
    order = dict(zip(names, padded(names), strict=True))
    clients = [order[name] for name in names for _ in people.x[name]]
    x = [sample for name in names for sample in people.x[name]]
    y = [_label(root, label) for name in names for label in people.y[name]]
    found = Found(np.empty(0), y, tuple(in_order(y)), clients, _test(people, names), _told(files))
    if people.extra:
        home = next(iter(files.values()))[0].parent.parent
        if isinstance(x[0], str):
            found = dataclasses.replace(found, labels=[str(ALPHABET.find(label)) for label in y])
        found = dataclasses.replace(found, x=_plain(root, x, people.extra))
        return with_facts(home, found, people.extra)
    if all(
        isinstance(sample, list) and len(sample) > _TEXT and isinstance(sample[_TEXT], str) for sample in x
    ):
        x = [sample[_TEXT] for sample in x]
    if all(isinstance(sample, str) for sample in x):
        return _text(root, found, x)
    return of_vectors(root, found, _array(root, x))


def _label(root: Path, label: Any) -> str:
    if label is None or label != label:
        raise UserError(f"{root} has samples without a class (null); leave them out")
    return str(int(label) if isinstance(label, float) and label.is_integer() else label)


def _told(files: dict[str, list[Path]]) -> str:
    return f"LEAF's JSON, {' and '.join(f'{len(paths)} of {half}' for half, paths in files.items())}"


def _test(people: People, names: Sequence[str]) -> np.ndarray | None:
    if not people.held_out:
        return None
    return np.concatenate(
        [
            np.arange(len(people.x[name])) >= len(people.x[name]) - people.held_out.get(name, 0)
            for name in names
        ]
    )


def _array(root: Path, x: list[Any]) -> np.ndarray:
    try:
        array = np.array(x, dtype=np.float64)
    except (ValueError, TypeError) as error:
        such = "names of files" if isinstance(x[0], str) else "lists of different lengths, or no numbers"
        raise UserError(
            f"{root}: x holds {such}; expected equally many numbers in every sample, or text"
        ) from error
    if not np.isfinite(array).all():
        raise UserError(f"{root}: x holds numbers that are not finite; expected pixels or features")
    return array


def _plain(root: Path, x: list[Any], facts: dict[str, Any]) -> np.ndarray:
    """Samples of our own export as numbers: pixels are from 0 to 1, characters are text."""
    if facts.get("kind") == "images":
        return np.round(255 * _array(root, x))
    if x and isinstance(x[0], str):
        alphabet = {character: number for number, character in enumerate(ALPHABET)}
        return np.array([[alphabet.get(character, 0) for character in text] for text in x], dtype=np.int64)
    return _array(root, x)


def _text(root: Path, found: Found, x: list[str]) -> Found:
    """Texts as characters: of LEAF's alphabet if they have no others, else of one of their own."""
    lengths = {len(text) for text in x}
    if max(lengths) == 0 or all(text.lower().endswith((".jpg", ".png", ".jpeg")) for text in x):
        raise UserError(
            f"{root}: x holds {'no text' if max(lengths) == 0 else 'names of files'}; expected pixels or text"
        )
    told = found.told
    if len(lengths) > 1:
        width = min(_LONGEST, max(lengths))
        cut = sum(len(text) > width for text in x)
        x = [text[:width].rjust(width) for text in x]  # the end is what a recurrent network has read last
        told += (
            f"; texts of {width} characters, blanks before shorter ones{f'; {cut:,} were cut' if cut else ''}"
        )
    seen = sorted({*"".join(x)})
    of_leaf = {*seen} <= {*ALPHABET}
    alphabet = ALPHABET if of_leaf else "".join(seen)
    number = {character: place for place, character in enumerate(alphabet)}
    kind = np.uint8 if len(alphabet) <= 256 else np.int32
    codes = np.array([[number[character] for character in text] for text in x], dtype=kind)
    labels, names = list(found.labels), found.class_names
    if {*labels} <= {*alphabet} and math.prod(map(len, names)) == 1 and not all(map(str.isdecimal, names)):
        names = spelled(alphabet)  # the next character may be any
        labels = list(spelled(labels))
        told += "; the next character is told"
    return dataclasses.replace(
        found, x=codes, labels=labels, class_names=names, kind="characters", symbols=len(alphabet), told=told
    )


def spelled(characters: Sequence[str]) -> tuple[str, ...]:
    """Characters as names of classes, as those of `shakespeare`."""
    return tuple({"\n": "newline", " ": "space"}.get(character, character) for character in characters)


SPELLED = spelled(ALPHABET)
