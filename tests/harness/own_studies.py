"""Studies of these tests: a few methods on the digits, with printed figures, one of every kind of table."""

from pathlib import Path

from benchmark.config.settings import SETTINGS
from benchmark.studies.grid import Claim, Column, Grid, Profile, Study, Variant
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


def _study(name: str, *tables: str, rows: tuple = ROWS, columns: tuple = (ONE, OTHER), **more) -> Study:
    return Study(name, f"The {name} of tests", {"own": Grid(rows, columns)}, tables=tables, **more)


_GROUPED = tuple(
    Column(f"{place.title}: {words}", place.setting, changes, paper=place.paper, group=words)
    for place in (ONE, OTHER)
    for words, changes in (("as it is", {}), ("5 epochs", {"local_epochs": 5}))
)
_RATES = tuple(
    Column(f"lr {rate}", "digits-s2", {"lr": rate} if rate != 0.01 else {}) for rate in (0.005, 0.01, 0.02)
)
_POINTS = tuple(Variant(f"Ditto, λ = {lam}", "ditto", hyper={"lam": lam}) for lam in (0.1, 2.0))

MAIN = _study(
    "main", "accuracy", "significance", "ranks", "worst10", "spread", "best-round", "communication",
    paper=PRINTED, highlight="Ditto",
)  # fmt: skip
AS_ROWS = _study("rows", "accuracy", "significance", paper=PRINTED, settings_as_rows=True)
BYTES = _study("bytes", "communication", columns=(ONE, OTHER, TEXTS), remark="Bytes are bytes.")
CALIBRATION = _study("choices", "calibration", rows=(LOCAL, FEDAVG), columns=_GROUPED, paper=PRINTED)
TUNING = _study("search", "tuning", rows=(LOCAL, DITTO, *_POINTS))
RATES = _study("speeds", "rates", rows=(LOCAL, FEDAVG, DITTO), columns=_RATES)
POINTS = _study("values", "points", rows=(LOCAL, DITTO, *_POINTS), columns=(ONE,))
CLAIMS = _study(
    "claims", "claims", borrows=True,
    claims=(Claim("Ditto is best", DITTO, (LOCAL, FEDAVG, TUNED), (PRINTED,)),),
)  # fmt: skip
EVERY = (MAIN, AS_ROWS, BYTES, CALIBRATION, TUNING, RATES, POINTS, CLAIMS)


def results_of(study: Study, store, seeds=None) -> Results:
    return collect(study, PROFILE, store, seeds)
