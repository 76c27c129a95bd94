"""Writing files so that a kill at any moment leaves the old content or the new, never half of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmark.errors import UserError

__all__ = ["save_tensors", "write_bytes", "write_json", "write_text"]


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    try:
        write(temporary)
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; free space there, mend its permissions "
            "or choose another --results-dir"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    _replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a binary file atomically."""
    _replace(path, lambda temporary: temporary.write_bytes(content))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, one key a line."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def save_tensors(path: Path, value: Any) -> None:
    """Write nested containers of tensors and plain values atomically."""

    def write(temporary: Path) -> None:
        try:
            torch.save(value, temporary)
        except RuntimeError as error:  # torch reports a full disk so
            raise OSError(str(error).splitlines()[0]) from error

    _replace(path, write)
