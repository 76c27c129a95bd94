"""The catalogue: complete, known to the registries, equal to the paper's tables, and each run once."""

import csv
import dataclasses
from functools import cache

import pytest

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.errors import NotDefined, UserError
from pfl_benchmark.experiment.prepare import split_of
from pfl_benchmark.papers.ppfe.studies.shared import METHODS, printed
from pfl_benchmark.present import figures, tables
from pfl_benchmark.resolve.run import resolve, with_hyper
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES, find_profile, find_studies
from pfl_benchmark.studies.grid import Column, Grid, plan
from pfl_benchmark.studies.papers import makers

GRIDS = {(study.name, profile): grid for study in STUDIES.values() for profile, grid in study.grids.items()}


PAPERS_OWN = (
    "main", "sparse", "dirichlet", "reduction", "fixed-heads", "progression", "data-size", "heterogeneity",
    "communication",
)  # fmt: skip


@cache
def cells(profile: str):
    """Of one seed."""
    return plan(STUDIES.values(), PROFILES[profile], (0,))


def made_unasked():
    """The studies that are made at the reduced or the paper's scale without being named."""
    scales = (PROFILES["lite"], PROFILES["paper"])
    return [
        study.name
        for study in STUDIES.values()
        if any(study.belongs_to(scale) and scale.name not in study.on_request for scale in scales)
    ]


def test_the_studies():
    assert made_unasked() == [
        "main", "claims", "distinct", "sparse", "dirichlet", "reduction", "fixed-heads", "progression",
        "data-size", "heterogeneity", "synthetic", "communication", "prediction",
    ]  # fmt: skip


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_a_study_is_computed_or_has_grids_and_the_papers_tables_have_all_three(study):
    assert study.computed or study.grids
    if study.name in PAPERS_OWN:
        assert set(study.grids) == set(PROFILES)
    assert set(study.tables) <= {*tables.GENERAL, *makers("tables")}
    assert set(study.figures) <= {*figures.GENERAL, *makers("figures")}


def test_the_main_study_has_the_methods_of_the_paper():
    with printed("main").file.open(encoding="utf-8", newline="") as file:
        rows = {line["method"] for line in csv.DictReader(file) if line["table"] == "main"}
    assert {variant.printed for variant in METHODS} == rows
    assert {variant.algo for variant in METHODS} <= set(ALGORITHMS)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_method_is_left_out_where_it_is_not_defined(profile):
    found = {(cell.config.algo, cell.config.dataset): cell.config for cell in cells(profile)}
    text = {"quick": "synth-tweets", "lite": "synth-tweets", "paper": "sent140"}[profile]
    absent = [variant.algo for variant in METHODS if (variant.algo, text) not in found]
    assert "pfedfda" in absent
    for algo in absent:
        with pytest.raises(NotDefined):
            resolve(with_hyper(dataclasses.replace(found["fedavg", text], algo=algo), {}))
    assert {algo for algo, _ in found} >= {variant.algo for variant in METHODS}


def test_the_reduced_sent140_is_in_no_column():
    settings = {column.setting for grid in GRIDS.values() for column in grid.columns}
    assert "sent140-reduced" in SETTINGS
    assert "sent140-reduced" not in settings


def test_the_quick_profile_needs_no_download_and_can_be_split():
    data = {name: datasets.load(name, download=False) for name in ("digits", "synth-tweets")}
    assert {cell.config.dataset for cell in cells("quick")} == set(data)
    assert not any(datasets.DATASETS[name].needs_files for name in data)
    splits = {config.hash: config for cell in cells("quick") for config in [_without_method(cell.config)]}
    for config in splits.values():
        assert split_of(config, data[config.dataset]).clients == config.clients


def _without_method(config):
    return dataclasses.replace(config, algo="fedavg", hyper={})


def test_cells_in_common_are_run_once():
    separate = sum(len(plan([study], PROFILES["quick"], (0,))) for study in STUDIES.values())
    together = cells("quick")
    assert len(together) < separate
    shared = {name for cell in together if cell.config.algo == "ppfe" for name in cell.studies}
    assert {"main", "communication", "sparse", "reduction", "data-size", "heterogeneity"} <= shared
    assert not [cell for cell in together if cell.studies == ("communication",)]


def test_every_figure_of_the_paper_has_its_cell():
    with printed("main").file.open(encoding="utf-8") as file:
        figures = sorted(float(row["accuracy"]) for row in csv.DictReader(file) if row["accuracy"])
    used = []
    for study in find_studies(None, PROFILES["paper"]):
        if study.name == "distinct":  # the main study's figures again
            continue
        grid = study.grids.get("paper", Grid((), ()))
        for variant in grid.variants:
            if variant.hyper:  # another reading beside the same figure
                continue
            for column in grid.columns:
                figure = study.paper and study.paper.accuracy(column.paper, variant.printed)
                used += [] if figure is None else [round(100 * figure, 6)]
    assert sorted(used) == figures


def test_the_papers_figures_by_example():
    study = STUDIES["fixed-heads"]
    grid = study.grids["paper"]
    m3 = printed("fixed_heads").accuracy(grid.columns[3].paper, grid.variants[2].printed)  # CIFAR-100, S=5
    assert m3 == pytest.approx(0.7436)
    assert printed("main").accuracy(grid.columns[5].paper, METHODS[8].printed) is None  # a dash in the paper
    assert printed("main").accuracy(Column("100", "cifar100-s5").paper, METHODS[0].printed) is None


@pytest.mark.parametrize(
    ("find", "name", "suggestion"),
    [
        (find_profile, "quik", "quick"),
        (lambda name: find_studies([name], PROFILES["quick"]), "dirichle", "dirichlet"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(find, name, suggestion):
    with pytest.raises(UserError, match=f"'{name}'.*did you mean '{suggestion}'"):
        find(name)


def test_studies_come_in_the_catalogues_order():
    assert [study.name for study in find_studies(["sparse", "main"], PROFILES["quick"])] == ["main", "sparse"]
    everything = made_unasked()
    papers = [name for name in everything if name != "prediction"]  # of the reduced scale alone
    assert [study.name for study in find_studies(None, PROFILES["paper"])] == papers
    for name in ("claims", "distinct", "prediction"):  # the quick profile's settings are distinct
        everything.remove(name)
    assert [study.name for study in find_studies(None, PROFILES["quick"])] == [
        *everything,
        "methods",
        "shifts",
    ]
    assert [study.name for study in find_studies(["tuning"], PROFILES["quick"])] == ["tuning"]
    with pytest.raises(UserError, match="no study distinct in the profile quick; it is in: paper"):
        find_studies(["distinct"], PROFILES["quick"])
