"""What came of verifying a record (`experiment.verify`), kept in its folder as verified.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfl_benchmark.records.files import read_json, write_json
from pfl_benchmark.records.sources import digest

_VERIFIED = "verified.json"
BIT_EQUAL, WITHIN_TOLERANCE, DIFFERENT = "bit-equal", "within tolerance", "different"


def write_verdict(folder: Path, verdict: Mapping[str, Any]) -> None:
    """Keep in a record's folder what came of verifying it, besides its seal; UserError: impossible."""
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
