"""Training that has diverged although all of its values are finite."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pfl_benchmark.console.terminal import say
from pfl_benchmark.datasets.api import DATASETS
from pfl_benchmark.engine.rounds import Observer
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.records.record import read_record
from pfl_benchmark.resolve.run import Run

FAR = 10  # times the loss of guessing; what methods add to the loss stays below


def run_judged(run: Run, execution: Execution, observer: Observer) -> dict[str, Any]:
    """`run_cell`, with one more of its warnings where training ended far above the loss of guessing.

    Raises:
        UserError: as `run_cell`.
    """
    summary = run_cell(run, execution, observer)
    loss = read_record(Path(summary["record"])).rounds[-1]["loss"]
    guessing = math.log(DATASETS[run.config.dataset].classes)
    if loss <= FAR * guessing:
        return summary
    text = (
        f"training has probably diverged: its loss in the last round is {loss:.3g}, that of guessing "
        f"{guessing:.2f}; try a smaller --lr"
    )
    say(f"warning: {text}")
    return {**summary, "warnings": [*summary.get("warnings", ()), text]}
