"""Reading files that may be anything, and writing them so that a kill leaves the old content or the new."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import stat
import sys
import uuid
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pfl_benchmark.errors import UserError, optional, why

_LARGEST = 2**28  # bytes of a file that is read whole
_DEEPEST = 20  # containers in each other in a JSON file


def read_bytes(path: Path) -> bytes:
    """The content of a regular file (OSError: unreadable); ValueError for a pipe or more than 256 MiB."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path.name} is no regular file")
    if found.st_size > _LARGEST:
        raise ValueError(f"{path.name} has {found.st_size:,} bytes; expected at most {_LARGEST:,}")
    return path.read_bytes()


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; OSError or ValueError where there is none as `parse_json` takes it."""
    found = parse_json(read_bytes(path), path.name)
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is no JSON object")
    return found


def parse_json(content: bytes, name: str) -> Any:
    """JSON in UTF-8 with finite numbers, whole ones of 64 bits, no key twice and at most 20 levels.

    Anything else is a ValueError with the name of the file.
    """
    try:
        text = content.decode()
        value = json.loads(text, object_pairs_hook=_object)
        if "\\u" in text:  # half of a surrogate pair can be read, but not printed
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {str(error).splitlines()[0]}") from error
    _check_values(value, name)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a key is there twice")
    return entries


def _check_values(whole: Any, name: str) -> None:
    level = [whole]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is dict:
                inner += value.values()
            elif kind is list:
                inner += value
            elif kind is float and not math.isfinite(value):
                raise ValueError(f"{name} has a number that is not finite")
            elif kind is int and abs(value) >= 2**63:
                raise ValueError(f"{name} has a number beyond 64 bits")
        level = inner
    if level:
        raise ValueError(f"{name} has more than {_DEEPEST} levels")


def make_folder_of(path: Path) -> None:
    """Make the folder of a file that is to be written; UserError where that is impossible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {why(error)}; choose another folder") from error


def write_file(path: Path, write: Callable[[Path], object], durable: bool = False) -> None:
    """Write a file atomically by `write`, which gets the name to write to; UserError where that fails.

    Args:
        durable: return when it is on the disk, so that a power cut leaves it, too.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"cannot write {path}: it is no regular file; give another name")
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    try:
        write(temporary)
        if path.exists():
            shutil.copymode(path, temporary)
        if durable:
            _sync(temporary, os.O_RDWR)
        os.replace(temporary, path)
        if durable and os.name == "posix":
            _sync(path.parent, os.O_RDONLY)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {why(error)}; free space there, mend its permissions "
            "or choose another folder"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a binary file atomically."""
    write_file(path, lambda temporary: temporary.write_bytes(content))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, one key a line."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def save_tensors(path: Path, value: Any, durable: bool = False) -> None:
    """Write nested containers of tensors and plain values atomically; `durable` as in `write_file`."""

    def write(temporary: Path) -> None:
        temporary.touch()  # where that is forbidden, Python says so more plainly than torch
        try:
            torch.save(value, temporary)
        except RuntimeError as error:  # torch reports a full disk so
            raise OSError(str(error).splitlines()[0]) from error

    write_file(path, write, durable)


def save_safetensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Write tensors as safetensors, atomically, with texts `about` them; UserError where that fails."""
    package = optional("safetensors.torch", path.name)

    def write(temporary: Path) -> None:
        try:
            package.save_file({**tensors}, temporary, {**about})
        except Exception as error:  # of the package's own kind: a full disk, among others
            raise OSError(str(error)) from error

    write_file(path, write)


def load_tensors(path: Path, device: torch.device) -> Any:
    """What `save_tensors` wrote, on a device; OSError where that cannot be opened.

    A damaged file is a ValueError: its parts have checksums (CRC-32), which PyTorch only writes.
    """
    path.open("rb").close()
    try:
        with zipfile.ZipFile(path) as parts:
            damaged = parts.testzip()
        if damaged is None:
            return torch.load(path, map_location=device, weights_only=True)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever zipfile and torch make of a damaged file
        raise ValueError("it cannot be read") from error
    raise ValueError("its checksum is another")


def set_aside(path: Path, reason: object) -> None:
    """Rename a file that cannot be used, ``NAME.pt`` to ``NAME.damaged.pt``, and say so in a line."""
    aside, done = path.with_name(f"{path.stem}.damaged{path.suffix}"), ""
    with contextlib.suppress(OSError):  # another process was faster, or it is forbidden
        path.replace(aside)
        done = f"set aside as {aside.name}, "
    print(f"{path} is damaged ({reason}); {done}its rounds are trained again", file=sys.stderr)
