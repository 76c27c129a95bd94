"""Made-up records, written by the engine's own writer, so that tests need not train."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmark.config.resolve import method_label
from benchmark.engine.config import RunConfig
from benchmark.engine.evaluate import ClientMetrics
from benchmark.engine.records import RunRecord, open_store
from benchmark.studies.grid import Profile, Study, plan

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
    metrics = ClientMetrics(np.round(shares * total).astype(int), total, rng.random(config.clients))
    record = RunRecord(root, config, method_label(config))
    record.acquire()
    record.begin({"split": {"checksum": split or f"{config.dataset}-{config.seed}"}})
    lines = _rounds(config, metrics.summary()["accuracy"])
    record.write_rounds(lines)
    names = ("bytes_up", "bytes_down", "bytes_broadcast", "samples", "steps", "adaptation_samples")
    summary = {
        **metrics.summary(),
        "evaluated": lines[-1]["evaluated"],
        **{name: sum(line[name] for line in lines) for name in names},
        "samples_per_second": 1000.0,
        "seconds": sum(line["seconds"] for line in lines),
        "rounds": config.rounds,
        "resumed": 0,
        "notes": [],
        "environment": ENVIRONMENT,
    }
    record.finish(metrics, _diagnostics(config, level), summary)
    record.release()
    return record.folder


def write_records(
    root: Path,
    study: Study | Iterable[Study],
    profile: Profile,
    seeds: Iterable[int] = (0,),
    skip: tuple[str, ...] = (),
) -> list[Path]:
    """A record for every cell of one study or several, but for the methods in `skip`."""
    cells = plan([study] if isinstance(study, Study) else study, profile, list(seeds))
    return [write_record(root, cell.config) for cell in cells if cell.config.algo not in skip]


def with_seed(config: RunConfig, seed: int) -> RunConfig:
    return dataclasses.replace(config, seed=seed)


def _rounds(config: RunConfig, final: float) -> list[dict]:
    cohort = round(config.participation * config.clients)
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
            line["accuracy"] = final * (1 if last else number / (number + 4))
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
