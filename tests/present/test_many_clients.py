"""Tables and figures of large federations: quantiles, ordinary last rounds, evaluations of a sample."""

import dataclasses

import numpy as np
import pytest
from own_studies import DITTO, FEDAVG, LOCAL, MAIN, ONE, PROFILE, ROWS, SPENT, results_of
from record_folders import amend, write_records

from pfl_benchmark.cli import main
from pfl_benchmark.present.compare import groups
from pfl_benchmark.present.figures import make_figures
from pfl_benchmark.present.figures.curves import compared
from pfl_benchmark.present.tables import make_table
from pfl_benchmark.present.tables.clients import clients
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.quantiles import MANY, QUANTILES
from pfl_benchmark.studies.grid import Column, Grid

LARGE = Column("Digits, 300", "digits-s2", {"clients": 300, "last_round": "cohort", "eval_clients": 40})
SAMPLE = "in a sample of 40 clients"
ON_THE_WAY = ("best-round", "best-and-last", "order-kept", "targets", "drift")


def study_of(*columns, rows=ROWS, **more):
    return dataclasses.replace(MAIN, grids={"own": Grid(rows, columns)}, paper=None, **more)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("large")
    for folder in write_records(root, study_of(LARGE, ONE), PROFILE, seeds=(0, 1)):
        if "clients300" in folder.name or "-cohort" in folder.name:
            amend(folder / "rounds.jsonl", lambda lines: lines[-1].update(participants=75))
    return Store.scan(root)


def test_of_many_clients_the_figure_shows_quantiles(store):
    few, many = (
        make_figures(results_of(study_of(column, figures=("client-accuracies",)), store))[0]
        for column in (ONE, LARGE)
    )
    dots = [max(len(line.get_xdata()) for line in picture.figure.axes[0].lines) for picture in (few, many)]
    assert dots == [40, 2]
    bars = [len(picture.figure.axes[0].patches) for picture in (few, many)]
    assert bars == [6, 12]
    results = results_of(study_of(LARGE), store)
    values = 100 * np.concatenate([record.accuracies for record in results.at("FedAvg", LARGE.title)])
    row = [*results.rows].index("FedAvg")
    light = many.figure.axes[0].patches[2 * row]
    ends = [light.get_x(), light.get_x() + light.get_width()]
    np.testing.assert_allclose(ends, np.percentile(values, [5, 95]))
    assert "light bars from 5 to 95 %" in many.caption
    assert "light bars" not in few.caption


def test_of_many_clients_the_table_has_quantiles(store):
    table = clients(results_of(study_of(LARGE), store))
    assert [head.text for head in table.heads] == ["method", *QUANTILES]
    assert len(table.rows) == len(ROWS)
    for row in table.rows:
        values = [cell.value for cell in row[1:]]
        assert values == sorted(values)
    assert len(clients(results_of(study_of(ONE), store)).rows) == 0


@pytest.mark.parametrize("kind", ON_THE_WAY)
def test_captions_tell_of_a_sample(kind, store):
    words = {
        column: make_table(results_of(study_of(*columns), store), kind).caption
        for column, columns in {"all": [ONE], "sample": [LARGE], "both": [ONE, LARGE]}.items()
    }
    assert SAMPLE in words["sample"]
    assert "in some runs" not in words["sample"]
    assert SAMPLE in words["both"]
    assert "in some runs" in words["both"]
    assert "a sample of" not in words["all"]


@pytest.mark.parametrize("kind", ["learning-curves", "accuracy-bytes"])
def test_captions_of_curves_tell_of_a_sample(kind, store):
    few, many = (
        make_figures(results_of(study_of(column, figures=(kind,)), store))[0] for column in (ONE, LARGE)
    )
    assert SAMPLE in many.caption
    assert "a sample of" not in few.caption


def test_compared_curves_and_costs_tell_of_a_sample(store, capsys):
    results = results_of(study_of(LARGE), store)
    records = [*results.at("FedAvg", LARGE.title), *results.at("Local Only", LARGE.title)]
    assert SAMPLE in compared(groups(records)).caption
    assert main(["cost", *(str(record.folder) for record in records)]) == 0
    assert SAMPLE in " ".join(capsys.readouterr().out.split())


def test_captions_tell_of_ordinary_last_rounds(store):
    one, both, ordinary = (
        make_table(results_of(study_of(*columns), store), "accuracy").caption
        for columns in ([ONE], [ONE, LARGE], [LARGE])
    )
    assert "25 % of them in a round, 40 rounds" in one
    assert "25 % of them in a round (in some runs also in the last one), 40 rounds" in both
    assert "25 % of them in a round (also in the last one), 40 rounds" in ordinary
    assert "a sample of" not in ordinary, "no figure of it is of an evaluation on the way"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "Everyone takes part in the last round."),
        ({"last_round": "cohort"}, "The last round has as many participants as any other."),
    ],
)
def test_the_table_of_budgets_says_who_ends(changes, told, tmp_path):
    columns = tuple(
        dataclasses.replace(column, changes={**column.changes, **changes})
        for column in SPENT.grids["own"].columns
    )
    spent = dataclasses.replace(SPENT, grids={"own": Grid((LOCAL, FEDAVG, DITTO), columns)})
    assert told in make_table(results_of(spent, Store.scan(tmp_path)), "spent").caption


def test_the_command_data_prints_quantiles_of_many_clients(tmp_path, capsys):
    words = ["data", "--dataset", "digits", "--dirichlet", "0.3", "--samples-per-client", "4"]
    words += ["--test-samples-per-client", "1", "--out", str(tmp_path / "split.png")]
    printed = []
    for more in (["--clients", str(MANY)], ["--clients", "300"], ["--clients", "300", "--full"]):
        assert main([*words, *more]) == 0
        printed.append(capsys.readouterr().out)
    assert [text.count("--full shows all") for text in printed] == [1, 0, 0]
    assert ["of 300 clients" in text for text in printed] == [False, True, False]
    assert all(name in printed[1] for name in QUANTILES)
