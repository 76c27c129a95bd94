"""Studies of these tests: a few methods on the digits, with printed figures, one of every kind of table."""

from pathlib import Path

from benchmark.config.settings import SETTINGS
from benchmark.studies.grid import Column, Grid, Profile, Study, Variant
from benchmark.studies.printed import PrintedTable
from benchmark.studies.results import Results, collect

PROFILE = Profile("own", seeds=(0, 1), warning="Made up for tests.")
PRINTED = PrintedTable("own", Path(__file__).with_name("printed.csv"))

LOCAL, FEDAVG, TUNED = (
    Variant("Local Only", "local"),
    Variant("FedAvg", "fedavg"),
    Variant("FedAvg+FT", "fedavg-ft"),
)
DITTO, REP, STAGED = Variant("Ditto", "ditto"), Variant("FedRep", "fedrep"), Variant("Staged", "ppfe")
ROWS = (LOCAL, FEDAVG, TUNED, DITTO, REP, STAGED)
ONE = Column("Digits, S = 2", "digits-s2", paper=("digits", "20", "2"))
OTHER = Column("Digits, α = 0.3", "digits-dir0.3", paper=("digits", "20", "0.3"))
TEXTS = Column(SETTINGS["synth-tweets"].title, "synth-tweets")


def _study(name: str, *tables: str, columns: tuple = (ONE, OTHER), **more) -> Study:
    return Study(name, f"The {name} of tests", {"own": Grid(ROWS, columns)}, tables=tables, **more)


MAIN = _study(
    "main", "accuracy", "significance", "ranks", "worst10", "spread", "best-round", "communication",
    paper=PRINTED, highlight="Ditto",
)  # fmt: skip
AS_ROWS = _study("rows", "accuracy", "significance", paper=PRINTED, settings_as_rows=True)
BYTES = _study("bytes", "communication", columns=(ONE, OTHER, TEXTS))
EVERY = (MAIN, AS_ROWS, BYTES)


def results_of(study: Study, store, seeds=None) -> Results:
    return collect(study, PROFILE, store, seeds)
