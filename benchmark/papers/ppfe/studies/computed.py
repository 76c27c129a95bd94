"""Numbers that are computed in closed form instead of being collected from runs.

A module is asked for them once; they are kept in ``<results-dir>/<name>.csv`` and computed again only if the
module's package, the profile or the seeds change.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from pfl_benchmark.errors import UserError
from pfl_benchmark.records.files import read_json, write_json, write_text
from pfl_benchmark.studies.grid import Profile

if TYPE_CHECKING:
    import pandas as pd

    from pfl_benchmark.records.store import Store
    from pfl_benchmark.render.picture import Picture
    from pfl_benchmark.render.table import Table


class Module(Protocol):
    """What the module defines."""

    PACKAGE: str  # the package that does the work; a change of its source makes old numbers stale
    TEXT: tuple[str, ...]  # columns that are text, even where they look like numbers

    def compute(self, profile: str, seeds: Sequence[int] | None) -> pd.DataFrame:
        """All numbers as one tidy table; `seeds` None stands for the profile's own."""

    def tables(self, numbers: pd.DataFrame, profile: Profile) -> list[Table]:
        """The tables, the one with the study's name first."""

    def figures(self, numbers: pd.DataFrame, profile: Profile) -> list[Picture]:
        """The figures."""


@dataclass(frozen=True)
class Kept:
    """The numbers of a module, as `studies.grid.Computed`.

    Attributes:
        name: of their file.
        module: full name of the module, which is imported when it is needed.
    """

    name: str
    module: str

    def is_done(self, profile: Profile, root: Path, seeds: Sequence[int] | None) -> bool:
        """Whether the numbers are there and up to date."""
        found = self._known(root)
        return self._is_whole(found, root) and found.get("key") == self._key(profile, seeds)

    def fill(self, profile: Profile, root: Path, seeds: Sequence[int] | None) -> None:
        """Compute the numbers and keep them.

        Raises:
            UserError: they cannot be written.
        """
        numbers = self._module.compute(profile.name, seeds)
        write_text(self._numbers(root), numbers.to_csv(index=False, lineterminator="\n"))
        write_json(self._about(root), {"key": self._key(profile, seeds), "sha256": self._sha256(root)})

    def digest(self, store: Store) -> str:
        """Changes with the numbers; empty if there are none."""
        return self._sha256(store.root)

    def _sha256(self, root: Path) -> str:
        path = self._numbers(root)
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

    def make(self, profile: Profile, store: Store) -> tuple[list[Table], list[Picture]]:
        """Tables and figures from the numbers that are kept; none if there are no numbers.

        Raises:
            UserError: the numbers are not those that were written.
        """
        import pandas as pd

        root = store.root
        path = self._numbers(root)
        if not path.exists():
            return [], []
        if not self._is_whole(self._known(root), root):
            raise UserError(
                f"{path} is damaged or without its {self._about(root).name}; remove it and compute it again: "
                f"python -m benchmark tables --profile {profile.name} --only {self.name}"
            )
        numbers = pd.read_csv(path, dtype=dict.fromkeys(self._module.TEXT, "str"))
        return self._module.tables(numbers, profile), self._module.figures(numbers, profile)

    @property
    def _module(self) -> Module:
        return cast(Module, importlib.import_module(self.module))

    def _known(self, root: Path) -> dict[str, str]:
        """What was written beside the numbers; empty if that cannot be read."""
        try:
            return read_json(self._about(root))
        except (OSError, ValueError):
            return {}

    def _is_whole(self, known: dict[str, str], root: Path) -> bool:
        return bool(digest := self._sha256(root)) and known.get("sha256") == digest

    def _numbers(self, root: Path) -> Path:
        return root / f"{self.name}.csv"

    def _about(self, root: Path) -> Path:
        return root / f"{self.name}.json"

    def _key(self, profile: Profile, seeds: Sequence[int] | None) -> str:
        package = importlib.import_module(self._module.PACKAGE)
        digest = hashlib.sha256(f"{profile.name} {seeds}".encode())
        for folder in package.__path__:
            for path in sorted(Path(folder).glob("*.py")):
                digest.update(path.read_bytes())
        return digest.hexdigest()
