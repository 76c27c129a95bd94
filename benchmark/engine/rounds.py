"""The round loop: the only one in the repository."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from pfl_benchmark.engine.algorithm import Algorithm, SharedRounds
from pfl_benchmark.engine.budget import Plan, first_participants, last_round, left_out
from pfl_benchmark.engine.checkpoints import Checkpoints
from pfl_benchmark.engine.client_memory import ClientMemory
from pfl_benchmark.engine.clients import chunks
from pfl_benchmark.engine.evaluate import evaluate, evaluate_adapted, evaluate_shared
from pfl_benchmark.engine.hooks import Diverged, Hooks
from pfl_benchmark.engine.ledger import Ledger
from pfl_benchmark.engine.local import LocalCall
from pfl_benchmark.engine.newcomers import Newcomers, admit
from pfl_benchmark.engine.params import precisely
from pfl_benchmark.engine.shared_rounds import SharedRoundsStore, shared_rounds_of
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import Params
from pfl_benchmark.records.environment import Origin, continued
from pfl_benchmark.records.files import set_aside
from pfl_benchmark.records.metrics import ClientMetrics
from pfl_benchmark.records.outputs import SavedOutputs
from pfl_benchmark.records.schema import check_rounds
from pfl_benchmark.records.writer import RunRecord, as_float

CHECKPOINT_SECONDS = 15.0  # at least this long between checkpoints,
CHECKPOINT_SHARE = 0.03  # and at most this share of the time spent writing them


class Observer(Protocol):
    """Watches a run: a progress bar, a tracker."""

    def start(self, rounds: int, done: int) -> None:
        """The run begins; `done` rounds were found finished."""

    def round(self, line: Mapping[str, Any]) -> bool | None:
        """A round is finished; `line` is what goes into rounds.jsonl. True: the run is to end here."""


def run(
    algorithm: Algorithm,
    plan: Plan,
    record: RunRecord,
    store: SharedRoundsStore | None,
    observer: Observer,
    environment: Mapping[str, Any],
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    kept: SavedOutputs | None = None,
) -> dict[str, Any]:
    """Carry out a run, or what is left of it, and return its summary.

    Args:
        algorithm: fresh, as constructed; a checkpoint or shared rounds found is loaded into it.
        environment: versions and hardware, copied into the summary.
        kept: what is kept of the final evaluation besides its figures (default: nothing).

    Raises:
        Diverged: a client's loss is not finite; the checkpoint before it stays usable.
    """
    loop = _Loop(algorithm, plan, record, store, environment, checkpoint_seconds, kept or SavedOutputs())
    loop.restore()
    loop.check_room()
    observer.start(loop.end, len(loop.lines))
    stops = False
    for line in loop.lines:
        stops = bool(observer.round(line)) or stops
    try:
        while len(loop.lines) < loop.end and not stops:
            stops = bool(observer.round(loop.step()))
        if len(loop.lines) < loop.end:
            loop.stop()
    except Diverged as error:
        record.write_rounds(loop.lines)
        record.fail(str(error), environment)
        raise
    return loop.finish()


@dataclass
class _Loop:
    """The state of a run between rounds: the method and the lines so far."""

    algorithm: Algorithm
    plan: Plan
    record: RunRecord
    _store: SharedRoundsStore | None
    _environment: Mapping[str, Any]
    _pause: float
    _kept: SavedOutputs

    def __post_init__(self) -> None:
        self.hooks = Hooks(self.algorithm)
        self.executor = self.algorithm.task.executor
        self.device = self.algorithm.task.data.device
        self.lines: list[dict[str, Any]] = []
        self.end = last_round(self.plan, self.algorithm.config)
        sampled, everyone = self.algorithm.config.eval_clients, range(self.algorithm.task.data.clients)
        self._sample = self.algorithm.task.schedule.sample(sampled) if sampled else everyone
        self.metrics: ClientMetrics | None = None
        self.newcomers: Newcomers | None = None
        self._global: float | None = None  # accuracy of the shared model
        self._beginnings = {shared.round: shared for shared in shared_rounds_of(self.algorithm)}
        self._shared_line: dict[str, Any] | None = None
        self.checkpoints = Checkpoints(self.record)
        self._saved = time.perf_counter()
        self._resumed = self._shared = 0
        self._origins: list[Origin] = []

    def restore(self) -> None:
        """Go on from a checkpoint if there is one, else from the longest common beginning that there is."""
        if self._try(self.record.checkpoint, self._continue):
            self.record.write_rounds(self.lines)
        elif (store := self._store) is not None:
            beginnings = reversed(self._beginnings.values())
            any(self._try(store.path(one), partial(self._take_over, store, one)) for one in beginnings)
        if not self._resumed:
            self.checkpoints.drop()  # what a kill has left, or a checkpoint that was set aside
        self._origins = continued(self._origins, len(self.lines), self._environment)

    def _try(self, path: Path, take: Callable[[], bool]) -> bool:
        """Whether something was taken from a file; one that does not do is set aside.

        Raises:
            UserError: it cannot be opened.
        """
        try:
            return take()
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except OSError as error:
            raise UserError(
                f"cannot read {path}: {error.strerror or error}; give yourself access to it, or remove it to "
                "train its rounds again"
            ) from error
        except Exception as error:  # damage, or whatever a method makes of the state that other code wrote
            other = f"other code has written it: {type(error).__name__}: {error}"
            set_aside(path, error if isinstance(error, ValueError) else other)
            return False

    def _load(self, load: Callable[[Algorithm], None]) -> None:
        """Load a state into another instance first, whose models are looked at."""
        other = type(self.algorithm)(self.algorithm.task, self.algorithm.hyper)
        load(other)
        check_models(other)
        load(self.algorithm)

    def _continue(self) -> bool:
        """Go on from the checkpoint, if there is one."""
        found = self.record.load_checkpoint(self.device)
        if found is None:
            return False
        check_rounds(found["lines"])
        state = self.checkpoints.load(found["algorithm"], self.device)
        self._load(lambda algorithm: algorithm.load(state))
        self.lines, self._resumed = found["lines"], found["resumed"] + 1
        self._shared, self._origins = found.get("shared", 0), found.get("origins", [{"from_round": 1}])
        return True

    def _take_over(self, store: SharedRoundsStore, shared: SharedRounds) -> bool:
        """Begin with the rounds of shared rounds, if they are kept."""
        found = store.load(shared, self.device)
        if found is None:
            return False
        *lines, last = found["lines"]
        check_rounds([*lines, {**last, "seconds_closing": 0.0}])
        self._load(lambda algorithm: load_shared(algorithm, shared, found["state"]))
        self.lines, self._shared_line, self._shared = lines, last, shared.round
        return True

    def check_room(self) -> None:
        """Raise UserError where the disk cannot take what clients will keep."""
        clients, cohort = self.algorithm.task.data.clients, self.algorithm.task.schedule.cohort_size
        most = min(clients, self.end * cohort)
        if most < clients and any(self.hooks.kind(n).full_participation for n in range(self.end, 0, -1)):
            most = clients
        ClientMemory.current().check_room(most)

    def step(self) -> dict[str, Any]:
        """One round; returns its line."""
        number = len(self.lines) + 1
        self.algorithm.task.data.reach(number)
        if self._shared_line is not None:
            line, self._shared_line = self._shared_line, None
        else:
            line = self._train(number)
            shared = self._beginnings.get(number)
            if self._store is not None and shared and len(self._origins) == 1:
                self._store.save(shared, shared_state(self.algorithm, shared), [*self.lines, line])
        line = self._close(number, dict(line))
        self.lines.append(line)
        self._checkpoint()
        return line

    def _train(self, number: int) -> dict[str, Any]:
        started = time.perf_counter()
        algorithm, hooks = self.algorithm, self.hooks
        kind = hooks.kind(number)
        algorithm.start_round(number)
        cohort = algorithm.task.schedule.cohort(number, kind.full_participation)
        message = hooks.message(cohort, number)
        ledger, aggregator, loss, done = Ledger(), hooks.aggregator(), 0.0, 0
        first = first_participants(algorithm, number) if message.first else 0
        factor = algorithm.rate_factor(number)
        ledger.charge_message(message, len(cohort), first)
        if kind.closing and message.first:
            ledger.charge_left_out(message, left_out(algorithm, number))
        for clients in chunks(cohort):
            call = hooks.begin(clients, message.part(slice(done, done + len(clients))), number)
            call.factor = factor
            done += len(clients)
            outcome = self.executor.train(call)
            ledger.charge_training(outcome)
            trained = outcome.loss + _largest(outcome.models.values())
            self._check_finite(trained, clients, number, call)
            upload = hooks.upload(outcome)
            ledger.charge_upload(upload)
            hooks.add(aggregator, clients, upload, mean_weights(algorithm, clients))
            hooks.keep(outcome, upload)
            loss += float(precisely(outcome.loss).sum(dtype=torch.float64))  # whatever the chunks
        hooks.aggregate(aggregator)
        ledger.charge_metered(algorithm.meter)
        return {
            "round": number,
            "stage": kind.stage,
            "participants": len(cohort),
            **asdict(ledger),
            "loss": as_float(loss / len(cohort)),
            "seconds": as_float(time.perf_counter() - started),
        }

    def _check_finite(
        self, figures: torch.Tensor, clients: list[int], number: int, call: LocalCall | None = None
    ) -> None:
        """Stop where one of the clients' figures [m] is not finite; `call` is the training that led there."""
        bad = (~torch.isfinite(figures)).nonzero().flatten().tolist()
        if bad:
            raise Diverged(
                f"training diverged: the loss of client {clients[bad[0]]} is not a number in round {number} "
                f"(stage {self.algorithm.kind(number).stage}); {_started(call, bad[0]) if call else ''}"
                f"try {' or '.join(self.algorithm.remedies)}. "
                f"The record {self.record.folder.name} ends with round {number - 1}"
            )

    def _close(self, number: int, line: dict[str, Any]) -> dict[str, Any]:
        """Broadcast, evaluate and finish a trained round, as far as each is due."""
        algorithm, config = self.algorithm, self.algorithm.config
        last, ledger = number == self.end, Ledger()
        started = time.perf_counter()
        if self.hooks.kind(number).closing:
            for clients in chunks(range(algorithm.task.data.clients)):
                ledger.charge_closing(self.hooks.closing(clients), len(clients))
        # Before clients' data change, and after the first round on those.
        due = (algorithm.task.data.turn - 1, algorithm.task.data.turn)
        if not last and ((config.eval_every and number % config.eval_every == 0) or number in due):
            adapted = config.eval_adapted and bool(algorithm.adaptation())
            found = self._evaluate(number, adapted, Ledger(), clients=self._sample)
            self._evaluated(found, number, adapted, line, self._sample)
        algorithm.meter.collect()  # an evaluation on the way is no cost of the method
        algorithm.finish_round(number)
        if last:
            self._conclude(number, ledger, line)
        else:
            ledger.adaptation_samples += algorithm.meter.collect()[0]
        line["bytes_broadcast"] += ledger.bytes_broadcast
        line["adaptation_samples"] = ledger.adaptation_samples
        line["seconds_closing"] = as_float(time.perf_counter() - started)
        return line

    def _conclude(self, number: int, ledger: Ledger, line: dict[str, Any]) -> None:
        """Evaluate what the last round leaves behind."""
        algorithm = self.algorithm
        adapted = bool(algorithm.adaptation())
        self.metrics = self._evaluate(number, adapted, ledger, self._kept)
        self._evaluated(self.metrics, number, adapted, line, range(algorithm.task.data.clients))
        ledger.adaptation_samples += algorithm.meter.collect()[0]
        self._global = evaluate_shared(algorithm)  # no part of the method, so it costs it nothing
        if algorithm.task.data.newcomers:
            self.newcomers = admit(algorithm, self._kept)
            self._check_finite(
                torch.from_numpy(self.newcomers.metrics.loss), [*algorithm.task.data.newcomers], number
            )

    def stop(self) -> None:
        """End the run after the round that it is at: the record becomes that of a run with `stop_after`."""
        self.end, line, ledger = len(self.lines), self.lines[-1], Ledger()
        self.record.shorten(self.end)
        ClientMemory.current().move(self.record.folder)
        started = time.perf_counter()
        self._conclude(self.end, ledger, line)
        line["adaptation_samples"] += ledger.adaptation_samples
        line["seconds_closing"] = as_float(line["seconds_closing"] + time.perf_counter() - started)

    def _evaluate(
        self,
        number: int,
        adapted: bool,
        ledger: Ledger,
        kept: SavedOutputs | None = None,
        clients: Sequence[int] | None = None,
    ) -> ClientMetrics:
        """Evaluate after a round; the batches of an adaptation are drawn for the next one."""
        if adapted:
            return evaluate_adapted(self.algorithm, number + 1, ledger, kept, clients)
        return evaluate(self.algorithm, kept, clients)

    def _evaluated(
        self, metrics: ClientMetrics, number: int, adapted: bool, line: dict[str, Any], clients: Sequence[int]
    ) -> None:
        """Enter an evaluation of some clients into the round's line."""
        self._check_finite(torch.from_numpy(metrics.loss), [*clients], number)
        if len(self._sample) < self.algorithm.task.data.clients:
            line["eval_clients"] = len(clients)
        kept = "personal" if self.algorithm.clients.initial else "global"
        line["evaluated"] = self.algorithm.evaluated or ("personal" if adapted else kept)
        line.update(_rounded(metrics.summary()))

    def _checkpoint(self) -> None:
        waited = time.perf_counter() - self._saved
        if waited < self._pause or len(self.lines) == self.end:
            return
        spent = self.checkpoints.save(
            self.algorithm.state(),
            lines=self.lines,
            resumed=self._resumed,
            shared=self._shared,
            origins=self._origins,
        ).seconds
        self.record.write_rounds(self.lines)
        if self._pause:
            self._pause = max(self._pause, spent / CHECKPOINT_SHARE)
        self._saved = time.perf_counter()

    def finish(self) -> dict[str, Any]:
        """Write the record of a finished run."""
        assert self.metrics is not None
        diagnostics = self.hooks.diagnostics()
        self.record.write_rounds(self.lines)
        about = {"algo": self.algorithm.config.algo, "config": self.record.config.hash}
        saved = self._kept.write(self.record.folder, about)
        summary = {
            **_rounded(self.metrics.summary()),
            **({} if self._global is None else {"global_accuracy": as_float(self._global)}),
            "evaluated": self.lines[-1]["evaluated"],
            **self._costs(),
            **({"new_clients": _rounded(self.newcomers.summary())} if self.newcomers else {}),
            **self._drift(),
            "rounds": self.end,
            "budget": asdict(self.plan),
            "shared_rounds": self._shared,
            "resumed": self._resumed,
            "notes": self.hooks.notes(),
            "environment": self._environment,
            **({"origins": self._origins} if len(self._origins) > 1 else {}),
            **({"saved": saved} if saved else {}),
        }
        metrics = self.metrics.joined(self.newcomers.metrics) if self.newcomers else self.metrics
        self.record.finish(metrics, diagnostics, summary)
        return summary

    def _drift(self) -> dict[str, Any]:
        """How accuracy fell where clients' data changed, and how soon it was as high again.

        Of the evaluations of one kind: models that are personal from another round on do not recover.
        """
        turn = self.algorithm.task.data.turn
        if not 0 < turn <= self.end:
            return {}
        lines = {line["round"]: line for line in self.lines if "accuracy" in line}
        kind = lines[turn - 1]["evaluated"]
        known = {number: line["accuracy"] for number, line in lines.items() if line["evaluated"] == kind}
        again = (number for number, found in known.items() if number >= turn and found >= known[turn - 1])
        back = next(again, None)
        recovery = None if back is None else back - turn + 1
        return {
            "drift": {
                "round": turn,
                "before": known[turn - 1],
                "after": lines[turn]["accuracy"],
                "recovery": recovery,
            }
        }

    def _costs(self) -> dict[str, Any]:
        names = ("bytes_up", "bytes_down", "bytes_broadcast", "samples", "steps", "adaptation_samples")
        totals = {name: sum(line[name] for line in self.lines) for name in names}
        training = sum(line["seconds"] for line in self.lines)
        return {
            **totals,
            "samples_per_second": round(totals["samples"] / training, 1) if training else 0.0,
            "seconds": as_float(training + sum(line["seconds_closing"] for line in self.lines)),
        }


