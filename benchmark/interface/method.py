"""A method that is written in a script or in a cell of a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.registry import ALGORITHMS, find, register
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.processes import end_if_reading_script
from pfl_benchmark.interface.sources import CELL, keep_source


def name_of(algo: str | type[Algorithm]) -> str:
    """The name of a method; a class becomes known by it.

    A class of a notebook takes the place of one that an earlier run of its cell defined. The text of its cell
    counts as its code, so that records say when it has changed since.

    Raises:
        UserError: no method, one whose name is taken, or one whose code cannot be found.
    """
    if isinstance(algo, str):
        return algo
    if not (isinstance(algo, type) and issubclass(algo, Algorithm)):
        raise UserError(f"algo is {algo!r:.60}; expected the name of a method, or a subclass of Algorithm")
    known = ALGORITHMS.get(getattr(algo, "name", ""))
    if known not in (None, algo) and not known.__module__.startswith((CELL, "__main__")):
        raise UserError(f"there is a method '{algo.name}' already; give {algo.__name__} another name")
    keep_source(algo)
    if known is not algo:
        ALGORITHMS.pop(algo.name if known else "", None)
        try:
            register(algo)
        except ValueError as error:
            raise UserError(f"{error}") from error
    return algo.name


def only_here(method: str) -> bool:
    """Whether a method was defined in a script or in a cell, so that other processes do not know it."""
    return find(method).__module__.startswith((CELL, "__main__"))


def refuse_other_processes(here: Sequence[object], jobs: int, device: str, executor: str) -> None:
    """Raise UserError where other processes are asked for and something is known in this one alone."""
    asked = (
        (jobs != 1, f"jobs is {jobs}", "jobs=1"),
        ("," in str(device), f"device is '{device}'", "one device"),
        (executor == "ray", "executor is 'ray'", "another executor"),
    )
    found = next(((what, instead) for others, what, instead in asked if others), None)
    if found:
        end_if_reading_script()
    if here and found:
        name = getattr(here[0], "name", None) or getattr(here[0], "__name__", None) or here[0]
        raise UserError(
            f"{found[0]}, but '{name!s:.60}' is known in this process alone; give {found[1]}, or put a "
            'method into a file and give plugins=["FILE.py"]'
        )
