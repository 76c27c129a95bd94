"""The specification curve: which records it draws, and what it says of the others."""

import dataclasses

import pytest
from record_folders import write_records

from pfl_benchmark.papers.ppfe.figures.specification import specification_curve
from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.results import collect


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("multiverse")
    write_records(root, STUDIES["multiverse"], PROFILES["lite"])
    return collect(STUDIES["multiverse"], PROFILES["lite"], Store.scan(root), None)


def texts(results):
    picture = specification_curve(results)
    return [text.get_text() for axes in picture.figure.axes for text in axes.texts]


def test_every_variant_has_a_point(results):
    assert texts(results) == []
    picture = specification_curve(results)
    labels = [label.get_text() for label in picture.figure.axes[0].get_yticklabels()]
    ppfe = [row.title for row in results.grid.variants if row.algo == "ppfe"]
    assert len(labels) == len(ppfe)
    assert sum(label.endswith("(default)") for label in labels) == 1


def test_a_method_without_a_common_seed_leaves_the_others(results):
    """A best other method on another seed alone, and a variant that has no record."""
    column = results.columns[0]
    other = next(row.title for row in results.grid.variants if row.algo != "ppfe")
    variant = [row.title for row in results.grid.variants if row.algo == "ppfe"][-1]
    records = dict(results.records)
    records[other, column] = {7: next(iter(records[other, column].values()))}
    del records[variant, column]
    assert texts(dataclasses.replace(results, records=records)) == ["no record"]
