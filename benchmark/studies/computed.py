"""Studies whose numbers are computed in closed form instead of being collected from runs.

Such a study names a module in `Study.computed`. It is asked for its numbers once; they are kept in
``<results-dir>/<study>.csv`` and computed again only if the module's package, the profile or the seeds
change.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from benchmark.engine.files import read_json, write_json, write_text
from benchmark.studies.grid import Profile, Study

if TYPE_CHECKING:
    import pandas as pd

    from benchmark.render.picture import Picture
    from benchmark.render.table import Table

__all__ = ["Computed", "fill", "fingerprint", "is_done", "make"]


class Computed(Protocol):
    """What the module of a computed study defines."""

    PACKAGE: str  # the package that does the work; a change of its source makes old numbers stale
    TEXT: tuple[str, ...]  # columns that are text, even where they look like numbers

    def compute(self, profile: str, seeds: Sequence[int] | None) -> pd.DataFrame:
        """All numbers as one tidy table; `seeds` None stands for the profile's own."""

    def tables(self, numbers: pd.DataFrame, profile: Profile) -> list[Table]:
        """The tables, the one with the study's name first."""

    def figures(self, numbers: pd.DataFrame, profile: Profile) -> list[Picture]:
        """The figures."""


def is_done(study: Study, profile: Profile, root: Path, seeds: Sequence[int] | None) -> bool:
    """Whether the numbers are there and up to date."""
    try:
        found = read_json(_about(study, root)).get("key")
    except (OSError, ValueError):
        return False
    return _numbers(study, root).exists() and found == _key(study, profile, seeds)


def fill(study: Study, profile: Profile, root: Path, seeds: Sequence[int] | None) -> None:
    """Compute the numbers and keep them.

    Raises:
        UserError: they cannot be written.
    """
    numbers = _module(study).compute(profile.name, seeds)
    write_text(_numbers(study, root), numbers.to_csv(index=False, lineterminator="\n"))
    write_json(_about(study, root), {"key": _key(study, profile, seeds)})


def fingerprint(study: Study, root: Path) -> str:
    """Changes with the numbers; empty if there are none."""
    path = _numbers(study, root)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def make(study: Study, profile: Profile, root: Path) -> tuple[list[Table], list[Picture]]:
    """Tables and figures from the numbers that are kept; none if there are no numbers."""
    import pandas as pd

    path = _numbers(study, root)
    if not path.exists():
        return [], []
    module = _module(study)
    numbers = pd.read_csv(path, dtype=dict.fromkeys(module.TEXT, "str"))
    return module.tables(numbers, profile), module.figures(numbers, profile)


def _module(study: Study) -> Computed:
    return cast(Computed, importlib.import_module(study.computed))


def _numbers(study: Study, root: Path) -> Path:
    return root / f"{study.name}.csv"


def _about(study: Study, root: Path) -> Path:
    return root / f"{study.name}.json"


def _key(study: Study, profile: Profile, seeds: Sequence[int] | None) -> str:
    module = _module(study)
    package = importlib.import_module(module.PACKAGE)
    digest = hashlib.sha256(f"{profile.name} {seeds}".encode())
    for folder in package.__path__:
        for path in sorted(Path(folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
