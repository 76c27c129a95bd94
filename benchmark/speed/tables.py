"""Measurements as tables in Markdown, for the terminal and for a document."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tabulate import tabulate

from pfl_benchmark.render.forms import size

Row = dict[str, Any]


def _times(name: str) -> Callable[[Row], str]:
    return lambda row: "{:.2f} ({:.2f}-{:.2f})".format(row[name], *row[f"{name}_range"])


# Columns whose text is not simply the value of the row's key of that name.
_COLUMNS: dict[str, Callable[[Row], str]] = {
    "epochs": lambda row: str(row.get("local_epochs", 5)),  # kept files of before say nothing: all took five
    "clients": lambda row: f"{row['clients']}" + (f" of {row['crowd']:,}" if "crowd" in row else ""),
    "seconds": lambda row: f"{row['seconds']:.3f}",
    "ms a step": lambda row: f"{row['milliseconds']:.2f}",
    "samples/s": lambda row: f"{row['samples_per_second']:,.0f}",
    "steps/s": lambda row: f"{row['client_steps_per_second']:,.0f}",
    "GFLOP/s": lambda row: f"{row['flops'] / 1e9:,.1f}",
    "of product": lambda row: f"{100 * row['share_of_product']:.0f} %",
    "of copy": lambda row: f"{100 * row['share_of_copy']:.0f} %",
    "vs plain": _times("times_plain"),
    "vs loop": _times("times_loop"),
    "CPU seconds": lambda row: f"{row['cpu_seconds']:.3f}",
    "checkpoint": lambda row: size(row["checkpoint_bytes"]),
    "memory": lambda row: size(row["peak_memory"]),
    "calls": lambda row: f"{row['calls']} + {row['passes']}",
    "typical": lambda row: f"{row['typical']:.1e}",
    "largest difference": lambda row: f"{row['difference']:.1e}",
    "equal": lambda row: "yes" if row["equal"] else "NO",
    "same bits": lambda row: "yes" if row["repeatable"] else "no",
}
_WORDS = {"cell", "executor", "method", "way", "device"}  # columns of words

# What each part is called, and its columns; those of which a file has nothing are left out.
TABLES = {
    "cells": (
        "Trainers on the same work: times as fast as plain and loop (least, most of a turn)",
        "cell, executor, epochs, seconds, samples/s, steps/s, GFLOP/s, of product, of copy, vs plain, "
        "vs loop, memory",
    ),
    "cohorts": ("Growth with the cohort", "cell, executor, epochs, device, clients, seconds, samples/s"),
    "crowds": (
        "Growth with the clients that sit out",
        "cell, executor, device, clients, seconds, samples/s, memory",
    ),
    "equality": (  # a part of earlier versions, as is kernels
        "Equality with the loop (calls: training + forward passes)",
        "cell, method, stage, executor, device, calls, typical, largest difference, equal, same bits",
    ),
    "kernels": ("Ways to compute a step of ten clients", "cell, way, device, threads, ms a step, samples/s"),
    "runs": ("Whole runs", "cell, method, executor, device, rounds, seconds, samples/s"),
    "scale": (
        "A round and its checkpoint as the number of clients grows, all of whom keep something",
        "cell, method, executor, device, clients, seconds, CPU seconds, checkpoint, memory",
    ),
}


def as_markdown(rows: Sequence[Row]) -> str:
    """A table for each part that was measured."""
    tables = []
    for part, (title, columns) in TABLES.items():
        texts = [
            {name: text for name in columns.split(", ") if (text := _text(name, row))}
            for row in rows
            if row["part"] == part
        ]
        if texts:
            align = ["left" if name in _WORDS else "right" for name in texts[0]]
            table = tabulate(texts, "keys", "pipe", disable_numparse=True, colalign=align)
            tables.append(f"**{title}**\n\n{table}")
    return "\n\n".join(tables)


def only_in(document: str, parts: Collection[str]) -> list[str]:
    """The parts of a measurement whose tables a document's text has, and which are not among `parts`."""
    return [part for part, (title, _) in TABLES.items() if part not in parts and f"**{title}**" in document]


def _text(name: str, row: Row) -> str:
    """A row's text in a column; empty where the row does not tell."""
    with contextlib.suppress(KeyError):
        return _COLUMNS[name](row) if name in _COLUMNS else str(row[name])
    return ""


def document_part(found: dict[str, Any]) -> tuple[str, str]:
    """Name and text of the part of a document with a kept measurement: where it was made, then its tables."""
    about = found["environment"]
    where = (
        f"{about['device'] if about['kind'] != 'cpu' else about['processor']}, {about['cores']} cores, "
        f"{about['threads']} threads, PyTorch {about['torch']}, commit {about['commit'] or 'unknown'}."
    )
    return part_of(about["kind"]), f"{where}\n\n{as_markdown(found['rows'])}"


def part_of(kind: str) -> str:
    """Name of the part of a document (`present.document`) with figures of a kind of device."""
    return f"measured on {kind}"
