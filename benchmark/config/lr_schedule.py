"""``--lr-schedule``: by what the learning rate of local training is multiplied in a round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pfl_benchmark.errors import UserError, is_plain, nearest

CONSTANT = "constant"
FORMS = (CONSTANT, "exponential:0.99", "step:30:0.1", "cosine")  # one example of each
_FACTOR = "a factor above 0 and at most 1, such as"


@dataclass(frozen=True)
class LRSchedule:
    """A schedule over rounds, which count from 1; the first round has the full rate.

    Attributes:
        text: in its shortest form, which is on record.
        needs_length: whether the factor depends on how many rounds the run has.
    """

    text: str
    needs_length: bool
    _factor: Callable[[int, int], float]

    def factor(self, round: int, rounds: int) -> float:
        """The factor in a round of a run of so many rounds."""
        return self._factor(round - 1, rounds)


def lr_schedule(text: str) -> LRSchedule:
    """The schedule that a text names; UserError: none has that form.

    They are those of torch.optim.lr_scheduler, stepped after every round: ``exponential:G`` is ExponentialLR
    (G^(r−1)), ``step:N:G`` is StepLR (G^⌊(r−1)/N⌋), and ``cosine`` is CosineAnnealingLR over all R rounds
    (½ (1 + cos(π (r−1)/R))).
    """
    name, *values = (part.strip() for part in text.lower().split(":"))
    match name, values:
        case "constant", []:
            return LRSchedule(CONSTANT, False, lambda done, rounds: 1.0)
        case "cosine", []:
            return LRSchedule(name, True, lambda done, rounds: (1 + math.cos(math.pi * done / rounds)) / 2)
        case "exponential", [each]:
            share = _share(text, each)
            return LRSchedule(f"{name}:{share!r}", False, lambda done, rounds: share**done)
        case "step", [each, times]:
            length, share = _length(text, each), _share(text, times)
            words = f"{name}:{length}:{share!r}"
            return LRSchedule(words, False, lambda done, rounds: share ** (done // length))
    known = [form.partition(":")[0] for form in FORMS]
    form = next((form for form in FORMS if form.partition(":")[0] == name), "")
    guess = f"of the form {form}" if form else f"one of: {', '.join(FORMS)}{nearest(name, known)}"
    raise UserError(f"--lr-schedule is '{text:.40}'; expected {guess}")


def _share(text: str, value: str) -> float:
    try:
        share = float(value) if is_plain(value) else math.nan
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise UserError(f"--lr-schedule is '{text:.40}': '{value:.20}' is no factor; expected {_FACTOR} 0.99")
    return share


def _length(text: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and 0 < len(value) < 8 and int(value)):
        raise UserError(
            f"--lr-schedule is '{text:.40}': '{value:.20}' is no number of rounds; expected a whole number "
            "of at least 1, such as 30"
        )
    return int(value)
