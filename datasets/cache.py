"""Decoded arrays kept on disk, so that a dataset of encoded images is decoded only once."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

__all__ = ["cached", "existing", "is_writable", "user_cache"]

_VERSION = 2  # raise it when decoding changes, so that older caches are not used
_ARRAYS = ("train_x", "train_y", "test_x", "test_y")


def user_cache() -> Path:
    """Return this program's folder in the user's cache ($XDG_CACHE_HOME, else ~/.cache)."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "pfl-benchmark"


def existing(path: Path) -> Path:
    """Return `path` or its nearest parent that exists."""
    return next(place for place in (path, *path.parents) if place.exists())


def is_writable(folder: Path) -> bool:
    """Say whether files may be made in `folder` (or in the nearest parent that exists).

    A folder without any write bit counts as read-only even for root, whom the system would let write.
    """
    folder = existing(folder)
    return folder.is_dir() and os.access(folder, os.W_OK) and bool(folder.stat().st_mode & 0o222)


def cached(
    name: str,
    sources: Iterable[Path],
    beside: Path | None,
    decode: Callable[[], dict[str, np.ndarray]],
    names: Sequence[str] = _ARRAYS,
    fits: Callable[[dict[str, np.ndarray]], bool] = lambda arrays: True,
    root: Path | None = None,
) -> dict[str, np.ndarray]:
    """Return the arrays of these `names`: from a cache if there is one, else from `decode`.

    The cache is `<beside>/.pfl-cache/<name>-<key>.npz`, or in the user's cache folder where `beside` is None
    or read-only. The key is a hash of the content of `sources`: files of equal names, sizes and times may
    differ. Names of folders count below `root`, where they tell labels. A cache that is damaged, or whose
    arrays do not fit, is rebuilt.
    """
    sources = [*sources]
    try:
        key = _key(sources, root)
    except OSError:
        return decode()  # which says what is wrong with a file
    file = f"{name}-{key}.npz"
    places = [user_cache() / "arrays" / file]
    if beside is not None:
        places.insert(0, beside / ".pfl-cache" / file)
    for place in places:
        arrays = _read(place, names)
        if arrays is not None and fits(arrays):
            return arrays
    arrays = decode()
    if _key(sources, root) != key:
        return arrays  # files were changed meanwhile: nobody knows which of them were read
    for place in places:
        if _write(place, arrays):
            break
    return arrays


def _key(sources: Sequence[Path], root: Path | None) -> str:
    """A hash of contents and of names, seen from `root` if there is one."""
    facts = [f"version {_VERSION}"]
    for path in sources:
        name = path.relative_to(root).as_posix() if root else path.name
        with path.open("rb") as file:
            facts.append(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}")
    return hashlib.sha256("\n".join(facts).encode(errors="surrogateescape")).hexdigest()[:16]


def _read(path: Path, names: Sequence[str]) -> dict[str, np.ndarray] | None:
    """Return the arrays of a cache, None where it is missing or damaged (a zip has checksums)."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except Exception:  # whatever NumPy makes of a damaged file
        return None


def _write(path: Path, arrays: dict[str, np.ndarray]) -> bool:
    """Write a cache under a temporary name and rename it; say whether that was possible."""
    if not is_writable(path.parent):
        return False
    temporary = path.with_name(f"{path.stem}-{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.replace(temporary, path)
    except OSError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True
