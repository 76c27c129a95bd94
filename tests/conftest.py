"""Shared fixtures: a tiny federation on the digits, and ways to run a method on it."""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import pfl_benchmark.engine.clients as pieces
from pfl_benchmark.algorithms import ALGORITHMS, find
from pfl_benchmark.config import own_data
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.datasets.registry import DATASETS, MODULES
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.budget import Plan
from pfl_benchmark.engine.executors import EXECUTORS, LoopExecutor
from pfl_benchmark.engine.local import LocalCall
from pfl_benchmark.engine.params import clone
from pfl_benchmark.engine.rounds import run
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import Prepared, prepare
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.models import ARCHITECTURES, NETWORKS, Params
from pfl_benchmark.records.writer import RunRecord
from pfl_benchmark.resolve.run import resolve, with_hyper

# Tiny tensors gain nothing from a second thread, and on a busy machine lose much by waiting for it.
torch.set_num_threads(1)

CHUNK = pieces.CHUNK  # before any test patches it

TINY = {
    "dataset": "digits",
    "clients": 6,
    "participation": 0.4,  # three clients in an ordinary round
    "samples_per_client": 20,
    "test_samples_per_client": 10,
    "rounds": 4,
    "local_epochs": 1,
    "batch_size": 8,  # an epoch has two whole batches and a short one
    "lr": 0.05,
    "eval_every": 2,
}


def _named(file):
    return tuple(Path(__file__).with_name(file).read_text(encoding="utf-8").split())


HEAVY = _named("heavy.txt")  # 6 s and more in all; they run where files, -k or --all are given
SLOW = (*HEAVY, *_named("slow.txt"))  # and those of which a case takes 0.3 s and more


# In a run of the whole suite, tests over the registry of methods take these, which differ most in what they
# ask of the engine, and one in `SHARE` of the others, each test others than its neighbours. Where files, -k
# or --all are given they take all methods.
ALWAYS = ("fedavg", "fedper", "ditto", "scaffold", "ppfe")
SHARE = 6
MOST = 3  # cases of one test under --fast


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="leave out slow tests, and most cases of others")
    parser.addoption("--all", action="store_true", help="heavy tests, too, and all methods, not some")


def pytest_configure(config):
    """Processes of xdist are given the same arguments."""
    named = config.args_source == pytest.Config.ArgsSource.ARGS or config.option.keyword
    config.option.all = bool(config.option.all or named)


def pytest_collection_modifyitems(config, items):
    """Leave out what options say; files with slow tests come first, so that none of these is last alone."""
    slow = [item for item in items if item.nodeid.startswith(SLOW)]
    left_out = {*slow, *_beyond(items, MOST)} if config.getoption("--fast") else set()
    if not config.getoption("--all"):
        left_out |= {*_not_drawn(items), *(item for item in slow if item.nodeid.startswith(HEAVY))}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]
    files = {item.path for item in slow}
    items.sort(key=lambda item: item.path not in files)


def _beyond(items, most):
    """Of tests with more cases, those that are not drawn."""
    cases = defaultdict(list)
    for item in items:
        cases[item.path, item.originalname].append(item)
    for group in cases.values():
        yield from sorted(group, key=lambda item: zlib.crc32(item.nodeid.encode()))[most:]


def _not_drawn(items):
    """Of tests that are there for most methods, those that run with --all alone."""
    products = defaultdict(
        lambda: defaultdict(list)
    )  # items by test with its other parameters, and by method
    for item in items:
        values = item.callspec.params if hasattr(item, "callspec") else {}
        named = [key for key, value in values.items() if isinstance(value, str) and value in ALGORITHMS]
        if len(named) == 1:
            others = {key: str(value) for key, value in values.items() if key not in named}
            products[item.path.name, item.originalname, str(others)][values[named[0]]].append(item)
    left_out = set()
    for product, methods in products.items():
        if len(methods) > len(ALGORITHMS) / 2:
            rest = [name for name in sorted(methods) if name not in ALWAYS]
            first = zlib.crc32(repr(product).encode())
            left_out |= {item for at, name in enumerate(rest, first) if at % SHARE for item in methods[name]}
    return left_out


def pytest_terminal_summary(terminalreporter, config):
    names = []
    if config.getoption("--fast") or not config.getoption("--all"):
        names += ["tests/heavy.txt"]
    if config.getoption("--fast"):
        names += ["tests/slow.txt", f"cases of a test beyond {MOST}"]
    if not config.getoption("--all"):
        names += [f"methods but {len(ALWAYS)} and a sixth of the others"]
    if names:
        terminalreporter.section(f"left out: {', '.join(names)}; --all alone: nothing")


