"""Whether a clustered method has found the groups that a shift has made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Found:
    """Clusters of a run's clients beside their groups.

    Attributes:
        groups, clusters: how many have a client.
        right: the share of clients in the right cluster (`right_clusters`).
    """

    groups: int
    clusters: int
    right: float


def clusters_found(record: Record) -> Found | None:
    """What a run has found; None without groups from its start, or where the method has no clusters."""
    clusters = record.diagnostics.get("clusters")
    known = (facts for facts in record.shifts.values() if "drifting" not in facts)
    groups = next((facts["groups"] for facts in known if "groups" in facts), None)
    if groups is None or not isinstance(clusters, list) or len(clusters) > len(groups):
        return None
    groups = groups[: len(clusters)]
    return Found(len({*groups}), len({*clusters}), right_clusters(groups, clusters))
