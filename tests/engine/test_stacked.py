"""The stacked executor: recorded steps, their reuse, running out of memory, what it refuses."""

import dataclasses

import pytest
import torch
from tape import TapeRecorder

from pfl_benchmark.algorithms import ALGORITHMS, needed
from pfl_benchmark.check.equality import VARIANTS, equality
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.executors import EXECUTORS, choose_executor, replay, stacked
from pfl_benchmark.engine.executors.memory import clients_that_fit, step_bytes
from pfl_benchmark.engine.local import LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import expand
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.models import NETWORKS, Conv, Layer, Linear, LowRank
from pfl_benchmark.resolve.run import resolve

LAYERS = ("conv1", "conv2", "fc1", "fc2", "fc3")
CLIENTS = [8, 0, 3, 5, 2]
UNEVEN = {"partition": "dirichlet", "dirichlet": 0.1, "clients": 10, "samples_per_client": 22}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    """Stacks are cut by the cores there are: here two, whatever the machine has."""
    monkeypatch.setattr("pfl_benchmark.engine.executors.threads.available_cores", lambda: 2)


WAYS = ("by_patches", "by_groups")  # convolutions as on a CUDA device, and as on a CPU


def alternating(cases, **options):
    """Each case with one of the ways in turn: how convolutions are computed is nothing to the rest."""
    return pytest.mark.parametrize(
        ("taped", "case"),
        [(WAYS[number % 2], case) for number, case in enumerate(cases)],
        indirect=["taped"],
        **options,
    )


@pytest.fixture(params=WAYS)
def taped(request, monkeypatch):
    """Steps are recorded as operations, as on a CUDA device, and only those are replayed."""
    monkeypatch.setattr(stacked, "Recorder", TapeRecorder)
    way = getattr(Conv, request.param)
    monkeypatch.setattr(Conv, "apply_stacked", lambda self, params, x, dropout=None: way(self, params, x))


@pytest.fixture
def make(tiny, ready):
    """``make("stacked", dropout=0.1)``: a task whose executor is closed in the end."""
    tasks = []

    def task(executor="stacked", **changes):
        tasks.append(ready(tiny("fedavg", **{**UNEVEN, "momentum": 0.5, **changes}), executor).prepared.task)
        return tasks[-1]

    yield task
    for task in tasks:
        task.executor.close()


def call_of(task, clients=CLIENTS, phases=None, round=3):
    models = {"model": StackedModel(task.network, expand(task.initial, len(clients)))}
    return LocalCall(round, list(clients), models, phases or [Phase.of(LAYERS, 0.05, 2)])


def assert_same(expected, found):
    assert (expected.clients, expected.samples, expected.steps) == (found.clients, found.samples, found.steps)
    torch.testing.assert_close(found.models, expected.models, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-3, atol=1e-5)


# What a GPU replays


@alternating(VARIANTS, ids=lambda part: part if isinstance(part, str) else "-".join(filter(None, part)))
def test_replayed_steps_are_the_loop_for_every_method_and_stage(case, taped):
    rounds = 4 if case[0] == "ppfe" else 2
    rows = list(equality(Execution(device="cpu"), ["digits"], variants=[case], rounds=rounds, local_epochs=1))
    run = resolve(RunConfig(algo=case[0], dataset="digits", **needed(case[0])))
    if run.network.buffers or run.method.not_stackable:
        assert rows == [], "running statistics have no stacked form"
        return
    assert [row["stage"] for row in rows] == ([1, 2, 3, 4] if case[0] == "ppfe" else [1])
    for row in rows:
        assert row["calls"] > 0
        assert row["passes"] > 0
        assert row["difference"] < 1e-5
        assert row["repeatable"]


@alternating([{"dropout": 0.4}, {"augment": True}, {"weight_decay": 0.1}], ids=str)
def test_replayed_steps_are_the_loop_under_every_protocol(case, taped):
    rows = equality(
        Execution(device="cpu"), ["digits"], variants=[("pfedfda", None)], rounds=1, local_epochs=2, **case
    )
    assert max(row["difference"] for row in rows) < 1e-5


def test_a_decision_of_the_host_is_noticed(taped, make, monkeypatch):
    """What a capture would forbid or lose, the stand-in must forbid or lose too."""
    task = make()
    loss = stacked.Program._row
    monkeypatch.setattr(stacked.Program, "_row", lambda self, table: table[int(self._counter)])
    with pytest.raises(AssertionError, match="the host looks"):
        task.executor.train(call_of(task))
    monkeypatch.setattr(stacked.Program, "_row", loss)
    task.executor.train(call_of(task))


