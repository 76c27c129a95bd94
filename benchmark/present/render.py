"""From records to files: tables in every format, figures as SVG and PNG, parts of the report."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pfl_benchmark.errors import UserError, why
from pfl_benchmark.records.files import read_bytes, read_json, write_bytes, write_json
from pfl_benchmark.records.forked import forked
from pfl_benchmark.records.store import Record, Store
from pfl_benchmark.studies.grid import Profile, Study
from pfl_benchmark.studies.results import Results, collect

if TYPE_CHECKING:
    from pfl_benchmark.render.picture import Picture
    from pfl_benchmark.render.table import Table

_PACKAGE = Path(__file__).resolve().parents[1]
_MANY = 500  # records from which on studies are drawn side by side
_SOURCES = ("studies/*.py", "present/**/*.*", "render/**/*.*", "papers/**/*.py")


def section_file(study: str) -> str:
    """Where a study's part of the report is kept, below the results folder; safe to delete at any time."""
    return f".cache/report/{study}.html"


class RenderedFiles:
    """Which files each study has left in `root`, and from what they were made (``.rendered.json``).

    Only names that lead to a place below `root` are written, trusted or deleted, whatever that file says.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._path = root / ".rendered.json"
        try:
            found = read_json(self._path)
        except (OSError, ValueError):
            found = {}
        self._studies: dict[str, dict[str, Any]] = {n: entry for n, entry in found.items() if _fits(entry)}

    def is_current(self, study: str, fingerprint: str) -> bool:
        """Whether the study's files were made from exactly this, and are as they were written."""
        entry = self._studies.get(study, {"files": {}})
        return entry.get("fingerprint") == fingerprint and all(
            self._inside(name) and _digest_of(self.root / name) == digest
            for name, digest in entry["files"].items()
        )

    def fingerprint(self, study: str) -> str:
        """What the study's files were made from; empty if there are none."""
        return str(self._studies.get(study, {}).get("fingerprint", ""))

    def files(self, study: str) -> list[Path]:
        """What the study has left, as far as it is known."""
        names = self._studies.get(study, {}).get("files", {})
        return [self.root / name for name in names if self._inside(name)]

    def write(self, study: str, fingerprint: str, contents: dict[str, str | bytes]) -> None:
        """Write a study's files (paths below `root` and contents) and drop those it no longer makes.

        Raises:
            UserError: they cannot be written, or a folder there is a link to another place.
        """
        made = {name: text.encode() if isinstance(text, str) else text for name, text in contents.items()}
        for name, content in made.items():
            path = self.root / name
            if not self._inside(name):
                raise UserError(
                    f"{path} leads out of {self.root}; remove the link, or choose another --results-dir"
                )
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(
                    f"cannot make the folder {path.parent}: {why(error)}; choose another --results-dir"
                ) from error
            write_bytes(path, content)
        for path in self.files(study):
            if str(path.relative_to(self.root)) not in made and path.is_file():
                with contextlib.suppress(OSError):
                    path.unlink()
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in made.items()}
        self._studies[study] = {"fingerprint": fingerprint, "files": digests}
        write_json(self._path, self._studies)

    def drop(self, study: str) -> None:
        """Delete what a study has left."""
        if study in self._studies:
            self.write(study, "", {})

    def _inside(self, name: str) -> bool:
        """Whether a name leads to a place below `root`, links included."""
        root = self.root.resolve()
        return root in (root / name).resolve().parents


def _fits(entry: Any) -> bool:
    files = entry.get("files") if isinstance(entry, dict) else None
    return isinstance(files, dict) and all(isinstance(digest, str) for digest in files.values())


def _digest_of(path: Path) -> str:
    """SHA-256 of a file's content; empty if it cannot be read."""
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except (OSError, ValueError):
        return ""


def renderer_digest() -> str:
    """Changes with the code that renders."""
    digest = hashlib.sha256()
    paths = [path for pattern in _SOURCES for path in sorted(_PACKAGE.glob(pattern))]
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.read_bytes())
    return digest.hexdigest()


