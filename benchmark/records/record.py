"""One finished run, read from its folder and checked: the only reader of a record's files.

What it returns has the types and ranges of `records.schema`. Figures that follow from others are
computed again, and every file is held against the seal (`records.seal`), if the record has one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.errors import UserError
from pfl_benchmark.records.files import parse_json, read_bytes, read_json
from pfl_benchmark.records.metrics import ClientMetrics
from pfl_benchmark.records.same_data import Data, data_of
from pfl_benchmark.records.schema import (
    CALIBRATION,
    COSTS,
    COUNT,
    COUNTS,
    DETAILS,
    OBJECT,
    SCORES,
    TEXT,
    check_entries,
    check_rounds,
    check_summary,
)
from pfl_benchmark.records.seal import DIAGNOSTICS, broken, read_sealed, read_verdict, seal_of
from pfl_benchmark.records.writer import FORMAT, slug

_COLUMNS = "client,test_samples,correct,accuracy,loss"
_MORE_COLUMNS = f"{_COLUMNS},macro_f1,auc"
FAR = 10  # times the loss of guessing
_MANY = 1000  # classes that a dataset is taken to have which is not registered
_ROUNDING = 2e-6  # of figures that are written with six decimals, and of what is computed from such


class BadRecord(UserError):
    """A folder that says it is a finished record and cannot be used as one, for a reason in words."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"the record {folder} cannot be used: {reason}; bring its files back, or remove the folder and "
            "run again"
        )
        self.folder, self.reason = folder, reason


