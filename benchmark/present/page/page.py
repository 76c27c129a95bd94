"""The page itself, put together from its parts and written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pfl_benchmark import __version__
from pfl_benchmark.config.fields import setting_in_words
from pfl_benchmark.console.terminal import duration, shown_path
from pfl_benchmark.present.page.command import command
from pfl_benchmark.present.page.content import Content
from pfl_benchmark.present.page.mixtures import (
    UNKNOWN,
    cautions,
    counts,
    environment,
    in_words,
    mixed,
    modified,
)
from pfl_benchmark.present.page.runs import HEADS, MADE_WITH, RUNS, run_blocks, runs_csv
from pfl_benchmark.present.render import RenderedFiles, render, renderer_digest, section_file
from pfl_benchmark.records.environment import foreign_rounds
from pfl_benchmark.records.store import Record, Store
from pfl_benchmark.render.forms import size
from pfl_benchmark.render.markup import template
from pfl_benchmark.studies.grid import Profile, Study

__all__ = ["write_all", "write_page"]

_NAME = "report.html"
_HERE = Path(__file__).resolve().parent
_FEW = 12  # lines that are shown without being asked for


def write_all(
    studies: Sequence[Study],
    profile: Profile,
    store: Store,
    seeds: Sequence[int] | None = None,
    again: bool = False,
) -> tuple[list[str], list[str]]:
    """Write tables, figures and the page into the store's folder, as far as they have changed.

    Args:
        seeds: the only ones to show; None stands for all that have records.
        again: also write what has not changed.

    Returns:
        The names of the studies that were written, and lines to print: cautions, and where the page is.

    Raises:
        UserError: the folder cannot be written.
    """
    written = render(studies, profile, store, seeds, again)
    write_page(studies, profile, store, seeds, again)
    return written, [
        *cautions(studies, profile, store, seeds),
        f"{shown_path(store.root / RUNS)}  every run, for pandas and the like",
        shown_path(store.root / _NAME),
    ]


def write_page(
    studies: Sequence[Study],
    profile: Profile,
    store: Store,
    seeds: Sequence[int] | None = None,
    again: bool = False,
) -> bool:
    """Write ``report.html`` and ``runs.csv``, as `write_all` does; the studies must have been rendered.

    Returns:
        Whether they were written.
    """
    content, rendered = Content(studies, profile, store, seeds), RenderedFiles(store.root)
    parts = [rendered.fingerprint(study.name) for study in studies]
    runs = sorted(store.records(), key=lambda record: record.folder.name)  # of all seeds
    source = repr((renderer_digest(), parts, content.source, [record.digest for record in runs]))
    fingerprint = hashlib.sha256(source.encode()).hexdigest()
    if rendered.is_current("report", fingerprint) and not again:
        return False
    rendered.write("report", fingerprint, {_NAME: _html(content), RUNS: runs_csv(runs)})
    return True


def _html(content: Content) -> str:
    records, total, missing = content.records, len(content.runs), len(content.missing)
    return template(_HERE / "page.html").render(
        name=f"{content.profile.name} profile",
        profile=content.profile,
        version=__version__,
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
            "Bytes sent": size(sum(record.bytes_sent for record in records)),
            "Device": ", ".join(counts(records, "device")) or "–",
        },
        flags=_flags(content),
        commit=_commit(records),
        studies=[_study(content, study) for study in content.studies],
        gaps=content.gaps,
        few=_FEW,
        planned=bool(content.planned),
        environment=environment(records),
        heads=HEADS,
        runs=records,
        users={key: cell.studies for key, cell in content.planned.items()},
        made_with=MADE_WITH,
        unknown=UNKNOWN,
        setting=partial(setting_in_words, common=content.profile.changes),
        command=command,
        duration=duration,
        foreign_rounds=foreign_rounds,
        blocks=run_blocks,
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