@pytest.fixture(autouse=True)
def _seeded():
    """What a test draws without a generator of its own does not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture
def own_catalogue(monkeypatch):
    """The catalogue holds the studies of tests, and none of a paper."""
    from own_studies import replace_catalogue

    replace_catalogue(monkeypatch)


@pytest.fixture
def registries_restored():
    """Datasets, settings and networks that a test registers are gone after it."""
    kept = [
        (one, dict(one)) for one in (DATASETS, MODULES, SETTINGS, NETWORKS, ARCHITECTURES, own_data._LOADED)
    ]
    yield
    for registry, before in kept:
        registry.clear()
        registry.update(before)


@pytest.fixture
def checkpoint_always(monkeypatch):
    """Commands write a checkpoint after every round."""

    @dataclass(frozen=True)
    class Always(Execution):
        checkpoint_seconds: float = 0.0

    monkeypatch.setattr("pfl_benchmark.experiment.execution.Execution", Always)


@dataclass
class Played:
    """A run together with the objects that made it.

    Attributes:
        history: what the server held after each round.
    """

    prepared: Prepared
    algorithm: Algorithm
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[Params] = field(default_factory=list)

    def models(self) -> Params:
        """The models that the clients are evaluated with, stacked (for methods with one member)."""
        (member,) = self.algorithm.members(range(self.prepared.config.clients))
        return clone(member.params)


@dataclass
class Finished:
    """A record on disk, without what depends on the clock."""

    folder: Path
    summary: dict[str, Any]

    @property
    def lines(self) -> list[dict[str, Any]]:
        text = (self.folder / "rounds.jsonl").read_text()
        timed = ("seconds", "seconds_closing")
        return [{k: v for k, v in json.loads(line).items() if k not in timed} for line in text.splitlines()]

    def content(self) -> dict[str, Any]:
        """All that a rerun of the same configuration must reproduce, bit for bit."""
        timed = ("seconds", "samples_per_second", "environment", "resumed", "shared_rounds", "record")
        stored = json.loads((self.folder / "summary.json").read_text())
        diagnostics = self.folder / "diagnostics.json"
        return {
            "lines": self.lines,
            "summary": {name: value for name, value in stored.items() if name not in timed},
            "clients": (self.folder / "clients.csv").read_text(),
            "diagnostics": diagnostics.read_text() if diagnostics.exists() else "",
        }


@pytest.fixture(params=sorted(ALGORITHMS))
def algo(request) -> str:
    """Every registered method in turn."""
    return request.param


def unable(executor: str, config: RunConfig) -> str:
    """Why an executor refuses a configuration; empty where it does not."""
    run = resolve(config)
    return EXECUTORS[executor].unable(run.network, run.method.not_stackable)


@pytest.fixture(scope="session")
def tiny() -> Callable[..., RunConfig]:
    """``tiny("ditto", {"lam": 0}, rounds=3)``: the tiny configuration of a method."""

    def make(algo: str, hyper: dict[str, Any] | None = None, **changes: Any) -> RunConfig:
        needed = {"adapters": "lora:r=2"} if find(algo).needs_adapters else {}
        return with_hyper(RunConfig(**{"algo": algo, **TINY, **needed, **changes}), hyper or {})

    return make


@pytest.fixture
def able(algo, tiny) -> Callable[[str], None]:
    """``able("stacked")``: skips the test where the executor refuses the method, and says why."""

    def check(executor: str) -> None:
        if problem := unable(executor, tiny(algo)):
            pytest.skip(problem)

    return check


@pytest.fixture(scope="session")
def launch() -> Callable[..., Finished]:
    """Run a configuration as the command line does, checkpointing after every round."""

    def go(config: RunConfig, root: Path, observer: Any = None, executor: str = "loop") -> Finished:
        execution = Execution(device="cpu", executor=executor, results_dir=root, checkpoint_seconds=0)
        summary = run_cell(resolve(config), execution, observer or Quiet())
        return Finished(Path(summary["record"]), summary)

    return go


@pytest.fixture(scope="session")
def unbroken(tiny, launch, tmp_path_factory) -> Callable[..., Finished]:
    """``unbroken("ditto", "threads")``: a method's finished tiny run with its defaults, made once a session.

    A test may ask for it under a patch of its own, which later tests must not get to see.
    """
    made: dict[tuple[str, str], Finished] = {}

    def get(algo: str, executor: str = "loop") -> Finished:
        if (algo, executor) not in made:
            root = tmp_path_factory.mktemp("unbroken")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(pieces, "CHUNK", CHUNK)
                made[algo, executor] = launch(tiny(algo), root, executor=executor)
        return made[algo, executor]

    return get


@pytest.fixture
def trained_rounds(monkeypatch) -> list[int]:
    """The rounds in which anything was trained."""
    rounds: list[int] = []
    train = LoopExecutor.train

    def watched(self: LoopExecutor, call: LocalCall) -> Any:
        rounds.append(call.round)
        return train(self, call)

    monkeypatch.setattr(LoopExecutor, "train", watched)
    return rounds


@pytest.fixture(scope="session")
def ready() -> Callable[[RunConfig], Played]:
    """A method on its data before the first round."""

    def make(config: RunConfig, executor: str = "loop") -> Played:
        prepared = prepare(resolve(config), Execution(device="cpu", executor=executor))
        return Played(prepared, prepared.make(config.rounds))

    return make


@pytest.fixture
def play(ready, tmp_path_factory) -> Callable[..., Played]:
    """Run a configuration by the engine alone; ``watch(algorithm, line)`` is called after every round."""

    def go(
        config: RunConfig, executor: str = "loop", watch: Callable[[Algorithm, Any], None] | None = None
    ) -> Played:
        played = ready(config, executor)

        class Watcher(Quiet):
            def round(self, line: Any) -> None:
                played.history.append(clone(played.algorithm.server))
                if watch is not None:
                    watch(played.algorithm, line)

        record = RunRecord(tmp_path_factory.mktemp("played"), config, config.algo)
        record.folder.mkdir()
        record.begin({"split": {"checksum": ""}})
        plan = Plan(config.rounds, "rounds")
        played.summary = run(played.algorithm, plan, record, None, Watcher(), {}, 1e9)
        played.prepared.task.executor.close()
        return played

    return go


@pytest.fixture(scope="session")
def differing() -> Callable[[Params, Params], list[str]]:
    """Names of the tensors in which two dictionaries differ by as much as a bit (or that one lacks)."""

    def compare(a: Params, b: Params) -> list[str]:
        return [n for n in {**a, **b} if n not in a or n not in b or not torch.equal(a[n], b[n])]

    return compare
