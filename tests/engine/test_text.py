"""Text from end to end, on the synthetic tweets: unequal clients, sequences of unequal length.

The bytes are those of the real network with 300-dimensional vectors (specification 4.7), on noise.
"""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import torch
from costs import cost_of
from stopping import Stop

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.datasets.api import Split, load
from pfl_benchmark.datasets.data import PADDING, UNKNOWN
from pfl_benchmark.datasets.noise import noise
from pfl_benchmark.engine.budget import Plan
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.local import LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import expand
from pfl_benchmark.engine.rounds import run
from pfl_benchmark.engine.schedule import Schedule
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.errors import NotDefined, UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.records.writer import RunRecord
from pfl_benchmark.resolve.run import method_label, resolve, with_hyper
from pfl_benchmark.studies.catalogue import PROFILES
from pfl_benchmark.studies.grid import Column, Variant, configure

QUICK = PROFILES["quick"]
TEXT = Column("Synthetic tweets", "synth-tweets")
METHODS = [name for name in sorted(ALGORITHMS) if configure(Variant(name, name), TEXT, QUICK)]
OTHERS = sorted(set(EXECUTORS) - {"loop"})
LAYERS = ("rnn", "fc1", "fc2", "fc3")
TWEETS = {
    "dataset": "synth-tweets",
    "partition": "natural",
    "test_share": 0.25,
    "least_test": 2,
    "embedding": 16,
    "lr": 0.1,
}
CLIENTS = [5, 0, 3, 1, 4]


@pytest.fixture(scope="session")
def tweets(tiny):
    """``tweets("ditto", {"lam": 0}, rounds=3)``: the tiny configuration of a method, on synthetic tweets."""

    def make(algo, hyper=None, **changes):
        return tiny(algo, hyper, **{**TWEETS, **changes})

    return make


# What the network reads


def test_words_become_vectors_and_a_flag():
    dataset = load("synth-tweets")
    split = Split((np.arange(9), np.arange(20, 23)), (np.arange(9, 12), np.arange(23, 26)))
    data = FederatedData(dataset, split, torch.device("cpu"))
    raw, x = data.raw(0), data.inputs(0)
    assert (raw.dtype, raw.shape) == (torch.int32, (9, 12))
    assert (x.dtype, x.shape) == (torch.float32, (9, 12, 17))
    assert torch.equal(x[..., :-1], torch.from_numpy(dataset.vectors)[raw.long()])
    assert torch.equal(x[..., -1], (raw != PADDING).float())
    assert torch.equal(data.encode(raw.expand(2, 9, 12)), x.expand(2, 9, 12, 17))
    unknown = data.encode(torch.tensor([[UNKNOWN, PADDING]], dtype=torch.int32))
    assert unknown.abs().sum() == unknown[0, 0, -1] == 1  # a word all the same
    assert data.raw(1, "test").data_ptr() != raw.data_ptr()
    assert torch.equal(data.raw(1, "test"), torch.from_numpy(dataset.train.x[23:26]))


