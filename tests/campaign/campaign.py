"""All of the damage, kills and absurd input: half an hour at most, not part of the suite (its name says so).

Run it by ``./run_all.sh test tests/campaign/campaign.py``; docs/reliability.md has its figures. Every part
has a fixed seed; a failed assertion lists what went wrong.
"""

import contextlib
import random
import shutil

import numpy as np
import pytest
from damages import (
    COMMANDS,
    CONFIG,
    command_lines,
    damages,
    digits,
    judge,
    judge_damage,
    killed,
)
from data_files import LAYOUTS, info_of
from record_folders import write_record
from stopping import Stop

from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import record_of, run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.records.bundle import unpacked, write_bundle
from pfl_benchmark.records.record import BadRecord, read_record
from pfl_benchmark.resolve.run import resolve

DIGITS, PAIRS, LINES, KILLS, FLIPS, FILES, BUNDLES = 1000, 1000, 700, 200, 200, 200, 800
METHODS = ("fedper", "ditto", "ppfe", "fedavg-ft")


def test_digits(tmp_path):
    """A changed digit in any file of a record is found."""
    folder = write_record(tmp_path, CONFIG)
    believed = []
    for name, content in digits(folder, DIGITS):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        try:
            read_record(folder)
            believed.append(name)
        except BadRecord:
            pass
        (folder / name).write_bytes(before)
    assert believed == []


def test_bundles(tmp_path):
    """A bundle with a flipped bit anywhere, cut off, or changed is refused or holds the same."""
    path, rng = tmp_path / "some.zip", random.Random(0)
    record = read_record(write_record(tmp_path / "runs", CONFIG))
    write_bundle([record], path)
    whole = path.read_bytes()
    damaged = [whole[:n] for n in range(0, len(whole), 7)]
    for place, byte in enumerate(whole):
        damaged.append(whole[:place] + bytes([byte ^ 1 << rng.randrange(8)]) + whole[place + 1 :])
    for _ in range(BUNDLES):
        some = bytearray(whole)
        for _ in range(rng.randrange(2, 8)):
            some[rng.randrange(len(some))] = rng.randrange(256)
        damaged.append(bytes(some))
    for content in damaged:
        path.write_bytes(content)
        with contextlib.suppress(UserError), unpacked(path) as bundle:
            assert [found.digest for found in bundle.records] == [record.digest]


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "older"])
def test_damages(sealed, tmp_path):
    """No damage ends a command in a traceback; of a sealed record all is told."""
    rng, found = random.Random(sealed), damages()
    pairs = [(what, which) for what in sorted(found) for which in COMMANDS]
    wrong = {}
    for what, which in rng.sample(pairs, PAIRS // 2):
        if problem := judge_damage(tmp_path / "runs", found[what], which, sealed):
            wrong[what, which] = problem
    assert wrong == {}


def test_command_lines(tmp_path, monkeypatch):
    """Whatever a flag is given: a result, or one line and exit code 2, within a minute."""
    monkeypatch.chdir(tmp_path)
    lines = random.Random(0).sample(command_lines(tmp_path / "runs"), LINES)
    wrong = {" ".join(line): said for line in lines for problem, said in [judge(line)] if problem}
    assert wrong == {}


def _go(tiny, algo, root, memory=None):
    execution = Execution(
        device="cpu", executor="loop", results_dir=root, checkpoint_seconds=0, client_memory=memory
    )
    run_cell(resolve(tiny(algo)), execution, Quiet())


def _results(folder):
    names = [path for path in folder.iterdir() if path.name in ("clients.csv", "diagnostics.json")]
    return {path.name: path.read_bytes() for path in names}


@pytest.mark.parametrize("memory", [None, 0], ids=["in memory", "in a file"])
@pytest.mark.parametrize("algo", METHODS)
def test_kills(algo, memory, tiny, tmp_path):
    """A run that is killed at any moment, again and again, ends as one that is not, and leaves nothing.

    With what clients keep in memory and in a file; the run that is not killed has it in memory.
    """
    _go(tiny, algo, tmp_path / "whole")
    whole = record_of(resolve(tiny(algo)), tmp_path / "whole").folder
    rng, kills, runs = random.Random(algo), 0, 0
    while kills < KILLS // len(METHODS):
        root = tmp_path / "killed" / str(runs)
        runs += 1
        while killed(lambda root=root: _go(tiny, algo, root, memory), rng.uniform(0.005, 0.4)):
            kills += 1
        _go(tiny, algo, root, memory)  # a finished run is not run again; removes what was left
        folder = record_of(resolve(tiny(algo)), root).folder
        assert _results(folder) == _results(whole)
        assert read_record(folder).sealed
        assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}
        shutil.rmtree(root)