def test_later_rounds_reuse_what_was_recorded(taped, make):
    task = make()
    recorders = task.executor._recorders
    even = [Phase.of(LAYERS, 0.05, 1), Phase.of(LAYERS[4:], 0.05, 1)]
    counts = []
    for round in range(3):
        task.executor.train(call_of(task, [8, 0, 3, 5], even, round))
        counts.append([recorder.recorded for recorder in recorders])
    assert counts[0] == counts[1] == counts[2]
    assert max(counts[0]) == 2


def test_few_recorded_steps_are_kept(make, monkeypatch):
    monkeypatch.setattr(stacked, "PROGRAMS", 2)
    task, loop = make(), make("loop")
    for layers in (LAYERS, LAYERS[4:], LAYERS[:2], LAYERS):
        phases = [Phase.of(layers, 0.05, 1)]
        assert_same(loop.executor.train(call_of(loop, phases=phases)),
                    task.executor.train(call_of(task, phases=phases)))  # fmt: skip
        assert all(len(programs) <= 2 for programs in task.executor._programs)


# CUDA graphs, as far as a CPU can tell


class Cuda:
    """In the place of torch.cuda: writes down what it is asked."""

    def __init__(self, log):
        self.log = log

    def __getattr__(self, name):
        def asked(*args, **kwargs):
            self.log.append(name)
            return Cuda(self.log)

        return asked

    def __enter__(self):
        self.log.append("enter")

    def __exit__(self, *args):
        self.log.append("exit")


def test_a_capture_follows_warm_ups_on_another_stream(monkeypatch):
    log = []
    monkeypatch.setattr(replay.torch, "cuda", Cuda(log))
    recorder = replay.Recorder(torch.device("cuda"))
    recorder._capture(lambda: log.append("step"), lambda: log.append("reset"))()
    warm = log[log.index("Stream") : log.index("CUDAGraph")]
    assert warm.count("step") == warm.count("reset") == replay.WARM_UPS
    assert warm.index("wait_stream") < warm.index("enter") < warm.index("reset") < warm.index("step")
    assert warm[warm.index("exit") :].count("wait_stream") == 1
    captured = log[log.index("CUDAGraph") :]
    assert captured[:5] == ["CUDAGraph", "graph", "enter", "step", "exit"]
    assert captured[-1] == "replay"
    assert log.count("step") == replay.WARM_UPS + 1


def test_what_cannot_be_captured_is_carried_out_as_it_is(monkeypatch, capsys):
    recorder, done = replay.Recorder(torch.device("cuda")), []

    def fail(step, reset):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(recorder, "_capture", fail)
    monkeypatch.setattr(replay.torch.cuda, "synchronize", lambda device: None)
    for _ in range(2):
        recorder.record(lambda: done.append(1), lambda: None)()
    assert done == [1, 1]
    (line,) = capsys.readouterr().err.splitlines()
    assert "operation not permitted" in line


OUT_OF_MEMORY = (
    torch.cuda.OutOfMemoryError("no memory"),
    RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
)


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=["pytorch", "runtime", "cublas"])
def test_memory_that_runs_out_in_a_capture_is_no_reason_to_go_on(error, monkeypatch):
    recorder = replay.Recorder(torch.device("cuda"))

    def fail(step, reset):
        raise error

    monkeypatch.setattr(recorder, "_capture", fail)
    with pytest.raises(type(error)):
        recorder.record(lambda: None, lambda: None)


def test_a_capture_that_fails_leaves_its_memory_to_no_other(monkeypatch, capsys):
    """PyTorch may take the pool of a broken capture for one that is still being captured into."""
    recorder, pools = replay.Recorder(torch.device("cuda")), []

    def capture(step, reset):
        pools.append(recorder._pool)
        recorder._pool = recorder._pool or object()
        if len(pools) == 2:
            raise RuntimeError("operation not permitted when stream is capturing")
        return step

    monkeypatch.setattr(recorder, "_capture", capture)
    monkeypatch.setattr(replay.torch.cuda, "synchronize", lambda device: None)
    for _ in range(4):
        recorder.record(lambda: None, lambda: None)
    assert [pool is None for pool in pools] == [True, False, True, False]
    assert "cannot be captured" in capsys.readouterr().err


