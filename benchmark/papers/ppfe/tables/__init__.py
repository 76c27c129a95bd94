"""Tables that only this paper needs."""

from benchmark.papers.ppfe.tables.stages import stages

__all__ = ["TABLES"]

TABLES = {"stages": stages}
