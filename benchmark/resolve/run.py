"""From a configuration to a `Run`: method, hyper-parameters, network and executor, checked once."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, get_type_hints

import torch

from pfl_benchmark.algorithms import ALGORITHMS, find
from pfl_benchmark.config.adapters import EXAMPLES, read_adapters
from pfl_benchmark.config.fields import as_flag, as_typed, meant
from pfl_benchmark.config.flags import config_of
from pfl_benchmark.config.network import knows_network, network_of
from pfl_benchmark.config.run_config import REFUSABLE, RunConfig
from pfl_benchmark.config.weights import checksum_of, is_checksum
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.datasets.shifts import About
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.hyper import parse_hyper, recorded
from pfl_benchmark.errors import NotDefined, UserError, flag, nearest, unknown
from pfl_benchmark.models import Network
from pfl_benchmark.models.registry import PACKAGES

_UNPLACED = torch.device("cpu")


class Places(Protocol):
    """Says where and how a run is carried out (`experiment.execution.Execution`)."""

    def pick_device(self) -> torch.device:
        """The device to use."""

    def pick_executor(self, device: torch.device, network: Network, method: type[Algorithm]) -> str:
        """The name of the executor to use."""


@dataclass(frozen=True)
class Run:
    """A configuration that can be run, and everything that follows from it alone."""

    config: RunConfig  # with all hyper-parameters of its method
    method: type[Algorithm]
    hyper: Any  # an instance of ``method.Hyper``
    plain: Network  # the network that the configuration names
    network: Network  # the one that is trained: with the method's own layers, if it has some
    device: torch.device = _UNPLACED
    executor: str = ""  # empty until the run is `placed`

    def placed(self, execution: Places) -> Run:
        """The run with its device and its executor; UserError: one is not here, or cannot train this run."""
        device = execution.pick_device()
        executor = execution.pick_executor(device, self.network, self.method)
        return dataclasses.replace(self, device=device, executor=executor)

    @property
    def label(self) -> str:
        """Readable name of the method and its variant: ``ppfe``, ``ppfe-no-reduction``, ``ditto-lam=0.1``."""
        return _label(self.method, self.hyper, self.plain)


def resolve(config: RunConfig, execution: Places | None = None, ablation: str | None = None) -> Run:
    """What a configuration says: once for a run, all that comes after takes the `Run`.

    Args:
        config: its hyper-parameters may be incomplete, and as typed (``"0.5"``) or as Python has them.
        execution: where the run is to be carried out, if that is known.
        ablation: name of a variant of the method, whose hyper-parameters those of `config` change.

    Raises UserError for what cannot be run, `NotDefined` where the method is not defined for its data.
    """
    config.validate()
    if config.weights and not is_checksum(config.weights):
        config = dataclasses.replace(config, weights=checksum_of(config.weights, config.network))
    if config.dataset not in datasets.DATASETS:
        raise unknown("dataset", config.dataset, datasets.DATASETS)
    check_data(config)
    run = _read(config, ablation)
    method, config = run.method, run.config
    if config.new_clients and method.no_newcomers:
        raise NotDefined(
            f"--new-clients: clients cannot begin later with '{method.name}', {method.no_newcomers}; drop "
            "the flag or choose another --algo"
        )
    for name in REFUSABLE:
        if name in method.refuses and getattr(config, name) != getattr(RunConfig, name):
            raise NotDefined(
                f"{as_flag(name, getattr(config, name))}: this is not for '{method.name}', "
                f"{method.refuses[name]}; drop the flag or choose another --algo"
            )
    if method.needs_adapters and read_adapters(config.adapters or "head").kind != method.needs_adapters:
        raise NotDefined(
            f"'{method.name}' is defined for --adapters {method.needs_adapters} alone, and "
            f"{f'they are {config.adapters}' if config.adapters else 'the run has none'}; give --adapters "
            f"{EXAMPLES[method.needs_adapters]}, or choose another --algo"
        )
    if config.adapters and run.network != run.plain:
        raise UserError(
            f"--adapters {config.adapters}: '{method.name}' puts layers of its own into the network, which "
            "would be frozen, too; choose another --algo"
        )
    method.check(config, run.network, run.hyper)
    return run if execution is None else run.placed(execution)


def _read(config: RunConfig, ablation: str | None = None) -> Run:
    """As `resolve`; whether the parts go together is not checked."""
    method, plain = find(config.algo), network_of(config)
    hyper = _parsed(method, plain, config.hyper, ablation)
    network = method.network_for(plain, config, hyper)
    config = dataclasses.replace(config, algo=method.name, hyper=recorded(hyper))
    return Run(config, method, hyper, plain, network)


def method_of(config: RunConfig) -> tuple[type[Algorithm], Any, Network]:
    """The class of a run's method, its parsed hyper-parameters and its network; nothing is checked."""
    run = _read(config)
    return run.method, run.hyper, run.network