@pytest.mark.parametrize("kind", ["checkpoint", "shared rounds"])
def test_flips(kind, tiny, tmp_path, capsys):
    """A flipped bit in a checkpoint or in shared rounds changes nothing: it is found, or does not matter."""
    algo = "fedper" if kind == "checkpoint" else "fedavg-ft"
    _go(tiny, algo, tmp_path / "whole")
    whole = record_of(resolve(tiny(algo)), tmp_path / "whole").folder
    start = tmp_path / "start"
    if kind == "shared rounds":
        _go(tiny, "fedavg", start)
        shutil.rmtree(record_of(resolve(tiny("fedavg")), start).folder)
    else:
        with pytest.raises(KeyboardInterrupt):
            _stop(tiny(algo), start)
    (file,) = start.rglob("checkpoint.pt" if kind == "checkpoint" else "shared-*.pt")
    content, rng, told = file.read_bytes(), random.Random(kind), 0
    for _ in range(FLIPS // 2):
        root = tmp_path / "flipped"
        shutil.copytree(start, root)
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (root / file.relative_to(start)).write_bytes(bytes(flipped))
        _go(tiny, algo, root)
        assert _results(record_of(resolve(tiny(algo)), root).folder) == _results(whole)
        told += "set aside" in capsys.readouterr().err
        shutil.rmtree(root)
    assert told > FLIPS // 8


def _stop(config, root):
    execution = Execution(device="cpu", executor="loop", results_dir=root, checkpoint_seconds=0)
    run_cell(resolve(config), execution, Stop(2))


# Data files


@pytest.mark.parametrize("kind", LAYOUTS)
def test_data_files(kind, tmp_path, monkeypatch):
    """A damaged file of a dataset, or a damaged cache of it: its arrays, or one line."""
    layout, write = LAYOUTS[kind]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("pfl_benchmark.datasets.loading.DATASETS", {"made": info_of("made", layout)})
    rng, root, several = random.Random(kind), tmp_path / "data", []
    for number in range(FILES // len(LAYOUTS)):
        shutil.rmtree(root, ignore_errors=True)
        (root / "files").mkdir(parents=True)
        write(root / "files", np.random.default_rng(0))
        if number % 4 == 0:
            datasets.load("made", root, download=False)  # leaves a cache
        files = sorted(path for path in (root / "files").rglob("*") if path.is_file())
        path = rng.choice(files)
        path.write_bytes(_broken(path.read_bytes(), rng))
        try:
            found = datasets.load("made", root, download=False)
        except UserError as error:
            several += ["\n" in str(error)]
            continue
        for half in (found.train, found.test):
            assert (half.x.dtype, half.y.dtype) == (np.uint8, np.int64)
            assert half.x.shape[1:] == (1, 28, 28)
            assert 0 <= half.y.min() <= half.y.max() < 10
    assert not any(several)


def _broken(content: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(5)
    place = rng.randrange(len(content))
    if kind == 0:
        return content[:place]
    if kind == 1:
        return content + content[:place]
    if kind == 2:
        return rng.randbytes(len(content))
    changed = bytearray(content)
    for _ in range(1 if kind == 3 else 20):
        changed[rng.randrange(len(content) if kind == 3 else min(len(content), 64))] ^= 1 << rng.randrange(8)
    return bytes(changed)
