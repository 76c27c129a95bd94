"""From records to files: every table as Markdown, CSV and LaTeX, every figure as SVG and PNG."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmark.store import Store
from benchmark.studies import computed
from benchmark.studies.grid import Profile, Study
from benchmark.studies.output import Ledger, renderer_digest
from benchmark.studies.results import collect

if TYPE_CHECKING:
    from benchmark.figures import Picture
    from benchmark.tables import Table

__all__ = ["make", "render"]


def render(
    studies: Sequence[Study],
    profile: Profile,
    store: Store,
    seeds: Sequence[int] | None = None,
) -> list[str]:
    """Write the tables and figures of `studies` below the store's folder, as far as they have changed.

    Args:
        seeds: the only ones to use; None stands for all that have records.

    Returns:
        The names of the studies that were written.

    Raises:
        UserError: the folder cannot be written.
    """
    ledger, code, written = Ledger(store.root), renderer_digest(), []
    for study in studies:
        if study.computed:
            source = computed.fingerprint(study, store.root)
        else:
            source = collect(study, profile, store, seeds).fingerprint()
        fingerprint = hashlib.sha256(f"{code} {source}".encode()).hexdigest()
        if ledger.is_current(study.name, fingerprint):
            continue
        ledger.write(study.name, fingerprint, _files(*make(study, profile, store, seeds)))
        written.append(study.name)
    return written


def make(
    study: Study, profile: Profile, store: Store, seeds: Sequence[int] | None = None
) -> tuple[list[Table], list[Picture]]:
    """All tables and figures of one study, from its records."""
    # Matplotlib, pandas and SciPy take a second to import, which a call without anything to do saves.
    from benchmark.figures import make_figures
    from benchmark.tables import make_tables

    if study.computed:
        return computed.make(study, profile, store.root)
    results = collect(study, profile, store, seeds)
    return make_tables(results), make_figures(results)


def _files(tables: Sequence[Table], figures: Sequence[Picture]) -> dict[str, str | bytes]:
    files: dict[str, str | bytes] = {}
    for table in tables:
        files[f"tables/{table.name}.md"] = table.to_markdown()
        files[f"tables/{table.name}.csv"] = table.to_csv()
        files[f"tables/{table.name}.tex"] = table.to_latex()
    for picture in figures:
        files[f"figures/{picture.name}.svg"] = picture.to_svg()
        files[f"figures/{picture.name}.png"] = picture.to_png()
    return files
