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

__all__ = ["Download", "fetch"]

_TIMEOUT = 20.0  # seconds a silent server is waited for


@dataclass(frozen=True)
class Download:
    """A class of torchvision.datasets, the folder that it makes, and its options.

    what: the archive and its size, for people.
    """

    name: str
    folder: str
    what: str = "its archive"
    options: Mapping[str, Any] = field(default_factory=dict)

    def command(self, into: str) -> str:
        """A command that downloads the same files, on whatever machine has a network and torchvision."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        call = f"torchvision.datasets.{self.name}('{into}', download=True{options})"
        return f'python -c "import torchvision; {call}"'


def fetch(what: Download, into: Path) -> None:
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
            getattr(torchvision_datasets, what.name)(scratch, download=True, **what.options)
            into.mkdir(parents=True, exist_ok=True)
            os.replace(Path(scratch) / what.folder, into / what.folder)
    finally:
        socket.setdefaulttimeout(timeout)


def _import_torchvision_datasets() -> ModuleType:
    return import_torchvision("datasets")
