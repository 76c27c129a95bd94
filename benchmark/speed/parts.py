"""What is measured (trainers on the same work, growth with cohort and clients, whole runs) and kept."""

from __future__ import annotations

import itertools
import statistics
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import find_setting
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.experiment.unrecorded import Quiet, random_images, run_unrecorded
from pfl_benchmark.records.environment import device_name, environment
from pfl_benchmark.records.files import read_json, write_json
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.speed.scale import METHODS, Crowd, grown
from pfl_benchmark.speed.tables import TABLES, Row, document_part
from pfl_benchmark.speed.work import CELLS, COHORT, EPOCHS, PLAIN, TRAINERS, Turn, Work, processes, turns

FORMAT = 1  # of the file that measurements are kept in


@dataclass(frozen=True)
class Sizes:
    """How much is measured. The defaults are for a GPU, where all parts together take some minutes."""

    repeats: int = 5
    cells: tuple[str, ...] = tuple(CELLS)
    epochs: Mapping[str, int] = field(default_factory=dict)  # of a timed call by cell, where not the paper's
    trainers: tuple[str, ...] = tuple(name for name in TRAINERS if name != "threads")  # which is for CPUs
    cohort_cell: str = "cifar10"  # on which the cohort grows
    cohorts: tuple[int, ...] = (1, 5, 10, 20, 50)  # a loop's calls take seconds each
    crowds: tuple[int, ...] = (100, 1_000, 10_000)
    setting: str = "cifar10-s2"  # of the whole runs, as the rounds
    rounds: int = 160
    scale_cell: str = "cifar10"  # of the methods whose clients grow in number
    scale_methods: tuple[str, ...] = METHODS
    scale_rounds: int = 10


def sizes_for(
    device: torch.device, repeats: int, chosen: Iterable[str] = (), epochs: int | None = None
) -> Sizes:
    """Sizes for a device, of the `chosen` cells: on CPUs whole runs are small ones.

    Where `epochs` of a timed call are None: the paper's, but on CPUs one of cifar10, which takes long enough.
    """
    picked = tuple(chosen) or tuple(CELLS)
    asked = dict.fromkeys(picked, epochs) if epochs else {}
    if device.type == "cuda":
        return Sizes(repeats, picked, asked, cohort_cell=picked[0], scale_cell=picked[0])
    return Sizes(
        repeats, picked, asked or {"cifar10": 1}, TRAINERS, picked[-1], (1, 2, 5, 10, 20, 50, 100),
        setting="digits-s2", rounds=8, scale_cell=picked[0],
    )  # fmt: skip


def cells(execution: Execution, sizes: Sizes) -> Iterator[Row]:
    """Each trainer on each chosen cell, a cohort of ten."""
    for cell in sizes.cells:
        config, epochs = RunConfig(**find_setting(CELLS[cell]).values), sizes.epochs.get(cell, EPOCHS)
        works = {name: Work(cell, name, execution, epochs, config.clients) for name in sizes.trainers}
        with processes(works) as places:
            found = turns(works, sizes.repeats, places)
        for name in works:
            timed = _timed([turn[name] for turn in found])
            timed["client_steps_per_second"] = timed["samples_per_second"] / config.batch_size
            about = {"cell": cell, "executor": name, "clients": COHORT, "local_epochs": epochs}
            ratios = _times(found, "loop", name) | _times(found, PLAIN, name)
            yield {**about, "repeats": sizes.repeats, **timed, **ratios}


def cohorts(execution: Execution, sizes: Sizes) -> Iterator[Row]:
    """Seconds of a local call as the cohort grows, the executors in turn."""
    cell, most = sizes.cohort_cell, max(sizes.cohorts)
    with processes(name for name in sizes.trainers if name != PLAIN) as places:
        for size in sizes.cohorts:
            epochs = sizes.epochs.get(cell, EPOCHS)
            works = {name: Work(cell, name, execution, epochs, most, size) for name in places}
            found = turns(works, sizes.repeats, places)
            for name in works:
                about = _timed([turn[name] for turn in found])
                yield {"cell": cell, "executor": name, "clients": size, "local_epochs": epochs, **about}


def crowds(execution: Execution, sizes: Sizes) -> Iterator[Row]:
    """Seconds of a FedPer round with ten participants as the number of clients grows, on digits."""
    with processes(["crowd"]) as places:
        for size in sizes.crowds:
            work = Work("digits", execution.executor, execution, clients=size, algo="fedper", samples=20)
            found = [turn["crowd"] for turn in turns({"crowd": work}, 5 * sizes.repeats, places)]
            about = {"executor": found[0].executor, "crowd": size, "clients": COHORT}
            yield {"cell": "digits", **about, **_timed(found)}


