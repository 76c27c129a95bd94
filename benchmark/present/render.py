"""From records to files: tables in every format, figures as SVG and PNG, parts of the report."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.engine.files import write_bytes, write_json, write_text
from benchmark.errors import UserError
from benchmark.records.store import Record, Store
from benchmark.studies.grid import Profile, Study
from benchmark.studies.results import collect

if TYPE_CHECKING:
    from benchmark.render.picture import Picture
    from benchmark.render.table import Table

__all__ = ["RenderedFiles", "render", "renderer_digest", "section_file", "with_rendered"]

_PACKAGE = Path(__file__).resolve().parents[1]
_SOURCES = ("studies/*.py", "present/**/*.*", "render/**/*.*", "papers/**/*.py")


def section_file(study: str) -> str:
    """Where a study's part of the report is kept, below the results folder; safe to delete at any time."""
    return f".cache/report/{study}.html"


class RenderedFiles:
    """Which files each study has left in `root`, and from what they were made (``.rendered.json``)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._path = root / ".rendered.json"
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {}
        self._studies: dict[str, dict[str, Any]] = found if isinstance(found, dict) else {}

    def is_current(self, study: str, fingerprint: str) -> bool:
        """Whether the study's files were made from exactly this, and are all there."""
        entry = self._studies.get(study, {})
        return entry.get("fingerprint") == fingerprint and all(path.exists() for path in self.files(study))

    def fingerprint(self, study: str) -> str:
        """What the study's files were made from; empty if there are none."""
        return str(self._studies.get(study, {}).get("fingerprint", ""))

    def files(self, study: str) -> list[Path]:
        """What the study has left, as far as it is known."""
        return [self.root / name for name in self._studies.get(study, {}).get("files", [])]

    def write(self, study: str, fingerprint: str, contents: dict[str, str | bytes]) -> None:
        """Write a study's files (paths below `root` and contents) and drop those it no longer makes.

        Raises:
            UserError: they cannot be written.
        """
        for name, content in contents.items():
            path = self.root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(
                    f"cannot make the folder {path.parent}: {error.strerror}; choose another --results-dir"
                ) from error
            if isinstance(content, str):
                write_text(path, content)
            else:
                write_bytes(path, content)
        for path in self.files(study):
            if str(path.relative_to(self.root)) not in contents:
                with contextlib.suppress(OSError):
                    path.unlink()
        self._studies[study] = {"fingerprint": fingerprint, "files": list(contents)}
        write_json(self._path, self._studies)


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
    rendered, code, written = RenderedFiles(store.root), renderer_digest(), []
    for study in studies:
        results = None
        if study.computed:
            source = study.computed.digest(store.root)
        else:
            results = collect(study, profile, store, seeds)
            source = results.fingerprint()
        fingerprint = hashlib.sha256(f"{code} {source}".encode()).hexdigest()
        if rendered.is_current(study.name, fingerprint) and not again:
            continue
        # Matplotlib, pandas and SciPy take a second to import, which a call without anything to do saves.
        from benchmark.present.figures import make_figures
        from benchmark.present.tables import make_tables

        if results is not None:
            files = _files(study, make_tables(results), make_figures(results), results.all())
        elif study.computed:
            files = _files(study, *study.computed.make(profile, store.root), [])
        rendered.write(study.name, fingerprint, files)
        written.append(study.name)
    return written


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
    study: Study, tables: Sequence[Table], figures: Sequence[Picture], records: Sequence[Record]
) -> dict[str, str | bytes]:
    from benchmark.present.page.section import section
    from benchmark.render.formats import FORMATS

    files: dict[str, str | bytes] = {}
    for table in tables:
        files |= {f"tables/{table.name}.{ending}": form.write(table) for ending, form in FORMATS.items()}
    drawn = [(picture, picture.to_svg()) for picture in figures]
    for picture, svg in drawn:
        files[f"figures/{picture.name}.svg"] = svg
        files[f"figures/{picture.name}.png"] = picture.to_png()
    files[section_file(study.name)] = section(study, tables, drawn, records)
    return files
