"""Accuracy of every single client, where clients are the same users with every seed."""

from __future__ import annotations

from statistics import fmean

from benchmark.present.tables.captions import SELECTION, caption
from benchmark.present.tables.places import heads, scaled
from benchmark.render.table import Cell, Plain, Table
from benchmark.studies.results import Results

__all__ = ["clients"]

_MOST = 50  # rows; more are for the figure of client accuracies


def clients(results: Results) -> Table:
    """Clients × methods, of the first setting with at most 50 clients that are all of the data's users."""
    column = next((column for column in results.begun if _fixed(results, column)), "")
    rows = [row for row in results.rows if results.at(row, column)]
    lines = []
    if rows:
        accuracies = {row: [record.accuracies for record in results.at(row, column)] for row in rows}
        for client in range(len(accuracies[rows[0]][0])):
            means = {row: fmean(seed[client] for seed in seeds) for row, seeds in accuracies.items()}
            best = max(round(100 * mean, 2) for mean in means.values())
            lines.append((Cell(str(client)), *(_cell(client, *item, best) for item in means.items())))
    text = (
        f"{column or 'No setting'}: test accuracy in % of every client {SELECTION}, mean over the seeds that "
        "the method has. A client is the same user with every seed. Bold: best of its row."
    )
    return Table(
        title="Accuracy of every client",
        caption=caption(results, text, spread=False),
        heads=heads("client", *rows),
        rows=tuple(lines),
        fields=("client", "method", "mean"),
        line="cell",
    )


def _fixed(results: Results, column: str) -> bool:
    configs = [config for place, config in results.configs.items() if place[1] == column]
    return all(
        config.law.by_user
        and config.clients <= _MOST
        and getattr(config.law, "user_pool", 0) in (0, config.clients)
        for config in configs
    )


def _cell(client: int, row: str, mean: float, best: float) -> Cell:
    facts: dict[str, Plain] = {"client": client, "method": row, "mean": scaled(mean)}
    return Cell(mean, "percent", best=round(100 * mean, 2) == best, facts=facts)
