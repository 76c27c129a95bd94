"""Arguments that several functions of the interface take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfl_benchmark.config.flags import memory
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.resolve.plugins import load_plugins
from pfl_benchmark.track.base import Tracking


def load_named(plugins: Sequence[str | Path]) -> None:
    """Load plugins, those of the environment first; UserError: no list of files and modules, or unusable."""
    if isinstance(plugins, str | Path) or not all(isinstance(each, str | Path) for each in plugins):
        raise UserError(f"plugins is {plugins!r:.60}; expected a list of Python files or modules")
    load_plugins([str(each) for each in plugins])


def execution_of(
    device: str,
    executor: str,
    data_dir: str | Path | None,
    results_dir: str | Path,
    trackings: Sequence[Tracking],
    client_memory: int | str | None,
    save_models: bool = False,
    save_predictions: bool = False,
) -> Execution:
    """How and where runs are carried out; UserError: a tracker is none or cannot work, no size of memory."""
    if not isinstance(trackings, Sequence) or not all(hasattr(each, "check") for each in trackings):
        raise UserError(f"trackings is {trackings!r:.60}; expected a list of trackers")
    for tracking in trackings:
        tracking.check()
    return Execution(
        device=device,
        executor=executor,
        data_dir=None if data_dir is None else Path(data_dir).expanduser(),
        results_dir=Path(results_dir).expanduser(),
        trackings=tuple(trackings),
        client_memory=None if client_memory is None else memory("client_memory", str(client_memory)),
        save_models=save_models,
        save_predictions=save_predictions,
    )


def as_python(value: Any) -> Any:
    """A scalar or an array of NumPy as Python's numbers and lists; all else as it is."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def each_once(seeds: Sequence[int]) -> Sequence[int]:
    """Several seeds; UserError: none, one twice, or no whole numbers."""
    seeds = [as_python(each) for each in seeds]
    if not seeds or not all(type(each) is int for each in seeds) or len({*seeds}) < len(seeds):
        raise UserError(f"seed is {seeds!r:.60}; expected whole numbers, each once, such as seed=[0, 1, 2]")
    return seeds