def test_recorded_steps_and_the_memory_they_share_go_together(make, memory_for, monkeypatch):
    """A graph that outlives others of its pool, or a pool that outlives its graphs, is no safe thing."""
    monkeypatch.setattr(stacked, "PROGRAMS", 1)
    task, forgotten = make(), []
    for recorder, programs in zip(task.executor._recorders, task.executor._programs, strict=True):
        monkeypatch.setattr(recorder, "forget", lambda programs=programs: forgotten.append(len(programs)))
    for layers in (LAYERS, LAYERS[:2], LAYERS[:2]):
        task.executor.train(call_of(task, phases=[Phase.of(layers, 0.05, 1)]))
    assert forgotten == [0, 0], "in each of two slots once"
    memory_for(2)
    task.executor.train(call_of(task, range(10)))
    assert forgotten[2:4] == [0, 0]


# Memory


@pytest.fixture(params=OUT_OF_MEMORY[:2], ids=["pytorch", "runtime"])
def memory_for(request, monkeypatch):
    """``memory_for(2)``: calls for more clients at once do their work, then fail."""
    widths = []

    def limit(most):
        for name in ("_train", "_outputs"):
            work = getattr(stacked.StackedExecutor, name)

            def bounded(self, *args, _work=work, _name=name):
                result = _work(self, *args)
                width = len(args[1].clients) if _name == "_train" else len(args[2])
                widths.append(width)
                if width > most:
                    raise request.param
                return result

            monkeypatch.setattr(stacked.StackedExecutor, name, bounded)
        return widths

    return limit


