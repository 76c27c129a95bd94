"""Figures: made from records, readable, nothing cut or on top of another."""

import dataclasses
import itertools
import json
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest
from own_studies import DRAWN, FOUR, MAIN, PROFILE, SIZES, SPENT
from record_folders import write_record, write_records

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.present import figures
from pfl_benchmark.present.figures import make_figures
from pfl_benchmark.present.figures.curves import curve, everyone_ends, last_model
from pfl_benchmark.present.figures.style import panels
from pfl_benchmark.present.tables.over_settings import LEAST
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.style import LOOKS, REST, looks
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.grid import configure
from pfl_benchmark.studies.papers import makers
from pfl_benchmark.studies.results import collect

WITH_FIGURES = [*DRAWN, *(s for s in STUDIES.values() if s.figures and "quick" in s.grids)]


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    root = tmp_path_factory.mktemp("quick")
    write_records(root, WITH_FIGURES, PROFILES["quick"], seeds=(0, 1))
    return Store.scan(root)


def results_of(study, store):
    return collect(study, PROFILES["quick"], store, None)


def test_every_kind_of_figure_is_used_by_a_study():
    assert {name for study in DRAWN for name in study.figures} == {*figures.GENERAL}
    assert {name for study in WITH_FIGURES for name in study.figures} == {
        *figures.GENERAL,
        *makers("figures"),
    }


@pytest.mark.parametrize("study", WITH_FIGURES, ids=lambda study: study.name)
def test_figures_are_whole_files(study, quick):
    results = results_of(study, quick)
    pictures = make_figures(results)
    few = "critical-difference" in study.figures and len(results.columns) < LEAST
    assert len(pictures) == len(study.figures) - few
    for picture in pictures:
        assert ElementTree.fromstring(picture.to_svg()).tag.endswith("svg")
        assert picture.to_png().startswith(b"\x89PNG")
        assert picture.caption.startswith(PROFILES["quick"].warning)


@pytest.mark.parametrize("study", WITH_FIGURES, ids=lambda study: study.name)
def test_axes_have_labels_and_texts_do_not_meet(study, quick):
    for picture in make_figures(results_of(study, quick)):
        renderer = picture.figure.canvas.get_renderer()
        picture.figure.draw(renderer)
        legends = [one.get_window_extent(renderer) for one in picture.figure.legends]
        for one, other in itertools.combinations(legends, 2):
            assert not one.overlaps(other)
        for axes in picture.figure.axes:
            assert axes.get_xlabel() or not axes.axison
            left, right = axes.get_xlim()  # ticks outside of it are not drawn
            ticks = [tick for tick in axes.get_xticklabels() if left <= tick.get_position()[0] <= right]
            texts = [*axes.texts, *ticks, axes.xaxis.label, axes.yaxis.label]
            boxes = [text.get_window_extent(renderer) for text in texts if text.get_text()]
            for box in [*boxes, axes.get_tightbbox(renderer)]:
                assert box.x0 >= 0
                assert box.y0 >= 0
                assert box.x1 <= picture.figure.bbox.x1
                assert box.y1 <= picture.figure.bbox.y1
            for box in legends:
                assert box.x0 >= 0 <= box.y0
                assert box.x1 <= picture.figure.bbox.x1
                assert not any(box.overlaps(text) for text in boxes)
            for one, other in itertools.combinations(boxes, 2):
                overlap = (min(one.x1, other.x1) - max(one.x0, other.x0)) > 1 and (
                    min(one.y1, other.y1) - max(one.y0, other.y0)
                ) > 3
                assert not overlap


@pytest.mark.parametrize("study", WITH_FIGURES, ids=lambda study: study.name)
def test_without_records_there_is_no_figure(study, tmp_path):
    assert make_figures(results_of(study, Store.scan(tmp_path))) == []


def test_a_figure_is_the_same_file_every_time(quick):
    study = SIZES
    first, second = (make_figures(results_of(study, quick))[0] for _ in range(2))
    assert first.to_svg() == second.to_svg()


def test_twelve_methods_can_be_told_apart_and_the_others_are_grey():
    titles = [method.title for method in ALGORITHMS.values()]
    found = looks(titles)
    assert sorted(map(LOOKS.index, set(found.values()) - {REST})) == list(range(len(LOOKS)))
    assert sum(look == REST for look in found.values()) == len(titles) - len(LOOKS)
    assert found["PPFE"] == looks(["Others", "PPFE"])["PPFE"] != looks(["Others", "PPFE"])["Others"]


