"""The page itself, put together from its parts and written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import benchmark
from benchmark.console.terminal import duration
from benchmark.present.files import RenderedFiles, renderer_digest, section_file
from benchmark.present.page.content import Content, bytes_sent
from benchmark.present.page.flat import RUNS, runs_csv
from benchmark.present.page.mixtures import UNKNOWN, counts, in_words, mixed, modified
from benchmark.present.page.runs import HEADS, run_entry
from benchmark.present.page.state import environment, gaps
from benchmark.records.store import Record, Store
from benchmark.render.forms import size
from benchmark.render.markup import template
from benchmark.studies.grid import Profile, Study

__all__ = ["NAME", "write_page"]

NAME = "report.html"

_HERE = Path(__file__).resolve().parent
_FEW = 12  # lines that are shown without being asked for


def write_page(
    studies: Sequence[Study],
    profile: Profile,
    store: Store,
    seeds: Sequence[int] | None = None,
    again: bool = False,
) -> bool:
    """Write ``report.html`` and ``runs.csv`` into the store's folder, unless they are up to date.

    `render` the studies first.

    Args:
        seeds: the only ones to show; None stands for all that have records.
        again: write them even then.

    Returns:
        Whether they were written.

    Raises:
        UserError: they cannot be written.
    """
    content, rendered = Content(studies, profile, store, seeds), RenderedFiles(store.root)
    parts = [rendered.fingerprint(study.name) for study in studies]
    runs = sorted(store.records(), key=lambda record: record.folder.name)  # of all seeds
    source = repr((renderer_digest(), parts, content.source, [record.digest for record in runs]))
    fingerprint = hashlib.sha256(source.encode()).hexdigest()
    if rendered.is_current("report", fingerprint) and not again:
        return False
    rendered.write("report", fingerprint, {NAME: _html(content), RUNS: runs_csv(runs)})
    return True


def _html(content: Content) -> str:
    records, total, missing = content.records, len(content.cells), len(content.missing)
    users = {key: cell.studies for key, cell in content.planned.items()}
    return template(_HERE / "page.html").render(
        profile=content.profile,
        version=benchmark.__version__,
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        script=(_HERE / "page.js").read_text(encoding="utf-8"),
        missing=missing,
        total=total,
        mixed=in_words(mixed(records)),
        modified=modified(records),
        damaged=len(content.store.damaged),
        facts={
            "Cells": f"{total - missing} of {total} done" if total else "none",
            "Runs": f"{len(records):,}",
            "Seeds": ", ".join(map(str, sorted({record.config.seed for record in records}))) or "–",
            "Training time": duration(sum(record.summary["seconds"] for record in records)),
            "Bytes sent": size(sum(map(bytes_sent, records))),
            "Device": ", ".join(counts(records, "device")) or "–",
        },
        flags=_flags(content),
        commit=_commit(records),
        studies=[_study(content, study) for study in content.studies],
        gaps=gaps(content),
        few=_FEW,
        planned=bool(content.planned),
        environment=environment(content),
        heads=HEADS,
        runs=[run_entry(record, users.get(record.config.hash, ()), content.profile) for record in records],
    )


def _flags(content: Content) -> str:
    """Those that make this page again."""
    flags = f"--profile {content.profile.name}"
    if content.store.root.resolve().name != content.profile.name:
        flags += " --results-dir DIR"
    return flags if content.seeds is None else f"{flags} --seeds {len(content.seeds)}"


def _commit(records: Sequence[Record]) -> str:
    """The commit that brings back the code of all runs; empty if there is no such."""
    commits = [*counts(records, "commit")]
    known = len(commits) == 1 and commits[0] != UNKNOWN and not commits[0].endswith("+")
    return commits[0] if known else ""


def _study(content: Content, study: Study) -> dict[str, object]:
    done, total = content.of(study)
    part = (content.store.root / section_file(study.name)).read_text(encoding="utf-8")
    return {"name": study.name, "title": study.title, "done": done, "cells": total, "part": part}
