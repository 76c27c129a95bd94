"""``--launcher ray``: cells as tasks of a Ray cluster, or of one that is started on this machine for them."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from benchmark.engine.executors.threads import CORES_VARIABLE
from benchmark.engine.files import write_bytes, write_text
from benchmark.engine.records import Busy, RunRecord
from benchmark.errors import UserError
from benchmark.experiment.execution import Execution
from benchmark.experiment.runner import finished_summary, record_of
from benchmark.launch.base import Ended, Options, Outcome, Watcher, absolute
from benchmark.launch.pool import Pool, Task
from benchmark.launch.ray_connect import Machine, connect, divide, import_ray
from benchmark.launch.ray_task import Survey, clean_up, look, record_files, work
from benchmark.launch.registry import register
from benchmark.records.environment import COMMIT_VARIABLE, commit
from benchmark.studies.grid import Cell

__all__ = ["RayCluster"]

_SECONDS_TO_LOOK = 120.0  # for what machines tell about themselves
_SECONDS_TO_CLEAN = 5.0


@register("ray")
class RayCluster(Pool):
    """A pool of Ray tasks.

    Raises:
        UserError: Ray is not installed, the cluster cannot be reached, or is too small for the jobs.
    """

    pause = 0.2

    def __init__(self, options: Options) -> None:
        self._ray = import_ray()
        address = options.address or os.environ.get("RAY_ADDRESS", "") or "local"
        self._ours = connect(self._ray, address)
        try:
            resources = [node["Resources"] for node in self._nodes()]
            machines = [Machine(int(r.get("CPU", 0)), int(r.get("GPU", 0))) for r in resources]
            shares = divide(machines, options.jobs, len(options.cells), options.execution.device)
        except UserError:
            self._leave()
            raise
        where = "this machine" if address == "local" else f"{len(machines)} machine(s) as fast as this one"
        execution = dataclasses.replace(absolute(options.execution), side_by_side=shares.jobs)
        super().__init__(shares.jobs, f"on a Ray cluster of {where}, {shares.jobs} at a time", execution)
        # Not retried by Ray, but by the pool: with the checkpoint that there is by then.
        self._work = self._ray.remote(
            num_cpus=shares.cpus, num_gpus=shares.gpus, max_retries=0, num_returns="streaming"
        )(work)
        self._variables = {CORES_VARIABLE: str(shares.cpus), COMMIT_VARIABLE: commit()}
        # Machines that see this file see the results folder.
        self._marker = execution.results_dir / ".cache" / f"ray-{uuid.uuid4().hex}"
        self._surveys: dict[str, Survey] = {}
        self._tasks: list[_Task] = []
        self._quiet = contextlib.ExitStack()

    def __enter__(self) -> RayCluster:
        # Ray prints the death of a worker to standard output, which is for results.
        self._quiet.enter_context(contextlib.redirect_stdout(io.StringIO()))
        return self

    def __exit__(self, *_: object) -> None:
        self._marker.unlink(missing_ok=True)
        self._leave()
        self._quiet.close()

    def _leave(self) -> None:
        if self._ours:
            self._ray.shutdown()

    # -- what is where ----------------------------------------------------------------------------------

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]

    def _on_every_node(self, function: Any, *arguments: Any) -> dict[str, Any]:
        """Answers that are awaited, by node."""
        remote, affinity = self._ray.remote(function), self._ray.util.scheduling_strategies
        return {
            node["NodeID"]: remote.options(
                num_cpus=0,
                scheduling_strategy=affinity.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            ).remote(*arguments)
            for node in self._nodes()
        }

    def _survey(self, cells: Sequence[Cell]) -> None:
        """Ask all machines, once.

        Raises:
            UserError: one of them cannot tell.
        """
        if self._surveys:
            return
        if self._execution.results_dir.exists():  # a dry run makes no folder
            self._marker.parent.mkdir(exist_ok=True)
            write_text(self._marker, "")
        samples = list({cell.config.dataset: cell for cell in cells}.values())
        answers = self._on_every_node(look, samples, self._execution.data_dir, self._marker)
        try:
            surveys = self._ray.get(list(answers.values()), timeout=_SECONDS_TO_LOOK)
        except Exception as error:  # whatever keeps it from starting: most often a package
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            raise UserError(
                f"a Ray worker cannot be started: {reason}; the machines of the cluster need the packages of "
                "requirements.txt, at the same versions"
            ) from error
        self._surveys = dict(zip(answers, surveys, strict=True))

    def unavailable(self, cells: Sequence[Cell], download: bool = True) -> dict[str, str]:
        """As `Launcher.unavailable`; workers download nothing."""
        if not cells:
            return {}
        self._survey(cells)
        first, *others = self._surveys.values()
        return {
            name: f"on Ray worker {first.host}: {problem}"
            for name, problem in first.lacks.items()
            if all(name in other.lacks for other in others)
        }

    def run(self, cells: Sequence[Cell], execution: Execution, watcher: Watcher) -> Outcome:
        """As `Launcher.run`."""
        self._survey(cells)
        lacks = {(survey.host, name) for survey in self._surveys.values() for name in survey.lacks}
        for host, name in sorted(lacks):
            watcher.note(f"Ray worker {host} lacks {name} and gets no such cells")
        return super().run(cells, execution, watcher)

    # -- cells ------------------------------------------------------------------------------------------

    def submit(self, cells: Sequence[Cell]) -> Sequence[Task]:
        """As `Pool.submit`."""
        return [self._submit(cell) for cell in cells]

    def _submit(self, cell: Cell) -> Task:
        record, files = None, None
        if not all(survey.shares for survey in self._surveys.values()):
            record = record_of(cell.config, self._execution.results_dir)
            if (ended := _claim(record)) is not None:
                settled: Future[Ended] = Future()
                settled.set_result(ended)
                return settled
            files = record_files(record.folder)
        have = [node for node, survey in self._surveys.items() if cell.config.dataset not in survey.lacks]
        where = {} if len(have) == len(self._surveys) else {"ray.io/node-id": f"in({','.join(have)})"}
        stream = self._work.options(label_selector=where).remote(
            cell, self._execution, files, self._marker, self._variables
        )
        self._tasks.append(_Task(self._ray, stream, record, set(have) if where else None))
        return self._tasks[-1]

    def close(self) -> None:
        """As `Pool.close`."""
        for task in self._tasks:
            task.end()
        self._tasks.clear()
        if not all(survey.shares for survey in self._surveys.values()):
            answers = list(self._on_every_node(clean_up, self._marker).values())
            self._ray.wait(answers, num_returns=len(answers), timeout=_SECONDS_TO_CLEAN)


class _Task:
    """A `benchmark.launch.pool.Task` of Ray.

    Args:
        record: of the cell, held here on behalf of a worker that cannot reach the results folder.
        nodes: the only ones that have its data; None: all have.
    """

    def __init__(self, ray: Any, stream: Any, record: RunRecord | None, nodes: set[str] | None) -> None:
        self._ray, self._stream, self._record, self._nodes = ray, stream, record, nodes
        self._ended: Ended | Exception | None = None

    def done(self) -> bool:
        """Take in what has come; raises nothing."""
        while self._ended is None and self._ray.wait([self._stream], timeout=0)[0]:
            try:
                told = self._ray.get(next(self._stream))
                if isinstance(told, Ended):
                    self._ended = told
                elif self._record is not None:
                    _store(self._record, told)
            except Exception as error:  # the worker, its machine, or a folder of ours
                self._ended = error
        if self._ended is None and self._nodes is not None:  # for which Ray would wait for ever
            alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
            if not self._nodes & alive:
                self._ended = RuntimeError("no machine that is left has its data")
        return self._ended is not None

    def result(self) -> Ended:
        """As `Task.result`, of a task that is done."""
        self.end()
        assert self._ended is not None
        if isinstance(self._ended, Exception):
            raise self._ended
        return self._ended

    def end(self) -> None:
        """End the worker if it is at work, and let the record go."""
        if self._ended is None:
            with contextlib.suppress(Exception):
                self._ray.cancel(self._stream, force=True)
        if self._record is not None:
            self._record.release()


def _claim(record: RunRecord) -> Ended | None:
    """Take a run for a worker; how the cell has ended, if it cannot or need not be run."""
    try:
        record.acquire()
        if record.done:  # by another process, since we looked
            summary = finished_summary(record)
            record.release()
            return Ended("done", summary)
    except Busy as error:
        return Ended("busy", problem=str(error))
    except UserError as error:
        return Ended("stop", problem=str(error))
    return None


def _store(record: RunRecord, files: Mapping[str, bytes]) -> None:
    """Write files of a record; those of an earlier attempt go.

    Raises:
        UserError: that is impossible, which ends everything.
    """
    for name, content in files.items():
        write_bytes(record.folder / name, content)
    for name in ("failed.json", "checkpoint.pt"):
        if name not in files:
            (record.folder / name).unlink(missing_ok=True)
