"""How long runs will take on this machine: from finished records, else from a short measurement."""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.network import knows_network
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.algorithm import SharedRounds
from pfl_benchmark.engine.budget import planned_epochs, planned_samples
from pfl_benchmark.engine.dry import Costs
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.local import LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import expand
from pfl_benchmark.engine.shared_rounds import common_fields, shared_rounds_of
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.records.environment import environment
from pfl_benchmark.records.store import Record
from pfl_benchmark.resolve.run import method_of
from pfl_benchmark.studies.dry_run import DryRun, dry_run

_BATCHES = 2  # that a client trains on in a measurement
# Of the environment: what makes times comparable.
_SAME = ("processor", "cores", "device", "executor", "jobs")


def network_label(config: RunConfig) -> str:
    """The dataset, the network if that is not the dataset's own, adapters: what times depend on most."""
    words = [config.dataset] if config.own_network else [config.dataset, "with", config.network]
    return " ".join([*words, "and", config.adapters] if config.adapters else words)


def together(seconds: Iterable[float], jobs: int) -> float:
    """How long runs of these lengths take, begun in this order, as many at a time as there are jobs."""
    ends = [0.0] * jobs
    for length in seconds:
        heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


@dataclass(frozen=True)
class _Planned:
    """Training samples of a run, and of each beginning that it may share with others."""

    samples: float
    beginnings: Mapping[SharedRounds, float]


@dataclass
class Estimator:
    """Seconds of runs that have not been made yet."""

    records: Iterable[Record]
    execution: Execution
    basis: dict[str, str] = field(default_factory=dict)  # of figures, in words by `network_label`
    _rates: dict[tuple[str, str], float] = field(default_factory=dict)  # seconds a sample, by label, method
    _planned: dict[str, _Planned] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._device = self.execution.pick_device()
        jobs = {"jobs": self.execution.side_by_side}
        surroundings = {name: {**environment(self._device, name), **jobs} for name in EXECUTORS}
        measured: dict[tuple[str, str], list[float]] = {}
        for record in self.records:
            if not knows_network(record.config) or record.config.algo not in ALGORITHMS:  # that is gone
                continue
            there, summary = {"jobs": 1, **record.summary["environment"]}, record.summary
            here = surroundings[self._executor(record.config)]
            samples = summary["samples"] + summary["adaptation_samples"]
            if samples and all(there.get(name) == here[name] for name in _SAME):
                rate = summary["seconds"] / samples
                for method in (record.config.algo, ""):
                    measured.setdefault((network_label(record.config), method), []).append(rate)
        for (where, method), rates in measured.items():
            self._rates[where, method] = statistics.median(rates)
            if not method:
                count = f"{len(rates)} finished run{'s' * (len(rates) > 1)}"
                self.basis[where] = f"from {count} of this machine"

    def _executor(self, config: RunConfig) -> str:
        method, _, network = method_of(config)
        return self.execution.pick_executor(self._device, network, method)

    def in_turn(self, configs: Iterable[RunConfig]) -> list[float]:
        """Expected seconds of runs made in this order: what two have in common is trained by the first."""
        trained: set[str] = set()
        seconds = []
        for config in configs:
            plan = self._plan(config)
            samples = {_name(config, shared): count for shared, count in plan.beginnings.items()}
            found = max((count for name, count in samples.items() if name in trained), default=0)
            seconds.append(self.rate(config) * (plan.samples - found))
            trained.update(samples)
        return seconds

    def rate(self, config: RunConfig) -> float:
        """Seconds per training sample."""
        where = network_label(config)
        if (where, "") not in self._rates:
            started = time.perf_counter()
            self._rates[where, ""] = self._measure(config)
            spent = time.perf_counter() - started
            self.basis[where] = f"from {spent:.1f} s of measurement, which is rough"
        return self._rates.get((where, config.algo), self._rates[where, ""])

    def beginnings(self, config: RunConfig) -> dict[str, int]:
        """Names and lengths in rounds of the beginnings that a run may share with others, shortest first.

        Under a budget of bytes or samples, of the rounds that it allows with as many samples for each client.
        """
        return {_name(config, shared): shared.round for shared in self._plan(config).beginnings}

    def _plan(self, config: RunConfig) -> _Planned:
        """What is the same for all seeds."""
        config = dataclasses.replace(config, seed=0)
        if config.hash not in self._planned:
            running = self.dry_run(config, config.samples_per_client)
            # A budget that allows no round ends before any is trained.
            with contextlib.suppress(UserError), running as dry:
                algorithm = dry.make(dry.plan().rounds)
                each = config.samples_per_client
                asides = config.new_count * config.adapt_epochs * each  # which are no cost of the training
                if config.eval_adapted and config.eval_every:
                    evaluations = (algorithm.task.rounds - 1) // config.eval_every
                    adapted = sum(p.samples(each, config.batch_size) for p in algorithm.adaptation())
                    asides += evaluations * adapted * algorithm.task.data.clients
                costs, beginnings = Costs(), shared_rounds_of(algorithm)
                self._planned[config.hash] = _Planned(
                    planned_samples(algorithm, costs) + asides,
                    {shared: planned_epochs(algorithm, shared.round, costs) * each for shared in beginnings},
                )
        return self._planned.setdefault(config.hash, _Planned(0, {}))

    def _measure(self, config: RunConfig) -> float:
        """Seconds a sample of one cohort's local training, the first call not counted."""
        with self.cohort(config, _BATCHES * config.batch_size) as train:
            train()
            started = time.perf_counter()
            samples = train()
            return (time.perf_counter() - started) / samples

    @contextlib.contextmanager
    def cohort(self, config: RunConfig, samples: int) -> Iterator[Callable[[], int]]:
        """A function that trains a cohort of clients with so many samples each, and returns all samples."""
        dry = self.dry_run(config, samples)
        clients, task = list(range(dry.task.schedule.cohort_size)), dry.task
        phase = Phase.of(task.network.names, config.lr, epochs=1)

        def train() -> int:
            model = StackedModel(task.network, expand(task.initial, len(clients)))
            outcome = task.executor.train(LocalCall(1, clients, {"model": model}, [phase]))
            float(outcome.loss.sum())  # waits for a GPU
            return outcome.samples

        yield train
        task.executor.close()

    def dry_run(self, config: RunConfig, samples: int) -> DryRun:
        """The method of a run on noise."""
        return dry_run(config, samples, self._device, self._executor(config))


def _name(config: RunConfig, shared: SharedRounds) -> str:
    """What tells a beginning from all others of any run."""
    return json.dumps([common_fields(config), shared.key, shared.round])
