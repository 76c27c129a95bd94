"""The top of the page: what it is, what to beware of, the contents, and how to repeat it."""

from __future__ import annotations

from html import escape

from benchmark.console.terminal import duration
from benchmark.present.page.content import Content, bytes_sent
from benchmark.present.page.mixtures import UNKNOWN, counts, in_words, mixed, modified
from benchmark.render.forms import size

__all__ = ["contents", "header", "repeat"]

_LEAD = (
    "Methods compared on one engine: the same data, cohorts, initial weights and batch orders for all "
    "methods of a seed. Every number comes from a record; accuracy is that of the last round, never "
    "of the best one."
)


def header(content: Content) -> str:
    """Title, notices and the main facts."""
    records, total = content.records, len(content.cells)
    facts = {
        "Cells": f"{total - len(content.missing)} of {total} done" if total else "none",
        "Runs": f"{len(records):,}",
        "Seeds": ", ".join(map(str, sorted({record.config.seed for record in records}))) or "–",
        "Training time": duration(sum(record.summary["seconds"] for record in records)),
        "Bytes sent": size(sum(map(bytes_sent, records))),
        "Device": ", ".join(counts(records, "device")) or "–",
    }
    entries = "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items())
    notices = "".join(f'<p class="notice">{line}</p>' for line in _notices(content))
    return (
        '<header class="top"><div class="bar"><p class="brand">pfl-benchmark</p>'
        '<button type="button" class="theme" id="theme">Theme: automatic</button></div>\n'
        f"<h1>Personalized federated learning, {escape(content.profile.name)} profile</h1>\n"
        f'<p class="lead">{_LEAD}</p>\n{notices}\n<dl class="facts">{entries}</dl></header>'
    )


def _notices(content: Content) -> list[str]:
    """What a reader must know before the first number, as HTML."""
    lines = [f"<strong>{escape(content.profile.warning)}</strong>"] if content.profile.warning else []
    if content.missing:
        lines.append(
            f"<strong>Incomplete:</strong> {len(content.missing):,} of {len(content.cells):,} "
            '<a href="#cells">cells have no record</a>; tables show them as –.'
        )
    if found := mixed(content.records):
        lines.append(
            f'<strong>Mixed:</strong> these runs come from <a href="#environment">{in_words(found)}</a>. '
            "Tables of such runs say so."
        )
    if count := modified(content.records):
        lines.append(
            f"<strong>Modified code:</strong> {count} run{'s' * (count > 1)} made with code that differs "
            "from the commit (marked +)."
        )
    if damaged := content.store.damaged:
        lines.append(
            f'<strong>Damaged:</strong> <a href="#cells">{len(damaged)} '
            f"record{'s' * (len(damaged) > 1)}</a> cannot be read and count as missing."
        )
    return lines


def contents(content: Content) -> str:
    """Links to all sections."""
    links = {
        "repeat": "How to repeat",
        **{f"study-{study.name}": study.name for study in content.studies},
        "cells": "Cells without a record",
        "environment": "Versions and hardware",
        "runs": f"All runs ({len(content.records):,})",
    }
    items = "".join(f'<li><a href="#{key}">{escape(text)}</a></li>' for key, text in links.items())
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'


def repeat(content: Content) -> str:
    """The commands that make the runs and this page."""
    flags = f"--profile {content.profile.name}"
    if content.store.root.resolve().name != content.profile.name:
        flags += " --results-dir DIR"
    if content.seeds is not None:
        flags += f" --seeds {len(content.seeds)}"
    commits = counts(content.records, "commit")
    commit = next(iter(commits), UNKNOWN)
    known = len(commits) == 1 and commit != UNKNOWN and not commit.endswith("+")
    lines = [f"git checkout {commit}"] if known else []
    lines += [f"./run_all.sh {flags}", f"python -m benchmark report {flags}"]
    text = "\n".join(lines)
    return (
        f"<pre><code>{escape(text)}</code></pre>\n"
        f"<p>{'The first line brings back the code of these runs. ' if known else ''}<code>run_all.sh</code> "
        "makes the runs that are missing, then tables, figures and this page; <code>report</code> makes "
        "those from the records alone. The command of every single run stands in the "
        '<a href="#runs">list of runs</a>.</p>'
    )
