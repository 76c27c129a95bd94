"""A budget of memory for what clients keep: beyond it rows are in a file, and checkpoints name them."""

import math
import shutil

import pytest
import torch

from pfl_benchmark.engine.checkpoints import Checkpoints
from pfl_benchmark.engine.client_memory import ClientMemory
from pfl_benchmark.engine.clients import ClientStore
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment import memory
from pfl_benchmark.experiment.memory import usual_budget
from pfl_benchmark.records.rows import PATTERN, RowFile
from pfl_benchmark.records.writer import RunRecord

CPU = torch.device("cpu")
CLIENTS = range(40)


@pytest.fixture
def record(tiny, tmp_path):
    made = RunRecord(tmp_path, tiny("fedavg"), "fedavg")
    made.folder.mkdir()
    return made


def store_of(record, budget=0, width=8):
    with ClientMemory(record.folder, budget).used():
        return ClientStore({"a": torch.zeros(width)}, len(CLIENTS))


def rows(clients, version, width=8):
    return {"a": torch.tensor([[client + version] * width for client in clients])}


def resumed(record):
    """A new store with what the checkpoint has of the other, as another process makes it."""
    store = store_of(record)
    found = record.load_checkpoint(CPU)
    store.load(Checkpoints(record).load(found["algorithm"], CPU)["clients"])
    return store


def test_every_type_comes_back_bit_for_bit(record):
    values = {
        "half": torch.tensor([1.5, torch.nan, -0.0], dtype=torch.bfloat16),
        "mask": torch.tensor([[True, False, True]]),
        "count": torch.tensor(2**40 + 1),
        "fine": torch.tensor([0.1, torch.inf], dtype=torch.float64),
        "none": torch.zeros(0, 3),
        "last": torch.tensor([1e-45, 3.0]),
    }
    with ClientMemory(record.folder, 0).used():
        store = ClientStore({name: torch.zeros_like(value) for name, value in values.items()}, 2)
    store.scatter([1], {name: value.unsqueeze(0) for name, value in values.items()})
    assert store.held_bytes == 0
    for name, found in store.gather([1, 0]).items():
        assert found.dtype == values[name].dtype
        assert found.shape == (2, *values[name].shape)
        assert found[0].numel() == 0 or torch.equal(
            found[0].reshape(-1).view(torch.uint8), values[name].reshape(-1).view(torch.uint8)
        )
        assert (found[1] == 0).all()


def test_stores_share_the_budget_and_the_oldest_rows_go_first(record):
    with ClientMemory(record.folder, 6 * 32).used():
        old, young = (ClientStore({"a": torch.zeros(8)}, 40) for _ in range(2))
    old.scatter(range(4), rows(range(4), 0.0))
    young.scatter(range(5), rows(range(5), 0.5))
    assert (old.held_bytes, young.held_bytes) == (32, 5 * 32)
    young.scatter(range(5, 9), rows(range(5, 9), 0.5))
    assert (old.held_bytes, young.held_bytes) == (0, 6 * 32)
    assert old.gather(range(4))["a"][:, 0].tolist() == [0, 1, 2, 3]
    assert young.gather(range(9))["a"][:, 0].tolist() == [k + 0.5 for k in range(9)]
    del old
    young.scatter([20], rows([20], 0.0))  # what is not needed any more takes no part of it
    assert young.held_bytes == 6 * 32


@pytest.mark.parametrize("given", [torch.zeros(1, 9), torch.zeros(1, 8, dtype=torch.float64)])
def test_rows_of_another_kind_are_refused(record, given):
    with pytest.raises(UserError, match="expected the same in every"):
        store_of(record).scatter([0], {"a": given})


# Checkpoints


@pytest.mark.parametrize("budget", [0, 5 * 32, 10**6])
def test_a_kill_after_a_checkpoint_leaves_what_it_saved(record, budget):
    """Whatever is written after it, and however often: rows that it names are not written over."""
    store, checkpoints = store_of(record, budget), Checkpoints(record)
    for version in (0.1, 0.2, 0.3):
        store.scatter(CLIENTS[:30], rows(CLIENTS[:30], version))
        checkpoints.save({"clients": store.state()})
        met = store.met
        for more in (0.5, 0.6, 0.7):
            store.scatter(CLIENTS[10:], rows(CLIENTS[10:], more + version))
        assert torch.equal(resumed(record).gather(CLIENTS[:30])["a"], rows(CLIENTS[:30], version)["a"])
        assert resumed(record).met == met


