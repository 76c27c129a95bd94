"""Tables of tuning: what is best of a method, what is sure, and what the search has cost."""

from dataclasses import replace

import numpy as np
import pytest
from own_studies import POINTED, PROFILE, RATED, TRIED, results_of
from printed_tables import facts_frame, printed_frame
from record_folders import write_record

from pfl_benchmark.present.tables import make_table
from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.grid import Grid, configure

POINTS = 4  # of each method in TRIED


def table_of(study, root):
    return make_table(results_of(study, Store.scan(root)), study.tables[0])


def test_the_best_point_of_each_method_is_marked_and_the_cost_told(tmp_path):
    grid = TRIED.grids["own"]
    (column,) = grid.columns
    for place, variant in enumerate(grid.variants):
        if variant.algo in ("ditto", "ppfe"):
            write_record(tmp_path, configure(variant, column, PROFILE), 0.3 + 0.05 * (place % POINTS))
    table = table_of(TRIED, tmp_path)
    shown = printed_frame(table).set_index("method")
    bold = [method for method in shown.index if shown.loc[method, column.title].startswith("**")]
    best = [method for place, method in enumerate(shown.index) if place % POINTS == POINTS - 1]
    assert bold == [method for method in best if method.startswith(("Ditto", "Staged"))]
    assert set(shown.loc[~shown.index.str.startswith(("Ditto", "Staged")), column.title]) == {"–"}
    assert facts_frame(table)["samples"].sum() > 0
    assert facts_frame(table)["runs"].sum() == 2 * POINTS


def test_captions_say_what_is_looked_at(tmp_path):
    grid = TRIED.grids["own"]
    (column,) = grid.columns
    assert "test data are not looked at" in table_of(TRIED, tmp_path).caption
    assert "Every method is tried at equally many points." in table_of(TRIED, tmp_path).caption
    on_test = Grid(grid.variants[:-1], (replace(column, changes={}),))
    caption = table_of(replace(TRIED, grids={"own": on_test}), tmp_path).caption
    assert "Test accuracy in %" in caption
    assert "equally many" not in caption


def test_rates_are_held_against_the_methods_default(tmp_path):
    grid = RATED.grids["own"]
    shares = {
        "local": (0.5, 0.6, 0.4),
        "ppfe": (0.7, 0.6, 0.6),
        "fedavg": (0.6, 0.6, 0.6),
        "fedrep": (0.8, 0.9),  # unfinished
    }
    for variant in grid.variants:
        for column, share in zip(grid.columns, shares.get(variant.algo, ()), strict=False):
            config = configure(variant, column, PROFILE)
            spread = 0.1 if (variant.algo, column) == ("local", grid.columns[0]) else 0.0
            signs = np.resize([-1, 1], config.clients)
            write_record(tmp_path, config, shares=share + spread * signs)
    table = table_of(RATED, tmp_path)
    shown = printed_frame(table).set_index("method")[[column.title for column in grid.columns]]
    assert list(shown.loc["Local Only"]) == ["50.00", "**60.00**", "40.00"]
    assert list(shown.loc["Staged"]) == ["**70.00**", "60.00", "60.00 †"]
    assert list(shown.loc["FedAvg"]) == ["**60.00** †", "**60.00**", "**60.00** †"]
    assert list(shown.loc["FedRep"]) == ["80.00", "90.00", "–"]
    assert "Ditto" not in shown.index, "a method without any record"
    errors = facts_frame(table).set_index("method")[f"standard_error, {grid.columns[0].title}"]
    assert errors["Local Only"] == pytest.approx(10 / np.sqrt(config.clients - 1))
    gains = facts_frame(table).set_index("method")[f"difference, {grid.columns[0].title}"]
    assert (gains["Local Only"], gains["Staged"]) == pytest.approx((-10, 10))
    assert errors["Staged"] == pytest.approx(0)  # every client gains as much
    spent = facts_frame(table).set_index("method")["samples"]
    assert spent["Local Only"] > spent["FedRep"] > 0


def test_points_are_held_against_the_methods_default(tmp_path):
    grid = POINTED.grids["own"]
    (column,) = grid.columns
    shares = {"ditto": iter((0.6, 0.5, 0.7, 0.6)), "ppfe": iter((0.5, 0.6))}  # the latter unfinished
    for variant in grid.variants:
        share = next(shares.get(variant.algo, iter(())), None)
        if share is not None:
            config = configure(variant, column, PROFILE)
            write_record(tmp_path, config, shares=np.full(config.clients, share))
    table = table_of(POINTED, tmp_path)
    shown = printed_frame(table).set_index(["method", "point"])
    ditto = shown.loc["Ditto"]
    assert list(ditto.index) == ["default", "lam=0.1", "lam=0.75", "lam=2.0"]
    assert list(ditto["accuracy"]) == ["60.00", "50.00", "**70.00**", "60.00"]
    assert list(ditto["against default"]) == ["", "−10.00 (0.00)", "+10.00 (0.00)", "+0.00 (0.00)"]
    assert list(ditto["p"]) == ["", "< 0.001", "< 0.001", "1.000"]
    ppfe = shown.loc["Staged"]
    assert list(ppfe["accuracy"])[:3] == ["50.00", "60.00", "–"]
    assert list(ppfe["against default"])[1:] == ["+10.00 (0.00)", *["–"] * (len(ppfe) - 2)]
    assert "FedRep" not in shown.index.get_level_values("method"), "a method without any record"
    spent = facts_frame(table).groupby("method")["samples"].sum()
    assert spent["Ditto"] > spent["Staged"] > 0
    starts = [place for place, point in enumerate(printed_frame(table)["point"]) if point == "default"]
    assert list(table.rules) == starts[1:]


def test_the_best_is_among_points_of_the_same_seeds(tmp_path):
    grid = POINTED.grids["own"]
    (column,) = grid.columns
    for variant in grid.variants:
        if variant.algo == "ditto":
            for seed in (0, 1) if variant.title == "Ditto" else (0,):
                config = configure(variant, column, PROFILE, seed)
                share = (0.4 if seed else 0.6) + 0.1 * bool(variant.hyper)
                write_record(tmp_path, config, shares=np.full(config.clients, share))
    ditto = printed_frame(table_of(POINTED, tmp_path)).set_index(["method", "point"]).loc["Ditto"]
    assert list(ditto["accuracy"]) == ["50.00", "70.00", "70.00", "70.00"]
    assert set(ditto["against default"][1:]) == {"+10.00 (0.00)"}
