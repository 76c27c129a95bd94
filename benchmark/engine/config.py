"""`RunConfig`: everything that determines the result of one run, and its identity."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmark.errors import UserError, nearest, unknown

__all__ = ["RunConfig"]


def _doc(default: Any, text: str, choices: tuple[str, ...] = (), **more: Any) -> Any:
    return field(default=default, metadata={"doc": text, "choices": choices, **more})


@dataclass(frozen=True)
class RunConfig:
    """One run. Two configurations are the same run exactly if their `identity` is equal.

    A field added after records exist must say in its metadata what they stood for: ``{"absent": value}``.
    At that value it stays out of the identity, so old records keep theirs.
    """

    algo: str = _doc("fedavg", "method")
    dataset: str = _doc("cifar10", "dataset")
    partition: str = _doc(
        "distinct",
        "how training data are dealt to clients",
        choices=("distinct", "shards", "dirichlet", "iid", "natural"),
    )
    classes_per_client: int = _doc(2, "classes per client S (distinct and shards)")
    dirichlet: float = _doc(0.0, "concentration α of the Dirichlet split; 0 otherwise")
    clients: int = _doc(100, "number of clients K")
    samples_per_client: int = _doc(
        150, "training samples per client (mean, for Dirichlet splits; about, for natural ones)"
    )
    test_samples_per_client: int = _doc(100, "test samples per client (about, for natural splits)")
    user_pool: int = _doc(
        0,
        "natural: clients are drawn among so many users, those with the most samples; 0: among all",
        absent=0,
    )
    test_share: float = _doc(0.0, "natural: share of a user's samples that is kept for testing", absent=0.0)
    least_test: int = _doc(0, "natural: users with fewer test samples are left out", absent=0)
    participation: float = _doc(0.1, "share of clients in an ordinary round; the last round has everyone")
    rounds: int = _doc(160, "communication rounds R")
    local_epochs: int = _doc(5, "local epochs E of a participation")
    batch_size: int = _doc(10, "mini-batch size; the last short batch of an epoch is kept")
    lr: float = _doc(0.01, "learning rate of local SGD")
    momentum: float = _doc(0.5, "momentum; the buffer is fresh at every local call")
    weight_decay: float = _doc(0.0, "L2 penalty on weights, none on biases")
    augment: bool = _doc(False, "random horizontal flip and, by --crop-padding, crop of training images")
    crop_padding: int = _doc(
        4,  # FedRep's (utils/train_utils.py)
        "under --augment: pixels of black padding around an image before it is cropped; 0: flips alone",
        absent=4,
    )
    dropout: float = _doc(0.0, "dropout rate after fc2")
    embedding: int = _doc(0, "text: width of the word vectors; 0 for images", absent=0)
    cell: str = _doc("lstm", "text: the recurrent layer", choices=("lstm", "gru"), absent="lstm")
    aggregation: str = _doc(
        "method",
        "weights of the server's mean: the method's own default, uniform, or training samples",
        choices=("method", "uniform", "samples"),
    )
    budget: str = _doc(
        "rounds", "what all methods have in common: rounds, or bytes sent", choices=("rounds", "bytes")
    )
    byte_budget: int = _doc(
        0, "bytes of a run under --budget bytes; 0: what sharing the whole model for --rounds costs"
    )
    compute_cap: float = _doc(
        2.0, "under --budget bytes: at most this many times the local samples of --rounds ordinary rounds"
    )
    eval_every: int = _doc(10, "rounds between evaluations on the way; 0: only at the end")
    seed: int = _doc(0, "run seed: split, initial weights, cohorts and batch orders follow from it")
    validation: float = _doc(
        0.0,
        "share of each client's training data kept out of training and evaluated in place of its test data, "
        "for choosing hyper-parameters; 0: evaluate test data",
        absent=0.0,
    )
    hyper: Mapping[str, Any] = field(
        default_factory=dict, metadata={"doc": "the method's hyper-parameters (`hyper.recorded`)"}
    )

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):  # 1 and 1.0 are the same value, and must have the same identity
            value = getattr(self, spec.name)
            if isinstance(spec.default, float) and isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(self, spec.name, float(value))

    def validate(self) -> None:
        """Refuse values that cannot make a run, before anything is loaded or written."""
        for name in (
            "clients",
            "samples_per_client",
            "test_samples_per_client",
            "rounds",
            "local_epochs",
            "batch_size",
        ):
            if getattr(self, name) < 1:
                raise UserError(
                    f"{flag(name)} is {getattr(self, name)}; expected a whole number of at least 1"
                )
        if not 0 < self.participation <= 1:
            raise UserError(
                f"--participation is {self.participation:g}; expected a share in (0, 1], such as 0.1"
            )
        for name in ("lr", "compute_cap"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UserError(f"{flag(name)} is {getattr(self, name):g}; expected a positive number")
        for name in (
            "eval_every",
            "seed",
            "byte_budget",
            "weight_decay",
            "user_pool",
            "least_test",
            "embedding",
            "crop_padding",
        ):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UserError(f"{flag(name)} is {getattr(self, name)}; expected 0 or more")
        for name in ("momentum", "dropout", "validation", "test_share"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{flag(name)} is {getattr(self, name):g}; expected a number in [0, 1)")
        for spec in dataclasses.fields(self):
            choices = spec.metadata.get("choices")
            value = getattr(self, spec.name)
            if choices and value not in choices:
                known = ", ".join(choices)
                raise UserError(
                    f"{flag(spec.name)} is '{value}'; expected one of: {known}{nearest(value, choices)}"
                )

    @property
    def idle(self) -> tuple[str, ...]:
        """Fields that mean nothing under the others; in `settled` configurations they have their defaults."""
        return (
            *(["dirichlet"] if self.partition != "dirichlet" else []),
            *(["classes_per_client"] if self.partition not in ("distinct", "shards") else []),
            *(["user_pool", "test_share", "least_test"] if self.partition != "natural" else []),
            *(["crop_padding"] if not self.augment else []),
        )

    def settled(self) -> RunConfig:
        """The same run, such that what means nothing in it does not make it another one."""
        return dataclasses.replace(self, **{name: getattr(RunConfig, name) for name in self.idle})

    @property
    def identifying(self) -> dict[str, Any]:
        """The fields that make up `identity`: all but those that are at their ``absent`` value."""
        values = {spec: getattr(self, spec.name) for spec in dataclasses.fields(self)}
        return {
            spec.name: value
            for spec, value in values.items()
            if "absent" not in spec.metadata or value != spec.metadata["absent"]
        }

    @property
    def identity(self) -> str:
        """Canonical JSON of everything that determines the result."""
        return json.dumps(self.identifying, sort_keys=True, separators=(",", ":"))

    @property
    def hash(self) -> str:
        """Ten hexadecimal digits that stand for `identity`."""
        return hashlib.sha256(self.identity.encode()).hexdigest()[:10]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build a configuration; an unknown key is an error, one that records did not have yet is filled in.

        Raises:
            UserError: names the unknown key and the nearest known one.
        """
        known = [spec.name for spec in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise unknown("configuration key", name, known)
        absent = {s.name: s.metadata["absent"] for s in dataclasses.fields(cls) if "absent" in s.metadata}
        return cls(**{**absent, **values})


def flag(name: str) -> str:
    """The command-line flag of a field."""
    return "--" + name.replace("_", "-")