@pytest.mark.parametrize("where", ["write", "sync", "settle"])
def test_a_kill_within_a_checkpoint_leaves_the_one_before_or_this_one(record, where, monkeypatch):
    store, checkpoints = store_of(record, 10**6), Checkpoints(record)
    store.scatter(CLIENTS, rows(CLIENTS, 0.0))
    checkpoints.save({"clients": store.state()})
    store.scatter(CLIENTS[:20], rows(CLIENTS[:20], 0.5))
    real, left = getattr(RowFile, where), [7 if where == "write" else 0]

    def killed(self, *given):
        if not left[0]:
            if where == "write":
                real(self, given[0][:5])  # half of a row
            raise KeyboardInterrupt
        left[0] -= 1
        return real(self, *given)

    monkeypatch.setattr(RowFile, where, killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save({"clients": store.state()})
    monkeypatch.undo()
    expected = rows(CLIENTS, 0.0)["a"]
    if where == "settle":
        expected[:20] += 0.5
    assert torch.equal(resumed(record).gather(CLIENTS)["a"], expected)


@pytest.mark.parametrize("budget", [0, 10**6])
def test_a_checkpoint_writes_what_changed(record, budget):
    """Its bytes do not grow with the rounds, nor do the files; a client that is met only adds its place."""
    store, checkpoints = store_of(record, budget, 5_000), Checkpoints(record)
    large, written = torch.zeros(50_000), []
    for number in range(40):
        clients = [number, (number + 7) % 40, (number + 20) % 40]
        store.scatter(clients, rows(clients, float(number), 5_000))
        saved = checkpoints.save({"clients": store.state(), "large": [large]}, lines=[])
        written.append(saved.nbytes)
    head = written[10] - 3 * store.row_bytes  # which names the files
    assert store.row_bytes < head < store.row_bytes + 5_000  # the start, and names
    assert max(written[2:]) - min(written[2:]) < 12 * 40 + 200
    assert written[0] - written[10] > large.nbytes / 2  # once within it, once beside it
    on_disk = sum(path.stat().st_size for path in record.folder.glob(PATTERN))
    assert on_disk <= (len(CLIENTS) + 3) * store.row_bytes + large.nbytes + 2_000
    assert torch.equal(resumed(record).gather(CLIENTS)["a"], store.gather(CLIENTS)["a"])
    large += 1  # is written again
    checkpoints.save({"clients": store.state(), "large": [large]})
    state = Checkpoints(record).load(record.load_checkpoint(CPU)["algorithm"], CPU)
    assert torch.equal(state["large"][0], large)
    assert [path.suffix for path in record.folder.glob(PATTERN)] == [".rows"]


def test_stores_that_read_one_file_do_not_harm_each_other(record):
    store, checkpoints = store_of(record), Checkpoints(record)
    store.scatter(CLIENTS, rows(CLIENTS, 0.0))
    checkpoints.save({"clients": store.state(), "once more": store.state()})
    first, second = store_of(record), store_of(record)
    state = Checkpoints(record).load(record.load_checkpoint(CPU)["algorithm"], CPU)
    first.load(state["clients"])
    second.load(state["once more"])
    for version in (0.25, 0.5):
        first.scatter(CLIENTS[:20], rows(CLIENTS[:20], version))
        Checkpoints(record).save({"clients": first.state(), "once more": second.state()})
    assert torch.equal(second.gather(CLIENTS)["a"], rows(CLIENTS, 0.0)["a"])
    assert torch.equal(first.gather(CLIENTS[:20])["a"], rows(CLIENTS[:20], 0.5)["a"])


# Room


@pytest.mark.parametrize(("budget", "fits"), [(0, False), (500, False), (10**4, True)])
def test_a_disk_without_room_is_told_before(record, budget, fits, monkeypatch):
    store = store_of(record, budget)
    full = shutil._ntuple_diskusage(10**6, 10**6 - 700, 700)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    memory = store._memory
    if fits:
        memory.check_room(40)
        return
    needed = 40 * 32 - budget
    words = (
        rf"what 40 clients keep is 1.28 kB; .* needs {needed if needed < 999.5 else '1.28 k'} ?B of disk in"
    )
    with pytest.raises(UserError, match=words + r" .*, which has 700 B; free space there"):
        memory.check_room(40)
    memory.check_room(20)


def test_a_disk_that_is_full_is_one_line(record, monkeypatch):
    def full(self, *given):
        raise OSError(28, "No space left on device")

    store = store_of(record)
    store.scatter([0], rows([0], 0.0))

    class Full:
        seek = write = full

    store.file._file = Full()
    with pytest.raises(UserError, match=r"cannot write .*\.rows: No space left on device; free space there"):
        store.scatter([1], rows([1], 0.0))


def test_usually_half_of_what_is_free_is_shared_by_the_runs(monkeypatch):
    monkeypatch.setattr(memory, "_free_on_host", lambda: 900)
    assert usual_budget(CPU) == 450
    assert usual_budget(CPU, 3) == 150
    monkeypatch.setattr(memory, "_free_on_host", lambda: None)
    assert usual_budget(CPU) == math.inf


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [("max", "0", 4096), ("3000", "1000", 2000), ("9000", "1000", 4096), ("5", "9", 0)],
)
def test_a_container_has_less_than_its_host(limit, used, expected, monkeypatch):
    files = {
        "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 4 kB\n",
        "/sys/fs/cgroup/memory.max": limit,
        "/sys/fs/cgroup/memory.current": used,
    }
    monkeypatch.setattr(memory.Path, "read_text", lambda self: files[str(self)])
    assert memory._free_on_host() == expected
