"""Temporary folders. What a killed process has left goes when the next one asks for a folder."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

_PREFIX = "pfl-benchmark-"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A new empty folder in the system's temporary one, removed in the end.

    A file beside it is locked as long as its process lives, so that others know whether it is needed.
    """
    root = Path(tempfile.gettempdir())
    _remove_left(root)
    folder = root / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    lock = FileLock(folder.with_suffix(".lock"))
    with lock:
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _remove(folder)


def _remove_left(root: Path) -> None:
    """Remove the folders of processes that have ended."""
    for file in root.glob(f"{_PREFIX}*.lock"):
        with contextlib.suppress(Timeout, OSError), FileLock(file, timeout=0):
            _remove(file.with_suffix(""))


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.with_suffix(".lock").unlink()
