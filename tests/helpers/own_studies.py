"""Studies of these tests: a few methods on the digits, printed figures, every kind of table and figure."""

from pathlib import Path

from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.studies.catalogue import STUDIES
from pfl_benchmark.studies.grid import Column, Grid, Profile, Study, Variant
from pfl_benchmark.studies.points import at_rates, own_points, validation, with_points
from pfl_benchmark.studies.printed import PrintedTable
from pfl_benchmark.studies.results import Results, collect

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


def _study(
    name: str, *tables: str, rows=ROWS, columns=(ONE, OTHER), profiles=("own", "quick"), **more
) -> Study:
    grids = dict.fromkeys(profiles, Grid(rows, columns))
    return Study(name, f"The {name} of tests", grids, tables=tables, **more)


MAIN = _study(
    "main", "accuracy", "significance", "ranks", "worst10", "spread", "best-round", "communication",
    paper=PRINTED, highlight="Ditto", figures=("learning-curves", "client-accuracies"),
)  # fmt: skip
AS_ROWS = _study("rows", "accuracy", "significance", paper=PRINTED, settings_as_rows=True)
AGAINST = _study("against", "differences", reference="FedAvg")
BYTES = _study("bytes", "communication", columns=(ONE, OTHER, TEXTS))
FOUR = _study(
    "four", "accuracy", "over-settings", rows=(LOCAL, FEDAVG, DITTO, REP),
    columns=tuple(Column(str(n), "digits-s2", {"samples_per_client": n}) for n in (20, 30, 40, 50)),
    figures=("rank-map", "critical-difference"),
)  # fmt: skip
# What commands are tested with: studies with runs in common, on request, and of one profile alone.
FEW = _study("few", "accuracy", "significance", rows=(FEDAVG, TUNED))
PAIR = _study(
    "pair", "accuracy", "significance", "worst10", rows=(FEDAVG, DITTO), paper=PRINTED,
    shows="One method against another.",
)  # fmt: skip
SIZES = _study(
    "sizes", "accuracy", "significance", figures=("sweep",), highlight="Staged",
    axis="training samples per client", rows=(LOCAL, FEDAVG, TUNED, Variant("FedPer", "fedper"), STAGED),
    columns=tuple(Column(str(n), "digits-s2", {"samples_per_client": n}, x=n) for n in (20, 40, 60)),
)  # fmt: skip
COSTS = _study(
    "costs", "communication", figures=("accuracy-bytes", "accuracy-samples", "trade-off"), highlight="Staged",
    rows=(*ROWS, Variant("pFedFDA", "pfedfda")), columns=(ONE, OTHER, TEXTS),
)  # fmt: skip
SPENT = _study(
    "spent", "accuracy", "spent", figures=("budgets-bytes", "budgets-samples"), highlight="Staged",
    columns=tuple(
        Column(f"{setting}, {budget}", setting, {"budget": budget}, group=setting)
        for setting in ("digits-s2", "digits-dir0.3") for budget in ("rounds", "bytes", "samples")
    ),
)  # fmt: skip
NEW = _study(
    "new", "new-clients",
    columns=(
        Column("Digits", "digits-s2", group="Digits"),
        Column("Digits, new", "digits-s2", {"new_clients": 0.25}, group="Digits"),
        Column("Others, new", "digits-dir0.3", {"new_clients": 0.25}),
    ),
)  # fmt: skip
RATED = _study("rated", "rates", columns=at_rates(*validation("digits-s2")))
POINTED = _study(
    "pointed", "points", columns=validation("digits-s2"),
    rows=with_points((DITTO, REP, STAGED)),
)  # fmt: skip
TRIED = _study(
    "tried", "tuning", columns=validation("digits-s2"),
    rows=tuple(point for row in (TUNED, DITTO, STAGED) for point in (row, *own_points(row)[:3])),
)  # fmt: skip
REACHED = _study("reached", "targets")
BORROWED = _study("borrowed", "accuracy", borrows=True)
CHOICES = _study("choices", "accuracy", rows=(LOCAL, FEDAVG), on_request=("quick",))
ALONE = _study("alone", "accuracy", "significance", rows=(STAGED,))
LARGE = _study("large", "accuracy", profiles=("paper",))
CATALOGUE = (MAIN, FEW, PAIR, SIZES, COSTS, BORROWED, ALONE, CHOICES, LARGE)
DRAWN = (MAIN, FOUR, SIZES, COSTS, SPENT)
EVERY = (MAIN, AS_ROWS, AGAINST, BYTES, FOUR, SPENT, REACHED, NEW, RATED, POINTED, TRIED)


def replace_catalogue(patch) -> None:
    """Put these studies in the place of those of the catalogue, papers' included."""
    for name in reversed(list(STUDIES)):  # what is undone in reverse comes back in its order
        patch.delitem(STUDIES, name)
    for study in CATALOGUE:
        patch.setitem(STUDIES, study.name, study)


def results_of(study: Study, store, seeds=None) -> Results:
    return collect(study, PROFILE, store, seeds)