@dataclass(frozen=True, eq=False)
class Record:
    """One finished run.

    Attributes:
        method: its readable name and variant, as the folder is called.
        split: checksum of the split; records of equal split can be compared client by client.
        data: what it was made on.
        summary: the content of summary.json, as `records.schema.check_summary` takes it.
        accuracies, test_samples, losses: per client that took part in training [K].
        macro_f1, auc: per such client [K], NaN where a client has no AUC; None in older records.
        newcomers: of the clients that took no part; None where everyone did.
        new_clients: their numbers, in this order, in a run in which everyone takes part.
        rounds: the lines of rounds.jsonl, as `records.schema.check_rounds` takes them.
        shifts: by shift of the run, what is on record of it, such as the group of each client.
        diagnostics: what the method itself had to say: any JSON object.
        digest: changes with the content of the record.
        sealed: False for a record of an older version, whose files nothing vouches for.
        verified: what `experiment.verify` found about this very content, or empty.
    """

    folder: Path
    config: RunConfig
    method: str
    split: str
    data: Data
    summary: Mapping[str, Any]
    accuracies: np.ndarray
    test_samples: np.ndarray
    losses: np.ndarray
    macro_f1: np.ndarray | None
    auc: np.ndarray | None
    newcomers: ClientMetrics | None
    new_clients: Sequence[int]
    rounds: list[dict[str, Any]]
    shifts: Mapping[str, Mapping[str, Any]]
    diagnostics: Mapping[str, Any]
    digest: str
    sealed: bool
    verified: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Record({str(self.folder)!r}, accuracy {100 * self.summary['accuracy']:.2f} %)"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of logits and labels; UserError as of `dataset`."""
        return self.dataset.class_names

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of rows, with those of categories; UserError as of `dataset`."""
        return self.dataset.features

    @property
    def dataset(self) -> DatasetInfo:
        """What it was made on; UserError where this process does not know it."""
        if self.config.dataset not in DATASETS:
            raise UserError(
                f"'{self.config.dataset}' is not known in this process; make it known first, by `federated` "
                "with the same arrays, or by `run` with the same dataset and plugins"
            )
        return DATASETS[self.config.dataset]

    @property
    def guessing(self) -> float:
        """The loss of guessing."""
        dataset = self.config.dataset
        return math.log(DATASETS[dataset].classes if dataset in DATASETS else _MANY)

    @property
    def diverged(self) -> bool:
        """Whether its training ended far above the loss of guessing, but was not stopped.

        What a method adds to the loss can be that large, too (GPFL's weight decay of wide embeddings), but
        falls, and the tests go well.
        """
        first, last = self.rounds[0]["loss"], self.rounds[-1]["loss"]
        sound = last < first and self.summary["test_loss"] < self.guessing
        return bool(last > FAR * self.guessing and not sound)

    @property
    def bytes_sent(self) -> int:
        """Bytes of the whole run, in all directions."""
        return sum(self.summary[f"bytes_{way}"] for way in ("up", "down", "broadcast"))


def read_record(folder: Path) -> Record:
    """Read a finished record; raises BadRecord where files do not fit each other or the seal."""
    try:
        return _read(folder)
    except OSError as error:
        name = Path(error.filename).name if error.filename else "a file"
        raise BadRecord(folder, f"{name}: {error.strerror}") from error
    except (ValueError, UserError) as error:
        raise BadRecord(folder, str(error).splitlines()[0]) from error


def read_reason(folder: Path) -> str:
    """Why training of a run diverged, from its failed.json; empty where there is no such file."""
    try:
        reason = read_json(folder / "failed.json").get("reason")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        reason = None
    return " ".join(reason.split()) if isinstance(reason, str) and reason.strip() else "its training diverged"


def data_in(folder: Path) -> Data | None:
    """What a run was made on, from its config.json alone; None where that cannot be read."""
    try:
        config, split = _about(parse_json(read_bytes(folder / "config.json"), "config.json"))
    except (OSError, ValueError, UserError):
        return None
    return data_of(config, split)


def _read(folder: Path) -> Record:
    """As `read_record`; raises OSError, ValueError or UserError."""
    folder_hash, seal = folder.name[-10:], read_bytes(folder / "done")
    content = read_sealed(folder)
    if seal and (problem := broken(seal, content)):
        raise ValueError(problem)
    config, split = _about(parse_json(content["config.json"], "config.json"))
    if config.hash != folder_hash:
        raise ValueError(f"config.json is that of run {config.hash}")
    summary = parse_json(content["summary.json"], "summary.json")
    check_summary(summary)
    lines = b"[%s]" % b",".join(content["rounds.jsonl"].splitlines())  # half the time of line by line
    rounds = parse_json(lines, "rounds.jsonl")
    check_rounds(rounds)
    everyone = _clients(content["clients.csv"])
    _check_sizes(config, summary, rounds, everyone)
    clients, newcomers = everyone.divided(config.clients - config.new_count)
    _check_clients(summary, clients)
    _check_figures(summary, rounds)
    if config.new_count:
        new = summary["new_clients"]
        _equal("new_clients.clients", new["clients"], len(newcomers.total), "clients.csv")
        _check_clients(new, newcomers, "new_clients")
    diagnostics = parse_json(content[DIAGNOSTICS], DIAGNOSTICS) if DIAGNOSTICS in content else {}
    check_entries(DIAGNOSTICS, diagnostics, {}, {})
    digest = hashlib.sha256(seal_of(content).encode()).hexdigest()
    return Record(
        folder=folder,
        config=config,
        method=folder.name.removesuffix(f"-{slug(config)}-{config.hash}"),
        split=split["checksum"],
        data=data_of(config, split),
        summary=summary,
        accuracies=clients.accuracies,
        test_samples=clients.total,
        losses=clients.loss,
        macro_f1=clients.macro_f1,
        auc=clients.auc,
        newcomers=newcomers if config.new_count else None,
        new_clients=split.get("new_clients", ()),
        rounds=rounds,
        shifts=split.get("shifts", {}),
        diagnostics=diagnostics,
        digest=digest,
        sealed=bool(seal),
        verified=read_verdict(folder, digest),
    )


def _about(found: Any) -> tuple[RunConfig, dict[str, Any]]:
    """The configuration and the description of the split that config.json holds."""
    check_entries("config.json", found, {"format": COUNT, "config": OBJECT, "split": OBJECT}, {})
    if found["format"] != FORMAT:
        raise ValueError(f"config.json has format {found['format']} instead of {FORMAT}")
    split = found["split"]
    sizes = [name for name in split if name.startswith("dataset_")]
    others = {"data_checksum": TEXT, "new_clients": COUNTS, "shifts": OBJECT, **dict.fromkeys(sizes, COUNTS)}
    check_entries("the split of config.json", split, {"checksum": TEXT}, others)
    config = RunConfig.from_dict(found["config"])
    config.validate()
    new = split.get("new_clients")
    if new is not None and not (
        len({*new}) == len(new) == config.new_count and max(new, default=-1) < config.clients
    ):
        raise ValueError("the new clients of config.json do not fit its configuration")
    return config, split


def _clients(content: bytes) -> ClientMetrics:
    """clients.csv, of which every figure is one of a client's test samples."""
    head, *lines = content.decode("ascii", "replace").splitlines() or [""]
    if head not in (_COLUMNS, _MORE_COLUMNS):
        raise ValueError("clients.csv has not the columns of a record")
    rows = []
    for client, line in enumerate(lines):
        try:
            texts = line.replace("_", "?").split(",")  # int() takes 1_0
            number, samples, right, accuracy, loss = texts[:5]
            row = (int(number), int(samples), int(right), float(accuracy), float(loss))
            more = _details(texts[5:], head == _MORE_COLUMNS)
        except ValueError as error:
            raise ValueError(f"clients.csv: the line of client {client} is no row of numbers") from error
        if row[0] != client or not 0 <= row[2] <= row[1] < 2**53 or not row[1] or not math.isfinite(row[4]):
            raise ValueError(f"clients.csv: the figures of client {client} cannot be")
        if not abs(row[3] - row[2] / row[1]) < _ROUNDING:
            raise ValueError(f"clients.csv: client {client} has another accuracy than its samples give")
        rows.append((*row, *more))
    _, total, correct, _, losses, *details = zip(*rows, strict=True) if rows else [()] * 5
    counts = (np.array(correct, np.int64), np.array(total, np.int64))
    return ClientMetrics(*counts, np.array(losses), *map(np.array, details))


def _details(texts: list[str], wanted: bool) -> tuple[float, ...]:
    """Macro-F1 and AUC of a client; raises ValueError where they cannot be."""
    if not wanted and not texts:
        return ()
    f1, auc = texts[0], texts[1] if wanted and len(texts) == 2 else "?"
    found = (float(f1), float(auc) if auc else math.nan)
    if not 0 <= found[0] <= 1 or (auc and not 0 <= found[1] <= 1):
        raise ValueError("no shares")
    return found


def _check_sizes(
    config: RunConfig, summary: Mapping[str, Any], rounds: list[dict[str, Any]], clients: ClientMetrics
) -> None:
    if len(clients.total) != config.clients:
        raise ValueError(f"clients.csv has {len(clients.total)} of {config.clients} clients")
    if bool(config.new_count) != ("new_clients" in summary):
        raise ValueError("summary.json: new_clients does not fit the configuration")
    planned = summary["budget"]["rounds"]
    if not len(rounds) == summary["rounds"] == min(config.stop_after or planned, planned):
        raise ValueError(f"rounds.jsonl has {len(rounds)} of {summary['rounds']} rounds")
    if config.budget == "rounds" and planned != config.rounds:
        raise ValueError(f"the run had {planned} of the configuration's {config.rounds} rounds")


def _check_clients(figures: Mapping[str, Any], clients: ClientMetrics, part: str = "") -> None:
    """Compute again what follows from lines of clients.csv.

    Args:
        figures: of the summary, or of its `part` new_clients.
    """
    expected = clients.summary()
    for name in DETAILS:
        if (name in figures) != (name in expected):
            where = f"{name} of {part}" if part else name
            raise ValueError(f"{where} is in only one of summary.json and clients.csv")
    for name, value in expected.items():
        _equal(f"{part}.{name}" if part else name, figures[name], value, "clients.csv")


def _check_figures(summary: Mapping[str, Any], rounds: list[dict[str, Any]]) -> None:
    """Compute again what follows from rounds.jsonl."""
    training = math.fsum(line["seconds"] for line in rounds)
    totals: dict[str, float] = {name: sum(line[name] for line in rounds) for name in COSTS}
    totals["seconds"] = training + math.fsum(line["seconds_closing"] for line in rounds)
    for name in (*SCORES, *CALIBRATION, "evaluated"):
        if rounds[-1].get(name) != summary.get(name):
            raise ValueError(f"summary.json has another {name} than the last line of rounds.jsonl")
    for name, value in totals.items():
        _equal(name, summary[name], value, "rounds.jsonl")
    rate = totals["samples"] / training if training else 0.0
    if not abs(summary["samples_per_second"] - rate) <= 0.06 + 1e-9 * rate:  # it has one decimal
        raise ValueError("summary.json has another samples_per_second than rounds.jsonl gives")


def _equal(name: str, found: float, value: float, source: str) -> None:
    if isinstance(value, int) and found == value:
        return
    if isinstance(value, int) or not abs(found - value) <= _ROUNDING * max(1.0, abs(value)):
        raise ValueError(f"summary.json: {name} is {found}, but {value:.12g} by {source}")
