"""Drift: in the course of a run the data of some clients become others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pfl_benchmark.datasets.shifts.base import (
    NO_SHIFT,
    About,
    Draw,
    Shift,
    check_option,
    plain_text,
    read_shift,
    register,
)
from pfl_benchmark.datasets.shifts.samples import ClientSamples
from pfl_benchmark.errors import UserError, is_plain

_SHARE = 0.5


@register
@dataclass(frozen=True)
class Drift(Shift):
    """From the beginning of a round on a share of the clients, drawn once, has its data under another shift.

    Written ``drift=ROUND:SHIFT`` or ``drift=ROUND:SHARE:SHIFT``; the share is a half by default.
    """

    kind: ClassVar[str] = "drift"
    name: ClassVar[str] = ""
    place: ClassVar[int] = 90
    round: int
    share: float
    shift: Shift

    @classmethod
    def usage(cls) -> str:
        return "drift=20:feature=corruption:3"

    @classmethod
    def read(cls, text: str) -> Drift:
        first, _, rest = text.partition(":")
        if not (first.isascii() and first.isdecimal()):
            raise UserError(f"--shift drift={text}: expected a round and a shift, such as {cls.usage()}")
        second, _, after = rest.partition(":")
        share = _SHARE
        try:
            share = float(second) if is_plain(second) else share
            rest = after
        except ValueError:
            pass
        check_option(f"drift={text}", "share", share, "(0, 1]")
        if rest in ("", NO_SHIFT):
            raise UserError(f"--shift drift={text}: expected a shift behind the round, such as {cls.usage()}")
        shift = read_shift(rest)
        if shift.resizes or isinstance(shift, Drift):
            raise UserError(
                f"--shift drift={text}: {shift.kind} is nothing that data drift to; expected a shift of "
                f"another kind, such as {cls.usage()}"
            )
        return cls(int(first), share, shift)

    @property
    def text(self) -> str:
        return f"drift={self.round}:{plain_text(self.share)}:{self.shift.text}"

    def check_others(self, others: Sequence[Shift]) -> None:
        for other in others:
            if other.kind == self.shift.kind:
                raise UserError(
                    f"--shift {self.text}: the clients' data are under {other.text} from the beginning, and "
                    f"{self.shift.kind} cannot change twice; give one of the two shifts"
                )
            if self.shift.replaces and not other.resizes:
                raise UserError(
                    f"--shift {self.text}: the samples that clients get are not under {other.text}, so that "
                    "more than one thing would change at once; give one of the two shifts"
                )

    def check(self, about: About) -> None:
        if about.rounds == 1:
            raise UserError(f"--shift {self.text}: the run has one round, so nothing can drift; drop it")
        if self.round < 2 or (about.rounds and self.round > about.rounds):
            allowed = f"the run has {about.rounds} rounds; expected" if about.rounds else "expected"
            last = f"rounds 2 to {about.rounds}" if about.rounds else "rounds from 2 on"
            raise UserError(f"--shift {self.text}: {allowed} a drift in one of the {last}")
        drifting = self._count(about.clients)
        try:
            self.shift.check(dataclasses.replace(about, clients=drifting))
        except UserError as error:
            self.shift.check(about)  # what does not depend on the share
            raise UserError(
                f"--shift {self.text}: {drifting} of {about.clients:,} clients drift ({error}); give a "
                "larger share"
            ) from error

    def describe(self) -> str:
        return f"from round {self.round} on {self.shift.describe()} for {100 * self.share:g} % of clients"

    def apply(self, samples: ClientSamples, draw: Draw) -> Mapping[str, Any]:
        order = draw("drift", 0).permutation(samples.everyone)
        count = self._count(len(order))
        drifting = [client for client, number in enumerate(samples.numbers) if order[number] < count]
        found: dict[str, Any] = {}

        def change(later: ClientSamples) -> None:
            found.update(self.shift.apply(later, lambda purpose, client: draw(f"drift-{purpose}", client)))

        samples.later(self.round, drifting, change)
        return {"drifting": drifting, **found}

    def _count(self, clients: int) -> int:
        """How many of the clients have data that drift."""
        return max(1, round(self.share * clients))