def test_the_clients_of_these_tests_are_uneven(tweets, ready):
    data = ready(tweets("fedavg")).prepared.task.data
    assert len({-(-data.train_sizes[k] // 8) for k in CLIENTS}) > 1
    assert len(set(data.test_sizes)) > 1
    lengths = {int(n) for k in CLIENTS for n in (data.raw(k) != PADDING).sum(1)}
    assert len(lengths) > 5


# Executors


def call_of(task, phases, weights):
    clients = len(CLIENTS)
    factors = 1 + 0.1 * torch.arange(clients)
    start = {
        name: tensor * factors.view(-1, *[1] * (tensor.dim() - 1))
        for name, tensor in expand(task.initial, clients).items()
    }
    own = [torch.linspace(0.2, 1.8, task.data.train_sizes[k]) for k in CLIENTS] if weights else None
    return LocalCall(2, CLIENTS, {"model": StackedModel(task.network, start)}, phases, own)


@pytest.mark.parametrize("executor", OTHERS)
@pytest.mark.parametrize(
    ("phases", "changes", "weights"),
    [
        ([Phase.of(LAYERS, 0.05, 2)], {}, False),
        ([Phase.of(LAYERS, 0.05, 2)], {"cell": "gru"}, True),
        ([Phase.of(LAYERS, 0.05, 1)], {"momentum": 0.9, "weight_decay": 0.1}, False),
        ([Phase.of(LAYERS, 0.05, 1)], {"dropout": 0.5, "batch_size": 2}, False),
        ([Phase.of(LAYERS[3:], 0.05, 2), Phase.of(LAYERS[:3], 0.05, 1)], {}, True),
        ([dataclasses.replace(Phase.of(LAYERS[:3], 0.05, 1), collect="fc3")], {}, False),
    ],
    ids=["all", "gru", "decay", "dropout", "alternating", "collect"],
)
def test_executors_agree(executor, phases, changes, weights, tweets, ready):
    found = []
    for name in ("loop", executor):
        task = ready(tweets("fedavg", **changes), name).prepared.task
        outcome = task.executor.train(call_of(task, phases, weights))
        scores = task.executor.forward(task.network, outcome.models["model"], CLIENTS, "test")
        found.append((outcome, scores))
        task.executor.close()
    (loop, scores), (other, others) = found
    assert (loop.samples, loop.steps) == (other.samples, other.steps)
    torch.testing.assert_close(other.models, loop.models, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(other.loss, loop.loss, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(others, scores, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(other.features, loop.features, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_biases_do_not_decay(executor, tweets, ready):
    """With no gradient at all, decay is all that moves."""
    task = ready(tweets("fedavg", weight_decay=0.5, momentum=0.0), executor).prepared.task
    call = call_of(task, [Phase.of(LAYERS, 0.1, 1)], weights=False)
    call.sample_weights = [torch.zeros(task.data.train_sizes[k]) for k in CLIENTS]
    before = {name: tensor.clone() for name, tensor in call.models["model"].params.items()}
    after = task.executor.train(call).models["model"]
    task.executor.close()
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name in before if ".bias" not in name}


# Methods


@pytest.mark.parametrize(("method", "executor"), list(zip(METHODS, itertools.cycle(OTHERS), strict=False)))
def test_every_method_runs(method, executor, tweets, launch, tmp_path):
    """By the loop below. Executors train tweets alike (above), and all methods alike (test_rounds)."""
    done = launch(tweets(method), tmp_path, executor=executor)
    assert done.folder.name.startswith(f"{method}-synth-tweets-users6-seed0-")
    assert len(done.lines) == 4
    assert 0 < done.summary["accuracy"] <= 1
    assert all(line["participants"] in (3, 6) for line in done.lines)


@pytest.mark.parametrize("method", ["fedavg-ft", "ditto", "fedper", "ppfe"])
def test_killed_and_resumed_equals_unbroken(method, tweets, launch, tmp_path):
    """Every kind of state on sequences; that each method keeps its own is shown on images (test_resume)."""
    config = tweets(method, cell="gru")
    whole = launch(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        launch(config, tmp_path / "killed", Stop(2))
    resumed = launch(config, tmp_path / "killed")
    assert resumed.summary["resumed"] == 1
    assert resumed.content() == whole.content()


@pytest.mark.parametrize("ablation", ALGORITHMS["ppfe"].ablations)
def test_ablations_of_ppfe(ablation, tweets, play):
    config = with_hyper(tweets("ppfe", rounds=5), {}, ablation)
    assert method_label(config) == f"ppfe-{ablation}"
    resolve(config)
    assert play(config).summary["rounds"] == 5


def test_pfedfda_is_not_defined_for_text(tweets):
    with pytest.raises(NotDefined, match="'pfedfda' is not defined for text, and 'synth-tweets' is a text"):
        resolve(tweets("pfedfda"))


def test_stages_of_text_are_the_papers(tweets):
    rounds = {"rounds": 50, "batch_size": 2}
    config = tweets("ppfe", **rounds)
    assert config.hyper["stage_rounds"] == (10, 20, 10, 10)
    assert method_label(config) == "ppfe"
    fixed = with_hyper(tweets("ppfe", **rounds), {}, "fixed-head-1")
    assert fixed.hyper["stage_rounds"] == (10, 40)
    own = with_hyper(config, {"stage_rounds": "1,1,1,1"})
    assert own.hyper["stage_rounds"] == (1, 1, 1, 1)
    assert method_label(own) == "ppfe-stage_rounds=1,1,1,1"


def test_another_width_or_cell_is_another_run(tweets):
    assert (
        len({tweets("fedavg", **changes).hash for changes in ({}, {"embedding": 50}, {"cell": "gru"})}) == 3
    )


def test_the_split_is_on_record(tweets, launch, tmp_path):
    done = launch(tweets("fedavg", rounds=1), tmp_path)
    split = json.loads((done.folder / "config.json").read_text())["split"]
    assert split["dataset_tweets"] == [1258, 1258]
    assert split["train_samples"][0] < split["train_samples"][1]
    assert {"users", "qualified_users", "user_pool", "least_samples", "users_with_least_samples"} <= set(
        split
    )


def test_a_text_dataset_takes_no_images_options(tweets):
    for changes in ({"augment": True}, {"partition": "iid"}, {"embedding": 0}):
        with pytest.raises(UserError, match="synth-tweets"):
            resolve(tweets("fedavg", **changes))


# Bytes of the paper's network (specification 4.7)

WHOLE, BODY, TWO, RNN, PAIRS = 286_338, 286_080, 33_154, 220_160, 244_992
SENT = {  # floats that a participant sends, round by round of four, and all uploads of 50 rounds in GB
    "local": ([0] * 4, 0),
    "fedavg": ([WHOLE] * 4, 0.941),
    "fedavg-ft": ([WHOLE] * 4, 0.941),
    "ditto": ([WHOLE] * 4, 0.941),
    "fedbabu": ([BODY] * 4, 0.941),
    "fedrep": ([BODY] * 4, 0.941),
    "fedper": ([BODY] * 4, 0.941),
    "lg-fedavg": ([TWO] * 4, 0.109),
    "ppfe": ([WHOLE, BODY, PAIRS, RNN], 1.248),
}


@pytest.fixture(scope="module")
def paper_sized():
    """A method with the paper's network and vectors on noise: three users with four tweets each."""
    users = np.repeat(np.arange(3), 4)
    dataset = dataclasses.replace(noise("sent140", 12, 300), users=users)

    def make(algo, ablation=None, **changes):
        values = {**SETTINGS["sent140"].values, "user_pool": 0, "least_test": 1, "test_share": 0.25}
        values |= {"clients": 3, "batch_size": 8, "local_epochs": 1, "eval_every": 0, "algo": algo, **changes}
        config = with_hyper(RunConfig(**values), {}, ablation)
        return prepare(resolve(config), Execution(device="cpu", executor="loop"), dataset)

    return make


def uploads(prepared, rounds=50, clients=136):
    """Floats sent up in a run of the paper's size, by the method's own declaration."""
    algorithm, schedule = prepared.make(rounds), Schedule(clients, 0.1, Streams(0))
    return sum(
        schedule.size(algorithm.kind(round).closing) * cost_of(algorithm, round).up // 4
        for round in range(1, rounds + 1)
    )


def test_the_table_of_bytes_is_of_registered_methods():
    assert set(SENT) <= set(METHODS)


@pytest.mark.parametrize("method", SENT)
def test_bytes_of_the_papers_network(method, paper_sized, tmp_path):
    class Quiet:
        def start(self, rounds, done):
            pass

        def round(self, line):
            assert line["bytes_up"] == 4 * sent[line["round"] - 1] * line["participants"]

    sent, total = SENT[method]
    prepared = paper_sized(method, rounds=4)
    record = RunRecord(tmp_path, prepared.config, method)
    record.folder.mkdir()
    summary = run(prepared.make(4), Plan(4, "rounds"), record, None, Quiet(), {}, 1e9)
    assert summary["rounds"] == 4
    once = {"ditto": WHOLE, "lg-fedavg": WHOLE - sent[0]}.get(method, WHOLE - BODY)
    first = once if method in ("ditto", "fedper", "fedrep", "fedbabu", "lg-fedavg") else 0
    assert summary["bytes_down"] - summary["bytes_up"] == 4 * 3 * first  # three clients
    assert round(4 * uploads(prepared) / 1e9, 3) == total


@pytest.mark.parametrize(("layers", "floats"), [(1, BODY), (2, 253_184), (3, RNN)])
def test_bytes_of_fixed_heads(layers, floats, paper_sized):
    algorithm = paper_sized("ppfe", f"fixed-head-{layers}", rounds=50).make(50)
    assert [cost_of(algorithm, round).up // 4 for round in (10, 11, 50)] == [WHOLE, floats, floats]


def test_ppfe_sends_more_than_fedavg_here(paper_sized):
    share = uploads(paper_sized("ppfe")) / uploads(paper_sized("fedavg"))
    assert round(100 * share, 1) == 132.5


def test_ranks_of_text_are_the_specifications(paper_sized):
    networks = paper_sized("ppfe").make(50).networks
    fewer = [round(100 * (1 - networks[stage].count() / WHOLE), 2) for stage in (3, 4)]
    assert fewer == [5.72, 17.52]
