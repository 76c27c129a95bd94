"""All checks of one method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pfl_benchmark.check.invariants import CHECKS, Case, Failed
from pfl_benchmark.engine.exits import no_exit
from pfl_benchmark.errors import UserError, unknown
from pfl_benchmark.records.scratch import scratch


@dataclass(frozen=True)
class Result:
    """What came of a check."""

    check: str
    passed: bool
    found: str


def check_method(algo: str, ablation: str | None = None, only: Sequence[str] = ()) -> list[Result]:
    """Carry out the checks of a method, in a temporary folder.

    Args:
        only: names of checks; empty: all.

    Raises:
        UserError: unknown method, ablation or check.
    """
    for name in only:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS)
    with scratch() as folder:
        case = Case(algo, folder, ablation)
        case.resolved()
        return [_result(case, name) for name in CHECKS if not only or name in only]


def _result(case: Case, name: str) -> Result:
    try:
        with no_exit(case.algo):
            return Result(name, True, CHECKS[name](case))
    except (Failed, UserError) as error:
        return Result(name, False, " ".join(str(error).split()))
    except Exception as error:  # of the method's own code
        return Result(name, False, f"{type(error).__name__}: {error}".splitlines()[0])
