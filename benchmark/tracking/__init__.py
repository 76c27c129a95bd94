"""Trackers: services elsewhere that are told how runs go, beside the records.

A tracker is one module with a `Tracking` (what was asked for; travels to worker processes in
`benchmark.runner.Execution`) that makes a `Tracker` for every run. Nothing below the harness knows of them,
and whatever fails in one never costs a run.
"""

from benchmark.tracking.base import About, Followed, Tracker, Tracking

__all__ = ["About", "Followed", "Tracker", "Tracking"]
