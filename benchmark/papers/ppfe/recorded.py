"""What PPFE's records tell of its stages (`algorithms.ppfe.diagnostics.describe`), checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pfl_benchmark.records.schema import COUNT, COUNTS, NUMBER, NUMBERS, OBJECT, TEXTS, check_entries

if TYPE_CHECKING:
    from pfl_benchmark.records.store import Record

_FIGURES = (
    "error_bound",
    "hindsight_test_accuracy",
    *(f"{kind}_{part}_accuracy" for kind in ("stage", "ensemble") for part in ("train", "test")),
)
_STAGE = {"stage": COUNT, "personal": TEXTS}
_OTHERS = {
    "rounds": COUNTS,
    "hindsight_weights": NUMBERS,
    "clients": OBJECT,
    **dict.fromkeys(_FIGURES, NUMBER),
}


def stages_of(record: Record) -> list[dict[str, Any]]:
    """The stages that a record tells of; none if it tells of none, or of such that cannot be."""
    stages = record.diagnostics.get("stages")
    if not isinstance(stages, list):
        return []
    try:
        for stage in stages:
            check_entries("a stage", stage, _STAGE, _OTHERS)
            clients = stage.get("clients", {})
            check_entries("its clients", clients, {}, dict.fromkeys(clients, NUMBERS))
            if len(stage.get("rounds", (0, 0))) != 2 or len({len(each) for each in clients.values()}) > 1:
                raise ValueError("a stage has a first and a last round, and a number for each client")
    except ValueError:
        return []
    return stages


def stage_labels(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Their numbers for an axis and, below them, the personal layers: ``fc2–fc3``, or ``none``."""
    return [f"{stage['stage']}\n{_span(stage['personal'])}" for stage in stages]


def _span(layers: Sequence[str]) -> str:
    if not layers:
        return "none"
    return layers[0] if len(layers) == 1 else f"{layers[0]}–{layers[-1]}"
