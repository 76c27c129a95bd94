"""Made-up records, written by the engine's own writer, so that tests need not train."""

import dataclasses
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.budget import Plan
from pfl_benchmark.records.metrics import ClientMetrics
from pfl_benchmark.records.schema import COSTS
from pfl_benchmark.records.seal import seal
from pfl_benchmark.records.writer import RunRecord, as_float, open_store
from pfl_benchmark.resolve.run import method_label
from pfl_benchmark.studies.grid import Profile, Study, plan

ENVIRONMENT = {
    "version": "0.1.0",
    "processor": "a processor",
    "cores": 2,
    "device": "cpu",
    "executor": "threads",
}
LEVELS = {"local": 0.55, "fedavg": 0.4, "fedavg-ft": 0.7, "ditto": 0.68, "fedrep": 0.6, "ppfe": 0.74}


def write_record(
    root: Path,
    config: RunConfig,
    level: float | None = None,
    split: str = "",
    shares: np.ndarray | None = None,
) -> Path:
    """One finished record with accuracies around `level` (default: by method), or exactly `shares`."""
    open_store(root)
    rng = np.random.default_rng([config.seed, int(config.hash, 16)])
    level = LEVELS.get(config.algo, 0.65) if level is None else level
    total = np.full(config.clients, config.test_samples_per_client)
    common = np.random.default_rng([config.seed, 1]).normal(0, 0.1, config.clients)  # easy and hard clients
    if shares is None:
        shares = np.clip(level + common + rng.normal(0, 0.03, config.clients), 0, 1)
    everyone = ClientMetrics(np.round(shares * total).astype(int), total, rng.random(config.clients))
    metrics, new = everyone.divided(config.clients - config.new_count)
    record = RunRecord(root, config, method_label(config))
    record.acquire()
    new_ids = {"new_clients": [*range(config.new_count)]} if config.new_count else {}
    record.begin({"split": {**new_ids, "checksum": split or f"{config.dataset}-{config.seed}"}})
    scores = {name: as_float(value) for name, value in metrics.summary().items()}
    lines = _rounds(config, scores)
    record.write_rounds(lines)
    summary = {
        **scores,
        "evaluated": lines[-1]["evaluated"],
        **_totals(lines),
        **({"new_clients": _began(new)} if config.new_count else {}),
        "rounds": config.rounds,
        "budget": asdict(Plan(config.rounds, "rounds")),
        "resumed": 0,
        "notes": [],
        "environment": ENVIRONMENT,
    }
    record.finish(everyone, _diagnostics(config, level), summary)
    record.release()
    return record.folder


def write_records(
    root: Path,
    study: Study | Iterable[Study],
    profile: Profile,
    seeds: Iterable[int] = (0,),
    skip: tuple[str, ...] = (),
) -> list[Path]:
    """A record for every run of one study or several, but for the methods in `skip`."""
    cells = plan([study] if isinstance(study, Study) else study, profile, list(seeds))
    return [write_record(root, cell.config) for cell in cells if cell.config.algo not in skip]


def amend(path: Path, change: Callable[[Any], object]) -> None:
    """Change a file of a record on purpose: `change` gets its object, or the list of rounds.jsonl's lines."""
    text = path.read_text()
    lines = path.name == "rounds.jsonl"
    found = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
    change(found)
    path.write_text("".join(json.dumps(line) + "\n" for line in found) if lines else json.dumps(found))
    if lines:
        amend(path.with_name("summary.json"), lambda summary: summary.update(_totals(found)))
    seal(path.parent)


def _totals(lines: list[dict]) -> dict[str, float]:
    sums = {name: sum(line[name] for line in lines) for name in COSTS}
    training, closing = (sum(line[name] for line in lines) for name in ("seconds", "seconds_closing"))
    return {
        **sums,
        "seconds": as_float(training + closing),
        "samples_per_second": round(sums["samples"] / training, 1),
    }


def _began(new: ClientMetrics) -> dict[str, float]:
    scores = {name: as_float(value) for name, value in new.summary().items()}
    return {"clients": len(new.total), **scores, "bytes_down": 800, "samples": 400, "steps": 40}


def with_seed(config: RunConfig, seed: int) -> RunConfig:
    return dataclasses.replace(config, seed=seed)


def _rounds(config: RunConfig, scores: dict[str, float]) -> list[dict]:
    cohort = max(1, round(config.participation * config.clients))
    size = 0 if config.algo == "local" else 4 * 8_000
    lines = []
    for number in range(1, config.rounds + 1):
        last = number == config.rounds
        staged = config.algo == "ppfe"
        stage = 1 + 4 * (number - 1) // config.rounds if staged else 1
        people = config.clients if last else cohort
        samples = people * config.local_epochs * config.samples_per_client
        line = {
            "round": number,
            "stage": stage,
            "participants": people,
            "bytes_down": people * size // stage,
            "bytes_up": people * size // stage,
            "bytes_broadcast": config.clients * size // stage if last else 0,
            "samples": samples,
            "steps": samples // config.batch_size,
            "adaptation_samples": samples if last and config.algo in ("fedavg-ft", "fedbabu") else 0,
            "loss": 1 / number,
            "seconds": samples / 1000,
            "seconds_closing": 0.0,
        }
        if last or (config.eval_every and number % config.eval_every == 0):
            line |= scores
            line["accuracy"] *= 1 if last else number / (number + 4)
            line["evaluated"] = "personal" if last else "global"
        lines.append(line)
    return lines


def _diagnostics(config: RunConfig, level: float) -> dict:
    if config.algo != "ppfe":
        return {}
    personal = ([], ["fc3"], ["fc2", "fc3"], ["fc1", "fc2", "fc3"])
    return {
        "stages": [
            {
                "stage": number,
                "rounds": [number, number],
                "personal": layers,
                "stage_test_accuracy": level - 0.02 * number,
                "ensemble_test_accuracy": level - 0.08 + 0.02 * number,
            }
            for number, layers in enumerate(personal, start=1)
        ]
    }
