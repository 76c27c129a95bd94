"""``tables``: every table and figure of the paper, making first the runs that are missing."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.errors import UserError
from benchmark.flags import (
    add_data_dir,
    add_execution,
    add_results_dir,
    add_seeds,
    add_tracking,
    execution_of,
    tracking_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmark.launchers import Launcher, Outcome
    from benchmark.store import Store
    from benchmark.studies.grid import Cell, Profile, Study
    from benchmark.tracking import Tracking

HELP = "every table and figure of the paper: make the runs that are missing, then render"
USAGE = "[--profile quick|paper] [--only STUDY ...] [flags]"
EXAMPLES = """\
  python -m benchmark tables                               small data, minutes, no download
  python -m benchmark tables --profile paper --dry-run     the whole plan, and how long it would take here
  python -m benchmark tables --profile paper --only main reduction --seeds 1
  python -m benchmark tables --profile paper --render-only
  python -m benchmark tables --profile paper --jobs 4      four cells at a time on this machine
  python -m benchmark tables --profile paper --launcher ray --address auto

Finished runs are not run again; interrupted ones go on from where they were at the same command."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    what = parser.add_argument_group("what")
    what.add_argument(
        "--profile",
        default="quick",
        metavar="NAME",
        help="quick (small data, a check of the machinery) or paper (the paper's scale) (default: quick)",
    )
    what.add_argument(
        "--only",
        nargs="+",
        action="extend",
        metavar="STUDY",
        help="main, sparse, dirichlet, reduction, fixed-heads, progression, data-size, heterogeneity, "
        "synthetic, communication (default: all of these); on request: calibration, tuning",
    )
    add_seeds(what, "make and show seeds 0 to N-1 (default: make the profile's, show all that are there)")
    what.add_argument(
        "--dry-run", action="store_true", help="only say what is done, what is missing, how long"
    )
    what.add_argument("--render-only", action="store_true", help="run nothing; render what there is")
    execution = parser.add_argument_group("execution")
    add_execution(execution)
    add_data_dir(execution)
    _add_launcher(parser.add_argument_group("many cells at once"))
    add_tracking(parser.add_argument_group("tracking"))
    add_results_dir(
        parser.add_argument_group("output"),
        "folder of the records, with tables/ and figures/ in it (default: results/PROFILE)",
    )


def _add_launcher(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--jobs",
        type=_jobs,
        metavar="N",
        help="cells at a time, in processes that share the cores and the GPU; auto: one a core, on a GPU by "
        "its free memory and a short measurement (default: 1; on a Ray cluster one a CPU, or one a GPU)",
    )
    group.add_argument(
        "--launcher",
        default="local",
        metavar="NAME",
        help="where cells run: local (this machine) or ray (a Ray cluster) (default: local)",
    )
    group.add_argument(
        "--address",
        default="",
        metavar="ADDRESS",
        help="of the Ray cluster: HOST:PORT, or auto for the one that this machine belongs to (default: the "
        "environment's RAY_ADDRESS, else a cluster of this machine alone, for as long as the command runs)",
    )


def execute(arguments: argparse.Namespace) -> None:
    """Fill, then render.

    Raises:
        UserError: unknown study or profile, a folder that cannot be used.
        SystemExit: with code 1, if a run has failed.
    """
    from benchmark.studies.catalogue import find_profile, find_studies

    profile, studies = find_profile(arguments.profile), find_studies(arguments.only)
    if arguments.dry_run and arguments.render_only:
        raise UserError("--dry-run and --render-only contradict each other; give one of them")
    root = arguments.results_dir or Path("results") / profile.name
    job = Job(arguments, profile, studies, root)
    if arguments.dry_run:
        job.show_plan()
        return
    failed = 0 if arguments.render_only else job.fill()
    job.render()
    if failed:
        raise SystemExit(1)