def test_lines_of_the_same_grey_have_other_dashes():
    def grey(look):
        red, green, blue = (int(look.color[place : place + 2], 16) for place in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    for one, other in itertools.combinations(LOOKS, 2):
        assert one.dashes != other.dashes or abs(grey(one) - grey(other)) > 12, (one, other)


def test_curves_tell_what_they_measure(quick):
    """From records: fine-tuned at the end, a stage's model and an ensemble, everyone in the last round."""
    results = results_of(MAIN, quick)
    records = {row: results.at(row, results.columns[0])[0] for row in results.rows}
    assert last_model(records["FedAvg"]) is None
    tuned = last_model(records["FedAvg+FT"])
    assert (tuned.name, tuned.others) == ("fine-tuned", "global model")
    adapted = dataclasses.replace(
        records["FedAvg+FT"], config=dataclasses.replace(records["FedAvg+FT"].config, eval_adapted=True)
    )
    assert last_model(adapted) is None
    lines = [*records["Ditto"].rounds[:-1], {**records["Ditto"].rounds[-1], "participants": 10**6}]
    assert everyone_ends(dataclasses.replace(records["Ditto"], rounds=lines))


def test_a_curve_adds_up_what_was_sent(quick):
    results = results_of(MAIN, quick)
    records = results.at("FedAvg+FT", results.columns[0])
    found = curve(records)
    config = records[0].config
    assert found["round"].tolist() == list(range(config.eval_every, config.rounds + 1, config.eval_every))
    last = {name: values[-1] for name, values in found.items()}
    for record in records[:1]:
        summary = record.summary
        assert last["bytes"] == sum(
            summary[name] for name in ("bytes_up", "bytes_down", "bytes_broadcast")
        )  # fmt: skip
        assert last["samples"] == summary["samples"] + summary["adaptation_samples"]
    assert last["accuracy"] == pytest.approx(np.mean([record.summary["accuracy"] for record in records]))
    assert (np.diff(found["bytes"]) > 0).all()


def test_a_curve_ends_with_the_results_of_runs_that_end_a_round_apart(quick):
    results = results_of(MAIN, quick)
    (record, *_) = results.at("FedAvg+FT", results.columns[0])
    *way, last = record.rounds
    longer = dataclasses.replace(
        record, rounds=[*way, {**last, "accuracy": 0.1}, {**last, "round": last["round"] + 1}]
    )
    found = curve([record, longer])
    assert found["round"].tolist() == [*curve([record])["round"][:-1], last["round"] + 0.5]
    assert found["accuracy"][-1] == last["accuracy"]
    only = [dataclasses.replace(one, rounds=one.rounds[-1:]) for one in (record, longer)]
    assert curve(only)["round"].tolist() == [last["round"] + 0.5]


@pytest.mark.parametrize(
    ("count", "rows", "columns"), [(1, 1, 1), (3, 1, 3), (4, 2, 2), (5, 2, 3), (7, 3, 3)]
)
def test_panels_stand_in_rows_without_needless_holes(count, rows, columns):
    _, axes = panels([str(n) for n in range(count)], 1)
    boxes = [axis.get_position() for axis in axes]
    assert len({round(box.y0, 3) for box in boxes}) == rows
    assert len({round(box.x0, 3) for box in boxes}) == columns
    for place, box in enumerate(boxes):
        assert 0 < box.x0 < box.x1 <= 1
        assert 0 < box.y0 < box.y1 < 1
        assert not any(box.overlaps(other) for other in boxes[:place])


@pytest.mark.parametrize("kept", [[0], []])
def test_curves_and_ends_under_budgets_are_of_the_same_seeds(kept, tmp_path):
    for path in write_records(tmp_path, SPENT, PROFILE, (0, 1)):
        config = json.loads((path / "config.json").read_text())["config"]
        one_alone = config["budget"] == "samples" and config["algo"] == "ditto"
        other_alone = not kept and config["budget"] == "rounds" and config["algo"] == "fedrep"
        if (one_alone and config["seed"] == 1) or (other_alone and config["seed"] == 0):
            shutil.rmtree(path)
    results = collect(SPENT, PROFILE, Store.scan(tmp_path), None)
    for picture in make_figures(results):
        for panel, column in zip(picture.figure.axes, results.grid.columns[::3], strict=True):
            filled = [line for line in panel.lines if line.get_markerfacecolor() != "white"]
            dots = [line.get_ydata()[0] for line in filled if line.get_marker() == "o"]
            expected = [
                100 * results.records[row, column.title][seed].summary["accuracy"]
                for row in results.rows for seed in kept
            ]  # fmt: skip
            assert dots == pytest.approx(expected)


def test_two_studies_with_the_same_kind_of_figure_keep_both(tmp_path):
    write_records(tmp_path, MAIN, PROFILE, (0,))
    twin = dataclasses.replace(MAIN, name="twin")
    names = [
        [picture.name for picture in make_figures(results_of(s, Store.scan(tmp_path)))] for s in (MAIN, twin)
    ]
    assert len(names[0]) == len(names[1]) == len(MAIN.figures)
    assert not set(names[0]) & set(names[1])


def test_a_map_has_the_ranks_among_what_has_a_record(tmp_path):
    """The best method first; a method without a record in a setting has no number there."""
    shares = {"local": 0.2, "fedavg": 0.4, "ditto": 0.8, "fedrep": 0.6}
    for column in FOUR.grid(PROFILE).columns[:3]:
        for variant in FOUR.grid(PROFILE).variants:
            if (column.title, variant.algo) != ("30", "ditto"):
                config = configure(variant, column, PROFILE, 0)
                write_record(tmp_path, config, shares=np.full(config.clients, shares[variant.algo]))
    (picture,) = make_figures(collect(FOUR, PROFILE, Store.scan(tmp_path), None))
    (axes,) = picture.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["20", "30", "40"]
    methods = [label.get_text() for label in axes.get_xticklabels()]
    assert methods == ["Ditto", "FedRep", "FedAvg", "Local Only"]
    written = {tuple(map(int, reversed(text.get_position()))): text.get_text() for text in axes.texts}
    assert [written.get((0, x)) for x in range(4)] == ["1", "2", "3", "4"]
    assert [written.get((1, x)) for x in range(4)] == [None, "1", "2", "3"]
