"""Calibration and tuning: what they compare, and what their tables say."""

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
from printed_tables import facts_frame, printed_frame
from record_folders import write_record

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.papers.ppfe.studies.shared import METHODS
from pfl_benchmark.papers.ppfe.studies.tuning import POINTS
from pfl_benchmark.present.tables import make_table
from pfl_benchmark.present.tables.captions import augmentation
from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.grid import Column, Grid, configure, plan
from pfl_benchmark.studies.results import collect

PAPER, QUICK = PROFILES["paper"], PROFILES["quick"]
CALIBRATION, POINTS_OF_ITS_OWN, RATES, TUNING = (
    STUDIES[name] for name in ("calibration", "points", "rates", "tuning")
)


def table_of(study, profile, root):
    return make_table(collect(study, profile, Store.scan(root), None), study.tables[0])


# Calibration


def test_calibration_contains_no_choice_of_a_personalized_method():
    assert {variant.algo for variant in CALIBRATION.grids["paper"].variants} == {"local", "fedavg"}


def test_every_choice_is_held_against_the_same_eight_figures():
    grid = CALIBRATION.grids["paper"]
    groups = Counter(column.group for column in grid.columns)
    assert set(groups.values()) == {4}
    for group in groups:
        figures = [
            CALIBRATION.paper.accuracy(column.paper, variant.printed)
            for variant in grid.variants
            for column in grid.columns
            if column.group == group
        ]
        assert sorted(figures) == [0.2725, 0.3429, 0.3605, 0.5623, 0.5936, 0.6143, 0.7261, 0.8166]


def test_every_method_has_room_for_learning_rates_among_its_points():
    assert all(len(ALGORITHMS[row.algo].tuning) < POINTS for row in METHODS)


def test_dropout_changes_no_run_on_cifar10():
    cells = plan([CALIBRATION], PAPER, (0,))
    assert len(cells) == 2 * (7 * 2 + 13 * 2)  # 7 choices on CIFAR-10, 13 on CIFAR-100, two settings each
    assert all(cell.config.dataset == "cifar100" for cell in cells if cell.config.dropout)


def test_the_choice_with_the_smallest_total_deviation_is_bold_and_incomplete_ones_do_not_compete(tmp_path):
    grid = CALIBRATION.grids["paper"]
    off = {
        "distinct, no augmentation": 0.02,
        "shards, no augmentation": -0.01,
        "shards, flips and crops": 0.0,
    }
    for column in grid.columns:
        for variant in grid.variants:
            gap = off.get(column.group)
            lacks = gap == 0.0 and (variant.algo, column.setting) == ("local", "cifar100-s5")
            if gap is not None and not lacks:
                level = CALIBRATION.paper.accuracy(column.paper, variant.printed) + gap
                write_record(tmp_path, configure(variant, column, PAPER), level)
    table = table_of(CALIBRATION, PAPER, tmp_path)
    rows = printed_frame(table).set_index("choice")["total deviation"]
    data = facts_frame(table).set_index("choice")
    assert rows["shards, no augmentation"].startswith("**")
    assert rows["shards, flips and crops"] == "–"
    assert not rows["distinct, no augmentation"].startswith("*")
    heads = [name for name in data.columns if "deviation" not in name]
    for choice in ("distinct, no augmentation", "shards, no augmentation"):
        ours = [data.loc[choice, head] for head in heads]
        figures = [
            100 * CALIBRATION.paper.accuracy(column.paper, variant.printed)
            for variant in grid.variants
            for column in grid.columns
            if column.group == choice
        ]
        expected = sum(abs(a - b) for a, b in zip(ours, figures, strict=True))
        assert data.loc[choice, "total_deviation"] == pytest.approx(expected)
        of_datasets = [data.loc[choice, f"deviation_{name}"] for name in ("CIFAR-10", "CIFAR-100")]
        assert sum(of_datasets) == pytest.approx(expected)
    unfinished = data.loc["shards, flips and crops"]
    assert unfinished["deviation_CIFAR-10"] < data.loc["shards, no augmentation", "deviation_CIFAR-10"]
    assert np.isnan(unfinished["deviation_CIFAR-100"])


