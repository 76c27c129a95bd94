"""Downloading through torchvision, which knows the addresses and checks the digests."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from pfl_benchmark.datasets.cache import existing
from pfl_benchmark.datasets.vision import import_torchvision

__all__ = ["Archive", "Download", "fetch"]

_TIMEOUT = 20.0  # seconds a silent server is waited for


@dataclass(frozen=True)
class Download:
    """A class of torchvision.datasets, the folder that it makes, and its options.

    what: the archive and its size, for people.
    inside: the class writes into the folder that it is given; else it makes `folder` there.
    more: options of further calls, where a call fetches a part.
    """

    name: str
    folder: str
    what: str = "its archive"
    options: Mapping[str, Any] = field(default_factory=dict)
    inside: bool = False
    more: tuple[Mapping[str, Any], ...] = ()

    def command(self, into: str) -> str:
        """A command that downloads the same files, on whatever machine has a network and torchvision."""
        calls, place = [], f"{into}/{self.folder}" if self.inside else into
        for each in (self.options, *self.more):
            options = "".join(f", {name}={value!r}" for name, value in each.items())
            calls.append(f"torchvision.datasets.{self.name}('{place}', download=True{options})")
        return f'python -c "import torchvision; {"; ".join(calls)}"'

    def into(self, scratch: Path, torchvision_datasets: ModuleType) -> None:
        """Make the folder in `scratch`."""
        place = scratch / self.folder if self.inside else scratch
        for options in (self.options, *self.more):
            getattr(torchvision_datasets, self.name)(str(place), download=True, **options)


@dataclass(frozen=True)
class Archive:
    """An archive on the net that torchvision's own functions fetch, check and unpack.

    folder: the one in it.
    what: the archive and its size, for people.
    """

    url: str
    md5: str
    folder: str
    what: str

    def command(self, into: str) -> str:
        """A command that does the same, on whatever machine has a network and torchvision."""
        call = f"download_and_extract_archive('{self.url}', '{into}', md5='{self.md5}')"
        return f'python -c "from torchvision.datasets.utils import *; {call}"'

    def into(self, scratch: Path, torchvision_datasets: ModuleType) -> None:
        """Make the folder in `scratch`."""
        torchvision_datasets.utils.download_and_extract_archive(self.url, str(scratch), md5=self.md5)


def fetch(what: Download | Archive, into: Path) -> None:
    """Download into `into / what.folder`, which appears complete or not at all.

    Raises ImportError without torchvision, OSError, RuntimeError or others of the network's errors.
    """
    torchvision_datasets = _import_torchvision_datasets()
    print(f"downloading {what.what}, once, into {into}", file=sys.stderr, flush=True)
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)
    try:
        # Beside the target for the rename; `into` itself is not made for a download that fails.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=existing(into)) as scratch:
            what.into(Path(scratch), torchvision_datasets)
            into.mkdir(parents=True, exist_ok=True)
            os.replace(Path(scratch) / what.folder, into / what.folder)
    finally:
        socket.setdefaulttimeout(timeout)


def _import_torchvision_datasets() -> ModuleType:
    return import_torchvision("datasets")
