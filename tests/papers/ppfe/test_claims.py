"""The table of claims: directions, the paper's own differences, tests, and what is missing."""

import numpy as np
import pytest
from printed_tables import facts_frame, printed_frame
from record_folders import write_record

from pfl_benchmark.present.tables import make_table
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.formats.latex import latex
from pfl_benchmark.render.formats.markdown import markdown
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.grid import configure, plan
from pfl_benchmark.studies.results import collect
from pfl_benchmark.studies.statistics import holm, wilcoxon

PAPER, CLAIMS = PROFILES["paper"], STUDIES["claims"]
GRID = CLAIMS.grid(PAPER)
SETTING, DISTINCT = "CIFAR-10 (100, 2)", "CIFAR-10 (100, 2), distinct, no augmentation"


def results(root):
    return collect(CLAIMS, PAPER, Store.scan(root), None)


def table_of(root):
    return make_table(results(root), "claims")


def write(root, levels, setting=SETTING, seeds=(0,)):
    """Records of the rows in `levels`, with accuracies around these."""
    (column,) = (column for column in GRID.columns if column.title == setting)
    rows = {row.title: row for row in GRID.variants}
    for title, level in levels.items():
        for seed in seeds:
            write_record(root, configure(rows[title], column, PAPER, seed), level)


def test_it_asks_for_no_run_and_reads_those_of_the_others():
    assert plan([CLAIMS], PAPER, (0,)) == []
    planned = {cell.config.hash for cell in plan(STUDIES.values(), PAPER, (0,))}
    for claim in CLAIMS.claims:
        own = [
            configure(row, column, PAPER)
            for row in (claim.better, *claim.others)
            for column in GRID.columns
            if column.title == SETTING
        ]
        assert {config.hash for config in own} <= planned


@pytest.mark.parametrize("name", ["lite", "paper"])
def test_it_covers_the_sweeps_and_tests_no_run_twice(name):
    profile = PROFILES[name]

    def of(study, title):
        grid = study.grid(profile)
        (row,) = (row for row in grid.variants if row.title == title)
        return [configure(row, column, profile).hash for column in grid.columns]

    tested = of(CLAIMS, "PPFE")
    assert len(set(tested)) == len(tested)
    for sweep in ("data-size", "heterogeneity"):
        assert set(of(STUDIES[sweep], "PPFE")) <= set(tested)


@pytest.mark.parametrize("claim", CLAIMS.claims, ids=lambda claim: claim.text)
def test_the_paper_has_figures_for_every_claim(claim, tmp_path):
    write(tmp_path, {row.title: 0.5 for row in (claim.better, *claim.others)})
    data = facts_frame(table_of(tmp_path)).set_index("claim")
    assert -0.1 < data.loc[claim.text, "paper_difference"] < 10  # not even there are all of them positive
    assert data.loc[claim.text, "others"] == data.loc[claim.text, "compared"] == len(claim.others)


def test_differences_are_of_the_best_other_with_its_own_test(tmp_path):
    write(tmp_path, {"PPFE": 0.80, "Ditto": 0.70, "pFedFDA": 0.74, "FedAvg": 0.40})
    found, data = results(tmp_path), facts_frame(table_of(tmp_path))
    (line,) = data[data["claim"] == CLAIMS.claims[0].text].to_dict("records")
    assert (line["setting"], line["against"], line["paper_against"]) == (SETTING, "pFedFDA", "pFedFDA")
    assert line["paper_difference"] == pytest.approx(0.62)
    means = found.means()[SETTING]
    assert line["difference"] == pytest.approx(100 * (means["PPFE"] - means["pFedFDA"]))
    ppfe, *others = (found.at(name, SETTING)[0].accuracies for name in ("PPFE", "FedAvg", "Ditto", "pFedFDA"))
    tests = [wilcoxon(ppfe, other) for other in others]
    assert line["p"] == pytest.approx(tests[2])
    assert line["p_holm"] == pytest.approx(holm(tests)[2])
    assert line["standard_error"] == pytest.approx(100 * np.std(ppfe - others[2], ddof=1) / 10)
    assert printed_frame(table_of(tmp_path))["standard error"][0] == f"{line['standard_error']:.2f}"
    assert "Standard error: of the unweighted mean difference" in table_of(tmp_path).caption
    assert (line["compared"], line["others"], line["pairs"]) == (3, 9, 100)
    assert (line["verdict"], line["direction"]) == ("undecided", 1), "six others have no record"
    assert printed_frame(table_of(tmp_path))["verdict"][0] == "undecided (3 of 9)"


@pytest.mark.parametrize(
    ("ours", "without", "verdict"),
    [(0.8, 0.7, "holds"), (0.7, 0.8, "reversed"), (0.7, 0.7, "undecided")],
)
def test_verdicts(ours, without, verdict, tmp_path):
    """PPFE with reduction is PPFE itself: one record for both."""
    write(tmp_path, {"PPFE": ours, "Without MR": without})
    shown = printed_frame(table_of(tmp_path))
    (line,) = shown.to_dict("records")
    assert (line["claim"], line["verdict"]) == ("Model reduction helps", verdict)
    assert line["paper"] == "+2.73"
    assert line["ours"].startswith({"holds": "+", "reversed": "−", "undecided": ("+", "−")}[verdict])


