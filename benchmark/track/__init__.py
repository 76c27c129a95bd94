"""Trackers: services elsewhere that are told how runs go, beside the records.

A tracker is one module with a `Tracking` (what was asked for; travels to worker processes in
`experiment.execution.Execution`) that makes a `Tracker` for every run. Nothing below knows of them,
and whatever fails in one never costs a run.
"""
