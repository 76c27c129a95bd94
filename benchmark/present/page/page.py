"""The page itself, put together from its parts and written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from pfl_benchmark import __version__
from pfl_benchmark.config.fields import setting_in_words
from pfl_benchmark.console.terminal import duration, shown_path
from pfl_benchmark.present.page import mixtures
from pfl_benchmark.present.page.command import command
from pfl_benchmark.present.page.runs import HEADS, MADE_WITH, RUNS, run_blocks, runs_csv
from pfl_benchmark.present.page.section import without_common
from pfl_benchmark.present.render import RenderedFiles, render, renderer_digest, section_file
from pfl_benchmark.records.environment import foreign_rounds
from pfl_benchmark.records.store import Record, Store
from pfl_benchmark.render.forms import size
from pfl_benchmark.render.markup import template
from pfl_benchmark.studies.grid import PlannedRun, Profile, Study, plan

_NAME = "report.html"
_HERE = Path(__file__).resolve().parent
_FEW = 12  # lines that are shown without being asked for


@dataclass
class _Content:
    """What a page is about: the studies' runs, the runs they should have, and what is missing."""

    studies: Sequence[Study]
    profile: Profile
    store: Store
    seeds: Sequence[int] | None  # the only ones to show; None stands for all that have records

    @cached_property
    def records(self) -> list[Record]:
        """All runs of the folder, also those that no study uses."""
        found = [r for r in self.store.records() if self.seeds is None or r.config.seed in self.seeds]
        return sorted(found, key=lambda record: record.folder.name)

    @cached_property
    def planned(self) -> dict[str, PlannedRun]:
        """The runs of the studies, for all seeds that are wanted or have records, by hash."""
        seeds = dict.fromkeys([*self._wanted, *(record.config.seed for record in self.records)])
        return {run.config.hash: run for run in plan(self.studies, self.profile, [*seeds])}

    @cached_property
    def runs(self) -> list[PlannedRun]:
        """Those that should have a record."""
        return [run for run in self.planned.values() if run.config.seed in self._wanted]

    @cached_property
    def missing(self) -> list[PlannedRun]:
        """Those that have none."""
        return [run for run in self.runs if self.store.find(run.config) is None]

    def of(self, study: Study) -> tuple[int, int]:
        """How many runs of a study are done, and how many there are."""
        total = sum(study.name in run.studies for run in self.runs)
        return total - sum(study.name in run.studies for run in self.missing), total

    @property
    def gaps(self) -> dict[str, list[str]]:
        """The runs that have not been run, those that failed or diverged, and damaged records, by heading."""
        failed, damaged = self.store.failed, self.store.damaged
        lost = [record for record in self.records if record.diverged]
        waiting: dict[str, list[str]] = {}
        for run in self.missing:
            if run.config.hash not in failed:
                name, _, seed = run.title.rpartition(", seed ")
                waiting.setdefault(name, []).append(seed)
        titles = {key: run.title for key, run in self.planned.items()}
        return {
            f"Not run yet: {sum(map(len, waiting.values())):,}": [
                f"{name}, seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}" for name, seeds in waiting.items()
            ],
            f"Stopped, since training diverged: {len(failed)}": [
                f"{titles.get(key, f'run {key}')}: {reason}" for key, reason in failed.items()
            ],
            f"Finished, but training diverged: {len(lost)}": [
                f"{titles.get(record.config.hash, record.folder.name)}" for record in lost
            ],
            f"Damaged records, not used: {len(damaged)}": [
                f"{found.folder.name}: {found.reason}" for found in damaged
            ],
        }

    @property
    def source(self) -> tuple[object, ...]:
        """All that the page is made from besides the studies' parts and the program."""
        damaged = [(found.folder.name, found.reason) for found in self.store.damaged]
        digests = [(record.folder.name, record.digest) for record in self.records]
        failed = sorted(self.store.failed.items())
        return (__version__, self.profile, self.seeds, self.studies, damaged, failed, digests)

    @property
    def _wanted(self) -> Sequence[int]:
        return self.profile.seeds if self.seeds is None else self.seeds


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
        *mixtures.cautions(studies, profile, store, seeds),
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
    """Write ``report.html`` and ``runs.csv``, as `write_all` does; returns whether they were written.

    The studies must have been rendered.
    """
    content, rendered = _Content(studies, profile, store, seeds), RenderedFiles(store.root)
    parts = [rendered.fingerprint(study.name) for study in studies]
    runs = sorted(store.records(), key=lambda record: record.folder.name)  # of all seeds
    source = repr((renderer_digest(), parts, content.source, [record.digest for record in runs]))
    fingerprint = hashlib.sha256(source.encode()).hexdigest()
    if rendered.is_current("report", fingerprint) and not again:
        return False
    rendered.write("report", fingerprint, {_NAME: _html(content), RUNS: runs_csv(runs)})
    return True