class Job:
    """One call of the command."""

    def __init__(
        self, arguments: argparse.Namespace, profile: Profile, studies: Sequence[Study], root: Path
    ) -> None:
        from benchmark.engine.records import open_store
        from benchmark.launchers import find
        from benchmark.store import Store
        from benchmark.studies.grid import plan

        self.arguments, self.profile, self.studies = arguments, profile, studies
        find(arguments.launcher)
        self.execution = execution_of(arguments, results_dir=root)
        self.execution.check_executor()
        if arguments.launcher == "local":  # other machines may have another device
            self.execution.pick_device()
        self.seeds = None if arguments.seeds is None else tuple(range(arguments.seeds))
        self.execution = dataclasses.replace(self.execution, trackings=self._trackings())
        if root.exists():
            open_store(root)
        self.store: Store = Store.scan(root)
        self.cells = plan(studies, profile, self.seeds or profile.seeds)
        if arguments.dry_run or arguments.render_only:
            for found in self.store.damaged:
                _say(f"damaged record, counts as missing: {found.folder.name}: {found.reason}")

    def _trackings(self) -> tuple[Tracking, ...]:
        if self.arguments.wandb == "disabled":
            return tracking_of(self.arguments)
        from benchmark.studies.catalogue import STUDIES
        from benchmark.studies.grid import plan

        # All of them, so that a run is filed under the same study whatever --only says.
        cells = plan(STUDIES.values(), self.profile, self.seeds or self.profile.seeds)
        return tracking_of(self.arguments, {cell.config.hash: cell.studies for cell in cells})

    @property
    def missing(self) -> list[Cell]:
        return [cell for cell in self.cells if self.store.find(cell.config) is None]

    @property
    def computed(self) -> list[Study]:
        """Studies that are computed and not up to date."""
        from benchmark.studies import computed

        return [
            study
            for study in self.studies
            if study.computed and not computed.is_done(study, self.profile, self.store.root, self.seeds)
        ]

    # -- filling --------------------------------------------------------------------------------------

    def fill(self) -> int:
        """Make what is missing; returns the number of runs that failed."""
        from benchmark.engine.records import open_store
        from benchmark.studies import computed

        missing = self.missing
        launcher = self._launcher(missing) if missing else None  # first of all: it may refuse the flags
        open_store(self.store.root)
        for line in self.store.set_aside():
            _say(line)
        for study in self.computed:
            _say(f"{study.name}: computing")
            computed.fill(study, self.profile, self.store.root, self.seeds)
        if launcher is None:
            return 0
        with launcher:
            outcome = self._run(missing, launcher)
        for fault in outcome.faults:
            _say(fault)
        for cell, problem in outcome.failed:
            _say(f"failed: {cell.title}: {problem}")
        return len(outcome.failed)

    def _run(self, missing: Sequence[Cell], launcher: Launcher) -> Outcome:
        """Run the cells whose data can be had, and take their records up."""
        from benchmark.launchers import Outcome
        from benchmark.studies.display import CellProgress
        from benchmark.studies.estimate import together
        from benchmark.terminal import duration

        absent = launcher.unavailable(missing)
        for name, problem in absent.items():
            count = sum(cell.config.dataset == name for cell in missing)
            _say(f"{count} cells stay missing: {problem}")
        missing = [cell for cell in missing if cell.config.dataset not in absent]
        if not missing:
            return Outcome()
        estimates = {cell.config.hash: time for cell, time in self._estimated(missing, launcher.jobs)[0]}
        _say(
            f"{self.profile.name}: {len(missing)} of {len(self.cells)} cells to run, "
            f"about {duration(together(estimates.values(), launcher.jobs))} {launcher.place}"
        )
        with CellProgress(missing, estimates, launcher.jobs) as progress:
            outcome = launcher.run(missing, self.execution, progress)
        for cell in missing:
            self._take_up(cell)
        return outcome

    def _launcher(self, missing: Sequence[Cell]) -> Launcher:
        """Where the missing cells are to run.

        Raises:
            UserError: unknown launcher, or one that cannot do what the flags say.
        """
        from benchmark.launchers import Options, find

        arguments = self.arguments
        make = find(arguments.launcher)
        return make(Options(arguments.jobs, arguments.address, self.execution, missing))

    def _take_up(self, cell: Cell) -> None:
        from benchmark.engine.records import RunRecord
        from benchmark.runner import method_label

        self.store.add(RunRecord(self.store.root, cell.config, method_label(cell.config)).folder)

    def _estimated(self, cells: Sequence[Cell], jobs: int) -> tuple[list[tuple[Cell, float]], dict[str, str]]:
        """Expected seconds of cells, each beside others, and what they rest on by dataset."""
        from benchmark.engine.executors.threads import available_cores
        from benchmark.launchers.cores import confined
        from benchmark.studies.estimate import Estimator

        execution = dataclasses.replace(self.execution, side_by_side=jobs)
        if self.arguments.launcher != "local":  # a GPU elsewhere says nothing about this machine
            execution = dataclasses.replace(execution, device="auto")
        with confined(0, min(jobs, available_cores())):
            estimator = Estimator(self.store.records(), execution)
            return [(cell, estimator.seconds(cell.config)) for cell in cells], estimator.basis

    # -- rendering ------------------------------------------------------------------------------------

    def render(self) -> None:
        """Write tables and figures and say where they are."""
        from benchmark.report.page import NAME, mixed_studies, write_page
        from benchmark.studies.catalogue import STUDIES
        from benchmark.studies.render import render, with_rendered
        from benchmark.terminal import shown_path

        if self.arguments.render_only and not self.store.root.exists():
            raise UserError(
                f"there are no records in {self.store.root}; give their --results-dir, or drop --render-only"
            )
        shown = with_rendered(self.studies, STUDIES.values(), self.store.root)
        written = render(shown, self.profile, self.store, self.seeds)
        write_page(shown, self.profile, self.store, self.seeds)
        missing = len(self.missing)
        state = (
            f"{missing} of {len(self.cells)} cells missing"
            if missing
            else f"all {len(self.cells)} cells done"
        )
        done = f"rendered {', '.join(written)}" if written else "tables and figures are up to date"
        print(f"{self.profile.name}: {state}; {done}")
        for folder in ("tables", "figures"):
            count = len(list((self.store.root / folder).glob("*.*")))
            print(f"  {shown_path(self.store.root / folder)}/  {count} files")
        for line in mixed_studies(shown, self.profile, self.store, self.seeds):
            print(f"  {line}")
        print(f"  {shown_path(self.store.root / NAME)}")
        if self.execution.trackings:
            from benchmark.tracking.tables import log_tables

            for warning in log_tables(self.execution.trackings, self.profile.name, self.store.root):
                _say(f"warning: {warning}")

    # -- the plan -------------------------------------------------------------------------------------

    def show_plan(self) -> None:
        """Print every cell with its state, and what is left to do in time."""
        from benchmark.studies.estimate import together
        from benchmark.terminal import duration

        missing = self.missing
        with self._launcher(missing) as launcher:
            jobs, place = launcher.jobs, launcher.place
            absent = launcher.unavailable(missing, download=False)
        estimated, basis = self._estimated(missing, jobs)
        seconds = {cell.config.hash: expected for cell, expected in estimated}
        width = max((len(cell.title) for cell in self.cells), default=0)
        for cell in self.cells:
            expected = seconds.get(cell.config.hash)
            state = "done" if expected is None else f"missing, about {duration(expected)}"
            if expected is not None and cell.config.dataset in absent:
                state += f", {cell.config.dataset} is not here yet"
            print(f"{cell.title:{width}}  {state}  [{', '.join(cell.studies)}]")
        for study in self.computed:
            print(f"{study.name}: to be computed")
        print()
        for study in self.studies:
            own = [cell for cell in missing if study.name in cell.studies]
            count = sum(study.name in cell.studies for cell in self.cells)
            if count:
                time = duration(together((seconds[cell.config.hash] for cell in own), jobs))
                print(f"{study.name:14} {count - len(own):4} of {count:4} done, about {time} left")
        total = duration(together(seconds.values(), jobs))
        print(
            f"{self.profile.name}: {len(self.cells)} cells, {len(self.cells) - len(missing)} done, "
            f"{len(missing)} missing: about {total} {place}"
        )
        for dataset in dict.fromkeys(cell.config.dataset for cell in missing):
            print(f"  times on {dataset}: {basis[dataset]}")


def _jobs(text: str) -> int:
    """The number of jobs; 0 for ``auto``."""
    if text == "auto":
        return 0
    if not text.isdecimal() or not int(text):
        raise UserError(f"--jobs is '{text}'; expected how many cells at a time, a whole number, or auto")
    return int(text)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
