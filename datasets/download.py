"""Downloading through torchvision, which knows the addresses and checks the digests."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from datasets.cache import existing

__all__ = ["Download", "fetch"]

_TIMEOUT = 20.0  # seconds a silent server is waited for
_stubs: list[Any] = []  # operators live as long as the library object that defined them


@dataclass(frozen=True)
class Download:
    """A class of torchvision.datasets, the folder that it makes, and its options."""

    name: str
    folder: str
    options: Mapping[str, Any] = field(default_factory=dict)


def fetch(what: Download, into: Path) -> None:
    """Download into `into / what.folder`, which appears complete or not at all.

    Raises ImportError without torchvision, OSError, RuntimeError or others of the network's errors.
    """
    torchvision_datasets = _import_torchvision_datasets()
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
    try:
        import torchvision.datasets
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        # torchvision's wheel beside a torch of another build (CPU beside CUDA) lacks its compiled operators
        # and fails at import; datasets need none of them, so declaring the two that it asks for is enough.
        import torch

        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _stubs.append(library)
        import torchvision.datasets
    return torchvision.datasets