def test_out_of_memory_goes_on_with_smaller_parts(make, memory_for, capsys, differing):
    loop, task = make("loop"), make()
    call, first = call_of(task, range(10)), loop.executor.train(call_of(loop, range(10)))
    widths = memory_for(2)
    assert_same(first, task.executor.train(call))
    assert set(widths) == {5, 2, 1}, "halves"
    assert differing({n: t[0] for n, t in call.models["model"].params.items()}, task.initial) == []
    assert len(capsys.readouterr().err.splitlines()) == 1
    widths.clear()
    again = task.executor.train(call)
    assert max(widths) <= 2, "the rest of the run goes on with small parts at once"
    assert_same(first, again)
    outputs = task.executor.forward(task.network, first.models["model"], list(range(10)), "test")
    for ours, theirs in zip(
        outputs, loop.executor.forward(loop.network, first.models["model"], list(range(10)), "test"),
        strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert capsys.readouterr().err == ""


def test_forward_passes_run_out_of_memory_too(make, memory_for, capsys):
    loop, task = make("loop"), make()
    params = expand(task.initial, 10)
    memory_for(1)
    found = task.executor.forward(task.network, params, list(range(10)), "train")
    for ours, theirs in zip(
        found, loop.executor.forward(loop.network, params, list(range(10)), "train"), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert capsys.readouterr().err.count("\n") == 1


def test_one_client_that_does_not_fit_is_one_clear_line(make, memory_for):
    task = make()
    memory_for(0)
    with pytest.raises(UserError, match="a single client does not fit") as caught:
        task.executor.train(call_of(task))
    assert "\n" not in str(caught.value)


def test_parts_are_planned_with_the_memory_that_is_free(make, memory_for, monkeypatch):
    loop, task = make("loop"), make()
    monkeypatch.setattr(task.executor, "_fitting", lambda network: 2)
    widths = memory_for(2)
    assert_same(loop.executor.train(call_of(loop, range(10))), task.executor.train(call_of(task, range(10))))
    assert max(widths) == 2
    assert sum(widths) == 10


def test_a_steps_memory_is_bounded_from_above(monkeypatch):
    network = NETWORKS["digits"]
    one, two = (step_bytes(network, torch.empty(batch, 1, 8, 8)) for batch in (10, 20))
    conv1 = 4 * 10 * 8 * 8 * 16  # its output for ten samples, and as much again for the gradient
    assert one > 4 * 4 * network.count() + 2 * conv1
    assert one < two < 2 * one
    assert clients_that_fit(100 * one, one) == 80
    assert clients_that_fit(0, one) == 1
    monkeypatch.setattr(
        Conv, "apply_stacked", lambda self, params, x, dropout=None: self.by_groups(params, x)
    )
    patches = 4 * 10 * 4 * 4 * 16 * 9  # of conv2's input, which a GPU holds besides: it computes `by_patches`
    assert step_bytes(network, torch.empty(10, 1, 8, 8)) + patches < one


# What it cannot do


@dataclasses.dataclass(frozen=True)
class Alone(Linear):
    """A layer for one model at a time."""

    apply_stacked = Layer.apply_stacked


@pytest.fixture
def lonely():
    fc2 = NETWORKS["digits"].layer("fc2")
    return NETWORKS["digits"].with_layers({"fc2": Alone("fc2", fc2.inputs, fc2.outputs)})


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_auto_takes_the_next_best_executor(device, lonely):
    assert choose_executor(device, NETWORKS["digits"]) == "stacked"
    assert choose_executor(device, lonely) == ("threads" if device == "cpu" else "loop")


def test_a_wish_that_cannot_be_met_is_refused(lonely):
    execution, device = Execution(device="cpu", executor="stacked"), torch.device("cpu")
    fedavg = ALGORITHMS["fedavg"]
    assert execution.pick_executor(device, NETWORKS["digits"], fedavg) == "stacked"
    with pytest.raises(UserError, match="fc2"):
        execution.pick_executor(device, lonely, fedavg)
    assert dataclasses.replace(execution, executor="auto").pick_executor(device, lonely, fedavg) == "threads"


def test_a_method_that_needs_clients_one_by_one_is_refused_by_name(tiny, launch, monkeypatch, tmp_path):
    """Before anything is written; `auto` takes another executor."""
    reason = "its steps look at values"
    monkeypatch.setattr(ALGORITHMS["fedavg"], "not_stackable", reason)
    with pytest.raises(
        UserError, match=f"--executor stacked cannot train 'fedavg': {reason}; use --executor auto"
    ):
        launch(tiny("fedavg"), tmp_path, executor="stacked")
    assert list(tmp_path.iterdir()) == []
    assert choose_executor("cpu", NETWORKS["digits"], reason) == "threads"
    assert (
        launch(tiny("fedavg", rounds=1), tmp_path, executor="auto").summary["environment"]["executor"]
        == "threads"
    )


def test_a_network_that_comes_up_in_the_run_is_refused_or_trained_one_by_one(make, lonely):
    task, loop = make(), make("loop")

    def call():
        models = {"model": StackedModel(lonely, expand(task.initial, len(CLIENTS)))}
        return LocalCall(1, CLIENTS, models, [Phase.of(LAYERS, 0.05, 1)])

    with pytest.raises(UserError, match="fc2"):
        task.executor.train(call())
    with pytest.raises(UserError, match="fc2"):
        task.executor.forward(lonely, expand(task.initial, 1), [0], "test")
    task.executor.strict = False
    assert_same(loop.executor.train(call()), task.executor.train(call()))
    ((ours,), (theirs,)) = (
        t.executor.forward(lonely, expand(t.initial, 1), [0], "test") for t in (task, loop)
    )
    torch.testing.assert_close(ours, theirs)


def test_only_a_wish_is_strict(tiny, ready):
    for executor, strict in (("auto", False), ("stacked", True)):
        task = ready(tiny("fedavg"), executor).prepared.task
        assert isinstance(task.executor, EXECUTORS["stacked"])
        assert task.executor.strict is strict
        task.executor.close()


def test_passes_are_shorter_after_memory_has_run_out(make, memory_for, monkeypatch):
    monkeypatch.setattr(stacked, "FORWARD_SAMPLES", 64)
    task, lengths = make(), []
    encode = task.data.encode
    monkeypatch.setattr(task.data, "encode", lambda raw: lengths.append(len(raw)) or encode(raw))

    def longest():
        lengths.clear()
        task.executor.forward(task.network, expand(task.initial, 10), list(range(10)), "train")
        return max(lengths)

    assert 32 < longest() <= 64
    memory_for(2)
    longest()
    assert longest() <= 32


def test_the_larger_network_sets_the_width(make, memory_for, monkeypatch):
    task = make()
    small = NETWORKS["digits"].with_layers({"fc1": LowRank("fc1", 128, 64, rank=9)})
    call = call_of(task, range(10))
    call.models["small"] = StackedModel(small, expand(small.init(task.streams.get("init")), 10))
    call.phases.append(dataclasses.replace(call.phases[0], model="small"))
    monkeypatch.setattr(task.executor, "_fitting", lambda network: 4 if network is small else 2)
    widths = memory_for(10)
    task.executor.train(call)
    assert max(widths) == 2
