"""The seal of a finished record: SHA-256 of its files, in its file ``done``.

The lines are those of ``sha256sum``, so ``sha256sum -c done`` in the record's folder checks them without this
program. The seal covers what a run writes (`SEALED`, as far as it is there) and not what is written later:
verified.json, which has a checksum of its own, and pictures. It does not cover the folder's name, so a record
can be copied and its method's part of the name changed.

A seal keeps out accidents (a flipped bit, an edited figure, half a copy, changed line ends), not forgery:
whoever changes a file can write the seal again. `verify` answers forgery: it repeats the run. Records of
older versions have an empty ``done``: they are *unsealed*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pfl_benchmark.records.files import read_bytes, write_text

DIAGNOSTICS = "diagnostics.json"  # only of methods that have some
SEALED = ("clients.csv", "config.json", DIAGNOSTICS, "rounds.jsonl", "summary.json")


def read_sealed(folder: Path) -> dict[str, bytes]:
    """The files of a record that a seal covers, by name; errors as `read_bytes` has them."""
    names = [name for name in SEALED if name != DIAGNOSTICS or (folder / name).exists()]
    return {name: read_bytes(folder / name) for name in names}


def seal_of(content: Mapping[str, bytes]) -> str:
    """The seal of these files, as it stands in ``done``."""
    digests = {name: hashlib.sha256(content[name]).hexdigest() for name in sorted(content)}
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


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
