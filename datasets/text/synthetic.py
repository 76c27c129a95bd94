"""Synthetic tweets: sentences of a small grammar by made users, with made word vectors. Nothing here is real.

What a sentence means depends on its user in part: everybody agrees on the common adjectives, but each user
likes some things and dislikes others, and has an own word for "good" and for "bad". So the whole text path
can be tested and shown without a download, and there is something to personalize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from pfl_benchmark.datasets.data import PADDING, UNKNOWN, Dataset, DatasetInfo, Samples
from pfl_benchmark.errors import UserError

__all__ = ["WIDTH", "SyntheticTweets"]

WIDTH = 16  # of the made vectors
_T = TypeVar("_T")
_VECTORLESS = 0.05  # share of the words that have no vector, as rare words in real texts

_GOOD = ("great", "lovely", "sweet", "happy", "brilliant", "awesome")
_BAD = ("awful", "sad", "terrible", "boring", "horrible", "sick")
_THINGS = (
    "coffee", "monday", "rain", "school", "football", "snow", "cats", "dogs", "pizza", "tea", "work", "gym",
    "exams", "summer", "trains", "jazz", "opera", "cricket", "camping", "baking",
)  # fmt: skip
_SLANG = ("zib", "vorp", "quax", "mell", "drun", "plith", "snerk", "yolt", "brask", "fenn", "glim", "tork")
_OPENINGS = ((), (), ("oh",), ("well", ","), ("lol",), ("ok", "so"))
_ENDINGS = ((), (), ("!",), ("today",), ("right", "now"), (".", ".", "."))
# ADJECTIVE, SLANG and THING stand for words of the sentence's class.
_PATTERNS = (
    ("this", "is", "so", "ADJECTIVE"),
    ("what", "a", "ADJECTIVE", "day"),
    ("feeling", "ADJECTIVE", "and", "tired"),
    ("THING",),
    ("THING", "again"),
    ("more", "THING", "for", "me"),
    ("just", "got", "THING", "at", "home"),
    ("that", "was", "SLANG"),
    ("THING", "is", "SLANG"),
)


@dataclass(frozen=True)
class SyntheticTweets:
    """A `datasets.data.Reader` that makes its tweets; the same ones everywhere.

    users, least, most: number of users, and of tweets that a user writes.
    words: longest tweet.
    """

    users: int = 24
    least: int = 34
    most: int = 70
    words: int = 12
    builtin: ClassVar[bool] = True

    def load(self, info: DatasetInfo, roots: Sequence[Path], download: bool, embedding: int) -> Dataset:
        """Make the dataset; UserError for vectors of a width that it does not have."""
        if embedding not in (0, WIDTH):
            raise UserError(
                f"embedding is {embedding}, but the made vectors of '{info.name}' have {WIDTH} dimensions: "
                f"give --embedding {WIDTH}"
            )
        rng = np.random.default_rng(0)
        rows, vectors = _made_vectors(rng)
        texts, labels, users = [], [], []
        for user, count in enumerate(rng.integers(self.least, self.most + 1, self.users)):
            for text, label in _User(rng).write(int(count), self.words, rng):
                texts.append([rows[word] for word in text])
                labels.append(label)
                users.append(user)
        x = np.full((len(texts), self.words), PADDING, dtype=np.int32)
        for place, own in zip(x, texts, strict=True):
            place[: len(own)] = own
        samples = Samples(x, np.array(labels, dtype=np.int64))
        source = f"synthetic sentences with made word vectors of {WIDTH} dimensions"
        return info.holding(samples, samples, source, vectors, np.array(users, dtype=np.int64))


class _User:
    """Likes, dislikes, own words, and how often the mood is good."""

    def __init__(self, rng: np.random.Generator) -> None:
        things, slang = rng.permutation(_THINGS), rng.permutation(_SLANG)
        half = len(things) // 2
        self._things = (things[half:].tolist(), things[:half].tolist())  # disliked, liked
        self._slang = (slang[:1].tolist(), slang[1:2].tolist())  # for bad, for good
        self._mood = rng.uniform(0.3, 0.7)

    def write(self, count: int, words: int, rng: np.random.Generator) -> list[tuple[list[str], int]]:
        """Return `count` sentences of at most `words` words, with their classes."""
        written = []
        for _ in range(count):
            label = int(rng.random() < self._mood)
            choices: dict[str, Sequence[str]] = {
                "ADJECTIVE": (_BAD, _GOOD)[label],
                "THING": self._things[label],
                "SLANG": self._slang[label],
            }
            opening, pattern, ending = (_any(kinds, rng) for kinds in (_OPENINGS, _PATTERNS, _ENDINGS))
            text = [_any(choices[word], rng) if word in choices else word for word in pattern]
            written.append(([*opening, *text, *ending][:words], label))
        return written


def _any(choices: Sequence[_T], rng: np.random.Generator) -> _T:
    return choices[int(rng.integers(len(choices)))]


def _made_vectors(rng: np.random.Generator) -> tuple[dict[str, int], np.ndarray]:
    """Return every word's row, and the vectors: normal numbers; good and bad adjectives lie apart."""
    plain = {word for parts in (*_OPENINGS, *_PATTERNS, *_ENDINGS) for word in parts if word.islower()}
    plain |= {word for parts in (*_OPENINGS, *_ENDINGS) for word in parts}
    words = [*_GOOD, *_BAD, *_THINGS, *_SLANG, *sorted(plain)]
    vectors = rng.normal(size=(len(words), WIDTH))
    vectors[: len(_GOOD), 0] += 2
    vectors[len(_GOOD) : len(_GOOD) + len(_BAD), 0] -= 2
    known = rng.random(len(words)) >= _VECTORLESS
    rows = dict.fromkeys(words, UNKNOWN)
    rows |= {words[i]: 2 + place for place, i in enumerate(np.flatnonzero(known))}
    table = np.zeros((2 + int(known.sum()), WIDTH), dtype=np.float32)
    table[2:] = vectors[known]
    return rows, table
