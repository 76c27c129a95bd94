"""What holds of the catalogue, whichever papers there are: its rows and columns exist and are runs."""

from collections import Counter

import pytest

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.grid import Column, Grid, Profile, Study, Variant, configure, plan

GRIDS = {(study.name, profile): grid for study in STUDIES.values() for profile, grid in study.grids.items()}
TUNING = [place for place in GRIDS if {"rates", "points", "tuning"} & set(STUDIES[place[0]].tables)]


@pytest.mark.parametrize(("study", "profile"), GRIDS)
def test_rows_and_columns_can_be_told_apart(study, profile):
    grid = GRIDS[study, profile]
    for parts in (grid.variants, grid.columns):
        assert len({part.title for part in parts}) == len(parts) > 0


@pytest.mark.parametrize(("study", "profile"), GRIDS)
def test_methods_ablations_and_settings_exist(study, profile):
    grid = GRIDS[study, profile]
    for variant in grid.variants:
        assert variant.algo in ALGORITHMS
        assert variant.ablation in (None, *ALGORITHMS[variant.algo].ablations)
    assert {column.setting for column in grid.columns} <= set(SETTINGS)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_run_is_valid_and_needed_once(profile):
    found = plan(STUDIES.values(), PROFILES[profile], (0,))
    for cell in found:
        resolve(cell.config)
    assert len({cell.config.hash for cell in found}) == len(found)
    assert len({cell.title for cell in found}) == len(found)


@pytest.mark.parametrize("budget", ["bytes", "samples"])
def test_a_budget_that_comes_to_the_configured_rounds_is_the_run_under_equal_rounds(budget):
    profile = PROFILES["paper"]
    plain, other = Column("A", "cifar10-s5"), Column("B", "cifar10-s5", {"budget": budget})

    def hashes(column, *algos):
        return [configure(Variant(name, name), column, profile).hash for name in algos]

    same, fewer = ("fedavg", "fedrep"), ("ppfe", "lg-fedavg" if budget == "bytes" else "fedavg-ft")
    assert hashes(plain, *same) == hashes(other, *same)
    assert not {*hashes(plain, *fewer)} & {*hashes(other, *fewer)}
    uneven = Column("C", "cifar10-dir0.3", {"budget": budget})  # samples are not known before the data are
    found = configure(Variant("F", "fedavg"), uneven, profile)
    assert found.budget == ("samples" if budget == "samples" else "rounds")


@pytest.mark.parametrize(("study", "profile"), TUNING)
def test_tuning_looks_at_validation_samples_alone(study, profile):
    cells = plan([STUDIES[study]], PROFILES[profile], (0,))
    assert all(cell.config.validation > 0 for cell in cells)
    grid = GRIDS[study, profile]
    rows = Counter(row.algo for row in grid.variants)
    by_columns = set(rows.values()) == {1}  # each method as its study has it, not always with its defaults
    defaults = [row.algo for row in grid.variants if by_columns or not (row.hyper or row.changes)]
    assert sorted(defaults) == sorted(rows)  # each method's default, once


@pytest.mark.parametrize(("study", "profile"), GRIDS)
def test_the_rows_that_a_study_names_are_rows_of_it(study, profile):
    titles = {variant.title for variant in GRIDS[study, profile].variants}
    assert {STUDIES[study].reference} - {""} <= titles
    assert ("differences" in STUDIES[study].tables) <= bool(STUDIES[study].reference)


def test_adapted_evaluations_are_another_run_of_methods_that_adapt_alone():
    profile, plain = PROFILES["paper"], Column("A", "cifar10-s5")
    adapted = Column("B", "cifar10-s5", {"eval_adapted": True})
    for algo in ("fedavg", "fedper", "ppfe", "fedbabu", "fedavg-ft", "per-fedavg"):
        row = Variant(algo, algo)
        same = configure(row, plain, profile) == configure(row, adapted, profile)
        assert same == (algo in ("fedavg", "fedper", "ppfe"))


def test_the_first_seed_comes_first():
    wanted = PROFILES["paper"].seeds
    seeds = [cell.config.seed for cell in plan(STUDIES.values(), PROFILES["quick"], wanted)]
    assert seeds == sorted(seeds)
    assert set(seeds) == set(wanted)


def test_what_is_not_registered_is_no_cell():
    profile = Profile("quick", (0,))
    grid = Grid(
        (Variant("A", "fedavg"), Variant("B", "nosuch"), Variant("C", "ppfe", "nosuch")),
        (Column("here", "digits-s2"), Column("there", "nosuch")),
    )
    found = plan([Study("odd", "Odd", {"quick": grid})], profile, (0,))
    assert [cell.title for cell in found] == ["fedavg on digits-s2, seed 0"]
    assert configure(grid.variants[1], grid.columns[0], profile) is None
