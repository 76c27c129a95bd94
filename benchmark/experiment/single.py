"""One run on its own, with progress and notes: for the command ``run`` and the Python interface."""

from __future__ import annotations

from typing import Any

from pfl_benchmark.config.fields import PROTOCOL_FIELDS, as_words, changes, describe_split
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.console.terminal import say, shown_path
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.progress import RunProgress
from pfl_benchmark.experiment.runner import record_of, run_judged
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.records.record import read_record
from pfl_benchmark.resolve.code import outdated
from pfl_benchmark.resolve.run import Run

_OUTDATED = (
    "note: that record was computed by other code (its method, the engine, the network or what reads the "
    "data has been changed since); remove its folder to run it again, or see by `python -m benchmark verify` "
    "whether this code gives the same"
)


def run_single(setting: str, run: Run, execution: Execution, quiet: bool = False) -> dict[str, Any]:
    """Carry out one run as `run_judged` does, and say on standard error how it is doing.

    Args:
        setting: the name of the setting that the run belongs to, for people.
        quiet: no progress; notes are printed all the same.
    """
    run = run.placed(execution)
    config, record = run.config, record_of(run, execution.results_dir)
    headline = (
        f"{run.label} on {_describe_setting(setting, config)} | {run.device}, executor {run.executor} | "
        f"record {shown_path(record.folder)}"
    )
    if record.done:
        summary = run_judged(run, execution, Quiet())
        if not quiet:
            say(f"{headline} | already finished, not run again")
        if outdated(config, summary, read_record(record.folder).verified):
            say(_OUTDATED)
        return summary
    if quiet:
        return run_judged(run, execution, Quiet())
    resumes = (record.folder / "checkpoint.pt").exists()
    with RunProgress(headline, f"preparing {config.dataset}", resumes) as progress:
        return run_judged(run, execution, progress)


def _describe_setting(setting: str, config: RunConfig) -> str:
    changed = changes(setting, config, PROTOCOL_FIELDS)
    changed.pop("rounds", None)  # is told when they begin
    parts = [describe_split(config), *(" ".join(as_words(*item)) for item in changed.items())]
    return f"{setting} ({', '.join(parts)}), seed {config.seed}"