# Protocols: (partition, augment, crop_padding)

SHARDS, FLIPS, CROPS = ("shards", False, 4), ("shards", True, 0), ("shards", True, 4)
DISTINCT = ("distinct", False, 4)
OF_STUDIES = {
    "main": {"cifar10": {FLIPS}, "cifar100": {FLIPS}, "emnist": {SHARDS}, "sent140": {("natural", False, 4)}},
    "dirichlet": {"cifar10": {("dirichlet", True, 0)}},
    "distinct": {"cifar10": {DISTINCT}},
    "protocols": {"cifar10": {SHARDS, FLIPS, CROPS, DISTINCT}},
    "switches": {"cifar10": {SHARDS, FLIPS, DISTINCT}},
    "tuned": {"cifar10": {FLIPS}},
}
IN_TITLES = {
    SHARDS: "shards, no augmentation",
    FLIPS: "shards, flips",
    CROPS: "shards, flips and crops",
    DISTINCT: "distinct, no augmentation",
}


def protocol(config):
    return config.partition, config.augment, config.crop_padding


@pytest.mark.parametrize("name", OF_STUDIES)
def test_under_which_protocols_the_papers_studies_run(name):
    found = {}
    for cell in plan([STUDIES[name]], PAPER, (0,)):
        found.setdefault(cell.config.dataset, set()).add(protocol(cell.config))
    assert found == OF_STUDIES[name]


def test_the_papers_studies_drop_out_on_cifar100_alone():
    names = [study.name for study in STUDIES.values() if study.paper and "paper" not in study.on_request]
    cells = plan([STUDIES[name] for name in [*names, "data-size", "heterogeneity"]], PAPER, (0,))
    found = {(cell.config.dataset, cell.config.dropout) for cell in cells}
    assert found == {("cifar10", 0.0), ("cifar100", 0.6), ("emnist", 0.0), ("sent140", 0.0)}


@pytest.mark.parametrize("name", ["protocols", "switches", "tuned", "claims", "distinct"])
def test_titles_tell_the_protocol(name):
    grid = STUDIES[name].grids["paper"]
    told = [column for column in grid.columns if "partition" in column.changes]
    assert told
    for column in told:
        assert column.title.endswith(f", {IN_TITLES[protocol(configure(grid.variants[0], column, PAPER))]}")


def test_captions_name_augmentations_as_titles_do():
    columns = STUDIES["protocols"].grids["paper"].columns
    for column in columns:
        assert column.title.endswith(f", {augmentation(RunConfig(**column.changes))}")
    assert len({augmentation(RunConfig(**column.changes)) for column in columns}) == 3


def test_captions_tell_dropout_and_where(tmp_path):
    assert "flips and crops or no augmentation; dropout 0 to 0.6 on cifar100." in (
        table_of(CALIBRATION, PAPER, tmp_path).caption
    )
    assert "dropout" not in table_of(RATES, PAPER, tmp_path).caption
    columns = [
        Column(name, name, {"dropout": rate}) for name, rate in (("digits-s2", 0.2), ("fmnist-s2", 0.5))
    ]
    study = dataclasses.replace(RATES, grids={"quick": Grid(RATES.grids["quick"].variants, tuple(columns))})
    words = "; dropout 0.2 on digits; dropout 0.5 on fmnist."
    assert words in table_of(study, QUICK, tmp_path).caption


def test_records_made_before_crops_had_a_size_are_found():
    """Hashes of committed records of FedAvg on CIFAR-10, S = 2."""
    grid = STUDIES["protocols"].grids["paper"]
    fedavg = next(variant for variant in grid.variants if variant.title == "FedAvg")
    hashes = {column.title: configure(fedavg, column, PAPER).hash for column in grid.columns}
    assert [hashes[f"CIFAR-10 (100, 2), {words}"] for words in IN_TITLES.values()] == [
        "3ffee80e40", "aa2b1c5d43", "9c3a12d27e", "ff294e5a24",
    ]  # fmt: skip


