"""Whether a clustered method has found the groups that a shift has made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfl_benchmark.records.record import Record


def right_clusters(groups: Sequence[int], clusters: Sequence[int]) -> float:
    """The share of clients in the right cluster, where clusters are named after groups as well as possible.

    A cluster stands for one group at most: all clients in one cluster are as many right as the largest group.
    """
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((max(groups) + 1, max(clusters) + 1), dtype=np.int64)
    np.add.at(table, (np.asarray(groups), np.asarray(clusters)), 1)
    return float(table[linear_sum_assignment(-table)].sum() / len(groups))


def clusters_found(record: Record) -> float | None:
    """`right_clusters` of a run's clients; None without groups, or where the method has no clusters."""
    clusters = record.diagnostics.get("clusters")
    groups = next((facts["groups"] for facts in record.shifts.values() if "groups" in facts), None)
    if groups is None or not isinstance(clusters, list) or len(clusters) > len(groups):
        return None
    return right_clusters(groups[: len(clusters)], clusters)
