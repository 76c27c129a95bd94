"""What PPFE's records tell of its stages (`algorithms.ppfe.diagnostics.describe`), checked."""

from __future__ import annotations

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
