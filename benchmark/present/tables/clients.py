"""Accuracy of every single client, where clients are the same users with every seed."""

from __future__ import annotations

from statistics import fmean

import numpy as np

from pfl_benchmark.present.tables.captions import SELECTION, caption
from pfl_benchmark.present.tables.places import heads
from pfl_benchmark.render.quantiles import MANY, QUANTILES
from pfl_benchmark.render.table import Cell, Table
from pfl_benchmark.studies.results import Results

_MOST = 50  # columns; more are for the figure of client accuracies


def clients(results: Results) -> Table:
    """Methods × clients, of the first setting with at most 50 clients that are all of the data's users.

    Without such a setting methods × quantiles over clients, of the first with many clients.
    """
    column = next((column for column in results.begun if _fixed(results, column)), "")
    if not column and (large := next((column for column in results.begun if _large(results, column)), "")):
        return _quantiles(results, large)
    rows = [row for row in results.rows if results.at(row, column)]
    accuracies = {row: [record.accuracies for record in results.at(row, column)] for row in rows}
    means = {row: list(map(fmean, zip(*seeds, strict=True))) for row, seeds in accuracies.items()}
    text = (
        f"{column or 'No setting'}: test accuracy in % of every client {SELECTION}, mean over the seeds that "
        "the method has, without decimals. A client is the same user with every seed."
    )
    return Table(
        title="Accuracy of every client",
        caption=caption(results, text, spread=False),
        heads=heads("method", *map(str, range(len(means[rows[0]]) if rows else 0))),
        rows=tuple(
            (
                Cell(row),
                *(
                    Cell(100 * mean, ".0f", facts={"client": client, "method": row, "mean": 100 * mean})
                    for client, mean in enumerate(means[row])
                ),
            )
            for row in rows
        ),
        fields=("client", "method", "mean"),
        line="column",
    )


def _quantiles(results: Results, column: str) -> Table:
    """Methods × quantiles of accuracy over the clients of a setting."""
    rows, shares = [], [*QUANTILES.values()]
    for row in results.rows:
        if found := [np.percentile(record.accuracies, shares) for record in results.at(row, column)]:
            means = 100 * np.mean(found, axis=0)
            told = [
                Cell(float(mean), ".0f", facts={"quantile": name, "method": row, "mean": float(mean)})
                for name, mean in zip(QUANTILES, means, strict=True)
            ]
            rows.append((Cell(row), *told))
    text = (
        f"{column}: quantiles, over clients, of their test accuracies in % {SELECTION}, mean over the seeds "
        "that the method has, without decimals."
    )
    return Table(
        title="Accuracy of clients",
        caption=caption(results, text, spread=False),
        heads=heads("method", *QUANTILES),
        rows=tuple(rows),
        fields=("quantile", "method", "mean"),
        line="column",
    )


def _large(results: Results, column: str) -> bool:
    return any(config.clients > MANY for place, config in results.configs.items() if place[1] == column)


def _fixed(results: Results, column: str) -> bool:
    """Whether a client is the same user with every seed; users have test samples in numbers of their own."""
    configs = [config for place, config in results.configs.items() if place[1] == column]
    found = [record for row in results.rows for record in results.at(row, column)]
    if len({tuple(record.test_samples.tolist()) for record in found}) > 1:
        return False
    return all(
        config.partitioner.by_user
        and config.partition != "domains"
        and not config.new_clients
        and config.clients <= _MOST
        and getattr(config.partitioner, "user_pool", 0) in (0, config.clients)
        for config in configs
    )