def check_data(config: RunConfig) -> None:
    """Refuse what a dataset of its kind cannot give; a UserError says what to mend."""
    info = datasets.DATASETS[config.dataset]
    holds = f"and '{info.name}' holds {info.unit}; drop it"
    config.partitioner.check(info.name, users=info.by_users)
    rounds = config.rounds if config.budget == "rounds" else None
    about = About(info.name, info.kind, info.unit, info.shape, info.classes, config.clients, rounds)
    for shift in (shifts := config.shifts):
        shift.check(about)
        shift.check_others([other for other in shifts if other is not shift])
    if config.augment and info.kind != "images":
        raise UserError(f"--augment is for images, {holds}")
    if info.kind != "rows" and config.standardise != RunConfig.standardise:
        raise UserError(f"--standardise is for tables, {holds}")
    side = min(info.shape[1:], default=0)
    if config.augment and config.crop_padding >= side:
        raise UserError(
            f"--crop-padding is {config.crop_padding}, but the images of '{info.name}' have {side} pixels a "
            f"side; expected at most {side - 1}"
        )
    words = info.kind == "words"
    if words and not config.embedding:
        raise UserError(
            f"--embedding is 0, but '{info.name}' needs word vectors; give their width, such as 300"
        )
    if not words and config.embedding != RunConfig.embedding:
        raise UserError(f"--embedding is for words, {holds}")
    if info.kind not in ("words", "characters") and config.cell != RunConfig.cell:
        raise UserError(f"--cell is for text, {holds}")


def with_hyper(config: RunConfig, given: Mapping[str, Any], ablation: str | None = None) -> RunConfig:
    """Complete `config` with all hyper-parameters of its method, without a check of what they are for.

    Those given, as typed or as Python has them, come after those that the ablation sets.
    """
    hyper = _parsed(find(config.algo), _known_network(config), given, ablation)
    return dataclasses.replace(config, hyper=recorded(hyper))


def _known_network(config: RunConfig) -> Network | None:
    """None where the dataset or the network is gone, as in old records."""
    return network_of(config) if knows_network(config) else None


def _light_network(config: RunConfig) -> Network | None:
    """None, too, for networks of packages: a stranger's record may name one that no machine can hold."""
    return None if config.network.partition(":")[0] in PACKAGES else _known_network(config)


def _parsed(
    method: type[Algorithm], network: Network | None, given: Mapping[str, Any], ablation: str | None = None
) -> Any:
    """An instance of ``method.Hyper``: what an ablation sets, then what is given."""
    if ablation is not None and ablation not in method.ablations:
        raise UserError(_unknown_ablation(ablation, method))
    values = {**_variant(method, network, ablation or ""), **given}
    return parse_hyper(method.Hyper, values, method.name)


def _variant(method: type[Algorithm], network: Network | None, ablation: str) -> Mapping[str, Any]:
    """What an ablation (empty: the plain method) sets for a network."""
    values = method.ablations[ablation] if ablation else {}
    return values if network is None else method.fitted(network, values)


def owners(hyper: str) -> list[str]:
    """The names of the methods that have a hyper-parameter."""
    return [
        name
        for name, method in ALGORITHMS.items()
        if any(hyper == spec.name for spec in dataclasses.fields(method.Hyper))
    ]


