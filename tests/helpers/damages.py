"""Damage by the thousand, from fixed seeds: a sample of it is in the suite, all of it in tests/campaign."""

import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from record_folders import with_seed, write_record

from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.records.seal import SEALED

CONFIG = RunConfig(
    dataset="digits", clients=6, samples_per_client=20, test_samples_per_client=10, rounds=8, eval_every=2
)
PATIENCE = 60  # seconds after which a command counts as hanging


# Records


def digits(folder: Path, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """A file of a finished record with one digit changed, `count` times: its name and new content."""
    rng = random.Random(seed)
    names = [name for name in (*SEALED, "done") if (folder / name).exists()]
    contents = {name: (folder / name).read_bytes() for name in names}
    places = [(name, m.start()) for name in names for m in re.finditer(rb"\d", contents[name])]
    for name, place in (rng.choice(places) for _ in range(count)):
        content = bytearray(contents[name])
        content[place] = rng.choice([digit for digit in b"0123456789" if digit != content[place]])
        yield name, bytes(content)


def _json(name: str, change: Callable[[dict], object]) -> tuple[str, Callable[[bytes], bytes]]:
    def edit(content: bytes) -> bytes:
        found = json.loads(content)
        change(found)
        return json.dumps(found).encode()

    return name, edit


_VALUES = (None, 5, -1, 1e308, "text", [], {}, [[]], True, "9" * 500, float("nan"))
_ENTRIES = {
    "config.json": ("format", "config", "split"),
    "summary.json": (
        "accuracy", "accuracy_worst10", "evaluated", "bytes_up", "rounds", "budget", "notes", "environment",
        "origins", "resumed", "seconds", "samples_per_second",
    ),
}  # fmt: skip
_BYTES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "twice": lambda content: content * 2,
    "line ends": lambda content: content.replace(b"\n", b"\r\n"),
    "byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "zeros": lambda content: b"\0" * len(content),
    "no text": lambda content: b"\xff\xfe" + content,
    "a line less": lambda content: content.partition(b"\n")[2],
    "turned": lambda content: b"\n".join(reversed(content.splitlines())),
    "deep": lambda content: b"[" * 100_000 + b"]" * 100_000,
    "a number": lambda content: b"5",
    "nothing": lambda content: b"null",
    "a list": lambda content: b"[]",
    "a digit": lambda content: re.sub(rb"\d", lambda m: b"1" if m[0] != b"1" else b"2", content, count=1),
}


def damages() -> dict[str, tuple[str, Callable[[bytes], bytes]]]:
    """Damage to one file of a record, by its name in words."""
    found = {f"{name}: {what}": (name, edit) for name in (*SEALED, "done") for what, edit in _BYTES.items()}
    for name, entries in _ENTRIES.items():
        for entry in entries:
            for value in _VALUES:
                found[f"{name}: {entry} = {value!r:.12}"] = _json(
                    name, lambda content, entry=entry, value=value: content.update({entry: value})
                )
    return found


def damaged_folder(root: Path, damage: tuple[str, Callable[[bytes], bytes]], sealed: bool) -> Path:
    """Two sound records and one that is damaged, which is returned; sealed, or of an older version."""
    for algo, seed in (("fedper", 0), ("ppfe", 1), ("ppfe", 0)):
        config = RunConfig(**{**with_seed(CONFIG, seed).to_dict(), "algo": algo})
        folder = write_record(root, config)
    name, edit = damage
    if not sealed:
        (folder / "done").write_bytes(b"")
    (folder / name).write_bytes(edit((folder / name).read_bytes()))
    return folder


COMMANDS = {
    "compare": "compare {root}",
    "verify": "verify {folder} --rounds 1",
    "plan": "tables --only methods --dry-run --results-dir {root} --device cpu",
    "stages": "stages {folder} --out {out}.svg",
    "render": "tables --only methods --render-only --results-dir {root} --device cpu",
    "report": "report --only methods --results-dir {root}",
}


_OF_ONE = ("verify", "stages")  # which name their record anyway


# Commands


