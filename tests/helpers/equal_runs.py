"""Small runs of every kind by two commits of the code, compared bit by bit.

This is the evidence that a change of the engine leaves all floats as they were (`proven_equal`):

    git worktree add /tmp/old COMMIT
    python -m tests.helpers.equal_runs make /tmp/old /tmp/a     # both with OMP_NUM_THREADS=1
    python -m tests.helpers.equal_runs make . /tmp/b
    python -m tests.helpers.equal_runs compare /tmp/a /tmp/b

The configurations are those of this checkout, for both. `make` goes on where it has stopped; kinds of runs
(`KINDS`) may be named after the folder. A run that the old code cannot make is left out, which is said.
"""

import json
import subprocess
import sys
import zlib
from pathlib import Path

SMALL = {
    "dataset": "digits", "clients": 6, "participation": 0.5, "samples_per_client": 20,
    "test_samples_per_client": 10, "rounds": 5, "local_epochs": 2, "batch_size": 8, "lr": 0.05,
    "eval_every": 2,
}  # fmt: skip
IMAGES = {**SMALL, "samples_per_client": 22, "network": "resnet8-gn", "rounds": 3}
TEXTS = {"setting": "synth-tweets", "rounds": 4, "clients": 8, "user_pool": 8, "participation": 0.5}
EXECUTORS = ("loop", "threads", "stacked")
PROGRAM = """
import json, sys
sys.path.insert(0, ".")
from pathlib import Path
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.resolve.run import resolve
root = Path(sys.argv[1])
for name, config, executor, ablation in json.load(sys.stdin):
    if (root / name).exists():
        continue
    try:
        values = dict(SETTINGS[config["setting"]].values) if "setting" in config else {}
        values |= {key: value for key, value in config.items() if key != "setting"}
        run = resolve(RunConfig(**values), None, ablation)
        keep = {"save_models": True, "save_predictions": True}
        execution = Execution(device="cpu", executor=executor, results_dir=root / f"{name}.part", **keep)
        run_cell(run, execution, Quiet())
        (root / f"{name}.part").rename(root / name)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}", flush=True)
"""


def kinds():
    """Runs by kind: name, fields, executor and ablation of each."""
    from pfl_benchmark.algorithms import ALGORITHMS

    def every(kind, fields, executors=EXECUTORS):
        chosen = {algo: executors[zlib.crc32(algo.encode()) % len(executors)] for algo in ALGORITHMS}
        return [(f"{kind}-{algo}", {"algo": algo, **fields}, chosen[algo], None) for algo in ALGORITHMS]

    found = {f"digits-{executor}": every(f"digits-{executor}", SMALL, [executor]) for executor in EXECUTORS}
    found["resnet"] = every("resnet", IMAGES)
    found["bn"] = every("bn", {**IMAGES, "network": "resnet8-bn"}, ["loop", "threads"])
    found["texts"] = every("texts", TEXTS)
    found["ablations"] = [
        (f"ablation-{algo}-{ablation}", {"algo": algo, **SMALL}, "loop", ablation)
        for algo, method in ALGORITHMS.items()
        for ablation in method.ablations
    ]
    changes = {
        "newcomers": {"new_clients": 0.3},
        "bytes": {"budget": "bytes"},
        "samples": {"budget": "samples"},
        "dirichlet": {"partition": "dirichlet", "dirichlet": 0.5, "aggregation": "samples"},
        "drift": {"shift": "drift=3:0.5:feature=corruption:2"},
        "noise": {"shift": "labels=noise:0.3", "temperature_scaling": True},
        "adapters": {"adapters": "lora:r=2"},
        "adam": {"optimizer": "adamw", "lr": 0.002, "lr_schedule": "cosine", "clip_norm": 1.0},
    }
    for name, fields in changes.items():
        found[name] = every(name, {**SMALL, **fields})
    return found


def make(checkout, folder, *chosen):
    """Make the runs of the chosen kinds, or of all, by the code of a checkout."""
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    known = kinds()
    runs = [run for kind in chosen or known for run in known[kind]]
    command = [sys.executable, "-B", "-c", PROGRAM, str(folder)]
    subprocess.run(command, cwd=checkout, input=json.dumps(runs), text=True, check=True)


def contents(folder):
    """Of each run what must not move: rounds, clients, models, predictions, figures."""
    from safetensors import safe_open

    timed = {"seconds", "seconds_closing"}
    found = {}
    for done in sorted(Path(folder).glob("*/*/done")):
        record = done.parent
        lines = (record / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
        parts = [{k: v for k, v in json.loads(line).items() if k not in timed} for line in lines]
        files = [record / name for name in ("clients.csv", "diagnostics.json", "predictions.npz")]
        with safe_open(record / "models.safetensors", "np") as models:  # in any order
            tensors = {name: models.get_tensor(name).tobytes() for name in models.keys()}  # noqa: SIM118
        found[record.parent.name] = parts, [file.read_bytes() for file in files if file.exists()], tensors
    return found


def compare(first, second):
    """Print what differs, and what only one of the two has."""
    ours, theirs = contents(first), contents(second)
    for name in sorted(ours.keys() ^ theirs.keys()):
        print(f"only in {first if name in ours else second}: {name}")
    both = ours.keys() & theirs.keys()
    different = sorted(name for name in both if ours[name] != theirs[name])
    print(f"{len(both) - len(different)} equal, {len(different)} different", *different, sep="\n  ")


if __name__ == "__main__":
    {"make": make, "compare": compare}[sys.argv[1]](*sys.argv[2:])
