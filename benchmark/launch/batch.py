"""What is left of the runs behind some studies: the plan, how long it will take, and carrying it out."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

from pfl_benchmark.console.terminal import duration, say
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.display import RunsProgress
from pfl_benchmark.experiment.estimate import Estimator, network_label, together
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.processes import confined
from pfl_benchmark.experiment.runner import record_of
from pfl_benchmark.launch.base import BatchReport, Launcher, Options
from pfl_benchmark.launch.registry import find
from pfl_benchmark.records.same_data import Kind, data_for, refuse_other_data, source_of
from pfl_benchmark.records.store import Store
from pfl_benchmark.records.writer import open_store
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.studies.grid import PlannedRun, Profile, Study, plan


class Batch:
    """The runs of some studies in one results folder.

    The seeds are by default the profile's, the settings all. Launcher, jobs and flags say where runs are
    carried out, and how many at a time (`launch.Options`).
    """

    def __init__(
        self,
        profile: Profile,
        studies: Sequence[Study],
        store: Store,
        execution: Execution,
        seeds: Sequence[int] | None = None,
        settings: Collection[str] = (),
        launcher: str = "local",
        jobs: int | None = None,
        flags: Mapping[str, Any] | None = None,
    ) -> None:
        self.profile, self.studies, self.store, self.execution = profile, studies, store, execution
        self.seeds, self._settings = seeds, settings
        self._make, self._jobs, self._flags = find(launcher), jobs, flags or {}
        self._here = launcher == "local"
        self._known: dict[tuple[object, ...], tuple[dict[str, float], dict[str, str]]] = {}

    def about(self, profile: Profile, *studies: Study) -> Batch:
        """The runs of other studies in the same folder, carried out in the same way."""
        other = copy(self)
        other.profile, other.studies = profile, studies
        other.__dict__.pop("runs", None)
        return other

    @cached_property
    def runs(self) -> list[PlannedRun]:
        """All runs that the studies need, done or not."""
        return plan(self.studies, self.profile, self.seeds or self.profile.seeds, self._settings)

    @property
    def missing(self) -> list[PlannedRun]:
        """The runs that are not done and not known to diverge."""
        return [run for run in self._unfinished if run.config.hash not in self.store.failed]

    @property
    def diverged(self) -> list[PlannedRun]:
        """The runs whose training has diverged, as it would again with the same code: not run again."""
        return [run for run in self._unfinished if run.config.hash in self.store.failed]

    @property
    def _unfinished(self) -> list[PlannedRun]:
        return [run for run in self.runs if self.store.find(run.config) is None]

    @property
    def outdated(self) -> list[Study]:
        """Studies that are computed and not up to date; none where only some settings are asked for."""
        if self._settings:
            return []
        about = (self.profile, self.store.root, self.seeds)
        return [each for each in self.studies if each.computed and not each.computed.is_done(*about)]

    # -- carrying it out ------------------------------------------------------------------------------

    def fill(self) -> int:
        """Make what is missing; returns the number of runs that failed otherwise than by diverging."""
        missing, diverged = self.missing, self.diverged
        launcher = self._launcher(missing) if missing else None  # first of all: it may refuse the flags
        unseen = self._refuse_other_data(missing)
        open_store(self.store.root)
        for line in self.store.set_aside():
            say(line)
        for run in diverged:
            say(
                f"not run again: {run.title}: {self.store.failed[run.config.hash].split(';')[0]}; to try "
                f"again (for example with other code), remove {self.store.root}/*-{run.config.hash}"
            )
        for study in self.outdated:
            if study.computed:
                say(f"{study.name}: computing")
                study.computed.fill(self.profile, self.store.root, self.seeds)
        if launcher is None:
            return 0
        with launcher:
            report = self._run(missing, launcher, unseen)
        for fault in report.faults:
            say(fault)
        for run, problem in report.failed:
            say(f"no result: {run.title}: {problem}")
        return sum(run.config.hash not in self.store.failed for run, _ in report.failed)

    def _run(
        self, missing: Sequence[PlannedRun], launcher: Launcher, unseen: Sequence[PlannedRun]
    ) -> BatchReport:
        """Carry out the runs whose data can be had (`unseen`: not here), and take up the records."""
        absent = launcher.unavailable(missing)
        for source, problem in absent.items():
            count = sum(source_of(run.config) == source for run in missing)
            say(f"{count} runs stay missing: {problem}")
        missing = [run for run in missing if source_of(run.config) not in absent]
        if not missing:
            return BatchReport()
        self._refuse_other_data(unseen)  # which may have been downloaded just now
        estimates = self._estimated(missing, launcher.jobs)[0]
        say(
            f"{self.profile.name}: {len(missing)} of {len(self.runs)} runs to do, "
            f"about {duration(together(estimates.values(), launcher.jobs))} {launcher.place}"
        )
        with RunsProgress(missing, estimates, launcher.jobs) as progress:
            report = launcher.run(missing, progress)
        for run in missing:
            self.store.add(record_of(resolve(run.config), self.store.root).folder)
        return report

    def _refuse_other_data(self, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
        """Before the first run, as far as the data are on this machine and the runs will be.

        Returns the runs whose data are not here to be compared with those of records; UserError where the
        folder has records of some dataset that were made on another copy of it.
        """
        folder, unseen = self.execution.data_dir, set()
        finished = {record.folder.name: record.data for record in self.store.records()} if self._here else {}
        known = {data.kind for data in finished.values()}
        for kind, config in {Kind.of(run.config): run.config for run in runs}.items():
            if kind not in known:
                continue
            try:
                dataset = datasets.load(config.dataset, folder, download=False, embedding=config.embedding)
            except UserError:  # told elsewhere
                unseen.add(kind)
                continue
            refuse_other_data(self.store.root, data_for(config, dataset), finished)
        return [run for run in runs if Kind.of(run.config) in unseen]

    def _launcher(self, missing: Sequence[PlannedRun]) -> Launcher:
        return self._make(Options(self._jobs, self.execution, missing, self._flags))

    def _estimated(self, runs: Sequence[PlannedRun], jobs: int) -> tuple[dict[str, float], dict[str, str]]:
        """Expected seconds of runs in this order, by hash, and what they rest on, by network."""
        asked = (jobs, *(run.config.hash for run in runs))
        if asked not in self._known:  # may be measured, which takes seconds
            self._known[asked] = self._estimate(runs, jobs)
        return self._known[asked]

    def _estimate(self, runs: Sequence[PlannedRun], jobs: int) -> tuple[dict[str, float], dict[str, str]]:
        execution = dataclasses.replace(self.execution, side_by_side=jobs)
        if not self._here:  # a GPU elsewhere says nothing about this machine
            execution = dataclasses.replace(execution, device="auto")
        with confined(0, min(jobs, available_cores())):
            estimator = Estimator(self.store.records(), execution)
            seconds = estimator.in_turn(run.config for run in runs)
            names = (run.config.hash for run in runs)
            return dict(zip(names, seconds, strict=True)), estimator.basis

    def expected(self) -> float:
        """Seconds that what is missing will take."""
        missing = self.missing
        if not missing:
            return 0.0
        with self._launcher(missing) as launcher:
            jobs = launcher.jobs
        return together(self._estimated(missing, jobs)[0].values(), jobs)

    # -- the plan -------------------------------------------------------------------------------------

    def show(self) -> None:
        """Print every run with its state, and what is left to do in time."""
        missing, diverged = self.missing, self.diverged
        with self._launcher(missing) as launcher:
            jobs, place = launcher.jobs, launcher.place
            absent = launcher.unavailable(missing, download=False)
        seconds, basis = self._estimated(missing, jobs)
        width = max((len(run.title) for run in self.runs), default=0)
        hopeless = {run.config.hash for run in diverged}
        for run in self.runs:
            expected = seconds.get(run.config.hash)
            state = "done" if expected is None else f"missing, about {duration(expected)}"
            if run.config.hash in hopeless:
                state = "diverged before, not run again"
            if expected is not None and source_of(run.config) in absent:
                state += f", {run.config.dataset} is not here yet"
            print(f"{run.title:{width}}  {state}  [{', '.join(run.studies)}]")
        for study in self.outdated:
            print(f"{study.name}: to be computed")
        for study in self.studies:
            if study.borrows:
                print(f"{study.name}: no runs of its own; shows those of other studies")
        print()
        for study in self.studies:
            own = [run for run in missing if study.name in run.studies]
            count = sum(study.name in run.studies for run in self.runs)
            if count:
                lost = sum(study.name in run.studies for run in diverged)
                done = count - len(own) - lost
                time = duration(together((seconds[run.config.hash] for run in own), jobs))
                some = f", {lost} diverged" * bool(lost)
                print(f"{study.name:14} {done:4} of {count:4} done{some}, about {time} left")
        total = duration(together(seconds.values(), jobs))
        print(
            f"{self.profile.name}: {len(self.runs)} runs, "
            f"{len(self.runs) - len(missing) - len(diverged)} done, "
            f"{f'{len(diverged)} diverged, ' * bool(diverged)}{len(missing)} missing: about {total} {place}"
        )
        for where in dict.fromkeys(network_label(run.config) for run in missing):
            print(f"  times on {where}: {basis[where]}")
        try:
            self._refuse_other_data(missing)
        except UserError as error:
            print(f"nothing of it would be run: {error}")
