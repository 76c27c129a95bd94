"""From a configuration to what it says: method, hyper-parameters and network, checked once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pfl_benchmark.algorithms import ALGORITHMS, find
from pfl_benchmark.config.fields import as_typed
from pfl_benchmark.config.network import knows_network, network_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.hyper import parse_hyper, recorded
from pfl_benchmark.errors import NotDefined, UserError, nearest, unknown
from pfl_benchmark.models import Network

__all__ = ["Run", "check_data", "differences", "method_label", "method_of", "resolve", "with_hyper"]


@dataclass(frozen=True)
class Run:
    """A configuration that can be run.

    Attributes:
        config: with all hyper-parameters of its method.
        method: the class of the method.
        hyper: its parsed hyper-parameters, an instance of ``method.Hyper``.
    """

    config: RunConfig
    method: type[Algorithm]
    hyper: Any
    network: Network


def resolve(config: RunConfig) -> Run:
    """What a configuration says.

    Raises:
        UserError: it cannot be run; one line that says what to mend.
        NotDefined: its method is not defined for its data.
    """
    config.validate()
    if config.dataset not in datasets.DATASETS:
        raise unknown("dataset", config.dataset, datasets.DATASETS)
    check_data(config)
    method, hyper, network = method_of(config)
    config = dataclasses.replace(config, hyper=recorded(hyper))
    if config.new_clients and method.no_newcomers:
        raise NotDefined(
            f"--new-clients: clients cannot begin later with '{method.name}', {method.no_newcomers}; drop "
            "the flag or choose another --algo"
        )
    method.check(config, network, hyper)
    return Run(config, method, hyper, network)


def method_of(config: RunConfig) -> tuple[type[Algorithm], Any, Network]:
    """The class of a run's method, its parsed hyper-parameters and its network; nothing is checked."""
    method, hyper = find(config.algo), _parsed(config, config.hyper)
    return method, hyper, method.network_for(network_of(config), config, hyper)


def check_data(config: RunConfig) -> None:
    """Refuse what a dataset of its kind cannot give.

    Raises:
        UserError: one line that says what to mend.
    """
    info = datasets.DATASETS[config.dataset]
    holds = f"and '{info.name}' holds {info.unit}; drop it"
    config.law.check(info.name, users=info.by_users)
    if config.augment and info.kind != "images":
        raise UserError(f"--augment is for images, {holds}")
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
    """Complete `config` with all hyper-parameters of its method.

    Args:
        given: the ones that are set, as typed.
        ablation: name of a variant of the method, whose values come first.

    Raises:
        UserError: unknown method, ablation or hyper-parameter, or values that do not fit.
    """
    return dataclasses.replace(config, hyper=recorded(_parsed(config, given, ablation)))


def _parsed(config: RunConfig, given: Mapping[str, Any], ablation: str | None = None) -> Any:
    """An instance of ``method.Hyper``: what an ablation sets, then what is given."""
    method = find(config.algo)
    if ablation is not None and ablation not in method.ablations:
        raise UserError(_unknown_ablation(ablation, method))
    return parse_hyper(method.Hyper, {**_variant(config, ablation), **given}, config.algo)


def _variant(config: RunConfig, ablation: str | None) -> Mapping[str, Any]:
    """What an ablation (None: the plain method) sets for the network of a configuration."""
    method = find(config.algo)
    values = {} if ablation is None else method.ablations[ablation]
    return method.fitted(network_of(config), values) if knows_network(config) else values


def _unknown_ablation(name: str, method: type[Algorithm]) -> str:
    owners = [other.name for other in ALGORITHMS.values() if name in other.ablations]
    if owners:
        return f"ablation '{name}' belongs to {owners[0]}, not to '{method.name}'; use --algo {owners[0]}"
    if not method.ablations:
        return f"'{method.name}' has no ablations; drop --ablation {name}"
    known = ", ".join(method.ablations)
    return f"unknown ablation '{name}' of '{method.name}'{nearest(name, method.ablations)}; known: {known}"


def differences(config: RunConfig) -> dict[str, dict[str, Any]]:
    """The hyper-parameters in which a run differs from each ablation of its method.

    Returns:
        By ablation, the plain method first, under an empty name.

    Raises:
        UserError: this code does not know the method or one of these hyper-parameters.
    """
    method = find(config.algo)
    own = dataclasses.asdict(parse_hyper(method.Hyper, config.hyper, config.algo))  # tuples again, after JSON
    found = {}
    for name in ("", *method.ablations):
        base = dataclasses.asdict(_parsed(config, {}, name or None))
        found[name] = {key: value for key, value in own.items() if value != base[key]}
    return found


def method_label(config: RunConfig) -> str:
    """Readable name of the method and its variant: ``ppfe``, ``ppfe-no-reduction``, ``ditto-lam=0.1``."""
    found = differences(config)
    for name, changed in found.items():
        if not changed:
            return f"{config.algo}-{name}" if name else config.algo
    return "-".join([config.algo, *(f"{name}={as_typed(value)}" for name, value in found[""].items())])[:80]
