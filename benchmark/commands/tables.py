"""``tables``: every table and figure of the paper, making first the runs that are missing."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from pfl_benchmark.config.flags import add_data_dir, add_flag, count, few, path
from pfl_benchmark.console.terminal import say, shown_path
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.flags import add_execution, execution_of
from pfl_benchmark.track.flags import add_tracking, tracking_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pfl_benchmark.launch.batch import Batch
    from pfl_benchmark.studies.grid import Profile, Study
    from pfl_benchmark.track.base import Tracking

HELP = "all tables and figures of the paper: run what is missing, then write them"
USAGE = "[--profile quick|lite|paper] [--only STUDY ...] [--settings NAME ...] [flags]"
EXAMPLES = """\
  python -m benchmark tables                               small data, minutes, no download
  python -m benchmark tables --profile paper --dry-run     the plan, and an estimate of its time here
  python -m benchmark tables --profile paper --only main reduction --seeds 1
  python -m benchmark tables --profile paper --only main --settings cifar10-s2 cifar10-s5
  python -m benchmark tables --profile paper --render-only
  python -m benchmark tables --profile paper --jobs 4      four runs at a time on this machine
  python -m benchmark tables --profile paper --launcher slurm --slurm partition=gpu time=8:00:00
  python -m benchmark tables --profile paper --launcher ray --address auto

Finished runs and runs that diverged are not repeated; remove a folder to repeat its run. The same command
continues interrupted runs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    what = parser.add_argument_group("what")
    text = (
        "quick (small data, checks that all works), lite (real images, reduced scale) or paper (the "
        "paper's scale) (default: quick)"
    )
    add_flag(what, "--profile NAME", text, default="quick")
    text = (
        "the studies to make; `python -m benchmark list studies` names them (default: all of the profile "
        "except those made only on request)"
    )
    add_flag(what, "--only STUDY ...", text)
    text = "run only on these settings, such as cifar10-s2 (default: all); tables still show all records"
    add_flag(what, "--settings NAME ...", text, default=[])
    text = "run and show seeds 0 to N-1 (default: run those of the profile, show all with records)"
    add_flag(what, "--seeds N", text, few)
    add_flag(what, "--dry-run", "only print what is done and missing, and how long it would take")
    add_flag(what, "--render-only", "run nothing; use existing records")
    add_running(parser)
    text = "folder of the records, with tables/ and figures/ in it (default: results/PROFILE)"
    add_flag(parser.add_argument_group("output"), "--results-dir DIR", text, path)


def add_running(parser: argparse.ArgumentParser) -> None:
    """Declare how many runs are carried out: the flags of `batch_of`."""
    execution = parser.add_argument_group("execution")
    add_execution(execution)
    add_data_dir(execution)
    _add_launcher(parser.add_argument_group("many runs at once"))
    add_tracking(parser.add_argument_group("tracking"))


def _add_launcher(group: argparse._ArgumentGroup) -> None:
    from pfl_benchmark.launch import add_flags  # imports PyTorch, as launchers do

    text = (
        "runs at a time, in processes that share the cores and the GPU; auto: one a core, but four a GPU "
        "(default: 1; on Slurm 256, on a Ray cluster one a CPU, or one a GPU)"
    )
    add_flag(group, "--jobs N", text, type=_jobs)
    add_flags(group)


def execute(arguments: argparse.Namespace) -> None:
    """Fill, then render.

    Raises:
        UserError: unknown study, profile or setting, a folder that cannot be used.
        SystemExit: with code 1, if a run of this call has failed otherwise than by diverging.
    """
    from pfl_benchmark.studies.catalogue import find_profile, find_studies

    profile = find_profile(arguments.profile)
    studies = find_studies(arguments.only, profile)
    batch = _batch(arguments, profile, studies)
    if arguments.dry_run:
        batch.show()
        return
    failed = 0 if arguments.render_only else batch.fill()
    _render(batch, arguments.settings, arguments.render_only)
    if failed:
        raise SystemExit(1)


def _batch(arguments: argparse.Namespace, profile: Profile, studies: Sequence[Study]) -> Batch:
    """What the flags ask for, checked."""
    from pfl_benchmark.studies.catalogue import STUDIES

    _check_settings(arguments.settings, profile, studies)
    seeds = None if arguments.seeds is None else tuple(range(arguments.seeds))
    # Filed under all of them, so that a run is filed under the same study whatever --only says.
    return batch_of(arguments, profile, studies, STUDIES.values(), seeds, arguments.settings)