def _unknown_ablation(name: str, method: type[Algorithm]) -> str:
    owners = [other.name for other in ALGORITHMS.values() if name in other.ablations]
    if owners:
        return f"ablation '{name}' belongs to {owners[0]}, not to '{method.name}'; use --algo {owners[0]}"
    if not method.ablations:
        return f"'{method.name}' has no ablations; drop --ablation {name}"
    known = ", ".join(method.ablations)
    return f"unknown ablation '{name}' of '{method.name}'{nearest(name, method.ablations)}; known: {known}"


def differences(config: RunConfig) -> dict[str, dict[str, Any]]:
    """By ablation of its method, the hyper-parameters in which a run differs; "": the plain method."""
    method = find(config.algo)
    hyper = parse_hyper(method.Hyper, config.hyper, config.algo)  # tuples again, after JSON
    return _differences(method, hyper, _light_network(config))


def _differences(method: type[Algorithm], hyper: Any, network: Network | None) -> dict[str, dict[str, Any]]:
    own, found = dataclasses.asdict(hyper), {}
    for name in ("", *method.ablations):
        base = dataclasses.asdict(method.Hyper(**_variant(method, network, name)))
        found[name] = {key: value for key, value in own.items() if value != base[key]}
    return found


def method_label(config: RunConfig) -> str:
    """`Run.label` of a configuration that need not be one of a run, such as an old record's."""
    method = find(config.algo)
    return _label(method, parse_hyper(method.Hyper, config.hyper, config.algo), _light_network(config))


def titled(label: str, algo: str) -> str:
    """A label with the method's title in the place of its name: ``FedAvg+FT`` for ``fedavg-ft``."""
    method = ALGORITHMS.get(algo)
    return f"{method.title}{label.removeprefix(algo)}" if method and label.startswith(algo) else label


def _label(method: type[Algorithm], hyper: Any, network: Network | None) -> str:
    found = _differences(method, hyper, network)
    for name, changed in found.items():
        if not changed:
            return f"{method.name}-{name}" if name else method.name
    return "-".join([method.name, *(f"{name}={as_typed(value)}" for name, value in found[""].items())])


_KINDS = get_type_hints(RunConfig)


def configure(arguments: argparse.Namespace) -> tuple[str, Run]:
    """The setting's name and the run that the flags ask for; UserError where they do not fit."""
    if not arguments.algo:
        raise UserError(f"--algo is required; known methods: {', '.join(sorted(ALGORITHMS))}")
    method = find(arguments.algo)
    setting, config = config_of(arguments)
    known = [spec.name for spec in dataclasses.fields(method.Hyper)]
    given = parse_assignments(arguments.set, method.name, known)
    config = dataclasses.replace(config, algo=method.name, hyper=given)
    return setting, resolve(config, ablation=arguments.ablation)


def parse_assignments(pairs: Iterable[str], algo: str, known: Iterable[str]) -> dict[str, str]:
    """The hyper-parameters given as ``--set key=value``, of which the method has the `known` ones.

    Raises:
        UserError: no key=value, a key given twice or with a flag of its own, or a number that is not finite.
    """
    known = set(known)
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key, value = key.strip().replace("-", "_"), value.strip()
        if not (key and equals and value):
            raise UserError(f"--set {pair}: expected key=value, such as lam=0.5")
        if re.search(r",\s*\w+=", value):
            each = " ".join(f"--set {part.strip()}" for part in re.split(r",(?=\s*\w+=)", pair))
            raise UserError(f"--set {pair}: expected one key=value; repeat it for each, as {each}")
        field = key if key in _KINDS else meant(key, _KINDS)
        if key not in known and field and field != "hyper":
            kept = f"{flag(field)} {value}"
            if _KINDS[field] is bool:
                kept = f"{flag(field)} or {flag('no_' + field)}"
            raise UserError(f"--set {pair}: {key} is no hyper-parameter of '{algo}'; use {kept}")
        for part in value.split(","):
            with contextlib.suppress(ValueError):  # words
                if not math.isfinite(float(part)):
                    raise UserError(f"--set {pair}: expected a finite number")
        if key in values:
            raise UserError(f"--set {key} is given twice, as {values[key]} and as {value}; give it once")
        values[key] = value
    return values