def render(
    studies: Sequence[Study],
    profile: Profile,
    store: Store,
    seeds: Sequence[int] | None = None,
    again: bool = False,
) -> list[str]:
    """Write the tables and figures of `studies` below the store's folder, as far as they have changed.

    Args:
        seeds: the only ones to use; None stands for all that have records.
        again: also write what has not changed.

    Returns:
        The names of the studies that were written.

    Raises:
        UserError: the folder cannot be written.
    """
    rendered, code = RenderedFiles(store.root), renderer_digest()
    todo: list[tuple[Study, Results | None]] = []
    fingerprints = []
    for study in studies:
        results = None
        if study.computed:
            source = study.computed.digest(store)
        else:
            results = collect(study, profile, store, seeds)
            source = results.fingerprint()
        fingerprint = hashlib.sha256(f"{code} {source}".encode()).hexdigest()
        if rendered.is_current(study.name, fingerprint) and not again:
            continue
        todo.append((study, results))
        fingerprints.append(fingerprint)
    many = sum(len(results.all()) for _, results in todo if results) >= _MANY
    if many:  # once, not in every process
        import pfl_benchmark.present.figures
        import pfl_benchmark.present.tables  # noqa: F401
    made = forked(partial(_make, todo, profile, store), range(len(todo)), many)
    for (study, _), fingerprint, files in zip(todo, fingerprints, made, strict=True):
        rendered.write(study.name, fingerprint, files)
    return [study.name for study, _ in todo]


def _make(
    todo: Sequence[tuple[Study, Results | None]], profile: Profile, store: Store, place: int
) -> dict[str, str | bytes]:
    """The files of one of the studies that have to be drawn."""
    # Matplotlib, pandas and SciPy take a second to import, which a call without anything to do saves.
    from pfl_benchmark.present.figures import make_figures
    from pfl_benchmark.present.tables import make_tables
    from pfl_benchmark.present.tables.captions import common

    study, results = todo[place]
    if results is not None:
        found = make_tables(results), make_figures(results), results.all(), common(results)
        return _files(study, *found)
    assert study.computed is not None
    return _files(study, *study.computed.make(profile, store), [], (profile.warning,))


def with_rendered(
    chosen: Sequence[Study], known: Iterable[Study], profile: Profile, root: Path
) -> list[Study]:
    """Those of the `known` studies that are chosen or have left files of the profile in a results folder."""
    rendered = RenderedFiles(root)
    return [
        study
        for study in known
        if study in chosen or (study.belongs_to(profile) and rendered.files(study.name))
    ]


def _files(
    study: Study,
    tables: Sequence[Table],
    figures: Sequence[Picture],
    records: Sequence[Record],
    common: Sequence[str],
) -> dict[str, str | bytes]:
    from pfl_benchmark.present.page.section import section
    from pfl_benchmark.render.formats import FORMATS
    from pfl_benchmark.render.markup import html_page

    files: dict[str, str | bytes] = {}
    for table in tables:
        files |= {f"tables/{table.name}.{ending}": form.write(table) for ending, form in FORMATS.items()}
        if study.prints:
            files[f"tables/{table.name}.html"] = html_page(table)
    drawn = [(picture, picture.to_svg()) for picture in figures]
    for picture, svg in drawn:
        files[f"figures/{picture.name}.svg"] = svg
        files[f"figures/{picture.name}.png"] = picture.to_png()
        if study.prints:
            files[f"figures/{picture.name}.pdf"] = picture.to_pdf()
    files[section_file(study.name)] = section(study, tables, drawn, records, common)
    return files


def drop_others(root: Path, name: str, shown: Sequence[Study]) -> None:
    """Delete what the search of an earlier grid `name` has left in its folder, if it is not `shown` again."""
    if (search := f"{name}-validation") not in [study.name for study in shown]:
        RenderedFiles(root).drop(search)