def batch_of(
    arguments: argparse.Namespace,
    profile: Profile,
    studies: Sequence[Study],
    filed: Iterable[Study],
    seeds: Sequence[int] | None,
    settings: Sequence[str] = (),
) -> Batch:
    """The runs of some studies, as the flags of `add_running` and of the folder ask for, checked.

    filed: the studies under which trackers file runs.
    """
    from pfl_benchmark.launch import flags_of
    from pfl_benchmark.launch.batch import Batch
    from pfl_benchmark.records.store import Store
    from pfl_benchmark.records.writer import open_store

    if arguments.dry_run and arguments.render_only:
        raise UserError("--dry-run and --render-only contradict each other; give one of them")
    root = arguments.results_dir or Path("results") / profile.name
    flags = flags_of(arguments)  # before anything is touched
    execution = dataclasses.replace(execution_of(arguments), results_dir=root)
    execution.check_executor()
    if arguments.launcher == "local":  # other machines may have another device
        execution.pick_device()
    trackings = _trackings(arguments, profile, seeds or profile.seeds, filed)
    execution = dataclasses.replace(execution, trackings=trackings)
    if root.exists():
        open_store(root)
    store = Store.scan(root)
    if arguments.dry_run or arguments.render_only:
        for line in store.remarks():
            say(line)
    return Batch(
        profile,
        studies,
        store,
        execution,
        seeds=seeds,
        settings=settings,
        launcher=arguments.launcher,
        jobs=arguments.jobs,
        flags=flags,
    )


def _check_settings(names: Sequence[str], profile: Profile, studies: Sequence[Study]) -> None:
    from pfl_benchmark.config.settings import find_setting

    used = dict.fromkeys(column.setting for study in studies for column in study.grid(profile).columns)
    chosen = ", ".join(study.name for study in studies)
    for name in names:
        find_setting(name)
        if not used:
            raise UserError(f"--settings {name}: {chosen} is computed, without runs; drop --settings")
        if name not in used:
            raise UserError(
                f"--settings {name}: no run of {chosen} is on it; expected some of {', '.join(used)}"
            )


def _trackings(
    arguments: argparse.Namespace, profile: Profile, seeds: Sequence[int], filed: Iterable[Study]
) -> tuple[Tracking, ...]:
    if arguments.wandb == "disabled":  # which alone files runs by study
        return tracking_of(arguments)
    from pfl_benchmark.studies.grid import plan

    runs = plan(filed, profile, seeds)
    return tracking_of(arguments, {run.config.hash: run.studies for run in runs})


def _render(batch: Batch, settings: Sequence[str], only: bool) -> None:
    """Write tables and figures and say where they are."""
    from pfl_benchmark.present.render import with_rendered
    from pfl_benchmark.studies.catalogue import STUDIES

    refuse_nothing(batch, only)
    shown = with_rendered(batch.studies, STUDIES.values(), batch.profile, batch.store.root)
    write(batch, shown, STUDIES, settings)


def refuse_nothing(batch: Batch, only: bool) -> None:
    """UserError where all is to be made of records (`only`) and there are none."""
    root = batch.store.root
    if only and not root.exists():
        raise UserError(f"there are no records in {root}; give their --results-dir, or drop --render-only")


def write(batch: Batch, shown: Sequence[Study], logged: Iterable[str], settings: Sequence[str] = ()) -> None:
    """Write tables and figures of the studies `shown`, and say where they are.

    logged: names of the studies whose tables trackers get.
    """
    from pfl_benchmark.present.page.page import write_all

    profile, store, seeds = batch.profile, batch.store, batch.seeds
    written, lines = write_all(shown, profile, store, seeds)
    count = len(batch.runs)
    left = {"missing": len(batch.missing), "diverged": len(batch.diverged)}
    state = ", ".join(f"{some} of {count} runs {what}" for what, some in left.items() if some)
    state = (state or f"all {count} runs done") if count else "no runs to do"
    state += f" on {', '.join(settings)}" if settings else ""
    done = f"rendered {', '.join(written)}" if written else "tables and figures are up to date"
    print(f"{profile.name}: {state}; {done}")
    for folder in ("tables", "figures"):
        files = len(list((store.root / folder).glob("*.*")))
        print(f"  {shown_path(store.root / folder)}/  {files} files")
    for line in lines:
        print(f"  {line}")
    if batch.execution.trackings:
        from pfl_benchmark.present.tracked import log_tables

        for warning in log_tables(batch.execution.trackings, profile.name, store.root, logged):
            say(f"warning: {warning}")


def _jobs(text: str) -> int:
    """The number of jobs; 0 for ``auto``."""
    if text == "auto":
        return 0
    try:
        return count("--jobs", text)
    except UserError as error:
        raise UserError(f"{error}, or auto") from None