EASY = np.linspace(0.4, 0.7, 100).round(2)  # accuracies of the clients
NOISE = np.linspace(-0.25, 0.25, 100)[np.random.default_rng(0).permutation(100)]


def against(root, **rows):
    """The other that decides, and the verdict on the first claim, from clients' accuracies by row."""
    known = {row.title: row for row in GRID.variants}
    for title, shares in rows.items():
        write_record(root, configure(known[title], GRID.columns[0], PAPER), shares=shares)
    line = facts_frame(table_of(root)).set_index("claim").loc[CLAIMS.claims[0].text]
    return line["against"], line["verdict"]


def test_it_holds_only_against_all_others(tmp_path):
    """One that is a little worse for certain does not speak for one that may be better."""
    found = against(tmp_path, PPFE=EASY, Ditto=EASY - 0.02, FedPer=EASY - 0.03 + NOISE)
    assert found == ("Ditto", "undecided")


def test_it_is_reversed_by_any_other(tmp_path):
    """Also by one that is surely better, though another seems better still."""
    found = against(tmp_path, PPFE=EASY, Ditto=EASY + 0.01, FedPer=EASY + 0.02 + NOISE)
    assert found == ("Ditto", "reversed")


def test_the_test_decides_the_direction_not_the_mean(tmp_path):
    """Most clients lose a little and few gain much."""
    gain = np.where(np.arange(100) < 12, 0.2, -0.02)
    assert gain.mean() > 0
    assert against(tmp_path, PPFE=EASY + gain, Ditto=EASY) == ("Ditto", "reversed")


def test_what_cannot_be_compared_does_not_count(tmp_path):
    """pFedFDA is not defined for text: eight others are all."""
    titles = [row.title for row in CLAIMS.claims[0].others if row.title != "pFedFDA"]
    write(tmp_path, {"PPFE": 0.8, **dict.fromkeys(titles, 0.6)}, "Sent140 (100, 2)")
    table = table_of(tmp_path)
    (line,) = facts_frame(table).to_dict("records")
    assert (line["compared"], line["others"]) == (8, 8)
    assert "pFedFDA is not defined for Sent140 (100, 2)" in table.notes


def test_seeds_are_told_where_there_are_several(tmp_path):
    write(tmp_path, {"PPFE": 0.8}, seeds=(0, 1, 2))
    write(tmp_path, {"Ditto": 0.6}, seeds=(0, 2))
    write(tmp_path, {"Ditto": 0.7, "Without MR": 0.7}, seeds=(1,))
    table = table_of(tmp_path)
    by_seed = [
        dict(part.split(": ") for part in text.split(", ")) for text in printed_frame(table)["by seed"]
    ]
    assert [list(found) for found in by_seed] == [["0", "1", "2"], ["1"]]
    against_ditto = [float(text.replace("−", "-")) for text in by_seed[0].values()]
    assert against_ditto[1] < against_ditto[0] - 5  # Ditto is 10 points nearer in that seed
    assert facts_frame(table)["difference"][0] == pytest.approx(np.mean(against_ditto), abs=0.01)
    assert "Seeds 0, 1, 2." in table.caption
    assert "±" not in table.caption


def test_protocols_stand_apart(tmp_path):
    write(tmp_path, {"PPFE": 0.8, "Without MR": 0.7})
    write(tmp_path, {"PPFE": 0.7, "Without MR": 0.8}, DISTINCT)
    data = facts_frame(table_of(tmp_path))
    assert list(zip(data["setting"], data["verdict"], strict=True)) == [
        (SETTING, "holds"),
        (DISTINCT, "reversed"),
    ]


def test_only_seeds_that_both_have_are_compared(tmp_path):
    write(tmp_path, {"PPFE": 0.8}, seeds=(0, 1))
    write(tmp_path, {"PPFE": 0.5}, seeds=(2,))
    write(tmp_path, {"Without MR": 0.7}, seeds=(1,))
    (line,) = facts_frame(table_of(tmp_path)).to_dict("records")
    assert (line["pairs"], line["verdict"]) == (100, "holds")
    assert 8 < line["difference"] < 12


def test_without_records(tmp_path):
    write(tmp_path, {"PPFE": 0.8})
    table = table_of(tmp_path)
    assert facts_frame(table).empty
    assert list(printed_frame(table)) == [
        "claim",
        "setting",
        "verdict",
        "paper",
        "ours",
        "standard error",
        "p",
    ]
    # 8 columns with every baseline, and 6 of each of the other five.
    assert "38 comparisons of the paper have no record here" in table.caption
    assert markdown(table)
    assert latex(table)
