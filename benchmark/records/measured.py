"""What an accuracy on record is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FINE_TUNED = "fine-tuned"


def measured(line: Mapping[str, Any], before: str = "") -> str:
    """``global model``, ``personal models`` or, where these end a training of the global one, ``fine-tuned``.

    Args:
        line: of an evaluated round.
        before: what this said of the evaluation before.
    """
    if line.get("evaluated") == "global":
        return "global model"
    tuned = before == FINE_TUNED or (line.get("adaptation_samples", 0) > 0 and before == "global model")
    return FINE_TUNED if tuned else "personal models"
