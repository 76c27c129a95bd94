"""Sentiment140 with GloVe vectors: finding, downloading and preparing both, once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets import cache
from pfl_benchmark.datasets.data import PADDING, UNKNOWN, Dataset, DatasetInfo, Samples
from pfl_benchmark.datasets.layouts.base import one_line
from pfl_benchmark.datasets.text.fetch import Remote, fetch
from pfl_benchmark.datasets.text.tokens import number_words
from pfl_benchmark.datasets.text.vectors import VectorFile, find_vectors, read_vectors
from pfl_benchmark.errors import UserError

__all__ = ["WORDS", "Sent140"]

WORDS = 25  # of a tweet; longer ones are cut (FedProx, LEAF and FedRep do so)

TWEETS = Remote(
    "https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip",
    "sent140/trainingandtestdata.zip",
    81_363_704,
    "004a3772c8a7ff9bbfeb875880f47f0679d93fc63e5cf9cff72d54a8a6162e57",
)
VECTORS = Remote(
    "https://nlp.stanford.edu/data/glove.6B.zip",
    "glove/glove.6B.zip",
    862_182_613,
    "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
)
_DOWNLOADED_WIDTHS = (50, 100, 200, 300)
_ARRAYS = ("x", "y", "users", "vectors", "total")


@dataclass(frozen=True)
class Sent140:
    """A `datasets.data.Reader`: tweets in `sent140/`, vectors in `glove/`, below a data folder."""

    builtin: ClassVar[bool] = False

    def load(self, info: DatasetInfo, roots: Sequence[Path], download: bool, embedding: int) -> Dataset:
        """Return the tweets of users with at least `tweets.LEAST` of them, as rows of the word vectors.

        Users are numbered in the order of their names. The arrays are cached, so that only the first call
        needs torchtext.

        Raises UserError where files are missing, damaged or of another width, or torchtext is not installed.
        """
        tweets = _tweets(roots, download)
        vectors = _vectors(roots, download, embedding)
        arrays = cache.cached(
            f"{info.name}-{vectors.width}",
            (tweets, vectors.path),
            tweets.parent,
            lambda: _decode(tweets, vectors),
            _ARRAYS,
        )
        samples = Samples(arrays["x"], arrays["y"])
        total = int(arrays["total"])
        source = f"{tweets} with {vectors.width}-dimensional word vectors, {vectors.title}"
        source += info.partial(total)
        users, digest = arrays["users"], _digest(arrays)
        return info.holding(samples, samples, source, arrays["vectors"], users, digest)


def _tweets(roots: Sequence[Path], download: bool) -> Path:
    from pfl_benchmark.datasets.text.tweets import find_tweets  # needs pandas, which takes its time to load

    folders = [root / "sent140" for root in roots]
    found = find_tweets(folders)
    if found is None:
        problem = _download(TWEETS, roots) if download else "downloading is off"
        found = find_tweets(folders)
        if found is None:
            raise UserError(
                "dataset 'sent140' was not found: looked for .csv, .zip and .parquet files in "
                f"{', '.join(map(str, folders))}; {problem}; put the official file there, name another "
                "folder with --data-dir or PFL_DATA_DIR, or use --dataset synth-tweets, which needs none"
            )
    return found


def _vectors(roots: Sequence[Path], download: bool, width: int) -> VectorFile:
    """The first file of word vectors of that width (0: the widest of the first folder)."""
    folders = [root / "glove" for root in roots]
    chosen = _of_width(find_vectors(folders), width)
    if chosen is None:
        problem = "downloading is off"
        if download:
            known = width in (0, *_DOWNLOADED_WIDTHS)
            problem = _download(VECTORS, roots) if known else "no download has that width"
        found = find_vectors(folders)
        chosen = _of_width(found, width)
        if chosen is None:
            wanted = f"of {width} dimensions " if width else ""
            there = "; ".join(
                f"{file.title} has {file.width}, for --embedding {file.width}" for file in found
            )
            raise UserError(
                f"word vectors {wanted}for 'sent140' were not found in {' or '.join(map(str, folders))}"
                f"{f' ({there})' if there else ''}; {problem}; put glove.6B.zip there, or a file such as "
                f"glove.6B.{width or 300}d.txt"
            )
    return chosen


def _of_width(found: Sequence[VectorFile], width: int) -> VectorFile | None:
    return next((file for file in found if width in (0, file.width)), None)


def _download(remote: Remote, roots: Sequence[Path]) -> str:
    """Download into the first folder that can be written; return what went wrong, empty for nothing."""
    into = next((root for root in roots if cache.is_writable(root)), None)
    if into is None:
        return f"it cannot be downloaded, since {roots[-1]} is read-only"
    try:
        fetch(remote, into)
    except Exception as error:  # whatever stops a download, the remedy is the same
        by_hand = f"by hand: curl --location --create-dirs --output {into / remote.path} {remote.url}"
        return f"the download failed ({one_line(error)}) of {remote.size / 1e6:,.0f} MB; {by_hand}"
    return ""


def _decode(tweets: Path, vectors: VectorFile) -> dict[str, np.ndarray]:
    from pfl_benchmark.datasets.text.tweets import read_tweets

    table, total = read_tweets(tweets)
    numbers, words = number_words(table["text"], len(table), WORDS)
    known, found = read_vectors(vectors, words)
    row = {word: 2 + place for place, word in enumerate(known)}
    # One more entry than there are words, for what stands behind the end: number -1.
    rows = np.array([*(row.get(word, UNKNOWN) for word in words), PADDING], dtype=np.int32)
    user_of = np.unique(table["user"].to_numpy(dtype=str), return_inverse=True)[1]
    order = np.argsort(user_of, kind="stable")
    return {
        "x": rows[numbers][order],
        "y": table["label"].to_numpy(dtype=np.int64)[order],
        "users": user_of[order].astype(np.int64),
        "vectors": np.concatenate([np.zeros((2, vectors.width), dtype=np.float32), found]),
        "total": np.array(total),
    }


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in ("x", "y", "users", "vectors"):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()[:16]
