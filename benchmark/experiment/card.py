"""The card of a method: what its file says of it, and what a short run shows."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pfl_benchmark.algorithms import needed
from pfl_benchmark.config.fields import as_words
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import find_setting
from pfl_benchmark.datasets.api import DATASETS
from pfl_benchmark.datasets.noise import noise
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.budget import planned_bytes, planned_epochs
from pfl_benchmark.engine.dry import Costs
from pfl_benchmark.engine.local import LocalResult
from pfl_benchmark.engine.message import Message
from pfl_benchmark.errors import flag
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import Prepared, prepare
from pfl_benchmark.experiment.unrecorded import Quiet, run_unrecorded
from pfl_benchmark.models import Network, Params
from pfl_benchmark.resolve.run import resolve

_SETTING = "cifar10-s2"
_PARTS = ("Source", "Defaults", "Deviations", "Traps")
GROUPS = {  # of methods, by what makes the models personal
    "global": "Global model",
    "fine-tuning": "Fine-tuning",
    "decoupled": "Decoupled layers",
    "regularised": "Regularised",
    "clustered": "Clustered",
    "prototypes": "Prototypes",
    "hypernetworks": "Hypernetworks",
    "ensembles": "Ensembles and mixtures",
    "": "Others",
}
# Of the short run, which shows what flows where: the fewest rounds with which staged methods can do.
_SHORT: dict[str, Any] = {"rounds": 4, "clients": 4, "participation": 0.5, "samples_per_client": 4}


@dataclass(frozen=True)
class Card:
    """What a reader wants to know of a method before using it."""

    name: str
    summary: str  # the first paragraph of its docstring
    parts: Mapping[str, str]  # the others, by the word of `_PARTS` that they begin with, or ``More``
    flow: Mapping[str, str]  # what is sent, kept and evaluated, on the network of CIFAR-10
    costs: Mapping[str, float]  # of a run on CIFAR-10, S = 2, relative to FedAvg's


def card_of(method: type[Algorithm]) -> Card:
    """The card of a method. It plans a run, and runs another one briefly on noise."""
    summary, parts = read_docstring(method)
    try:
        own, fedavg = _costs(method.name), _costs_once("fedavg")
        flow = _flow(method.name)
    except Exception as error:
        error.add_note(f"in the short run for the card of '{method.name}'")
        raise
    costs = {name: own[name] / fedavg[name] for name in own}
    return Card(method.name, summary, {**parts, **_declared(method)}, flow, costs)


def _declared(method: type[Algorithm]) -> dict[str, str]:
    """What it is called besides, and what options of local training it does not take."""
    parts, by_reason = {}, dict[str, list[str]]()
    for name, reason in method.refuses.items():
        by_reason.setdefault(reason, []).append(f"`{flag(name)}`")
    if by_reason:
        refused = [f"{', '.join(flags)}: not for '{method.name}', {why}" for why, flags in by_reason.items()]
        parts["Options that it does not take"] = "; ".join(refused)
    if fields := needed(method.name):
        words = " ".join(word for name, value in fields.items() for word in as_words(name, value))
        parts["Defined"] = f"with `--adapters {method.needs_adapters}` alone; what is shown is of `{words}`"
    if method.aliases:
        parts["Other names"] = ", ".join(f"`{name}`" for name in method.aliases)
    return parts


def read_docstring(method: type[Algorithm]) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the others by the word that they begin with."""
    first, *others = (" ".join(block.split()) for block in (inspect.getdoc(method) or "").split("\n\n"))
    parts: dict[str, str] = {}
    for block in others:
        word, colon, rest = block.partition(": ")
        name = word if colon and word in _PARTS else "More"
        words = rest if name == word else block
        parts[name] = f"{parts[name]} {words}" if name in parts else words
    return first, parts


def _prepared(algo: str, **changes: Any) -> Prepared:
    """A run of the setting on noise."""
    config = RunConfig(algo=algo, **{**find_setting(_SETTING).values, **needed(algo), **changes})
    samples = 2 * config.clients * DATASETS[config.dataset].classes
    return prepare(resolve(config), Execution(device="cpu"), noise(config.dataset, samples * 4))


def _costs(algo: str) -> dict[str, float]:
    """What a run of the setting costs by its plan, to which the tests hold the ledger."""
    prepared = _prepared(algo, samples_per_client=4, test_samples_per_client=4)
    algorithm = prepared.make(prepared.config.rounds)
    costs = Costs()
    closing = algorithm.task.data.clients * costs.evaluation(algorithm)
    return {
        "bytes": planned_bytes(algorithm, costs),
        "samples": planned_epochs(algorithm, costs=costs) + closing,
    }


_costs_once = cache(_costs)  # of a method that nobody defines anew


def _flow(algo: str) -> dict[str, str]:
    """What is sent, kept and evaluated, in words, as a short run shows it."""
    prepared = _prepared(algo, test_samples_per_client=4, **_SHORT)
    config, network = prepared.config, prepared.task.network
    algorithm = prepared.make(config.rounds)
    down: dict[int, dict[str, None]] = {}  # names by stage
    up: dict[int, dict[str, None]] = {}
    message, upload = algorithm.message, algorithm.upload

    def seen_message(clients: Sequence[int], round: int) -> Message:
        found = message(clients, round)
        names = dict.fromkeys([*found.common, *found.per_client])
        down.setdefault(algorithm.kind(round).stage, {}).update(names)
        return found

    def seen_upload(outcome: LocalResult) -> Params:
        found = upload(outcome)
        up.setdefault(algorithm.kind(outcome.round).stage, {}).update(dict.fromkeys(found))
        return found

    algorithm.message, algorithm.upload = seen_message, seen_upload  # type: ignore[method-assign]
    summary = run_unrecorded(algorithm, Quiet())
    flow = {
        "sent to clients": _by_stage(network, down),
        "sent to the server": _by_stage(network, up),
        "kept by clients": in_words(network, algorithm.clients.initial),
        "evaluated": _evaluated(algorithm, summary["evaluated"]),
    }
    prepared.task.executor.close()  # not before: what is evaluated may take passes
    return flow


def _by_stage(network: Network, names: Mapping[int, Iterable[str]]) -> str:
    words = {stage: in_words(network, some) for stage, some in names.items()}
    if len(words) == 1:
        return next(iter(words.values()))
    return "; ".join(f"stage {stage}: {some}" for stage, some in words.items())


def _evaluated(algorithm: Algorithm, whose: str) -> str:
    models = {"global": "the global model", "personal": "each client's own model"}[whose]
    count = len(algorithm.members([0]))
    adapted = ", adapted to its data" if algorithm.adaptation() else ""
    return f"{models}{adapted}" if count == 1 else f"an ensemble of {count} models"


def in_words(network: Network, names: Iterable[str]) -> str:
    """Tensors by the layers that they belong to; other tensors by the group that stands before the dot."""
    found = dict.fromkeys(name.split(".")[0] for name in names)
    layers = [name for name in network.names if name in found]
    others = [name for name in found if name not in network.names]
    words = ["all layers" if len(layers) == len(network.names) else ", ".join(layers)]
    return ", ".join([*words, *others]).removeprefix(", ") or "nothing"
