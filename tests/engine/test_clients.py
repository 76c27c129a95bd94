"""What clients keep: rows that appear when a client is met and stay what they were."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from pfl_benchmark.engine.client_memory import ClientMemory
from pfl_benchmark.engine.clients import ClientStore
from pfl_benchmark.engine.params import nbytes

CLIENTS = 9


def values_of(clients, version=0.0):
    """Recognisable rows: everything of client k is k + version."""
    numbers = torch.tensor([float(client) for client in clients]) + version
    return {"a": numbers[:, None].expand(-1, 3).clone(), "b": numbers.clone()}


def memory_of(state):
    """Bytes behind all tensors of nested dictionaries."""
    if isinstance(state, torch.Tensor):
        return state.untyped_storage().nbytes()
    return sum(memory_of(value) for value in state.values()) if isinstance(state, Mapping) else 0


@pytest.fixture
def initial():
    return {"a": torch.full((3,), -1.0), "b": torch.tensor(-2.0)}


@pytest.fixture(params=[math.inf, 32, 0], ids=["memory", "both", "file"])
def memory(request, tmp_path):
    return ClientMemory(tmp_path, request.param)


@pytest.fixture
def store(initial, memory):
    with memory.used():
        return ClientStore(initial, CLIENTS)


def test_clients_never_met_read_the_common_start_and_cost_nothing(store, initial):
    everyone = store.gather(range(CLIENTS))
    assert everyone["a"].shape == (CLIENTS, 3)
    assert (everyone["a"] == -1).all()
    assert (everyone["b"] == -2).all()
    assert store.met == []
    assert store.state()["kept"] == {}


def test_what_is_scattered_is_gathered(store, differing):
    store.scatter([5, 2], values_of([5, 2]))
    assert store.met == [2, 5]
    assert differing(store.gather([2, 5]), values_of([2, 5])) == []
    mixed = store.gather([5, 0, 2, 8])
    assert mixed["b"].tolist() == [5, -2, 2, -2]
    assert mixed["a"].tolist() == [[5] * 3, [-1] * 3, [2] * 3, [-1] * 3]


def test_random_scatters_against_a_dictionary(store, initial, differing):
    """Whatever is scattered over whatever else, each client reads its latest."""
    rng, plain = np.random.default_rng(0), {}
    for version in range(30):
        clients = rng.choice(CLIENTS, rng.integers(1, CLIENTS + 1), replace=False).tolist()
        rows = values_of(clients, version / 100)
        store.scatter(clients, rows)
        plain |= {k: {name: rows[name][i] for name in rows} for i, k in enumerate(clients)}
        asked = rng.permutation(CLIENTS).tolist()
        expected = [plain.get(k, initial) for k in asked]
        stacked = {name: torch.stack([row[name] for row in expected]) for name in initial}
        assert differing(store.gather(asked), stacked) == []
        assert store.met == sorted(plain)


def test_gathered_rows_are_copies(store):
    store.scatter([1], values_of([1]))
    for client in (1, 2):
        before = store.gather([client])["a"].clone()
        store.gather([client])["a"].fill_(99)
        assert torch.equal(store.gather([client])["a"], before)


def test_the_start_is_a_copy(initial):
    store = ClientStore(initial, CLIENTS)
    initial["a"].fill_(99)
    assert (store.gather([0])["a"] == -1).all()


def test_other_entries_are_ignored(store, differing):
    store.scatter([3], {**values_of([3]), "other": torch.zeros(1, 7)})
    assert differing(store.gather([3]), values_of([3])) == []


def test_a_store_of_nothing(differing):
    store = ClientStore({}, CLIENTS)
    store.scatter([1, 2], values_of([1, 2]))
    assert store.gather([1, 2]) == {}
    assert store.met == []


def test_state_and_load(store, initial, differing):
    store.scatter([4, 1, 6], values_of([4, 1, 6]))
    other = ClientStore({"a": torch.zeros(3), "b": torch.zeros(())}, CLIENTS)
    other.load(store.state())
    everyone = range(CLIENTS)
    assert differing(other.gather(everyone), store.gather(everyone)) == []
    other.scatter([0, 4], values_of([0, 4], 0.5))  # grows, and leaves the first store alone
    assert other.gather([0, 4, 1])["b"].tolist() == [0.5, 4.5, 1]
    assert store.gather([0, 4, 1])["b"].tolist() == [-2, 4, 1]


def test_the_state_holds_what_clients_keep_and_no_more(initial):
    """Behind a view may lie much more than it shows, and a run would hold all of it."""
    store = ClientStore(initial, CLIENTS)
    store.scatter([0, 1, 2], values_of([0, 1, 2]))
    store.scatter([3], values_of([3]))
    assert memory_of(store.state()) == (1 + 4) * nbytes(initial)
