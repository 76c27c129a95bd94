"""Downloading a file: with progress, resumed after an interruption, checked at the end."""

from __future__ import annotations

import hashlib
import os
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Remote", "fetch"]

_TIMEOUT = 20.0  # seconds a silent server is waited for
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Remote:
    """A file on the net.

    path: its place below the data folder.
    size: bytes.
    sha256: hexadecimal.
    """

    url: str
    path: str
    size: int
    sha256: str


def fetch(remote: Remote, root: Path) -> Path:
    """Download into `root / remote.path`, which appears complete and checked or not at all; return that path.

    What an interrupted download has got stays in `<name>.part`, where the next one goes on.

    Raises OSError (or urllib's kinds of it) where the net fails or the content is not the expected one.
    """
    target = root / remote.path
    part = target.with_name(target.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    if have > remote.size:
        part.unlink()
        have = 0
    with _progress(remote, have) as advance:
        if have < remote.size:
            _append(remote, part, have, advance)
    if _sha256(part) != remote.sha256:
        part.unlink()
        raise OSError(f"{remote.url} is not the expected file: its checksum differs")
    os.replace(part, target)
    return target


def _append(remote: Remote, part: Path, have: int, advance: Callable[[int], None]) -> None:
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
        resumed = answer.status == 206  # a server without ranges sends everything again
        if not resumed:
            advance(-have)
        part.parent.mkdir(parents=True, exist_ok=True)  # not before somebody has answered
        with part.open("ab" if resumed else "wb") as file:
            while block := answer.read(_BLOCK):
                file.write(block)
                advance(len(block))
    size = part.stat().st_size
    if size < remote.size:
        raise OSError(f"{remote.url} ended after {size:,} of {remote.size:,} bytes")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _progress(remote: Remote, have: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, a line elsewhere, on standard error; yields what is told of every block."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    name = Path(remote.path).name
    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"downloading {name} ({remote.size / 1e6:,.0f} MB) from {remote.url}", file=sys.stderr)
        yield lambda count: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"downloading {name}", total=remote.size, completed=have)
        yield lambda count: progress.advance(task, count)
