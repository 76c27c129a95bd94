"""Word vectors in GloVe's text format: a word and its numbers on every line, as a file or in a zip."""

from __future__ import annotations

import contextlib
import io
import ssl
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from pfl_benchmark.datasets.layouts.base import unreadable
from pfl_benchmark.datasets.text.tokens import torchtext
from pfl_benchmark.errors import UserError

__all__ = ["VectorFile", "find_vectors", "read_vectors"]

_EXPECTED = "word vectors (a word and its numbers on every line)"


@dataclass(frozen=True)
class VectorFile:
    """A file of word vectors.

    member: its name in the zip `path`; empty for a plain file.
    width: numbers per word.
    """

    path: Path
    member: str
    width: int

    @property
    def title(self) -> str:
        """Where it is, for messages."""
        return f"{self.member} in {self.path}" if self.member else str(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The lines; UserError where the file turns out to be damaged."""
        try:
            if not self.member:
                with self.path.open("rb") as file:
                    yield file
                return
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as member:
                yield member
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            raise unreadable(self.path, "a complete file of word vectors", error) from error


def find_vectors(folders: Sequence[Path]) -> list[VectorFile]:
    """Return all files of word vectors, the first folder's first and in it the widest first.

    Raises UserError for a file that is none.
    """
    found: list[VectorFile] = []
    for folder in folders:
        own = []
        for path in sorted([*folder.glob("*.txt"), *folder.glob("*.zip")]):
            for member in _members(path):
                file = VectorFile(path, member, 0)
                own.append(VectorFile(path, member, _width(file)))
        found += sorted(own, key=lambda file: -file.width)
    return found


def _members(path: Path) -> list[str]:
    if path.suffix != ".zip":
        return [""]
    try:
        with zipfile.ZipFile(path) as archive:
            return [name for name in archive.namelist() if name.endswith(".txt")]
    except (OSError, zipfile.BadZipFile) as error:
        raise unreadable(path, "a complete zip of word vectors", error) from error


def _width(file: VectorFile) -> int:
    """Numbers on the first line, or the second where the first holds the table's size (word2vec's files)."""
    with file.open() as lines:
        first, second = lines.readline().split(b" "), lines.readline().split(b" ")
    line = second if len(first) == 2 else first
    try:
        np.array(line[1:], dtype=np.float64)
    except ValueError as error:
        raise unreadable(file.path, _EXPECTED, error) from error
    if len(line) < 3:
        raise unreadable(file.path, _EXPECTED, f"{file.title} does not begin like that")
    return len(line) - 1


def read_vectors(file: VectorFile, words: Collection[str]) -> tuple[list[str], np.ndarray]:
    """Return those of `words` that have a vector, in the file's order, and the vectors float32 [n, width].

    torchtext parses only the lines that are needed, out of a file in a temporary folder: given the whole file
    it would read all of it, and leave a second copy behind.

    Raises UserError for a damaged file.
    """
    wanted = {word.encode() for word in words}
    chosen: dict[bytes, bytes] = {}
    with file.open() as lines:
        for number, line in enumerate(lines, start=1):
            if line.partition(b" ")[0] not in wanted:
                continue
            word, *numbers = line.rstrip().rsplit(b" ", file.width)
            if len(numbers) != file.width:
                raise unreadable(
                    file.path,
                    f"{file.width} numbers on every line",
                    f"line {number:,} of {file.member or file.path.name} has {len(numbers)}",
                )
            if word in wanted:
                chosen.setdefault(word, line.rstrip() + b"\n")
    if not chosen:
        raise UserError(f"{file.title} has a vector for none of the words of the tweets: use one in English")
    try:
        names, table = _parse(b"".join(chosen.values()))
    except (ValueError, RuntimeError) as error:
        raise unreadable(file.path, _EXPECTED, error) from error
    if not np.isfinite(table).all():
        raise unreadable(file.path, _EXPECTED, "some numbers are not finite")
    return names, table


def _parse(text: bytes) -> tuple[list[str], np.ndarray]:
    vocab = torchtext().vocab
    checks = ssl._create_default_https_context  # which torchtext switches off for the whole program
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            path = Path(folder) / "vectors.txt"
            path.write_bytes(text)
            vectors = vocab.Vectors(str(path), cache=folder)
    finally:
        ssl._create_default_https_context = checks
    return list(vectors.itos), vectors.vectors.numpy()