def mean_weights(algorithm: Algorithm, clients: Sequence[int]) -> torch.Tensor:
    """Weights of some participants in the server's mean [m]."""
    asked = algorithm.config.aggregation
    rule = algorithm.aggregation if asked == "method" else asked
    sizes = algorithm.task.data.train_sizes
    return torch.tensor([sizes[client] if rule == "samples" else 1 for client in clients])


def shared_state(algorithm: Algorithm, rounds: SharedRounds) -> dict[str, Any]:
    """What runs that share these rounds take over after the last one, before it is closed."""
    return algorithm.state() if rounds.whole else {"server": algorithm.server}


def load_shared(algorithm: Algorithm, rounds: SharedRounds, state: Mapping[str, Any]) -> None:
    """Take over what `shared_state` of another run returned."""
    if rounds.whole:
        algorithm.load(state)
    else:
        algorithm.server = dict(state["server"])


def check_models(algorithm: Algorithm) -> None:
    """Check that every client's models have the shapes of their networks.

    Raises:
        ValueError: they have not.
    """
    for clients in chunks(range(algorithm.task.data.clients)):
        try:
            members = algorithm.members(clients)
        except UserError as error:  # of `StackedModel`
            raise ValueError("its tensors have other shapes") from error
        for member in members:
            shapes = member.network.shapes()
            if any(tuple(member.params[name].shape[1:]) != shape for name, shape in shapes.items()):
                raise ValueError("its tensors have other shapes")


def _largest(models: Iterable[Params]) -> torch.Tensor:
    """The largest magnitude in each client's stacked models [m]; not finite where anything is not."""
    flat = [tensor.flatten(1) for model in models for tensor in model.values()]
    return torch.stack([t.abs().amax(1) for t in flat if t.shape[1]]).amax(0)


def _started(call: LocalCall, position: int) -> str:
    """With what a client began its training."""
    largest = float(_largest(model.params for model in call.models.values())[position])
    given = [weights[position] for slot in call.models if (weights := call.weights(slot) or call.chances)]
    also = f" and sample weights up to {max(float(own.max()) for own in given):.3g}" if given else ""
    return f"it began with parameters up to {largest:.3g}{also}; "


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value if isinstance(value, int) else as_float(value) for name, value in values.items()}
