"""Common beginnings: rounds that several runs of a seed share are trained once and kept here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import getattr_static
from pathlib import Path
from typing import Any

import torch

from pfl_benchmark.config.lr_schedule import lr_schedule
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.algorithm import Algorithm, SharedRounds
from pfl_benchmark.engine.checkpoints import packed, unpacked
from pfl_benchmark.errors import UserError
from pfl_benchmark.records.environment import deciding
from pfl_benchmark.records.files import load_tensors, save_tensors
from pfl_benchmark.records.rows import RowFile, new_name
from pfl_benchmark.records.sources import SOURCES, digest
from pfl_benchmark.records.writer import FORMAT

_KEPT = (
    30 * 24 * 3600.0
)  # seconds that shared rounds is kept after its last use: other code never finds it again
# What does not matter to the rounds of shared rounds: its key and length stand for the method.
_FREE = (
    "algo", "hyper", "rounds", "budget", "byte_budget", "sample_budget", "compute_cap", "adapt_epochs",
    "tuning_trials", "stop_after",
)  # fmt: skip

# What a subclass may have of its own and still begin as its base does. (Not `members`: PPFE trains with it.)
_AFTERWARDS = {
    "name", "title", "reference", "group", "publication", "pseudocode", "aliases", "refuses",
    "Hyper", "ablations", "tuning",
    "adaptation", "evaluated", "notes", "diagnostics", "remedies", "too_large",
    "check", "fitted",
    "shared_model",
}  # fmt: skip


def shared_rounds_of(algorithm: Algorithm) -> list[SharedRounds]:
    """The beginnings that a run may share: those that its class names, or inherits with all that makes them.

    A subclass of FedAvg that trains otherwise is not FedAvg: it shares nothing, unless it says what.
    """
    if algorithm.config.eval_adapted and algorithm.adaptation():
        return []  # what the lines of its rounds tell is of adapted models
    if lr_schedule(algorithm.config.lr_schedule).needs_length:
        return []  # rounds of a longer run have other rates
    cls = type(algorithm)
    home = next(base for base in cls.__mro__ if "shared_rounds" in vars(base))
    names = {name for name in dir(home) if name == "__init__" or not name.startswith("__")} - _AFTERWARDS
    same = all(getattr_static(cls, name) is getattr_static(home, name) for name in names)
    return algorithm.shared_rounds() if same else []


def common_fields(config: RunConfig) -> dict[str, Any]:
    """What runs must have in common to share a trunk."""
    return {name: value for name, value in config.identifying.items() if name not in _FREE}


class SharedRoundsStore:
    """Shared rounds of one results folder, under ``<results-dir>/.cache``; safe to delete at any time.

    A folder that cannot be used is no error: a line says so, and rounds are trained again.

    Args:
        data: checksums of the split and of what it divides.
        environment: of the run. Only the code (of all methods: any may have made it), libraries and hardware
            that made them find them again, so that a run has the same floats with it and without (on
            CUDA but for the size of stacks, which follows the memory that is free).

    What nobody has used for a month is deleted when others are kept.
    """

    def __init__(
        self, root: Path, config: RunConfig, data: Sequence[str], environment: Mapping[str, Any]
    ) -> None:
        self._folder = root / ".cache"
        made = {"data": list(data), "format": FORMAT, **deciding(environment), "code": digest(SOURCES)}
        self._common = {**common_fields(config), **made}

    def path(self, shared: SharedRounds) -> Path:
        """Where shared rounds is kept."""
        return self._folder / f"shared-{hashlib.sha256(self._name(shared).encode()).hexdigest()[:16]}.pt"

    def _name(self, shared: SharedRounds) -> str:
        return json.dumps([self._common, shared.key, shared.round], sort_keys=True)

    def save(self, shared: SharedRounds, state: Mapping[str, Any], lines: list[dict[str, Any]]) -> None:
        """Keep the state after the last round of `shared`, unless it is there."""
        path = self.path(shared)
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                self._prune()
                kept, _ = packed(dict(state), partial(self._new_rows, path), apart=True)
                save_tensors(path, {"of": self._name(shared), "state": kept, "lines": lines})
        except (OSError, UserError) as error:
            print(f"common rounds are not kept: {error}", file=sys.stderr)

    def load(self, shared: SharedRounds, device: torch.device) -> dict[str, Any] | None:
        """What `save` kept, or None.

        Raises:
            ValueError: it is damaged, or another trunk.
        """
        path = self.path(shared)
        try:
            if not path.exists():
                return None
            with contextlib.suppress(OSError):
                os.utime(path)  # used now
            found = load_tensors(path, device)
        except OSError as error:
            print(f"common rounds are trained again: {error}", file=sys.stderr)
            return None
        if not isinstance(found, dict) or found.get("of") != self._name(shared):
            raise ValueError("it has other rounds")
        state, files = unpacked(found["state"], self._folder, write=False)
        for file in files:
            with contextlib.suppress(OSError):
                os.utime(file.path)
        return {**found, "state": state}

    def _new_rows(self, path: Path, width: int) -> RowFile:
        return RowFile(self._folder / new_name(path.stem), width)

    def _prune(self) -> None:
        killed = self._folder.glob(".shared-*.tmp")  # half-written, by processes that were killed
        kept = (path for pattern in ("shared-*.pt", "shared-*.rows") for path in self._folder.glob(pattern))
        for path in (*kept, *killed):
            with contextlib.suppress(OSError):  # another process may be deleting it as well
                if time.time() - path.stat().st_mtime > _KEPT:
                    path.unlink()