def whole_runs(execution: Execution, sizes: Sizes) -> Iterator[Row]:
    """Seconds of whole runs from the first round to the record; data and start-up not counted."""
    for algo in ("fedavg", "ppfe"):
        _run(algo, sizes.setting, 4, execution)  # what is set up at first use is not timed
        summary = _run(algo, sizes.setting, sizes.rounds, execution)
        about = {"cell": sizes.setting, "method": algo, "executor": execution.executor}
        yield about | {name: summary[name] for name in ("rounds", "seconds", "samples", "samples_per_second")}


def scale(execution: Execution, sizes: Sizes) -> Iterator[Row]:
    """Rounds, memory and checkpoints as the number of clients grows, all of whom keep something."""
    cell, rounds = sizes.scale_cell, sizes.scale_rounds
    pairs = itertools.product(sizes.scale_methods, sizes.crowds)
    yield from grown(Crowd(cell, algo, clients, rounds, execution) for algo, clients in pairs)


Part = Callable[[Execution, Sizes], Iterator[Row]]
PARTS: dict[str, Part] = {
    "cells": cells,
    "cohorts": cohorts,
    "crowds": crowds,
    "runs": whole_runs,
    "scale": scale,
}


def _run(algo: str, setting: str, rounds: int, execution: Execution) -> dict[str, Any]:
    """One run on random images, records and evaluations included; returns its summary."""
    config = RunConfig(algo=algo, **{**find_setting(setting).values, "augment": False, "rounds": rounds})
    prepared = prepare(resolve(config), execution, random_images(config))
    try:
        with precision(execution.tf32):
            return run_unrecorded(prepared.make(rounds), Quiet())
    finally:
        prepared.task.executor.close()


def _timed(found: list[Turn]) -> Row:
    seconds = statistics.median(turn.seconds for turn in found)
    rate = found[-1].samples / seconds
    return {"seconds": seconds, "samples_per_second": rate, "peak_memory": found[-1].peak}


def _times(found: list[dict[str, Turn]], base: str, name: str) -> Row:
    """How many times as fast as `base`: median, smallest and largest quotient of the times of one turn.

    Neighbouring turns are compared, which a change of the machine's mood leaves alone.
    """
    times = [turn[base].seconds / turn[name].seconds for turn in found]
    return {f"times_{base}": statistics.median(times), f"times_{base}_range": [min(times), max(times)]}


# -- measuring, and the file that measurements are kept in --------------------------------------------


def measure(
    parts: Iterable[str],
    execution: Execution,
    sizes: Sizes,
    say: Callable[[str], object],
    keep: Callable[[list[Row]], object] = lambda rows: None,
) -> tuple[list[Row], list[str]]:
    """Measure some parts; returns the rows, and the parts in which a fault came up (which is printed).

    Args:
        say: is told what comes next.
        keep: is given all rows so far after every row, so that a later fault loses nothing.
    """
    rows: list[Row] = []
    failed, device = [], device_name(execution.pick_device())
    for part in parts:
        say(f"{part}: {TABLES[part][0]}")
        try:
            for row in PARTS[part](execution, sizes):
                about = {"part": part, "device": device, "threads": torch.get_num_threads()}
                rows.append({**about, "tf32": execution.tf32, **row})
                keep(rows)
        except UserError:
            raise
        except Exception:
            traceback.print_exc()
            failed.append(part)
    return rows, failed


def save(path: Path, rows: list[Row], execution: Execution) -> None:
    """Write rows and where they were measured; UserError where that is impossible."""
    device = execution.pick_device()
    about = environment(device, execution.executor)
    about |= {"threads": torch.get_num_threads(), "kind": device.type}
    write_json(path, {"format": FORMAT, "environment": about, "rows": rows})


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote; UserError for what is no such file."""
    try:
        found = read_json(path)
        if found["format"] != FORMAT or not isinstance(found["environment"]["kind"], str):
            raise ValueError("another format")
        if not all(row["part"] in TABLES for row in found["rows"]):
            raise ValueError("unknown parts")
        document_part(found)  # which takes the values that the tables show
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"cannot read {path} ({error}); give a file that --output wrote") from error
    return found
