"""A grid of one's own as a study: methods × settings × seeds × what is varied, from entries as typed."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pfl_benchmark.algorithms import find
from pfl_benchmark.config.fields import DATA_FIELDS, PROTOCOL_FIELDS, as_typed, changes, in_words, meant
from pfl_benchmark.config.flags import config_from, few, read_field
from pfl_benchmark.config.loaded import INSTALLED, LOADED
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS, find_setting
from pfl_benchmark.engine.hyper import parse_hyper
from pfl_benchmark.errors import UserError, flag, nearest, unknown
from pfl_benchmark.resolve.run import owners
from pfl_benchmark.studies.grid import Column, Grid, Profile, Study, Variant, configure
from pfl_benchmark.studies.grid_file import Entries, Entry

FIELDS = tuple(
    name for name in (*DATA_FIELDS, *PROTOCOL_FIELDS) if name not in ("dataset", "seed", "tuning_trials")
)
KEYS = ("algo", "setting", "seeds", "title", "plugins", "select_on_validation")
# Of a method's own training: what may be chosen for each method. Others say what is compared.
CHOSEN = (
    "lr", "momentum", "weight_decay", "batch_size", "local_epochs", "dropout", "augment", "crop_padding",
    "aggregation",
)  # fmt: skip
_VALIDATION = 0.2
_MOST = 100_000  # runs

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


@dataclass(frozen=True)
class _Varied:
    """One thing that is varied.

    Attributes:
        method: the only one that has it; empty: all, it is a field of every run.
    """

    name: str
    values: tuple[Any, ...]
    where: str
    method: str = ""

    @property
    def is_axis(self) -> bool:
        """Whether a curve can be drawn over it."""
        return len(self.values) > 1 and all(type(value) in (int, float) for value in self.values)


def make_grid(name: str, entries: Entries) -> OwnGrid:
    """The grid of that name that some entries ask for, every run of it checked.

    Raises:
        UserError: an entry is unknown, missing, empty, given twice or of the wrong type; a run of it cannot
            be made.
    """
    _refuse_unknown(entries)
    with _at(entries, "seeds"):
        seeds = few("seeds", _one(entries, "seeds") or "1")
    fixed = {key: _read(key, _one(entries, key), entries[key]) for key in entries if key in FIELDS}
    methods = _several(entries, "algo", "methods, such as fedper ditto")
    settings = _several(entries, "setting", f"settings, such as digits-s2: {', '.join(SETTINGS)}")
    selects = _yes("select_on_validation", entries)
    share = fixed.pop("validation", _VALIDATION) if selects else 0.0
    varied = [_varied(key, entries[key], methods, fixed) for key in entries if key.startswith("vary.")]
    of_rows = [each for each in varied if each.method or (selects and each.name in CHOSEN)]
    of_columns = [each for each in varied if each not in of_rows]
    if selects and not any(len(each.values) > 1 for each in of_rows):
        raise UserError(
            "--select-on-validation: nothing to select; vary a hyper-parameter of a method (METHOD.name) or "
            f"some of {', '.join(CHOSEN)}"
        )
    _refuse_many(len(methods) * len(settings) * seeds, varied)
    with _at(entries, "algo"):
        bases = [_method(text) for text in methods]
    profile = Profile(
        name,
        tuple(range(seeds)),
        fixed,
        warning=f"In all runs: {', '.join(in_words(*item) for item in fixed.items())}." if fixed else "",
        again=_command(entries),
    )
    axis = [each for each in varied if len(each.values) > 1]
    drawn = axis[0] if len(axis) == 1 and axis[0].is_axis and not selects else None
    rows = {base.title: list(_points(base, of_rows, drawn)) for base in bases}
    columns = []
    for text in settings:
        with _at(entries, "setting"):
            find_setting(text)
        columns += _columns(text, fixed, of_columns, of_rows, drawn)
    study = Study(
        name,
        _one(entries, "title") or "Test accuracy",
        {name: Grid(tuple(bases if selects else itertools.chain(*rows.values())), tuple(columns))},
        figures=("learning-curves", *(["sweep"] if drawn else [])),
        axis=drawn.name if drawn else "",
        prints=True,
    )
    every = tuple(itertools.chain(*rows.values()))
    _check(every, columns, profile)
    if not selects:
        return OwnGrid(profile, study, None, {})
    candidates = {title: found for title, found in rows.items() if len(found) > 1}
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
    first = {title: found[0] for title, found in rows.items()}
    return with_values(OwnGrid(profile, study, search, candidates), lambda row, _: first[row])


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


# -- entries ------------------------------------------------------------------------------------------


@contextmanager
def _at(entries: Entries, key: str) -> Iterator[None]:
    """Say with every complaint where in a file the entry stands."""
    try:
        yield
    except UserError as error:
        where = entries[key].where if key in entries else ""
        raise UserError(f"{where}{error}") from error


def _refuse_unknown(entries: Entries) -> None:
    for key, entry in entries.items():
        if key in FIELDS or key in KEYS or key.startswith("vary."):
            continue
        known = (*KEYS, "vary", *FIELDS)
        if key in ("vary", "dataset", "seed"):
            use = {"vary": "a mapping, such as {lr: [0.01, 0.1]}", "seed": "seeds: 3", "dataset": "setting"}
            raise UserError(f"{entry.where}{key}: expected {use[key]}")
        raise UserError(f"{entry.where}{unknown('entry', key, known, meant(key, known))}")


def _one(entries: Entries, key: str) -> str:
    """The only value of an entry; empty where there is no entry."""
    if key not in entries:
        return ""
    entry = entries[key]
    if len(entry.values) != 1 or (entry.listed and entry.where):
        more = f"; to compare several, write them below vary: {key}" if key in FIELDS else ""
        raise UserError(f"{entry.where}{key} is a list; expected one value{more}")
    return entry.values[0]


def _several(entries: Entries, key: str, what: str) -> tuple[str, ...]:
    """The values of an entry that must be there, each once."""
    if key not in entries:
        raise UserError(f"--{key} is required: one or more {what}")
    entry = entries[key]
    if not entry.values or "" in entry.values:
        raise UserError(f"{entry.where}{key} is empty; expected {what}")
    _refuse_twice(key, entry.values, entry.where)
    return entry.values


def _refuse_twice(key: str, values: Sequence[Any], where: str) -> None:
    twice = next((value for value in values if list(values).count(value) > 1), None)
    if twice is not None:
        raise UserError(f"{where}{key} has {as_typed(twice)} twice; give each once")


def _yes(key: str, entries: Entries) -> bool:
    if key not in entries:
        return False
    with _at(entries, key):
        return _boolean(key, _one(entries, key))


def _boolean(name: str, text: str) -> bool:
    words = {"true": True, "yes": True, "false": False, "no": False}
    if text.lower() not in words:
        raise UserError(f"{name} is '{text:.40}'; expected true or false")
    return words[text.lower()]


def _read(name: str, text: str, entry: Entry) -> Any:
    """The value of a field from its text."""
    try:
        if not text:
            raise UserError(f"{name} is empty; expected a value")
        return _boolean(name, text) if isinstance(getattr(RunConfig, name), bool) else read_field(name, text)
    except UserError as error:
        raise UserError(f"{entry.where}{error}") from error


def _method(text: str) -> Variant:
    """A method, or with ``METHOD:ABLATION`` a variant of it."""
    name, colon, ablation = text.partition(":")
    method = find(name)
    if colon and ablation not in method.ablations:
        known = f"known: {', '.join(method.ablations)}" if method.ablations else "it has none"
        raise UserError(
            f"unknown ablation '{ablation}' of '{name}'{nearest(ablation, method.ablations)}; {known}"
        )
    return Variant(f"{method.title}, {ablation}" if colon else method.title, name, ablation or None)


def _varied(key: str, entry: Entry, methods: Sequence[str], fixed: Mapping[str, Any]) -> _Varied:
    """What an entry below ``vary`` asks for."""
    name = key.removeprefix("vary.")
    try:
        if not entry.values or "" in entry.values:
            raise UserError(f"{name} has no values to vary; expected some, such as {name}=0.01,0.1")
        method, _, hyper = name.rpartition(".")
        found = _of_method(method, hyper, entry, methods) if method else _of_all(name, entry, methods, fixed)
        _refuse_twice(name, found.values, "")
    except UserError as error:
        raise UserError(
            f"{entry.where}--vary {error}" if not entry.where else f"{entry.where}{error}"
        ) from error
    return found


def _of_method(method: str, hyper: str, entry: Entry, methods: Sequence[str]) -> _Varied:
    kind = find(method)
    if method not in (text.partition(":")[0] for text in methods):
        raise UserError(
            f"{method}.{hyper}: '{method}' is not in the grid; add it to algo: {', '.join(methods)}"
        )
    hyper = hyper.replace("-", "_")
    values = tuple(getattr(parse_hyper(kind.Hyper, {hyper: text}, method), hyper) for text in entry.values)
    return _Varied(hyper, values, entry.where, method)


def _of_all(name: str, entry: Entry, methods: Sequence[str], fixed: Mapping[str, Any]) -> _Varied:
    name = name.replace("-", "_")
    if name not in FIELDS:
        if name in ("seed", "seeds", "algo", "setting", "dataset"):
            raise UserError(f"{name}: give {'seeds' if name == 'seed' else name} by itself, it is not varied")
        having = [each for each in owners(name) if each in {text.partition(":")[0] for text in methods}]
        if having or owners(name):
            use = f"write {having[0]}.{name}" if having else "which is not in the grid"
            raise UserError(f"{name}: a hyper-parameter of {', '.join(having or owners(name))}; {use}")
        raise unknown("field to vary", name, FIELDS, meant(name, FIELDS))
    if name in fixed:
        raise UserError(f"{name}: it is also set for all runs; drop one of the two")
    return _Varied(name, tuple(_read(name, text, Entry(())) for text in entry.values), entry.where)


def _refuse_many(places: int, varied: Iterable[_Varied]) -> None:
    for each in varied:
        places *= len(each.values)
    if places > _MOST:
        raise UserError(f"the grid has {places:,} runs; expected at most {_MOST:,}: vary less at a time")


# -- rows and columns -----------------------------------------------------------------------------------


def _points(base: Variant, varied: Sequence[_Varied], drawn: _Varied | None) -> Iterator[Variant]:
    """A method at every combination of what varies for it."""
    own = [each for each in varied if each.method in ("", base.algo)]
    for values in itertools.product(*(each.values for each in own)):
        pairs = [*zip(own, values, strict=True)]
        words = [f"{each.name}={as_typed(value)}" for each, value in pairs]
        on_axis = [(base.title, value) for each, value in pairs if each is drawn]
        group, x = on_axis[0] if on_axis else ("", None)
        yield replace(
            base,
            title=", ".join([base.title, *words]),
            hyper={each.name: value for each, value in pairs if each.method},
            changes={each.name: value for each, value in pairs if not each.method},
            group=group,
            x=x,
        )


def _columns(
    setting: str,
    fixed: Values,
    varied: Sequence[_Varied],
    of_rows: Sequence[_Varied],
    drawn: _Varied | None,
) -> Iterator[Column]:
    """A setting at every combination of what varies for all methods."""
    title = SETTINGS[setting].title
    if any(name in DATA_FIELDS for name in (*fixed, *(each.name for each in varied))):
        title = setting  # titles name numbers of clients and classes
    for values in itertools.product(*(each.values for each in varied)):
        point = {each.name: value for each, value in zip(varied, values, strict=True)}
        x = next((value for each, value in zip(varied, values, strict=True) if each is drawn), 0.0)
        _, config = _config(setting, {**fixed, **point}, varied)
        for others in itertools.product(*(each.values for each in of_rows if not each.method)):
            names = [each.name for each in of_rows if not each.method]
            _config(setting, {**fixed, **point, **dict(zip(names, others, strict=True))}, of_rows)
        words = [in_words(*item) for item in point.items()]
        changed = {
            name: value
            for name, value in changes(setting, config).items()
            if name not in fixed or fixed[name] != value
        }
        yield Column(", ".join([title, *words]), setting, changed, x, group=title)


def _config(setting: str, values: Values, varied: Sequence[_Varied]) -> tuple[str, RunConfig]:
    try:
        return config_from(values, setting)
    except UserError as error:
        named = [each.where for each in varied if flag(each.name) in str(error)]
        raise UserError(f"{named[0] if named else ''}{error}") from error


def _check(rows: Sequence[Variant], columns: Sequence[Column], profile: Profile) -> None:
    """Refuse what cannot be run, and rows or columns that are the same runs."""
    titles = [each.title for each in (*rows, *columns)]
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
    for one, other in itertools.combinations(defined, 2):
        if all(runs.get((one.title, c.title)) == runs.get((other.title, c.title)) for c in columns):
            raise UserError(f"'{one.title}' and '{other.title}' are the same runs; drop one of them")
    for left, right in itertools.combinations(columns, 2):
        if all(runs.get((row.title, left.title)) == runs.get((row.title, right.title)) for row in rows):
            raise UserError(f"'{left.title}' and '{right.title}' are the same runs; drop one of them")


def _command(entries: Entries) -> str:
    """The command line that makes the same grid, wherever its entries come from."""
    words = ["python", "-m", "benchmark", "grid"]
    for plugin in LOADED:
        words += ["--plugin", plugin] if plugin not in INSTALLED else []
    for key, entry in entries.items():
        if key.startswith("vary."):
            joint = ";" if any("," in value for value in entry.values) else ","
            end = ";" if joint == ";" and len(entry.values) == 1 else ""
            words += ["--vary", f"{key.removeprefix('vary.')}={joint.join(entry.values)}{end}"]
        elif key == "select_on_validation":
            words += [flag(key)] if _boolean(key, entry.values[0]) else []
        elif key in FIELDS and isinstance(getattr(RunConfig, key), bool):
            words.append(flag(key) if _boolean(key, entry.values[0]) else flag(f"no_{key}"))
        elif key != "plugins":
            words += [flag(key), *entry.values]
    return shlex.join(words)
