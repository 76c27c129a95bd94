"""Tables that only this paper needs."""

from pfl_benchmark.papers.ppfe.tables.claims import claims
from pfl_benchmark.papers.ppfe.tables.protocol import calibration
from pfl_benchmark.papers.ppfe.tables.stages import stages, stages_sent

__all__ = ["TABLES"]

TABLES = {
    "stages": stages,
    "stages-sent": stages_sent,
    "claims": claims,
    "calibration": calibration,
}
