"""The seal of a finished record: SHA-256 of its files, in its file ``done``; and what verifying it gave.

The lines are those of ``sha256sum``, so ``sha256sum -c done`` in the record's folder checks them without this
program. The seal covers what a run writes (`SEALED`, as far as it is there) and not what is written later:
verified.json, which has a checksum of its own, and pictures. It does not cover the folder's name, so a record
can be copied and its method's part of the name changed.

A seal keeps out accidents (a flipped bit, an edited figure, half a copy, changed line ends), not forgery:
whoever changes a file can write the seal again. `verify` answers forgery: it repeats the run. Records of
older versions have an empty ``done``: they are *unsealed*. What comes of `verify` is a *verdict*.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfl_benchmark.records.files import read_bytes, read_json, write_json, write_text
from pfl_benchmark.records.sources import digest

DIAGNOSTICS = "diagnostics.json"  # only of methods that have some
_VERIFIED = "verified.json"
BIT_EQUAL, WITHIN_TOLERANCE, DIFFERENT = "bit-equal", "within tolerance", "different"
DRIFTED = "drifted"  # made elsewhere, and no farther from here than a run that begins a rounding error away
SEALED = ("clients.csv", "config.json", DIAGNOSTICS, "rounds.jsonl", "summary.json")


def read_sealed(folder: Path) -> dict[str, bytes]:
    """The files of a record that a seal covers, by name; errors as `read_bytes` has them."""
    names = [name for name in SEALED if name != DIAGNOSTICS or (folder / name).exists()]
    return {name: read_bytes(folder / name) for name in names}


def seal_of(content: Mapping[str, bytes]) -> str:
    """The seal of these files, as it stands in ``done``."""
    digests = {name: hashlib.sha256(content[name]).hexdigest() for name in sorted(content)}
    return "".join(f"{value}  {name}\n" for name, value in digests.items())


def seal(folder: Path) -> None:
    """Write the seal of a record, which says that it is finished; UserError where that is impossible."""
    content = {name: read_bytes(folder / name) for name in SEALED if (folder / name).exists()}
    write_text(folder / "done", seal_of(content))


def broken(found: bytes, content: Mapping[str, bytes]) -> str:
    """Which file is not as it was sealed, in words; empty if all are."""
    right = seal_of(content).encode()
    if found == right:
        return ""
    sealed, here = found.splitlines(), right.splitlines()
    names = [line.partition(b"  ")[2].decode(errors="replace") for line in sealed]
    for name in (*names, *content):
        if name in SEALED and name not in content:
            return f"{name} is missing, which its seal names"
        if name in content and name not in names:
            return f"{name} is not in its seal, the file done"
    for line, name in zip(here, sorted(content), strict=True):
        if line not in sealed:
            return f"{name} is not as it was sealed"
    return "its seal, the file done, is damaged"


def write_verdict(folder: Path, verdict: Mapping[str, Any]) -> None:
    """Keep in a record's folder what came of verifying it; its seal does not cover that."""
    write_json(folder / _VERIFIED, with_checksum(verdict))


def with_checksum(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict as it is kept: `checked_verdict` knows it by its checksum."""
    return {**verdict, "checksum": _checksum(verdict)}


def read_verdict(folder: Path, record_digest: str) -> Mapping[str, Any]:
    """What `write_verdict` kept; empty if it is damaged or about another content of the record."""
    try:
        found = read_json(folder / _VERIFIED)
    except (OSError, ValueError):
        return {}
    return checked_verdict(found, record_digest)


def checked_verdict(found: Any, record_digest: str) -> Mapping[str, Any]:
    """A verdict that `with_checksum` made, without its checksum.

    Empty if it is damaged, or about another content of the record than that of this digest.
    """
    if not isinstance(found, dict):
        return {}
    verdict = {name: value for name, value in found.items() if name != "checksum"}
    whole = found.get("checksum") == _checksum(verdict)
    return verdict if whole and verdict.get("record_digest") == record_digest else {}


def _checksum(verdict: Mapping[str, Any]) -> str:
    return digest({"verdict": json.dumps(verdict, sort_keys=True).encode()})
