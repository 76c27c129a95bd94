"""A grid of one's own as a study: methods × settings × seeds × what is varied, from entries as typed."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pfl_benchmark.config.fields import DATA_FIELDS, as_typed, changes, in_words
from pfl_benchmark.config.flags import config_from, few
from pfl_benchmark.config.loaded import INSTALLED, LOADED
from pfl_benchmark.config.own_data import load_own
from pfl_benchmark.config.run_config import TRAINING, RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.datasets.own import is_own
from pfl_benchmark.errors import UserError, flag
from pfl_benchmark.studies.grid import Column, Grid, Profile, Study, Variant, configure
from pfl_benchmark.studies.grid_entries import (
    FIELDS,
    KEYS,
    Varied,
    at,
    boolean,
    fixed_fields,
    one,
    refuse_many,
    refuse_unknown,
    varied,
    yes,
)
from pfl_benchmark.studies.grid_file import Entries
from pfl_benchmark.studies.grid_parts import column_of, expanded, rows_of, section, sections, told

# Of a method's own training: what may be chosen for each method. Others say what is compared.
CHOSEN = (
    "lr", "momentum", "weight_decay", *TRAINING, "batch_size", "local_epochs", "dropout", "augment",
    "crop_padding", "aggregation",
)  # fmt: skip
_VALIDATION = 0.2

Values = dict[str, Any]


@dataclass(frozen=True)
class OwnGrid:
    """A grid of one's own.

    Attributes:
        study: what is reported; where values are selected, with the first of each until they are.
        search: the runs on a validation split among which values are selected; None: nothing is.
        candidates: the rows of `search` by title of the row of `study`; of rows with a choice alone.
    """

    profile: Profile
    study: Study
    search: Study | None
    candidates: Mapping[str, Sequence[Variant]]

    @property
    def grid(self) -> Grid:
        return self.study.grid(self.profile)


def make_grid(name: str, entries: Entries, file: str = "") -> OwnGrid:
    """The grid of that name that some entries ask for, every run of it checked.

    Args:
        file: where entries come from, for the command that makes the grid again.

    Raises:
        UserError: an entry is unknown, missing, empty, given twice or of the wrong type; a run of it cannot
            be made.
    """
    refuse_unknown(entries)
    whole, entries = entries, _of_profile(entries)
    text = one(entries, "seeds")
    with at(entries, "seeds"):
        seeds = few("seeds", text) if "seeds" in entries else 1
    fixed = fixed_fields(entries)
    bases = rows_of(entries)
    settings = expanded(entries, "setting", f"settings, such as digits-s2: {', '.join(SETTINGS)}")
    selects = yes(entries, "select_on_validation")
    share = fixed.pop("validation", _VALIDATION) if selects else 0.0
    if selects and not share:
        raise UserError(
            "--validation is 0, but values are selected on a validation split; give a share above 0"
        )
    found = varied(entries, [base.algo for base in bases], fixed)
    of_rows = [each for each in found if each.method or (selects and each.name in CHOSEN)]
    of_columns = [each for each in found if each not in of_rows]
    if selects and not any(len(each.values) > 1 for each in of_rows):
        raise UserError(
            "--select-on-validation: nothing to select; vary a hyper-parameter of a method (METHOD.name) or "
            f"some of {', '.join(CHOSEN)}"
        )
    refuse_many(len(bases) * len(settings) * seeds, found)
    profile = Profile(
        name,
        tuple(range(seeds)),
        fixed,
        warning=f"In all runs: {', '.join(in_words(*item) for item in fixed.items())}." if fixed else "",
        again=_command(whole, file),
    )
    axis = [each for each in found if len(each.values) > 1]
    drawn = axis[0] if len(axis) == 1 and axis[0].is_axis and not selects else None
    rows = {base.title: list(_points(base, of_rows, drawn)) for base in bases}
    every = tuple(itertools.chain(*rows.values()))
    places: list[Column] = []
    for text in settings:
        with at(entries, "setting"):
            text = load_own(text) if is_own(text) else text
        places.append(column_of(entries, text))
    common = {*(("", key) for key in fixed), *((each.method, each.name) for each in found)}
    _refuse_both(bases, places, common)
    columns = [each for place in places for each in _columns(place, fixed, of_columns, of_rows, drawn)]
    study = Study(
        name,
        "Test accuracy",
        {name: Grid(bases if selects else every, tuple(columns))},
        figures=("learning-curves", *(["sweep"] if drawn else [])),
        axis=drawn.name if drawn else "",
        prints=True,
    )
    study = replace(study, **told(entries))
    _check(every, columns, profile)
    if not selects:
        return OwnGrid(profile, study, None, {})
    candidates = {title: own for title, own in rows.items() if len(own) > 1}
    held_out = tuple(
        replace(each, title=f"{each.title}, validation", changes={**each.changes, "validation": share})
        for each in columns
    )
    search = Study(
        f"{name}-validation",
        "Accuracy on the validation split, by which values were selected",
        {name: Grid(tuple(itertools.chain(*candidates.values())), held_out)},
        tables=("tuning",),
        prints=True,
    )
    _check(search.grids[name].variants, held_out, profile)
    for place in places:
        if both := next((title for title in candidates if title in place.chosen), None):
            raise UserError(
                f"'{place.title}' fixes the values of '{both}', which are selected; drop one of them"
            )
    first = {title: own[0] for title, own in rows.items()}
    own = OwnGrid(profile, study, search, candidates)
    return with_values(own, lambda row, column: column.chosen.get(row, first[row]))


def possible(own: OwnGrid) -> list[Study]:
    """Studies of all runs that the grid may come to, whatever is selected."""
    if own.search is None:
        return [own.study]
    rows = tuple(
        replace(row, changes={**row.changes, "tuning_trials": len(rows)})
        for rows in own.candidates.values()
        for row in rows
    )
    plain = Grid(rows, tuple(replace(column, chosen={}) for column in own.grid.columns))
    return [own.study, own.search, replace(own.study, grids={own.profile.name: plain})]


def with_values(own: OwnGrid, value: Callable[[str, Column], Variant]) -> OwnGrid:
    """The grid with one of the candidates in every place, and their number on record."""

    def placed(row: Variant, column: Column) -> Variant:
        chosen, trials = value(row.title, column), len(own.candidates.get(row.title, ()))
        counted = {"tuning_trials": trials} if trials else {}
        return replace(chosen, title=row.title, changes={**chosen.changes, **counted})

    columns = tuple(
        replace(column, chosen={row.title: placed(row, column) for row in own.grid.variants})
        for column in own.grid.columns
    )
    grid = Grid(own.grid.variants, columns)
    return replace(own, study=replace(own.study, grids={own.profile.name: grid}))


def _of_profile(entries: Entries) -> Entries:
    """The entries that count where a file has sections for several profiles."""
    known, asked = sections(entries), one(entries, "profile")
    if asked not in (known or [""]):
        said = f"--profile is '{asked}'" if asked else "the file has a section for each profile"
        raise UserError(f"{said}; expected one of its sections with --profile: {', '.join(known) or 'none'}")
    return section(entries, asked) if asked else entries


def _refuse_both(
    rows: Sequence[Variant], columns: Sequence[Column], common: Container[tuple[str, str]]
) -> None:
    """UserError for what a row or column sets itself that is also `common`, by method and name."""
    every = [*rows, *(row for column in columns for row in column.chosen.values())]
    own = [(row.title, "", name) for row in every for name in row.changes]
    own += [(column.title, "", name) for column in columns for name in column.changes]
    own += [(row.title, row.algo, name) for row in every for name in row.hyper]
    for title, method, name in own:
        if (method, name) in common:
            raise UserError(
                f"'{title}' has its own {name}, which is also set or varied for all; drop one of them"
            )


def _points(base: Variant, varied: Sequence[Varied], drawn: Varied | None) -> Iterator[Variant]:
    """A method at every combination of what varies for it."""
    own = [each for each in varied if each.method in ("", base.algo)]
    for values in itertools.product(*(each.values for each in own)):
        pairs = [*zip(own, values, strict=True)]
        words = [f"{each.name}={as_typed(value)}" for each, value in pairs]
        on_axis = [(base.title, value) for each, value in pairs if each is drawn]
        group, x = on_axis[0] if on_axis else (base.group, base.x)
        yield replace(
            base,
            title=", ".join([base.title, *words]),
            hyper={**base.hyper, **{each.name: value for each, value in pairs if each.method}},
            changes={**base.changes, **{each.name: value for each, value in pairs if not each.method}},
            group=group,
            x=x,
        )


def _columns(
    place: Column,
    fixed: Values,
    varied: Sequence[Varied],
    of_rows: Sequence[Varied],
    drawn: Varied | None,
) -> Iterator[Column]:
    """A setting at every combination of what varies for all methods."""
    title, setting, own = place.title, place.setting, place.changes
    alone = title == SETTINGS[setting].title
    if alone and any(name in DATA_FIELDS for name in (*fixed, *(each.name for each in varied))):
        title = setting  # titles name numbers of clients and classes
    for values in itertools.product(*(each.values for each in varied)):
        point = {each.name: value for each, value in zip(varied, values, strict=True)}
        x = next((value for each, value in zip(varied, values, strict=True) if each is drawn), place.x)
        _, config = _config(setting, {**fixed, **own, **point}, varied)
        for others in itertools.product(*(each.values for each in of_rows if not each.method)):
            names = [each.name for each in of_rows if not each.method]
            _config(setting, {**fixed, **own, **point, **dict(zip(names, others, strict=True))}, of_rows)
        words = [in_words(*item) for item in point.items()]
        changed = {
            name: value
            for name, value in changes(setting, config).items()
            if name not in fixed or fixed[name] != value
        }
        words = [title, *words]
        yield replace(place, title=", ".join(words), changes=changed, x=x, group=place.group or title)


def _config(setting: str, values: Values, varied: Sequence[Varied]) -> tuple[str, RunConfig]:
    try:
        return config_from(values, setting)
    except UserError as error:
        named = [each.where for each in varied if flag(each.name) in str(error)]
        raise UserError(f"{named[0] if named else ''}{error}") from error


def _check(rows: Sequence[Variant], columns: Sequence[Column], profile: Profile) -> None:
    """Refuse what cannot be run, and rows or columns that are the same runs."""
    titles = [*(row.title for row in rows), *(column.title for column in columns)]
    for title in titles:
        if titles.count(title) > 1:
            raise UserError(f"two rows or columns of the grid are called '{title}'; give one of them")
    runs = {
        (row.title, column.title): found.hash
        for row in rows
        for column in columns
        if (found := configure(row, column, profile)) is not None
    }
    if not runs:
        raise UserError("none of these methods is defined for these settings; choose others")
    defined = [row for row in rows if any((row.title, column.title) in runs for column in columns)]
    for row, other in itertools.combinations(defined, 2):
        if all(runs.get((row.title, c.title)) == runs.get((other.title, c.title)) for c in columns):
            raise UserError(f"'{row.title}' and '{other.title}' are the same runs; drop one of them")
    for left, right in itertools.combinations(columns, 2):
        if all(runs.get((row.title, left.title)) == runs.get((row.title, right.title)) for row in rows):
            raise UserError(f"'{left.title}' and '{right.title}' are the same runs; drop one of them")


def _command(entries: Entries, file: str) -> str:
    """The command line that makes the same grid: the file, by which its folder is called, and flags."""
    words = ["python", "-m", "benchmark", "grid"]
    if file:
        words.append(file)
        entries = {key: entry for key, entry in entries.items() if not entry.where}
    for plugin in LOADED:
        words += ["--plugin", plugin] if plugin not in INSTALLED else []
    order = (*KEYS, *FIELDS)
    for key in sorted(entries, key=lambda key: order.index(key) if key in order else len(order)):
        entry = entries[key]
        if key.startswith("vary."):
            joint = ";" if any("," in value for value in entry.values) else ","
            end = ";" if joint == ";" and len(entry.values) == 1 else ""
            words += ["--vary", f"{key.removeprefix('vary.')}={joint.join(entry.values)}{end}"]
        elif key == "select_on_validation":
            words += [flag(key)] if boolean(key, entry.values[0]) else []
        elif key in FIELDS and isinstance(getattr(RunConfig, key), bool):
            words.append(flag(key) if boolean(key, entry.values[0]) else flag(f"no_{key}"))
        elif key not in order:
            words += ["--set", f"{key}={','.join(entry.values)}"]
        elif key != "plugins":
            words += [flag(key), *entry.values]
    return shlex.join(words)
