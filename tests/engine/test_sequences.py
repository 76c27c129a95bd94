"""Series and characters from end to end, on small files in the form of the real ones."""

import json
import os

import numpy as np
import pytest
import torch
from people_files import write_hapt, write_play

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import find_setting
from pfl_benchmark.datasets.api import PARTITIONERS, load
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.resolve.run import resolve, with_hyper

SMALL = {
    "partition": "chronological", "test_share": 0.25, "clients": 6, "participation": 0.5,
    "test_samples_per_client": 6, "rounds": 2, "local_epochs": 1, "batch_size": 8, "lr": 0.02,
    "eval_every": 1,
}  # fmt: skip
SAMPLES = {"hapt": 20, "shakespeare": 10}
CASES = [
    ("fedavg-ft", "hapt", {}),
    ("ppfe", "hapt", {"rounds": 4}),
    ("fedper", "shakespeare", {"rounds": 1}),
    ("gpfl", "shakespeare", {"rounds": 1}),
]
CACHE = os.environ.get("XDG_CACHE_HOME")
OTHERS = sorted(set(EXECUTORS) - {"loop"})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("people")
    write_hapt(root)
    write_play(root)
    write_play(root, "macbeth")
    return root


@pytest.fixture(autouse=True)
def _no_cache_of_the_user(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def played(files, tmp_path):
    """The summary of a run and its lines."""

    def go(algo, dataset, executor="loop", **changes):
        values = {**SMALL, "samples_per_client": SAMPLES[dataset], **changes}
        config = with_hyper(RunConfig(algo=algo, dataset=dataset, **values), {})
        root = tmp_path / executor
        summary = run_cell(
            resolve(config),
            Execution(device="cpu", executor=executor, data_dir=files, results_dir=root),
            Quiet(),
        )
        folder = next(path for path in root.iterdir() if path.name.startswith(algo))
        return summary, [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]

    return go


def test_the_small_setting_of_roles_on_real_plays(tmp_path, launch, monkeypatch):
    if CACHE is None:
        monkeypatch.delenv("XDG_CACHE_HOME")
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", CACHE)
    config = with_hyper(RunConfig(algo="fedper", **find_setting("shakespeare-small").values), {})
    try:
        load("shakespeare")
    except UserError as error:
        if "was not found" not in str(error):
            raise
        pytest.skip("no plays here: set PFL_DATA_DIR to a folder that holds them")
    run = launch(config, tmp_path)
    assert run.summary["rounds"] == config.rounds
    assert len((run.folder / "clients.csv").read_text().splitlines()) == 1 + config.clients


@pytest.mark.parametrize(("algo", "dataset", "changes"), CASES)
def test_executors_agree(algo, dataset, changes, played):
    expected, lines = played(algo, dataset, **changes)
    for executor in OTHERS:
        found, others = played(algo, dataset, executor, **changes)
        assert found["bytes_up"] == expected["bytes_up"]
        assert [line["loss"] for line in others] == pytest.approx([line["loss"] for line in lines], rel=1e-3)
        assert found["accuracy"] == pytest.approx(expected["accuracy"], abs=0.03)


def test_series_are_normalised_by_the_training_samples(files):
    dataset = load("hapt", files)
    partitioner = PARTITIONERS["chronological"](
        clients=6, samples_per_client=44, test_samples_per_client=12, test_share=0.25
    )
    split = partitioner.split(dataset, np.random.default_rng(0))
    data = FederatedData(dataset, split, torch.device("cpu"))
    everything = torch.cat([data.inputs(client) for client in range(6)])
    torch.testing.assert_close(everything.mean((0, 2)), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(everything.std((0, 2)), torch.ones(6), atol=1e-3, rtol=0)
    assert np.array_equal(data.stored()[0].numpy(), dataset.train.x)  # which encoding leaves as they are


@pytest.mark.parametrize(
    ("dataset", "changes", "message"),
    [
        ("hapt", {"augment": True}, "--augment is for images, and 'hapt' holds windows; drop it"),
        ("shakespeare", {"embedding": 50}, "--embedding is for words, and 'shakespeare' holds characters"),
        ("hapt", {"cell": "gru"}, "--cell is for text, and 'hapt' holds windows"),
        (
            "hapt",
            {"partition": "iid"},
            "--partition iid is not for 'hapt', whose samples stay with their users",
        ),
        ("hapt", {"test_share": 0.9}, "has no training sample left"),
    ],
)
def test_what_does_not_fit(dataset, changes, message, played):
    with pytest.raises(UserError, match=message):
        played("fedavg", dataset, **changes)
