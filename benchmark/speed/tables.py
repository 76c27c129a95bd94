"""Measurements as tables: for the terminal, and as Markdown for a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pfl_benchmark.render.formats.markdown import grid
from pfl_benchmark.render.forms import size
from pfl_benchmark.render.table import Cell, Head, Table

__all__ = ["TABLES", "as_markdown", "part_of", "tables_of"]

Row = dict[str, Any]


def _times(name: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        low, high = row[f"{name}_range"]
        return f"{row[name]:.2f} ({low:.2f}-{high:.2f})"

    return text


# Columns whose text is not simply the value of the row's key of that name.
_COLUMNS: dict[str, Callable[[Row], str]] = {
    "tf32": lambda row: "yes" if row["tf32"] else "no",
    "epochs": lambda row: str(row.get("local_epochs", 5)),  # files of before say nothing: all took five
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
    "vs one": lambda row: f"{row['times_one']:.2f}",
    "memory": lambda row: size(row["peak_memory"]),
    "calls": lambda row: f"{row['calls']} + {row['passes']}",
    "typical": lambda row: f"{row['typical']:.1e}",
    "largest difference": lambda row: f"{row['difference']:.1e}",
    "equal": lambda row: "yes" if row["equal"] else "NO",
    "same bits": lambda row: "yes" if row["repeatable"] else "no",
}

# What each part is called, and its columns.
TABLES = {
    "cells": (
        "Trainers on the same work: times as fast as plain and loop (least, most of a turn)",
        "cell, executor, epochs, seconds, samples/s, steps/s, GFLOP/s, of product, of copy, vs plain, "
        "vs loop, memory",
    ),
    "cohorts": ("Growth with the cohort", "cell, executor, device, clients, seconds, samples/s"),
    "crowds": (
        "Growth with the clients that sit out",
        "cell, executor, device, clients, seconds, samples/s, memory",
    ),
    "equality": (
        "Equality with the loop (calls: training + forward passes)",
        "cell, method, stage, executor, device, calls, typical, largest difference, equal, same bits",
    ),
    "kernels": (
        "Ways to compute a step of ten clients",
        "cell, way, device, threads, ms a step, samples/s",
    ),
    "tf32": ("TF32", "cell, executor, device, tf32, seconds, samples/s"),
    "runs": ("Whole runs", "cell, method, executor, device, rounds, seconds, samples/s"),
    "side-by-side": (
        "Many runs at the same time",
        "cell, method, device, rounds, runs, jobs, seconds, vs one",
    ),
}
_WORDS = {"cell", "executor", "method", "way", "device"}  # columns of words


def _text(name: str, row: Row) -> str:
    return _COLUMNS[name](row) if name in _COLUMNS else str(row[name])


def tables_of(rows: Iterable[Row]) -> list[Table]:
    """One table for each part that was measured."""
    rows, tables = list(rows), []
    for part, (title, columns) in TABLES.items():
        names = columns.split(", ")
        heads = tuple(Head(name, words=name in _WORDS) for name in names)
        own = [tuple(Cell(_text(name, row)) for name in names) for row in rows if row["part"] == part]
        if own:
            tables.append(Table(title, "", heads, tuple(own)))
    return tables


def as_markdown(found: dict[str, Any]) -> str:
    """A kept measurement as Markdown: where it was made, then its tables."""
    about = found["environment"]
    where = [
        about["device"] if about["kind"] != "cpu" else about["processor"],
        f"{about['cores']} cores, {about['threads']} threads",
        f"PyTorch {about['torch']}",
        f"commit {about['commit'] or 'unknown'}",
    ]
    tables = [f"**{table.title}**\n\n{grid(table)}" for table in tables_of(found["rows"])]
    return "\n\n".join([f"{', '.join(where)}.", *tables])


def part_of(kind: str) -> str:
    """Name of the part of a document (`present.document`) with figures of a kind of device."""
    return f"measured on {kind}"
