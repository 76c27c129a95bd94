"""What a study is: rows × columns × seeds, and the runs that stand behind them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.fields import in_words
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.errors import NotDefined
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.studies.dry_run import canonical
from pfl_benchmark.studies.printed import PrintedTable

if TYPE_CHECKING:
    from pfl_benchmark.records.store import Store
    from pfl_benchmark.render.picture import Picture
    from pfl_benchmark.render.table import Table


@dataclass(frozen=True)
class Variant:
    """A method, or a named variant of one.

    Attributes:
        title: as tables print it.
        paper: its name in the paper's figures, where that differs from `title`.
        hyper: hyper-parameters in which it differs from the method's defaults.
        changes: fields of `RunConfig` in which it differs from the column's.
        x: where it stands on the axis of a sweep, if rows are its points.
        group: rows that are points of one line have the same, its name.
    """

    title: str
    algo: str
    ablation: str | None = None
    paper: str = ""
    hyper: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    x: float | None = None
    group: str = ""

    @property
    def printed(self) -> str:
        """Its name in the paper's figures."""
        return self.paper or self.title


@dataclass(frozen=True)
class Column:
    """A setting, or a point of a sweep.

    Attributes:
        title: as tables print it.
        changes: fields of `RunConfig` in which it differs from the named setting.
        x: where it stands on the axis of a sweep.
        paper: its dataset, K and S (or alpha) in the paper's figures, if it is there.
        group: columns that belong together have the same.
        chosen: rows by title, in which they differ further on this column alone.
    """

    title: str
    setting: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    x: float = 0.0
    paper: tuple[str, str, str] | None = None
    group: str = ""
    chosen: Mapping[str, Variant] = field(default_factory=dict)

    @property
    def budget(self) -> str:
        """What its runs have in common: ``rounds``, ``bytes`` or ``samples``."""
        return str(self.changes.get("budget", RunConfig.budget))


@dataclass(frozen=True)
class Grid:
    """The rows and columns of a study."""

    variants: tuple[Variant, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Profile:
    """A scale at which all studies can be made.

    Attributes:
        seeds: default seeds.
        changes: fields of `RunConfig` that it sets in every run.
        warning: first sentence of every caption.
        again: the command that makes its studies; empty: those that take its name as ``--profile``.
    """

    name: str
    seeds: tuple[int, ...]
    changes: Mapping[str, Any] = field(default_factory=dict)
    warning: str = ""
    again: str = ""

    def warned(self, caption: str) -> str:
        """A caption that begins with the warning."""
        return f"{self.warning} {caption}".strip()


class Computed(Protocol):
    """Makes the numbers of a study itself and keeps them in a results folder."""

    def is_done(self, profile: Profile, root: Path, seeds: Sequence[int] | None) -> bool:
        """Whether the numbers are there and up to date; `seeds` None stands for its own."""

    def fill(self, profile: Profile, root: Path, seeds: Sequence[int] | None) -> None:
        """Compute the numbers and keep them."""

    def digest(self, store: Store) -> str:
        """Changes with the numbers; empty if there are none."""

    def make(self, profile: Profile, store: Store) -> tuple[list[Table], list[Picture]]:
        """Tables, the one with the study's name first, and figures; none if there are no numbers."""


@dataclass(frozen=True)
class Study:
    """A grid for each profile, and what is made from its records.

    Attributes:
        title: heading of the table.
        shows: a sentence on what it shows.
        grids: by profile.
        tables, figures: names of makers, see `present.tables` and `present.figures`.
        highlight: title of the row that figures draw strongly.
        reference: title of the row that the others are tested against in the table of differences.
        paper: the same table as a publication prints it.
        axis: what the columns of a sweep vary, with its unit.
        settings_as_rows: print settings as rows and methods as columns, as the paper does.
        ranked: order rows by mean accuracy in the first column, best first, those without a record last.
        computed: what makes its numbers without runs; in all profiles, or in those of `grids`.
        on_request: profiles in which it is made only if it is named, not with all the others.
        borrows: shows runs of other studies and asks for none itself.
        prints: write its tables also as HTML and its figures as PDF.
    """

    name: str
    title: str
    grids: Mapping[str, Grid] = field(default_factory=dict)
    tables: tuple[str, ...] = ("accuracy", "significance")
    figures: tuple[str, ...] = ()
    highlight: str = ""
    reference: str = ""
    paper: PrintedTable | None = None
    axis: str = ""
    settings_as_rows: bool = False
    ranked: bool = False
    computed: Computed | None = None
    on_request: Collection[str] = ()
    borrows: bool = False
    prints: bool = False
    shows: str = ""

    def grid(self, profile: Profile) -> Grid:
        """Its rows and columns at the scale of `profile`, perhaps none."""
        return self.grids.get(profile.name, Grid((), ()))

    def table_name(self, kind: str) -> str:
        """The name of a table's files: the first bears the study's name, others also their kind's."""
        return self.name if kind == self.tables[0] else f"{self.name}-{kind}"

    def belongs_to(self, profile: Profile) -> bool:
        """True if there is anything to make at the scale of `profile`."""
        return profile.name in self.grids if self.grids else bool(self.computed)


@dataclass(frozen=True)
class PlannedRun:
    """One run that is needed.

    Attributes:
        title: method, setting and seed in words.
        studies: the names of the studies that use it.
    """

    config: RunConfig
    title: str
    studies: tuple[str, ...]


def configure(variant: Variant, column: Column, profile: Profile, seed: int = 0) -> RunConfig | None:
    """The run of one row, column and seed.

    None while its method or setting is not registered, and where the method is not defined for the data. The
    run of the fewest flags (`canonical`), so that studies share it.
    """
    method, setting = ALGORITHMS.get(variant.algo), SETTINGS.get(column.setting)
    if method is None or setting is None or variant.ablation not in (None, *method.ablations):
        return None
    variant = column.chosen.get(variant.title, variant)
    values = {**setting.values, **profile.changes, **column.changes, **variant.changes}
    config = dataclasses.replace(RunConfig(), **values, algo=variant.algo, seed=seed).settled()
    try:
        run = resolve(dataclasses.replace(config, hyper=variant.hyper), ablation=variant.ablation)
    except NotDefined:
        return None
    return canonical(run.config)


def plan(
    studies: Iterable[Study], profile: Profile, seeds: Sequence[int], settings: Collection[str] = ()
) -> list[PlannedRun]:
    """All runs that the studies need, each once: all of the first seed first, then by study and setting.

    Of `settings` alone, if there are any names.
    """
    found: dict[str, tuple[RunConfig, str, dict[str, None]]] = {}
    for seed, study in itertools.product(seeds, studies):
        grid = study.grid(profile)
        for column, variant in itertools.product(grid.columns, grid.variants):
            if study.borrows or (settings and column.setting not in settings):
                continue
            config = configure(variant, column, profile, seed)
            if config is not None:
                title = f"{_name(variant)} on {_setting(column)}, seed {seed}"
                found.setdefault(config.hash, (config, title, {}))[2][study.name] = None
    return [PlannedRun(config, title, tuple(users)) for config, title, users in found.values()]


def _name(variant: Variant) -> str:
    changed = [f"{key}={value}" for key, value in {**variant.hyper, **variant.changes}.items()]
    return "-".join([variant.algo, *([variant.ablation] if variant.ablation else []), *changed])


def _setting(column: Column) -> str:
    return ", ".join([column.setting, *(in_words(*item) for item in column.changes.items())])
