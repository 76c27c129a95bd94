"""The page itself: heading, contents, the studies' parts, what is missing, environment and runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

import benchmark
from benchmark.report.mixtures import FIELDS, counts, in_words, mixed, modified
from benchmark.report.runs import run_list
from benchmark.store import Record, Store
from benchmark.studies.grid import Cell, Profile, Study, plan
from benchmark.studies.output import Ledger, renderer_digest, section_file
from benchmark.studies.results import collect
from benchmark.terminal import duration, size

__all__ = ["NAME", "mixed_studies", "write_page"]

NAME = "report.html"

_HERE = Path(__file__).resolve().parent
# Nothing is fetched from anywhere, whatever the page holds.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
# Before anything is drawn, lest the other theme flash up.
_EARLY = (
    'try { const theme = localStorage.getItem("pfl-theme"); if (theme !== "automatic" && theme) '
    "document.documentElement.dataset.theme = theme; } catch { /* as the system has it */ }"
)
_ENVIRONMENT = {
    "version": "benchmark",
    "commit": "commit",
    "torch": "PyTorch",
    "python": "Python",
    "numpy": "NumPy",
    "device": "device",
    "executor": "executor",
    "processor": "processor",
    "cores": "cores",
    "system": "system",
}


def write_page(
    studies: Sequence[Study],
    profile: Profile,
    store: Store,
    seeds: Sequence[int] | None = None,
    again: bool = False,
) -> bool:
    """Write ``report.html`` into the store's folder, unless it is up to date; `render` the studies first.

    Args:
        seeds: the only ones to show; None stands for all that have records.
        again: write it even then.

    Returns:
        Whether it was written.

    Raises:
        UserError: it cannot be written.
    """
    page, ledger = _Page(studies, profile, store, seeds), Ledger(store.root)
    parts = [ledger.fingerprint(study.name) for study in studies]
    source = repr((renderer_digest(), parts, page.source))
    fingerprint = hashlib.sha256(source.encode()).hexdigest()
    if ledger.is_current("report", fingerprint) and not again:
        return False
    ledger.write("report", fingerprint, {NAME: page.html()})
    return True


def mixed_studies(
    studies: Sequence[Study], profile: Profile, store: Store, seeds: Sequence[int] | None = None
) -> list[str]:
    """A line for every kind of mixture, with the studies whose tables have it; none if there is none."""
    names: dict[str, list[str]] = {}
    for study in studies:
        if not study.computed:
            found = mixed(collect(study, profile, store, seeds).all())
            for field in found:
                names.setdefault(FIELDS[field], []).append(study.name)
    return [f"tables mix {what}: {', '.join(where)}" for what, where in names.items()]


@dataclass
class _Page:
    studies: Sequence[Study]
    profile: Profile
    store: Store
    seeds: Sequence[int] | None

    @cached_property
    def records(self) -> list[Record]:
        found = [r for r in self.store.records() if self.seeds is None or r.config.seed in self.seeds]
        return sorted(found, key=lambda record: record.folder.name)

    @cached_property
    def cells(self) -> list[Cell]:
        return plan(self.studies, self.profile, self.seeds or self.profile.seeds)

    @cached_property
    def missing(self) -> list[Cell]:
        return [cell for cell in self.cells if self.store.find(cell.config) is None]

    @cached_property
    def users(self) -> dict[str, tuple[str, ...]]:
        """The studies that use a run, by the hash of its configuration, whatever its seed."""
        seeds = sorted({record.config.seed for record in self.records})
        return {cell.config.hash: cell.studies for cell in plan(self.studies, self.profile, seeds)}

    @property
    def source(self) -> tuple[object, ...]:
        """All that the page is made from besides the studies' parts."""
        damaged = [(found.folder.name, found.reason) for found in self.store.damaged]
        digests = [(record.folder.name, record.digest) for record in self.records]
        failed = sorted(self.store.failed.items())
        return (benchmark.__version__, self.profile, self.seeds, self.studies, damaged, failed, digests)

    def html(self) -> str:
        title = f"pfl-benchmark, {self.profile.name} profile"
        style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
        sections = {
            "repeat": ("How to repeat", self._repeat()),
            **{f"study-{study.name}": (study.title, self._study(study)) for study in self.studies},
            "cells": ("Cells without a record", self._cells()),
            "environment": ("Versions and hardware", self._environment()),
            "runs": ("Runs", self._runs()),
        }
        body = "\n".join(
            f'<section id="{key}" aria-labelledby="{key}-title">\n{self._heading(key, heading)}\n{content}\n</section>'
            for key, (heading, content) in sections.items()
        )
        return (
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n'
            f"<script>{_EARLY}</script>\n<style>\n{style}</style>\n"
            "<noscript><style>tr[hidden] { display: table-row; } .filter, .theme { display: none; }</style>"
            f'</noscript>\n</head>\n<body>\n<a class="skip" href="#content">Skip to the content</a>\n'
            f'{self._header()}\n<div class="columns">\n{self._contents()}\n'
            f'<main id="content">\n{body}\n</main>\n</div>\n'
            f"<footer><p>pfl-benchmark {benchmark.__version__}. Made from the records of this folder alone; "
            f"needs no network.</p></footer>\n<script>\n{script}</script>\n</body>\n</html>\n"
        )

    # -- above and beside -------------------------------------------------------------------------------

    def _header(self) -> str:
        done, total = len(self.cells) - len(self.missing), len(self.cells)
        facts = {
            "Cells": f"{done} of {total} done" if total else "none",
            "Runs": f"{len(self.records):,}",
            "Seeds": ", ".join(map(str, sorted({r.config.seed for r in self.records}))) or "–",
            "Training time": duration(sum(r.summary["seconds"] for r in self.records)),
            "Bytes sent": size(sum(_sent(record) for record in self.records)),
            "Device": ", ".join(counts(self.records, "device")) or "–",
        }
        entries = "".join(
            f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items()
        )
        return (
            '<header class="top"><div class="bar"><p class="brand">pfl-benchmark</p>'
            '<button type="button" class="theme" id="theme">Theme: automatic</button></div>\n'
            f"<h1>Personalized federated learning, {escape(self.profile.name)} profile</h1>\n"
            '<p class="lead">Methods compared on one engine: the same data, cohorts, initial weights and batch '
            "orders for all methods of a seed. Every number comes from a record; accuracy is that of the last "
            f'round, never of the best one.</p>\n{self._notices()}\n<dl class="facts">{entries}</dl></header>'
        )

    def _notices(self) -> str:
        lines = [f"<strong>{escape(self.profile.warning)}</strong>"] if self.profile.warning else []
        if self.missing:
            lines.append(
                f'<strong>Incomplete:</strong> {len(self.missing)} of {len(self.cells)} <a href="#cells">cells '
                "have no record</a>; tables show them as –."
            )
        if found := mixed(self.records):
            lines.append(
                f'<strong>Mixed:</strong> these runs come from <a href="#environment">{in_words(found)}</a>. '
                "Tables in which that is so say it."
            )
        if count := modified(self.records):
            lines.append(
                f"<strong>Modified code:</strong> {count} run{'s' * (count > 1)} made with code that differs "
                "from the commit (marked +)."
            )
        if self.store.damaged:
            lines.append(
                f'<strong>Damaged:</strong> {len(self.store.damaged)} <a href="#cells">records cannot be read</a>.'
            )
        return "".join(f'<p class="notice">{line}</p>' for line in lines)

    def _contents(self) -> str:
        links = [("repeat", "How to repeat")]
        links += [(f"study-{study.name}", study.name) for study in self.studies]
        links += [("cells", "cells without a record"), ("environment", "versions and hardware")]
        links.append(("runs", f"runs ({len(self.records)})"))
        items = "".join(f'<li><a href="#{key}">{escape(text)}</a></li>' for key, text in links)
        return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'

    def _heading(self, key: str, heading: str) -> str:
        name = key.removeprefix("study-")
        small = ""
        if name != key:
            own = [cell for cell in self.cells if name in cell.studies]
            done = sum(self.store.find(cell.config) is not None for cell in own)
            small = f'<p class="small"><code>{name}</code>'
            small += f" · {done} of {len(own)} cells done</p>" if own else "</p>"
        return f'{small}<h2 id="{key}-title">{escape(heading)}</h2>'

    # -- sections -----------------------------------------------------------------------------------------

    def _repeat(self) -> str:
        flags = f"--profile {self.profile.name}"
        if self.store.root.name != self.profile.name:
            flags += " --results-dir DIR"
        if self.seeds is not None:
            flags += f" --seeds {len(self.seeds)}"
        commits = [name for name in counts(self.records, "commit") if not name.startswith("not ")]
        same = len(commits) == 1 and not commits[0].endswith("+")
        lines = [f"git checkout {commits[0]}"] if same else []
        lines += [
            f"./run_all.sh {flags}",
            f"python -m benchmark report {flags}",
        ]
        meaning = "The first line sets the code back. " if same else ""
        return (
            f"<pre><code>{escape(chr(10).join(lines))}</code></pre>\n<p>{meaning}<code>run_all.sh</code> makes "
            "the runs that are missing, then tables, figures and this page; <code>report</code> makes those from "
            'the records alone. The command of every single run stands in the <a href="#runs">list of runs</a>.</p>'
        )

    def _study(self, study: Study) -> str:
        return (self.store.root / section_file(study.name)).read_text(encoding="utf-8")

    def _cells(self) -> str:
        parts = []
        waiting = [cell for cell in self.missing if cell.config.hash not in self.store.failed]
        if waiting:
            by_name: dict[str, list[str]] = {}
            for cell in waiting:
                name, _, seed = cell.title.rpartition(", seed ")
                by_name.setdefault(name, []).append(seed)
            lines = [f"{name}, seed{'s' * (len(s) > 1)} {', '.join(s)}" for name, s in by_name.items()]
            parts.append(_list(f"Not run yet: {len(waiting)}", lines, opened=len(lines) <= 12))
        titles = {cell.config.hash: cell.title for cell in self.cells}
        failed = [f"{titles.get(key, key)}: {reason}" for key, reason in self.store.failed.items()]
        if failed:
            parts.append(_list(f"Failed, since training diverged: {len(failed)}", failed, opened=True))
        damaged = [f"{found.folder.name}: {found.reason}" for found in self.store.damaged]
        if damaged:
            parts.append(_list(f"Damaged records, not used: {len(damaged)}", damaged, opened=True))
        return "\n".join(parts) or "<p>None: every cell of these studies has a record.</p>"

    def _environment(self) -> str:
        rows = []
        for field, title in _ENVIRONMENT.items():
            found = counts(self.records, field)
            several = field in FIELDS and len(found) > 1
            values = ", ".join(
                f"{escape(value)}{f' ({count} runs)' if len(found) > 1 else ''}"
                for value, count in found.most_common()
            )
            badge = ' <span class="badge">mixed</span>' if several else ""
            rows.append(f'<tr><th scope="row">{title}{badge}</th><td>{values or "–"}</td></tr>')
        return (
            "<p>Accuracies of different versions, devices and executors differ by float rounding at least; "
            "seconds of different hardware cannot be compared.</p>\n"
            '<figure class="table"><div class="scroll" role="region" tabindex="0" aria-labelledby="made-with">'
            '<table class="wrap"><caption class="unseen" id="made-with">What the runs were made with</caption>'
            f"<tbody>{''.join(rows)}</tbody></table></div></figure>"
        )

    def _runs(self) -> str:
        if not self.records:
            return "<p>There is no record yet.</p>"
        return run_list(self.records, self.users, self.profile)


def _list(title: str, lines: Sequence[str], opened: bool) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    state = " open" if opened else ""
    return f'<details class="cells"{state}><summary>{escape(title)}</summary><ul>{items}</ul></details>'


def _sent(record: Record) -> float:
    summary: Mapping[str, float] = record.summary
    return sum(summary[name] for name in ("bytes_up", "bytes_down", "bytes_broadcast"))