class Hanging(Exception):
    """A command did not end in time."""


def command(line: list[str]) -> tuple[int, str, str]:
    """Exit code, output and errors of a command in this process."""

    def stop(*_: object) -> None:
        raise Hanging(line)

    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(line)
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return code, out.getvalue(), err.getvalue()


def judge(line: list[str]) -> tuple[str, str]:
    """What is wrong with how a command took its input (empty: nothing), and all that it said."""
    code, out, err = command(line)
    if "Traceback" in err or code not in (0, 1, 2):
        return "traceback", out + err
    if code == 2 and (err.count("error: ") != 1 or not err.splitlines()[-1].startswith("error: ")):
        return "no clear line", out + err
    return "", out + err


def judge_damage(root: Path, damage: tuple[str, Callable[[bytes], bytes]], which: str, sealed: bool) -> str:
    """What is wrong with how a command takes a damaged record; empty if nothing is."""
    shutil.rmtree(root, ignore_errors=True)
    folder = damaged_folder(root, damage, sealed)
    before = (folder / damage[0]).read_bytes()
    words = COMMANDS[which].format(root=root, folder=folder, out=root / "out")
    problem, said = judge(words.split())
    if problem:
        return f"{problem}: {said[-300:]}"
    if before and (not folder.exists() or (folder / damage[0]).read_bytes() != before):
        return "the record was overwritten"
    found = folder.name in said and (which not in _OF_ONE or "error: " in said)
    if sealed and not found and before:  # an empty seal is that of an older version
        return f"not a word about the record: {said[-300:]}"
    return ""


# Command lines

_ABSURD = (
    "", "-1", "0", "1e39", "-1e39", "nan", "inf", "99999999999999999999", "1_0", "\u0663", "x" * 300, "0x10",
    "/dev/zero", "../..", "null", "\0", "1;2", "é" * 200, "[]", "--",
)  # fmt: skip
_RUN = (
    "--algo fedavg --dataset digits --clients 4 --samples-per-client 10 --test-samples-per-client 5 "
    "--rounds 2 --local-epochs 1 --device cpu --executor loop"
)
_LINES = {
    _RUN: (
        "algo", "setting", "dataset", "clients", "partition", "classes-per-client", "samples-per-client",
        "test-samples-per-client", "dirichlet", "participation", "rounds", "local-epochs", "batch-size", "lr",
        "momentum", "weight-decay", "optimizer", "lr-schedule", "clip-norm", "local-steps", "label-smoothing",
        "crop-padding", "dropout", "embedding", "cell", "aggregation", "budget",
        "byte-budget", "sample-budget", "compute-cap", "eval-every", "seed", "validation", "new-clients",
        "adapt-epochs", "set", "ablation",
        "device", "executor", "results-dir", "wandb",
    ),
    "tables --dry-run --device cpu": (
        "profile", "only", "settings", "seeds", "jobs", "launcher", "results-dir",
    ),
    "report": ("profile", "only", "seeds", "results-dir", "into", "wandb"),
    "speed --all --only cells": (  # which contradict each other: nothing is measured
        "repeats", "epochs", "cell", "device", "output", "into"),
    "speed": ("from",),
    "verify nowhere": ("rounds", "device", "executor"),
    "compare nowhere": ("against",),
    "cost nowhere": ("targets",),
    "stages nowhere": ("out",),
}  # fmt: skip


def command_lines(folder: Path) -> list[list[str]]:
    """Every flag with every absurd value; runs that come of it go to `folder`."""
    lines = []
    for base, flags in _LINES.items():
        words = base.split()
        if base == _RUN:
            words += ["--results-dir", str(folder)]
        lines += [[*words, f"--{flag}={value}"] for flag in flags for value in _ABSURD]
    return lines


# Processes


def killed(work: Callable[[], object], seconds: float) -> bool:
    """Do some work in a process of its own and kill that after some seconds; whether it was killed."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds)  # ends the process at once, as SIGKILL does
            work()
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the work has failed by itself"
    return os.WIFSIGNALED(status)
