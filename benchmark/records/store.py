"""The records of a results folder: read once, checked, found by configuration."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.engine.config import RunConfig
from benchmark.engine.records import FOLDER, FORMAT, slug
from benchmark.errors import UserError
from benchmark.records.freshness import VERIFIED
from benchmark.records.same_data import Data, data_of

__all__ = ["Damaged", "Record", "Store", "family"]

_FILES = ("config.json", "summary.json", "clients.csv", "rounds.jsonl")


@dataclass(frozen=True, eq=False)
class Record:
    """One finished run.

    Attributes:
        method: its readable name and variant, as the folder is called.
        split: checksum of the split; records of equal split can be compared client by client.
        data: what it was made on.
        accuracies, test_samples: per client [K].
        rounds: the lines of rounds.jsonl.
        digest: changes with the content of the record.
        verified: what `benchmark.experiment.verify` found about this very content, or empty.
    """

    folder: Path
    config: RunConfig
    method: str
    split: str
    data: Data
    summary: Mapping[str, Any]
    accuracies: np.ndarray
    test_samples: np.ndarray
    rounds: list[dict[str, Any]]
    diagnostics: Mapping[str, Any]
    digest: str
    verified: Mapping[str, Any]


@dataclass(frozen=True)
class Damaged:
    """A folder that says it is a finished record and cannot be read as one."""

    folder: Path
    reason: str


@dataclass
class Store:
    """What lies in a results folder.

    Attributes:
        damaged: records that cannot be used; they count as missing.
        failed: why runs stopped whose training diverged, by the hash of their configuration.
    """

    root: Path
    damaged: list[Damaged] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    _records: dict[str, dict[int, Record]] = field(default_factory=dict)

    @classmethod
    def scan(cls, root: Path) -> Store:
        """Read all finished records below `root`; a folder that does not exist holds none.

        Raises:
            UserError: the folder cannot be read.
        """
        store = cls(root)
        try:
            folders = sorted(path for path in root.iterdir() if FOLDER.fullmatch(path.name))
        except FileNotFoundError:
            return store
        except OSError as error:
            raise UserError(
                f"cannot read the results folder {root}: {error.strerror}; choose another --results-dir"
            ) from error
        for folder in folders:
            store.add(folder)
        return store

    def add(self, folder: Path) -> None:
        """Take note of one record folder, whatever its state."""
        identity = folder.name[-10:]
        self.failed.pop(identity, None)
        try:
            if not (folder / "done").exists():
                if (folder / "failed.json").exists():
                    self.failed[identity] = _reason(folder / "failed.json")
                return
            record = _read(folder)
        except (OSError, ValueError, KeyError, TypeError, UserError) as error:
            self.damaged.append(Damaged(folder, _say(error)))
            return
        self._records.setdefault(family(record.config), {})[record.config.seed] = record

    def find(self, config: RunConfig) -> Record | None:
        """The record of exactly this run."""
        return self.seeds(config).get(config.seed)

    def seeds(self, config: RunConfig) -> dict[int, Record]:
        """The records of this run with whatever seed, by seed in increasing order."""
        return dict(sorted(self._records.get(family(config), {}).items()))

    def records(self) -> list[Record]:
        """All of them."""
        return [record for family in self._records.values() for record in family.values()]

    def set_aside(self) -> list[str]:
        """Rename damaged records to ``<folder>.damaged``, so that their runs can be made again.

        Returns:
            One line for each that says what was done.

        Raises:
            UserError: no permission to rename.
        """
        lines = []
        for found in self.damaged:
            aside = found.folder.with_name(found.folder.name + ".damaged")
            count = 1
            while aside.exists():
                count += 1
                aside = found.folder.with_name(f"{found.folder.name}.damaged-{count}")
            try:
                found.folder.rename(aside)
            except FileNotFoundError:
                continue  # another process was faster
            except OSError as error:
                raise UserError(
                    f"the record {found.folder} is damaged ({found.reason}) and cannot be renamed: "
                    f"{error.strerror}; mend the permissions there or choose another --results-dir"
                ) from error
            lines.append(f"damaged record set aside as {aside.name}: {found.reason}")
        self.damaged.clear()
        return lines


def family(config: RunConfig) -> str:
    """The identity of a run without its seed."""
    return dataclasses.replace(config, seed=0).hash


def _read(folder: Path) -> Record:
    """Read a record and hold its files against each other.

    Raises OSError, ValueError, KeyError, TypeError or UserError where they do not fit.
    """
    content = {name: (folder / name).read_bytes() for name in _FILES}
    diagnostics = folder / "diagnostics.json"
    if diagnostics.exists():
        content["diagnostics.json"] = diagnostics.read_bytes()
    about = _json(content, "config.json")
    if about["format"] != FORMAT:
        raise ValueError(f"config.json has format {about['format']} instead of {FORMAT}")
    config = RunConfig.from_dict(about["config"])
    if config.hash != folder.name[-10:]:
        raise ValueError(f"config.json is that of run {config.hash}")
    summary = _json(content, "summary.json")
    table = _clients(content["clients.csv"])
    if len(table) != config.clients:
        raise ValueError(f"clients.csv has {len(table)} of {config.clients} clients")
    total, correct = table[:, 1], table[:, 2]
    if not (total > 0).all():
        raise ValueError("clients.csv has clients without test samples")
    if not abs(correct.sum() / total.sum() - summary["accuracy"]) < 1e-4:
        raise ValueError("clients.csv and summary.json give different accuracies")
    lines = content["rounds.jsonl"].splitlines()
    rounds = json.loads(b"[" + b",".join(lines) + b"]")  # at once: half the time of line by line
    if len(rounds) != summary["rounds"]:
        raise ValueError(f"rounds.jsonl has {len(rounds)} of {summary['rounds']} rounds")
    digest = hashlib.sha256()
    for name, data in content.items():
        digest.update(f"{name} {len(data)} ".encode() + data)
    return Record(
        folder=folder,
        config=config,
        method=folder.name.removesuffix(f"-{slug(config)}-{config.hash}"),
        split=about["split"]["checksum"],
        data=data_of(config, about["split"]),
        summary=summary,
        accuracies=correct / total,
        test_samples=total.astype(int),
        rounds=rounds,
        diagnostics=_json(content, "diagnostics.json") if "diagnostics.json" in content else {},
        digest=digest.hexdigest(),
        verified=_verified(folder, digest.hexdigest()),
    )


def _verified(folder: Path, digest: str) -> Mapping[str, Any]:
    """The verdict in a record's folder, unless it is about another content, or cannot be read."""
    try:
        found = json.loads((folder / VERIFIED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("record_digest") == digest else {}


def _json(content: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        found = json.loads(content[name])
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{name} is no JSON object")
    return found


def _clients(content: bytes) -> np.ndarray:
    """The numbers of clients.csv [K, 5]."""
    head, *lines = content.decode().splitlines()
    rows = [[float(part) for part in line.split(",")] for line in lines]
    if head.split(",")[:3] != ["client", "test_samples", "correct"] or {len(row) for row in rows} != {5}:
        raise ValueError("clients.csv has not the columns of a record")
    return np.array(rows)


def _reason(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return "its training diverged"


def _say(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it lacks the entry {error}"
    if isinstance(error, OSError):
        return f"{Path(error.filename).name if error.filename else 'a file'}: {error.strerror}"
    return str(error).splitlines()[0]