def _html(content: _Content) -> str:
    records, total, missing = content.records, len(content.runs), len(content.missing)
    seeds = sorted({record.config.seed for record in records})
    studies = [_study(content, study) for study in content.studies]
    parts, common = without_common([str(study["part"]) for study in studies])
    return template(_HERE / "page.html").render(
        name=f"grid {content.profile.name}" if content.profile.again else f"{content.profile.name} profile",
        profile=content.profile,
        version=__version__,
        style=(_HERE / "page.css").read_text(encoding="utf-8"),
        script=(_HERE / "page.js").read_text(encoding="utf-8"),
        missing=missing,
        total=total,
        mixed=mixtures.in_words(mixtures.mixed(records)),
        modified=mixtures.modified(records),
        damaged=len(content.store.damaged),
        facts={
            "Planned runs": f"{total - missing} of {total} done" if total else "none",
            "Records": f"{len(records):,}",
            "Seed" if len(seeds) == 1 else "Seeds": ", ".join(map(str, seeds)) or "–",
            "Training time": duration(sum(record.summary["seconds"] for record in records)),
            "Bytes sent": size(sum(record.bytes_sent for record in records)),
            "Device": ", ".join(mixtures.counts(records, "device")) or "–",
        },
        flags=_flags(content),
        commit=_commit(records),
        studies=[study | {"part": part} for study, part in zip(studies, parts, strict=True)],
        common=[sentence for sentence in common if sentence != content.profile.warning],
        gaps=content.gaps,
        few=_FEW,
        planned=bool(content.planned),
        environment=mixtures.environment(records),
        heads=HEADS,
        runs=records,
        users={key: run.studies for key, run in content.planned.items()},
        made_with=MADE_WITH,
        unknown=mixtures.UNKNOWN,
        setting=partial(setting_in_words, common=content.profile.changes),
        command=command,
        duration=duration,
        foreign_rounds=foreign_rounds,
        blocks=run_blocks,
    )


def _flags(content: _Content) -> str:
    """Those that make this page again."""
    flags = f"--profile {content.profile.name}"
    if content.store.root.resolve().name != content.profile.name:
        flags += " --results-dir DIR"
    return flags if content.seeds is None else f"{flags} --seeds {len(content.seeds)}"


def _commit(records: Sequence[Record]) -> str:
    """The commit that brings back the code of all runs; empty if there is no such."""
    commits = [*mixtures.counts(records, "commit")]
    known = len(commits) == 1 and commits[0] != mixtures.UNKNOWN and not commits[0].endswith("+")
    return commits[0] if known else ""


def _study(content: _Content, study: Study) -> dict[str, object]:
    done, total = content.of(study)
    part = (content.store.root / section_file(study.name)).read_text(encoding="utf-8")
    about = {"name": study.name, "title": study.title, "shows": study.shows}
    return {**about, "done": done, "runs": total, "part": part}
