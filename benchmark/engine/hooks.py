"""The hooks of a method as the engine calls them: what they return is checked where it comes in.

A hook that returns another number of rows than there are clients, or changes in place what was sent, gives a
run with wrong bytes or a wrong method, and often no error. Here it is one line that names the hook.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pfl_benchmark.engine.algorithm import Algorithm, RoundKind
from pfl_benchmark.engine.local import Batches, LocalCall, LocalResult
from pfl_benchmark.engine.message import Aggregator, Message
from pfl_benchmark.engine.params import exact
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import Params

_AGGREGATIONS = ("uniform", "samples")


class Diverged(UserError):
    """Training produced a value that is not finite."""


class Hooks:
    """Calls the hooks of a method and checks what they return.

    Raises (every method of this class):
        UserError: it is not what the engine can take; one line that names the hook and what was expected.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm, self._device = algorithm, algorithm.task.data.device
        self._layout: dict[tuple[str, int], dict[str, tuple]] = {}  # names and shapes of the first chunk
        if algorithm.config.local_steps and not any(
            isinstance(phase.epochs, Batches) for phase in algorithm.phases(1)
        ):
            raise self._error(
                "phases",
                "trains by epochs, and --local-steps asks for batches",
                "`self.local_work` in place of `self.config.local_epochs`, or a reason in `refuses`",
            )
        if algorithm.aggregation not in _AGGREGATIONS:
            raise self._error("aggregation", f"is {algorithm.aggregation!r:.40}", "uniform or samples")
        if not algorithm.config.everyone_ends and self.kind(algorithm.task.rounds).full_participation:
            raise self._error(
                "kind",
                "has everyone in the last round under --last-round cohort",
                "an ordinary round (`config.everyone_ends`), or a refusal in `check`",
            )

    def notes(self) -> list[str]:
        """Lines worth telling before the run starts."""
        algorithm, own = self._algorithm, self._algorithm.notes
        if isinstance(own, str) or not all(isinstance(note, str) for note in own):
            raise self._error("notes", f"is {own!r:.60}", "a list of lines")
        network, fixed = algorithm.network, algorithm.network.buffers & algorithm.server.keys()
        which = "running statistics of batch normalisation" if fixed & network.normalisation else "buffers"
        return [*([f"{which} are averaged like parameters"] if fixed else []), *own]

    def kind(self, round: int) -> RoundKind:
        """What a round is within the run."""
        found = self._algorithm.kind(round)
        if not isinstance(found, RoundKind) or type(found.stage) is not int or found.stage < 1:
            raise self._error("kind", f"gives {found!r:.80}", "a RoundKind whose stage is a number from 1")
        return found

    def message(self, clients: Sequence[int], round: int) -> Message:
        """What the server sends to the participants of a round."""
        with self._unchanged("message"):
            found = self._algorithm.message(clients, round)
        return self._sent("message", found, len(clients))

    def closing(self, clients: Sequence[int]) -> Message:
        """What clients receive after a round that closes a stage."""
        with self._unchanged("closing"):
            found = self._algorithm.closing(clients)
        return self._sent("closing", found, len(clients))

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        """The local work of some participants."""
        with self._unchanged("begin", message=(message.common, message.per_client, message.first)):
            call = self._algorithm.begin(clients, message, round)
        if not isinstance(call, LocalCall):
            raise self._error("begin", f"gives {call!r:.60}", "a LocalCall")
        try:
            call.check()
        except UserError as error:
            raise UserError(f"'{self._algorithm.name}': {error}") from error
        for tensors in (*(model.params for model in call.models.values()), *call.constants.values()):
            self._check_rows("begin", tensors, len(clients))
        return call

    def upload(self, outcome: LocalResult) -> Params:
        """What participants send."""
        with self._unchanged("upload", model=outcome.models.values()):
            found = self._algorithm.upload(outcome)
        rows = len(outcome.clients)
        self._check_tensors("upload", found, rows, outcome.round)
        self._check_tensors("upload", outcome.found, rows)
        return found

    def aggregator(self) -> Aggregator:
        """What makes one of a round's uploads."""
        found = self._algorithm.aggregator()
        if not isinstance(found, Aggregator):
            raise self._error("aggregator", f"gives {found!r:.60}", "an Aggregator, such as WeightedMean()")
        return found

    def add(self, aggregator: Aggregator, clients: Sequence[int], uploads: Params, weights: Tensor) -> None:
        """Give the uploads of a chunk to the round's aggregator."""
        with self._unchanged("aggregator", upload=[uploads]):
            aggregator.add(clients, uploads, weights)

    def keep(self, outcome: LocalResult, uploads: Params) -> None:
        """Let participants keep what they keep."""
        with self._unchanged("keep", model=outcome.models.values(), upload=[uploads]):
            self._algorithm.keep(outcome)

    def aggregate(self, aggregator: Aggregator) -> None:
        """Let the server take over what the aggregator has made of the uploads."""
        value = aggregator.value()
        self._check_tensors("aggregator", value)
        with self._unchanged("aggregate", aggregated=[value]):
            self._algorithm.aggregate(value)
        self._check_tensors("aggregate", self._algorithm.server)

    def diagnostics(self) -> dict[str, Any]:
        """What the method wants to have on record."""
        found = self._algorithm.diagnostics()
        try:
            if isinstance(found, dict):
                json.dumps(found, allow_nan=False)
                return found
        except (TypeError, ValueError) as error:
            raise self._error("diagnostics", f"gives {error}", "values that JSON can hold") from error
        raise self._error("diagnostics", f"gives {found!r:.60}", "a dictionary")

    # -- checks ---------------------------------------------------------------------------------

    def _error(self, hook: str, what: str, expected: str) -> UserError:
        return UserError(f"'{self._algorithm.name}': `{hook}` {what}; expected {expected}")

    def _sent(self, hook: str, message: Message, clients: int) -> Message:
        if not isinstance(message, Message):
            raise self._error(hook, f"gives {message!r:.60}", "a Message")
        self._check_tensors(hook, message.common)
        self._check_tensors(hook, message.first)
        self._check_tensors(hook, message.per_client, clients)
        return message

    def _check_tensors(self, hook: str, found: Params, rows: int | None = None, round: int = 0) -> None:
        """Check names, types, devices, values and (if they are stacked) the numbers of rows of tensors.

        Args:
            round: in which all chunks must have the same names and shapes; 0: they need not.
        """
        if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
            raise self._error(hook, f"gives {found!r:.60}", "a dictionary of tensors by name")
        for name, tensor in found.items():
            if not isinstance(tensor, Tensor):
                raise self._error(hook, f"gives {tensor!r:.60} as '{name}'", "a tensor")
            if rows is not None and tensor.device != self._device:
                raise self._error(hook, f"gives '{name}' on {tensor.device}", f"a tensor on {self._device}")
        if rows is not None:
            self._check_rows(hook, found, rows)
        if not _finite(found.values()):
            name = next(name for name, tensor in found.items() if not _finite([tensor]))
            raise Diverged(
                f"training diverged: `{hook}` of '{self._algorithm.name}' gives '{name}', which is not "
                f"finite; try {' or '.join(self._algorithm.remedies)}"
            )
        if round:
            layout = {name: (tensor.shape[1:], tensor.dtype) for name, tensor in found.items()}
            known = self._layout.setdefault((hook, round), layout)
            if known != layout:
                raise self._error(
                    hook, "gives other names, shapes or types for some clients", "the same for all"
                )

    def _check_rows(self, hook: str, stacked: Params, rows: int) -> None:
        for name, tensor in stacked.items():
            if tensor.shape[:1] != (rows,):
                found = f"gives '{name}' of shape {tuple(tensor.shape)} for {rows} client(s)"
                raise self._error(hook, found, f"({rows}, ...): a row each")

    @contextlib.contextmanager
    def _unchanged(self, hook: str, **given: Iterable[Params]) -> Iterator[None]:
        """Refuse changes in place of what the hook was given, of the server's tensors and of the data."""
        data, server = self._algorithm.task.data, {"server": [self._algorithm.server]}
        named = {
            what: [t for part in parts for t in part.values()] for what, parts in {**server, **given}.items()
        }
        named["training data"] = list(data.stored())
        before = {what: [(tensor, tensor._version) for tensor in tensors] for what, tensors in named.items()}
        yield
        for what, tensors in before.items():
            if any(tensor._version != version for tensor, version in tensors):
                raise self._error(hook, f"changes the {what} in place", "new tensors")


def _finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all values of floating-point tensors are finite."""
    own: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.numel():
            own.setdefault(tensor.device, []).append(tensor)
    for group in own.values():
        sums = torch.stack([exact(tensor.sum()) for tensor in group])  # one answer to wait for
        if not bool(sums.isfinite().all()) and not all(bool(t.isfinite().all()) for t in group):
            return False  # a sum of finite values may overflow
    return True
