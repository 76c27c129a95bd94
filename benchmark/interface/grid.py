"""`grid`: a table of one's own, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pfl_benchmark.config.fields import as_typed
from pfl_benchmark.errors import UserError
from pfl_benchmark.interface.federated import FederatedData
from pfl_benchmark.interface.keywords import in_keywords
from pfl_benchmark.interface.method import name_of, only_here, refuse_other_processes
from pfl_benchmark.interface.plugins import as_python, execution_of, load_named
from pfl_benchmark.interface.run import Method
from pfl_benchmark.launch.batch import Batch
from pfl_benchmark.launch.grid import fill_grid, parts_of, refuse_long
from pfl_benchmark.present.page.page import write_all
from pfl_benchmark.present.render import drop_others
from pfl_benchmark.present.required import refuse_impossible
from pfl_benchmark.records.record import Record
from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.grid_entries import LISTS
from pfl_benchmark.studies.grid_file import Entries, Entry
from pfl_benchmark.studies.own_grid import make_grid
from pfl_benchmark.track.base import Tracking

Setting = str | FederatedData


def grid(
    algo: Method | Sequence[Method],
    *,
    setting: Setting | Sequence[Setting],
    seeds: int = 1,
    vary: Mapping[str, Sequence[Any]] | None = None,
    select_on_validation: bool = False,
    title: str = "",
    plugins: Sequence[str | Path] = (),
    results_dir: str | Path = "results/grid",
    data_dir: str | Path | None = None,
    device: str = "auto",
    executor: str = "auto",
    client_memory: int | str | None = None,
    jobs: int = 1,
    yes: bool = False,
    trackings: Sequence[Tracking] = (),
    **fields: Any,
) -> list[Record]:
    """Compare methods on settings over seeds as ``python -m benchmark grid`` does, and return the records.

    Finished runs are read, not repeated; tables, figures and report.html are written into `results_dir`.

    ```python
    records = grid(["fedper", "ditto"], setting="digits-s2", seeds=3, vary={"ditto.lam": [0.1, 1]}, rounds=10)
    load_records(*records).groupby("method")["accuracy"].mean()
    ```

    Args:
        algo: methods, by name or class; ``"ppfe:no-reduction"`` is a variant.
        setting: dataset, split and protocol, one or several; also ``folder:PATH`` and the like, and what
            `federated` returns.
        seeds: how many: 0 to seeds - 1.
        vary: values by field (``"lr"``), or by a method's hyper-parameter (``"ditto.lam"``).
        select_on_validation: select what is varied on a validation split, and report that on test data.
        title: heading of the table.
        plugins: Python files or modules that register methods, networks or datasets.
        results_dir: where records, tables and figures lie.
        data_dir: as `run` has it.
        device: as `run` has it.
        executor: as `run` has it.
        client_memory: of each run, as `run` has it.
        jobs: runs at a time, in processes of their own. In a script, more than one needs the call to stand
            under ``if __name__ == "__main__":``, since each process reads the script again.
        yes: run also what takes more than a week.
        trackings: as `run` has them.
        fields: further fields that are the same in all runs, such as ``rounds=10``, and entries of a grid's
            file, such as ``tables=["accuracy", "worst10"]``.

    Returns:
        The records of the table, by row, column and seed. Runs whose training diverged have none.

    Raises:
        UserError: bad input, or runs that failed.
    """
    if not isinstance(vary or {}, Mapping):
        raise UserError(f'vary is {vary!r:.60}; expected values by name, such as {{"lr": [0.01, 0.1]}}')
    if not isinstance(results_dir, str | Path):
        raise UserError(f"results_dir is {results_dir!r:.60}; expected a folder")
    load_named(plugins)
    methods = [algo] if isinstance(algo, str | type) else list(algo)
    names = [name_of(each) for each in methods]
    settings = [setting] if isinstance(setting, Setting) else list(setting)
    here = [each for each in names if only_here(each.partition(":")[0])]
    here += [each.name for each in settings if isinstance(each, FederatedData)]
    refuse_other_processes(here, jobs, device, executor)
    with in_keywords():
        places = [each if isinstance(each, str) else each.name for each in settings]
        entries = _entries(names, places, seeds, vary or {}, fields)
        if title:
            entries["title"] = Entry((title,), listed=False)
        if select_on_validation:
            entries["select_on_validation"] = Entry(("true",), listed=False)
        own = make_grid("grid", entries)
        refuse_impossible(own)
        execution = execution_of(device, executor, data_dir, results_dir, trackings, client_memory)
        execution.check_executor()
        seen = own.profile.seeds
        batch = Batch(
            own.profile, [own.study], Store.scan(execution.results_dir), execution, seeds=seen, jobs=jobs
        )
        if not yes:
            refuse_long(
                *parts_of(own, batch), "give yes=True to run it all the same, or jobs for several at a time"
            )
        own, batch, failed = fill_grid(own, batch)
    shown = [study for study in (own.study, own.search) if study]
    drop_others(execution.results_dir, own.study.name, shown)
    write_all(shown, own.profile, batch.store, seen)
    if failed:
        raise UserError(f"{failed} runs have failed, as told above; the same call runs them again")
    found = [batch.store.find(run.config) for run in batch.runs]
    return [replace(record, folder=record.folder.absolute()) for record in found if record is not None]


def _entries(
    names: Sequence[str],
    settings: Sequence[str],
    seeds: int,
    vary: Mapping[str, Sequence[Any]],
    fields: Mapping[str, Any],
) -> Entries:
    """The entries that a file of this grid would have."""
    entries = {"algo": Entry(tuple(names)), "setting": Entry(tuple(settings))}
    entries["seeds"] = Entry((str(seeds),), listed=False)
    for name, given in vary.items():
        values = as_python(given)
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise UserError(f'vary["{name}"] is {values!r:.40}; expected a list of values')
        entries[f"vary.{name}"] = Entry(tuple(_text(value) for value in values))
    for name, value in fields.items():
        if name in LISTS and not isinstance(value, str):
            if not isinstance(value, Sequence):
                raise UserError(f"{name} is {value!r:.40}; expected a list of names")
            entries[name] = Entry(tuple(map(_text, value)))
        else:
            entries[name] = Entry((_text(value),), listed=False)
    return entries


def _text(value: Any) -> str:
    """A value as one would type it."""
    value = as_python(value)
    return str(value).lower() if isinstance(value, bool) else as_typed(value)