# Tuning


@pytest.mark.parametrize("profile", CALIBRATION.grids)
def test_every_method_is_tried_at_the_same_number_of_points_its_default_first(profile):
    variants = TUNING.grids[profile].variants
    assert set(Counter(variant.algo for variant in variants).values()) == {POINTS}
    seen = set()
    for variant in variants:
        if variant.algo not in seen:
            assert not variant.hyper
            assert not variant.changes
        seen.add(variant.algo)
    cells = plan([TUNING], PROFILES[profile], (0,))
    assert len(cells) == len(variants) * len(TUNING.grids[profile].columns)  # no point twice


@pytest.mark.parametrize("profile", CALIBRATION.grids)
def test_no_tuning_run_evaluates_test_data(profile):
    assert all(cell.config.validation > 0 for cell in plan([TUNING], PROFILES[profile], (0,)))


# Learning rates


@pytest.mark.parametrize("profile", CALIBRATION.grids)
def test_every_method_is_tried_at_half_its_learning_rate_and_at_twice(profile):
    cells = plan([RATES], PROFILES[profile], (0,))
    (setting,) = {column.setting for column in RATES.grids[profile].columns}
    default = dataclasses.replace(RunConfig(), **SETTINGS[setting].values).lr
    found = Counter((cell.config.algo, cell.config.lr / default) for cell in cells)
    assert found == dict.fromkeys(itertools.product((row.algo for row in METHODS), (0.5, 1.0, 2.0)), 1)
    assert all(cell.config.validation > 0 for cell in cells)


# Points of a method's own


@pytest.mark.parametrize("profile", CALIBRATION.grids)
def test_every_point_of_a_methods_own_is_tried_beside_its_default(profile):
    cells = plan([POINTS_OF_ITS_OWN], PROFILES[profile], (0,))
    (column,) = POINTS_OF_ITS_OWN.grids[profile].columns
    everything = {cell.config.hash for cell in plan([TUNING], PROFILES[profile], (0,))}
    assert {cell.config.hash for cell in cells} < everything
    assert Counter(cell.config.algo for cell in cells) == {
        row.algo: 1 + len(tuning) for row in METHODS if (tuning := ALGORITHMS[row.algo].tuning)
    }
    assert all(cell.config.validation > 0 for cell in cells)
    assert len({cell.config.lr for cell in cells}) == 1
    assert column.setting.endswith(("s2", "s5"))


def test_tuned_rows_are_points_that_were_tried_on_the_validation_split():
    grid = STUDIES["tuned"].grids["paper"]
    (column,) = grid.columns
    tried = {
        dataclasses.replace(cell.config, validation=0.0).hash for cell in plan([TUNING, RATES], PAPER, (0,))
    }
    rows = {variant.title: configure(variant, column, PAPER) for variant in grid.variants}
    assert column.setting == "cifar10-s5"
    assert {config.hash for config in rows.values()} < tried
    defaults = {row.algo for row in grid.variants if not row.hyper and not row.changes}
    assert defaults == {row.algo for row in grid.variants}  # everything stands beside its default


def test_readings_do_not_look_at_test_data(tmp_path):
    cells = plan([STUDIES["readings"]], PAPER, (0,))
    assert all(cell.config.validation > 0 for cell in cells)
    assert {cell.config.algo for cell in cells} == {"ppfe"}
    study = STUDIES["readings"]
    column = study.grids["paper"].columns[0]
    write_record(tmp_path, configure(study.grids["paper"].variants[0], column, PAPER), 0.7)
    words = "Instead of test samples: 20 % of each client's training samples, held out of training."
    assert words in table_of(study, PAPER, tmp_path).caption
