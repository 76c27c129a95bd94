"""The tables of the leaderboard: ranks and kept orders against SciPy and by hand."""

import random

import numpy as np
import pytest
from own_studies import MAIN, ONE, OTHER, PROFILE, results_of
from printed_tables import facts_frame
from record_folders import amend, write_records

from pfl_benchmark.present.tables import make_table, orders
from pfl_benchmark.present.tables.orders import best_of
from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.catalogue import STUDIES


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("board")
    write_records(root, MAIN, PROFILE, (0, 1), skip=("fedrep",))
    for lines in root.glob("*/rounds.jsonl"):
        if lines.parent.name.startswith("ditto"):
            amend(lines, _was_better)
    return results_of(MAIN, Store.scan(root))


def _was_better(lines):
    evaluated = [line for line in lines if "accuracy" in line]
    evaluated[-2]["accuracy"] = 0.99


def test_best_rounds_stand_beside_last_ones(results):
    table = make_table(results, "best-and-last")
    assert [head.text for head in table.heads][:5] == [
        "method", f"{ONE.title}, best round", "rank", f"{ONE.title}, last round", "rank",
    ]  # fmt: skip
    rows = {row[0].value: row[1:] for row in table.rows}
    best, rank, last, _ = rows["Ditto"][:4]
    assert (best.value, rank.value) == (0.99, 1)
    assert last.value == pytest.approx(results.mean("Ditto", ONE.title))
    assert all(cell.value is None and cell.reason for cell in rows["FedRep"])
    for column in range(1, 9, 2):
        assert [*range(1, len(rows))] == sorted(row[column].value for row in rows.values() if row[0].value)


def test_every_figure_is_in_the_file(results):
    found = facts_frame(make_table(results, "best-and-last")).set_index(["setting", "method", "round"])
    for column in results.begun:
        for row in results.rows:
            if records := results.at(row, column):
                best = np.mean([best_of(record) for record in records])
                assert found.loc[column, row, "best"]["mean"] == pytest.approx(100 * best)
                assert found.loc[column, row, "last"]["mean"] == pytest.approx(
                    100 * results.mean(row, column)
                )


def test_lines_of_kept_orders(results):
    lines = [[cell.value for cell in row] for row in make_table(results, "order-kept").rows]
    assert [line[:3] for line in lines] == [
        [title, change, count]
        for title in (ONE.title, OTHER.title)
        for change, count in (
            ("another seed, best rounds", 1),
            ("another seed, last rounds", 1),
            ("last rounds instead of best", 2),
        )
    ]


@pytest.mark.parametrize("seed", range(5))
def test_orders_against_scipy(seed):
    from scipy import stats

    draw = random.Random(seed)
    a, b = ({name: draw.random() for name in "abcdefgh"} for _ in range(2))
    tau = stats.kendalltau([*a.values()], [*b.values()]).statistic
    assert orders._concordant(a, b) == pytest.approx((1 + tau) / 2)
    tied = {name: round(value, 1) for name, value in a.items()}
    ranks = stats.rankdata([-value for value in tied.values()])
    assert [*orders._ranked(tied).values()] == [*ranks]


def test_a_line_by_hand():
    first, second = {"a": 3.0, "b": 2.0, "c": 1.0}, {"a": 2.0, "b": 3.0, "c": 1.0, "d": 9.0}
    line = [cell.value for cell in orders._line("S", "x", [(first, second), (first, first)])]
    assert line == ["S", "x", 2, 3, (2 / 3 + 1) / 2, 2.0, 1.0, 0.5]
    assert orders._line("S", "x", [({"a": 1.0}, {"b": 1.0})])[2].value is None


def test_rates_of_their_own_are_compared_with_the_column_that_they_replace(results):
    import dataclasses

    chosen = dataclasses.replace(OTHER, group=ONE.group, chosen={"Ditto": MAIN.grid(PROFILE).variants[0]})
    grid = dataclasses.replace(results.grid, columns=(dataclasses.replace(ONE, chosen={}), chosen))
    study = dataclasses.replace(MAIN, grids={PROFILE.name: grid})
    lines = make_table(dataclasses.replace(results, study=study), "order-kept").rows
    assert [row[1].value for row in lines][-1] == "learning rates chosen on a validation split"
    assert len(lines) == 4


def test_all_methods_of_the_board_are_tuned():
    board, rates = (STUDIES[name].grids["lite"].variants for name in ("pfllib", "pfllib-rates"))
    assert board == rates
