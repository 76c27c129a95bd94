"""`RunConfig`: everything that determines the result of one run, and its identity."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pfl_benchmark.config.adapters import read_adapters
from pfl_benchmark.config.lr_schedule import CONSTANT, lr_schedule
from pfl_benchmark.config.weights import checksum_of
from pfl_benchmark.datasets.partitioners import OPTIONS, PARTITIONERS, Partitioner, find_partitioner
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.datasets.shifts import JOINT, NO_SHIFT, Shift, in_text, read_shifts
from pfl_benchmark.errors import UserError, check_range, flag, nearest, unknown


def _doc(default: Any, text: str, choices: tuple[str, ...] = (), **more: Any) -> Any:
    return field(default=default, metadata={"doc": text, "choices": choices, **more})


C = TypeVar("C")


def _with_options(cls: type[C]) -> type[C]:
    """Class decorator: fields for the options of all partitioners, behind `partition`."""
    kinds = {}
    for name, kind in cls.__annotations__.items():
        kinds[name] = kind
        if name == "partition":
            kinds |= {option: type(spec.default).__name__ for option, spec in OPTIONS.items()}
    for name, spec in OPTIONS.items():
        if hasattr(cls, name):
            raise ValueError(f"the option {name} of a partitioner is a field of every run already")
        users = [user for user, partitioner in PARTITIONERS.items() if name in partitioner.options()]
        doc = f"{', '.join(users)}: {spec.metadata['doc']}"
        setattr(cls, name, field(default=spec.default, metadata={**spec.metadata, "doc": doc}))
    cls.__annotations__ = kinds
    return cls


@dataclass(frozen=True)
@_with_options
class RunConfig:
    """One run. Two configurations are the same run exactly if their `identity` is equal.

    A field added after records exist must say in its metadata what they stood for: ``{"absent": value}``.
    At that value it stays out of the identity, so old records keep theirs.
    """

    algo: str = _doc("fedavg", "method")
    dataset: str = _doc("cifar10", "dataset")
    partition: str = _doc("distinct", "how training data are dealt to clients", choices=tuple(PARTITIONERS))
    clients: int = _doc(100, "number of clients K")
    samples_per_client: int = _doc(
        150, "training samples per client; under some partitions their mean, or an estimate"
    )
    test_samples_per_client: int = _doc(100, "test samples per client; under some partitions an estimate")
    shift: str = _doc(
        NO_SHIFT,
        "how clients' samples are changed (`list shifts`), such as feature=corruption:3; may be repeated",
        absent=NO_SHIFT,
        joint=JOINT,
    )
    network: str = _doc("dataset", "network (`list networks`); dataset: the dataset's own", absent="dataset")
    weights: str = _doc(
        "",
        "weights that the network begins with, on record by their SHA-256: a file (safetensors or a state "
        "dict), pretrained:resnet8-gn-cifar100 of this package, torchvision:NAME, or none",
        absent="",
        metavar="FILE",
    )
    adapters: str = _doc(
        "",
        "train only adapters and the last layer, all else stays frozen and is never sent: lora:r=4, "
        "bottleneck:d=16, bias, head or none; on some layers only: lora:r=4,layers=fc1+fc2",
        absent="",
        metavar="FORM",
    )
    participation: float = _doc(
        0.1, "share of clients in an ordinary round; for the last one see --last-round", within="(0, 1]"
    )
    last_round: str = _doc(
        "everyone",
        "who takes part in the last round, and where stages end: everyone, or a cohort as in any other round",
        choices=("everyone", "cohort"),
        absent="everyone",
    )
    rounds: int = _doc(160, "communication rounds R", within="[1, 1e6]")
    local_epochs: int = _doc(5, "local epochs E of a participation", within="[1, 1e6]")
    batch_size: int = _doc(10, "mini-batch size; the last short batch of an epoch is kept", within="[1, 1e9]")
    lr: float = _doc(0.01, "learning rate of local SGD", within="(0, 1e30]")
    momentum: float = _doc(0.5, "momentum; the buffer is fresh at every local call", within="[0, 1)")
    weight_decay: float = _doc(0.0, "L2 penalty on weights, none on biases", within="[0, 1e30]")
    standardise: str = _doc(
        "all",
        "tables: measured columns have mean 0 and deviation 1 over the training rows of all clients, or of "
        "each client alone; no other data have this option",
        choices=("all", "client"),
        absent="all",
    )
    optimizer: str = _doc(
        "sgd",
        "optimiser of local training, fresh at every local call; adam and adamw have PyTorch's betas, and no "
        "momentum",
        choices=("sgd", "adam", "adamw"),
        absent="sgd",
        training=True,
    )
    nesterov: bool = _doc(False, "Nesterov's momentum, as in torch.optim.SGD", absent=False, training=True)
    lr_schedule: str = _doc(
        CONSTANT,
        "learning rate over rounds: constant, exponential:G (times G after every round), step:N:G (times G "
        "after every N rounds) or cosine (to 0 at the end)",
        absent=CONSTANT,
        training=True,
        metavar="FORM",
    )
    clip_norm: float = _doc(
        0.0,
        "largest norm of a client's gradient in a step, over all that is trained; 0: any",
        absent=0.0,
        within="[0, 1e30]",
        training=True,
    )
    local_steps: int = _doc(
        0,
        "batches of a participation in place of --local-epochs, going on over the client's epochs; 0: epochs",
        absent=0,
        within="[0, 1e6]",
        training=True,
    )
    label_smoothing: float = _doc(
        0.0,
        "label smoothing of the cross-entropy that is trained on; evaluations have none",
        absent=0.0,
        within="[0, 1)",
        training=True,
    )
    augment: bool = _doc(False, "random horizontal flip and, by --crop-padding, crop of training images")
    crop_padding: int = _doc(
        4,  # FedRep's (utils/train_utils.py)
        "under --augment: pixels of black padding around an image before it is cropped; 0: flips alone",
        absent=4,
        within="[0, inf)",
    )
    dropout: float = _doc(0.0, "dropout rate after fc2", within="[0, 1)")
    embedding: int = _doc(0, "text: width of the word vectors; 0 for images", absent=0, within="[0, 1e5]")
    cell: str = _doc("lstm", "text: the recurrent layer", choices=("lstm", "gru"), absent="lstm")
    aggregation: str = _doc(
        "method",
        "weights of the server's mean: the method's own default, uniform, or training samples",
        choices=("method", "uniform", "samples"),
    )
    budget: str = _doc(
        "rounds",
        "what all methods have in common: rounds, bytes sent, or samples trained on",
        choices=("rounds", "bytes", "samples"),
    )
    byte_budget: int = _doc(
        0,
        "bytes of a run under --budget bytes; 0: what sharing the whole model for --rounds costs",
        within="[0, 1e15]",
    )
    sample_budget: int = _doc(
        0,
        "samples of a run under --budget samples, fine-tuning included; 0: what --rounds rounds of "
        "--local-epochs train on",
        absent=0,
        within="[0, 1e15]",
    )
    compute_cap: float = _doc(
        2.0,
        "under --budget bytes: at most this many times the local samples of --rounds ordinary rounds",
        within="(0, 100]",
    )
    eval_every: int = _doc(10, "rounds between evaluations on the way; 0: only at the end", within="[0, inf)")
    eval_clients: int = _doc(
        0,
        "clients that evaluations on the way take, drawn once for a seed; 0: all, as the last one does",
        absent=0,
        within="[0, 1e9]",
    )
    eval_adapted: bool = _doc(
        False,
        "evaluate methods that fine-tune before the final evaluation in the same way on their way, which is "
        "not charged",
        absent=False,
    )
    temperature_scaling: bool = _doc(
        False,
        "also score the final probabilities under a temperature that each client fits on its training "
        "samples; changes no prediction, and is not charged",
        absent=False,
    )
    seed: int = _doc(
        0, "run seed: split, initial weights, cohorts and batch orders follow from it", within="[0, inf)"
    )
    validation: float = _doc(
        0.0,
        "share of each client's training data kept out of training and evaluated in place of its test data, "
        "for choosing hyper-parameters; the last in time, where data have that order; 0: evaluate test data",
        absent=0.0,
        within="[0, 1)",
    )
    new_clients: float = _doc(
        0.0,
        "share of the clients that take no part in training, begin after the last round and are evaluated "
        "apart",
        absent=0.0,
        within="[0, 1)",
    )
    adapt_epochs: int = _doc(
        5,
        "under --new-clients: most local epochs of what is personal that a new client begins with",
        absent=5,
        within="[0, 1e6]",
    )
    tuning_trials: int = _doc(
        0,
        "configurations that were tried on a validation split to choose this one (`tune`); for the record "
        "and tables, without effect on the run",
        absent=0,
        within="[0, 1e6]",
    )
    stop_after: int = _doc(
        0,
        "end the run after this round of its rounds, as a callback did (`interface.run`); 0: after the last",
        absent=0,
        within="[0, 1e6]",
    )
    hyper: Mapping[str, Any] = field(
        default_factory=dict, metadata={"doc": "the method's hyper-parameters (`hyper.recorded`)"}
    )

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):  # 1 and 1.0 are the same value, and must have the same identity
            value = getattr(self, spec.name)
            if isinstance(spec.default, float) and isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(self, spec.name, float(value))
        if self.shift != NO_SHIFT:
            with contextlib.suppress(UserError):  # of `validate`
                object.__setattr__(self, "shift", in_text(self.shifts))
        for name in ("weights", "adapters"):
            if getattr(self, name) == "none":
                object.__setattr__(self, name, "")
        if self.adapters:
            with contextlib.suppress(UserError):  # of `validate`
                object.__setattr__(self, "adapters", read_adapters(self.adapters).text)

    def validate(self) -> None:
        """Refuse values that cannot make a run, before anything is loaded or written."""
        for spec in dataclasses.fields(self):
            choices, value = spec.metadata.get("choices"), getattr(self, spec.name)
            if choices and value not in choices:
                known = ", ".join(choices)
                raise UserError(
                    f"{flag(spec.name)} is '{value}'; expected one of: {known}{nearest(value, choices)}"
                )
            if "within" in spec.metadata and spec.name not in OPTIONS:
                check_range(spec.name, value, spec.metadata["within"])
        _ = lr_schedule(self.lr_schedule)
        _ = read_adapters(self.adapters) if self.adapters else None
        if self.nesterov and self.optimizer != "sgd":
            raise UserError(
                f"--nesterov is for --optimizer sgd, and it is {self.optimizer}; drop one of the two flags"
            )
        if self.nesterov and not self.momentum:
            raise UserError(
                "--nesterov needs momentum, and --momentum is 0; give one, such as --momentum 0.9"
            )
        if self.new_count and self.old_count < 2:
            raise UserError(
                f"--new-clients {self.new_clients:g} leaves {self.old_count} of {self.clients} clients to "
                "train; expected at least 2, give a smaller share"
            )
        if 0 < self.old_count < self.eval_clients:
            new = f" that take part in training (--new-clients {self.new_clients:g})" * bool(self.new_count)
            raise UserError(
                f"--eval-clients is {self.eval_clients:,}, and there are {self.old_count:,} clients{new}; "
                f"expected at most {self.old_count:,}, or 0 for all"
            )
        if self.stop_after and self.budget == "rounds" and self.stop_after >= self.rounds:
            raise UserError(
                f"--stop-after is {self.stop_after}, and the run has {self.rounds} rounds; expected fewer"
            )
        _ = self.partitioner, self.shifts

    @property
    def new_count(self) -> int:
        """How many clients take no part in training: the share of them, rounded up."""
        return math.ceil(self.new_clients * self.clients - 1e-9)

    @property
    def old_count(self) -> int:
        """How many clients take part in training."""
        return self.clients - self.new_count

    @property
    def everyone_ends(self) -> bool:
        """Whether everyone takes part in the last round."""
        return self.last_round == "everyone"

    @property
    def partitioner(self) -> Partitioner:
        """The partitioner with its options; UserError where it is unknown, or an option is out of range."""
        partitioner = find_partitioner(self.partition)
        names = (spec.name for spec in dataclasses.fields(partitioner))
        return partitioner(**{name: getattr(self, name) for name in names})

    @property
    def shifts(self) -> tuple[Shift, ...]:
        """What changes clients' samples, in this order; UserError where one is unknown, or out of range."""
        return read_shifts(self.shift)

    @property
    def idle(self) -> tuple[str, ...]:
        """Fields that mean nothing under the others; in `settled` configurations they have their defaults."""
        own = find_partitioner(self.partition).options()
        others = [name for name in OPTIONS if name not in own]
        if self.dataset in DATASETS and DATASETS[self.dataset].network == self.network:
            others.append("network")
        if self.dataset in DATASETS and DATASETS[self.dataset].kind != "rows":
            others.append("standardise")
        others += ["local_epochs"] if self.local_steps else []
        others += [] if self.optimizer == "sgd" else ["momentum"]
        others += [] if self.new_clients else ["adapt_epochs"]
        others += [] if self.eval_every else ["eval_adapted", "eval_clients"]
        others += ["eval_clients"] if self.eval_clients == self.old_count else []
        return (*others, *([] if self.augment else ["crop_padding"]))

    @property
    def own_network(self) -> bool:
        """True with the dataset's own network."""
        return self.network == RunConfig.network

    def settled(self) -> RunConfig:
        """The same run, such that what means nothing in it does not make it another one."""
        idle = {name: getattr(RunConfig, name) for name in self.idle}
        told: dict[str, Any] = {
            "lr_schedule": lr_schedule(self.lr_schedule).text,
            "weights": checksum_of(self.weights, self.network),
        }
        return dataclasses.replace(self, **idle, **told)

    @property
    def identifying(self) -> dict[str, Any]:
        """The fields that make up `identity`: all but those that are at their ``absent`` value."""
        missing = object()
        return {
            spec.name: value
            for spec in dataclasses.fields(self)
            if (value := getattr(self, spec.name)) != spec.metadata.get("absent", missing)
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
        """All fields but options of other partitioners or data, and no shift: records can do without."""
        needless = {*OPTIONS} & ({*self.idle} - {*self.identifying})
        if self.dataset not in DATASETS or DATASETS[self.dataset].kind != "rows":
            needless |= {"standardise"} - {*self.identifying}
        needless |= {"shift"} - {*self.identifying}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in needless}

    def keys(self) -> list[str]:
        """Names of all fields, so that ``run(**record.config)`` is the same run again."""
        return [spec.name for spec in dataclasses.fields(self)]

    def __getitem__(self, name: str) -> Any:
        """The value of a field."""
        return getattr(self, name)

    def to_record(self) -> dict[str, Any]:
        """As `to_dict`, without options of local training and others that came later at their defaults."""
        later = {"stop_after", "temperature_scaling", "weights", "adapters", "last_round", "eval_clients"}
        needless = {*TRAINING, *later} - {*self.identifying}
        return {name: value for name, value in self.to_dict().items() if name not in needless}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build a configuration; what records did not have yet is filled in, UserError for what is wrong."""
        known = [spec.name for spec in dataclasses.fields(cls)]
        for name, value in values.items():
            if name not in known:
                raise unknown("configuration key", name, known)
            if not _fits(name, value):
                raise UserError(f"the configuration key '{name}' is {value!r:.40}; expected {_KINDS[name]}")
        absent = {s.name: s.metadata["absent"] for s in dataclasses.fields(cls) if "absent" in s.metadata}
        config = cls(**{**absent, **values})
        find_partitioner(config.partition)
        return config


# How local training takes its steps.
TRAINING = tuple(spec.name for spec in dataclasses.fields(RunConfig) if spec.metadata.get("training"))
REFUSABLE = (*TRAINING, "weights", "adapters")  # what a method may refuse (`Algorithm.refuses`)
_KINDS = {spec.name: str(spec.type) for spec in dataclasses.fields(RunConfig)}
_TYPES = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}


def _fits(name: str, value: Any) -> bool:
    """Whether a value read from JSON is of a field's kind."""
    if name == "hyper":
        return isinstance(value, dict) and all(_plain(entry) for entry in value.values())
    return type(value) in _TYPES[_KINDS[name]]


def _plain(value: Any) -> bool:
    entries = value if isinstance(value, (list, tuple)) else [value]
    return all(isinstance(entry, (str, int, float)) for entry in entries)
