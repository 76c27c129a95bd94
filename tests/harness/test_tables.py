"""Tables against the records they were made from."""

import dataclasses
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from record_folders import write_record, write_records
from scipy import stats

from benchmark.config.settings import SETTINGS
from benchmark.papers.ppfe.studies.rows import BASELINES, METHODS, REDUCTION
from benchmark.present.tables import MISSING, WORDS, make_tables, table_maker
from benchmark.records.store import Store
from benchmark.studies.catalogue import PROFILES, STUDIES
from benchmark.studies.grid import configure
from benchmark.studies.results import collect
from benchmark.studies.statistics import holm

QUICK, PAPER = PROFILES["quick"], PROFILES["paper"]
WITH_RUNS = [study for study in STUDIES.values() if "quick" in study.grids]


def results_of(root, name, profile=QUICK, seeds=None):
    return collect(STUDIES[name], profile, Store.scan(root), seeds)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three seeds of the main study at the paper's scale, without FedRep and without EMNIST."""
    root = tmp_path_factory.mktemp("paper")
    study = STUDIES["main"]
    grid = study.grids["paper"]
    for seed in (0, 1, 2):
        for column in grid.columns[:4]:
            for variant in grid.variants:
                if variant.algo != "fedrep":
                    write_record(root, configure(variant, column, PAPER, seed))
    return root


@pytest.fixture(scope="module")
def main(folder):
    return results_of(folder, "main", PAPER)


@pytest.fixture(scope="module")
def table(main):
    return table_maker("accuracy")(main)


def cell(table, row, column):
    return table.shown.set_index(table.shown.columns[0]).loc[row, column]


def test_mean_and_standard_deviation_over_seeds(main, table):
    values = [100 * record.summary["accuracy"] for record in main.at("Ditto", "CIFAR-10 (100, 5)")]
    assert len(values) == 3
    expected = f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"
    assert cell(table, "Ditto", "CIFAR-10 (100, 5)").startswith(expected)


def test_the_papers_figure_and_the_difference_stand_beside_ours(main, table):
    ours = 100 * np.mean(main.values("FedAvg", "CIFAR-100 (100, 5)"))
    difference = f"{ours - 27.25:+.2f}".replace("-", "−")
    assert cell(table, "FedAvg", "CIFAR-100 (100, 5)").endswith(f"(27.25, {difference})")


def test_what_has_no_record_is_never_a_number(table):
    row = table.shown.set_index("method").loc["FedRep"]
    assert set(row) == {MISSING}
    for column in ("EMNIST (100, 10)", "Sent140 (100, 2)"):
        assert set(table.shown[column]) == {MISSING}
    data = table.data[table.data["seeds"] == 0]
    assert len(data) == 6 + 2 * (len(METHODS) - 1)  # FedRep's row, and two columns of the others
    assert data[["mean", "std", "difference"]].isna().all(axis=None)
    of_the_paper = data[data["method"].isin({"PPFE", *(row.title for row in BASELINES)})]
    assert of_the_paper["paper"].isna().sum() == 1  # the paper has one dash of its own
    line = next(line for line in table.to_latex().splitlines() if line.startswith("FedRep"))
    assert set(line.split(" & ")[1::2]) == {"--"}


def test_the_best_of_a_column_is_bold(main, table):
    for column in main.columns[:4]:
        best = main.means()[column].idxmax()
        bold = [row for row in main.rows if "**" in cell(table, row, column)]
        assert bold == [best]
        assert table.to_latex().count(r"\textbf") == 4


@pytest.mark.parametrize(("more", "marks"), [(0, 0), (1, 1)])
def test_the_best_of_half_the_methods_or_fewer_is_not_marked(more, marks, tmp_path):
    (column, *_), variants = STUDIES["main"].grids["paper"].columns, STUDIES["main"].grids["paper"].variants
    for variant in variants[: len(variants) // 2 + more]:
        write_record(tmp_path, configure(variant, column, PAPER, 0))
    table = table_maker("accuracy")(results_of(tmp_path, "main", PAPER))
    assert list(table.shown[column.title].str.contains("**", regex=False)).count(True) == marks
    assert table.shown[column.title].str.contains("†").any() <= bool(marks)
    assert ("more than half of the methods" in table.caption) == (marks == 0)


def test_not_significantly_worse_is_tested_over_clients_and_seeds(main, table):
    column = "CIFAR-10 (100, 2)"
    best = main.means()[column].idxmax()
    others = [row for row in main.rows if row != best and main.at(row, column)]

    def accuracies(row):
        return np.concatenate([record.accuracies for record in main.at(row, column)])

    raw = [stats.wilcoxon(accuracies(best) - accuracies(row), zero_method="pratt").pvalue for row in others]
    expected = dict(zip(others, holm(raw), strict=True))
    found = table_maker("significance")(main).data.query("setting == @column").set_index("method")
    assert found["p_holm"].to_dict() == pytest.approx(expected)
    assert set(found["pairs"]) == {300}
    errors = {row: 100 * stats.sem(accuracies(best) - accuracies(row)) for row in others}
    assert found["standard_error"].to_dict() == pytest.approx(errors)
    marked = {row for row in others if "†" in cell(table, row, column)}
    assert marked == {row for row, p in expected.items() if p >= 0.05}


def test_stages_are_means_over_seeds(tmp_path):
    variant, grid = REDUCTION[0], STUDIES["reduction"].grids["quick"]
    for seed, level in enumerate((0.7, 0.8)):
        write_record(tmp_path, configure(variant, grid.columns[0], QUICK, seed), level)
    table = table_maker("stages")(results_of(tmp_path, "reduction"))
    assert list(table.data["stage"]) == [1, 2, 3, 4]
    assert set(table.data["method"]) == {"With MR"}
    assert list(table.data["personal"]) == ["none", "fc3", "fc2, fc3", "fc1, fc2, fc3"]
    assert list(table.data["stage_test_accuracy"]) == pytest.approx([73, 71, 69, 67])
    assert list(table.data["ensemble_test_accuracy"]) == pytest.approx([69, 71, 73, 75])
    assert set(table.shown["β"]) == {MISSING}  # not told by these records
    assert table.data["beta"].isna().all()
    assert r"$\beta$" in table.to_latex()


def test_what_predicts_with_its_last_stage_alone_has_no_ensemble(tmp_path):
    study = STUDIES["distinct"]
    grid = study.grids["paper"]
    for variant in grid.variants:
        if variant.title in ("PPFE", "M1"):
            write_record(tmp_path, configure(variant, grid.columns[0], PAPER))
    shown = table_maker("stages")(results_of(tmp_path, "distinct", PAPER)).shown.set_index("method")
    assert set(shown.loc["M1", "test, ensemble"]) == {MISSING}
    assert MISSING not in set(shown.loc["PPFE", "test, ensemble"]) | set(shown.loc["M1", "test, stage"])


def test_hindsight_is_shown_where_a_record_tells_it(tmp_path):
    """Older records do not; what predicts with its last stage alone has no weights."""
    grid = STUDIES["distinct"].grids["paper"]
    older, newer = tmp_path / "older", tmp_path / "newer"
    for variant in grid.variants:
        if variant.title in ("PPFE", "PPFE (Sparse)", "M1"):
            write_record(older, configure(variant, grid.columns[0], PAPER))
            made = write_record(newer, configure(variant, grid.columns[0], PAPER))
            if variant.title != "PPFE (Sparse)":
                path = made / "diagnostics.json"
                told = json.loads(path.read_text())
                for stage in told["stages"]:
                    stage["hindsight_test_accuracy"] = 0.81
                path.write_text(json.dumps(told))
    without = table_maker("stages")(results_of(older, "distinct", PAPER))
    assert "hindsight" not in without.to_markdown().lower()
    table = table_maker("stages")(results_of(newer, "distinct", PAPER))
    shown = table.shown.set_index("method")["test, hindsight"]
    assert {name: set(shown[name]) for name in set(shown.index)} == {
        "PPFE": {"81.00"}, "PPFE (Sparse)": {MISSING}, "M1": {MISSING},
    }  # fmt: skip
    assert "Hindsight: " in table.caption


def test_without_staged_runs_the_table_of_stages_is_empty(tmp_path):
    table = table_maker("stages")(results_of(tmp_path, "main"))
    assert table.data.empty
    assert "No record tells of stages." in table.to_markdown()


def test_abbreviations_stay_large_within_a_title(tmp_path):
    significance = table_maker("significance")
    titles = {name: significance(results_of(tmp_path, name)).title for name in ("main", "sparse")}
    assert titles["main"].startswith("Significance: test accuracy")
    assert titles["sparse"].startswith("Significance: PPFE with")


def test_near_ties_are_marked(tmp_path):
    study = STUDIES["reduction"]
    shares = np.linspace(0.5, 0.9, 20)
    gains = np.where(np.arange(20) % 2, 0.05, -0.05) + 0.05 * (np.arange(20) == 0)  # a hair better on average
    for variant, own in zip(study.grids["quick"].variants, (shares, shares + gains), strict=True):
        write_record(tmp_path, configure(variant, study.grids["quick"].columns[0], QUICK), shares=own)
    text = make_tables(results_of(tmp_path, "reduction"))[0].to_markdown()
    row = next(line for line in text.splitlines() if "Digits (20, 2)" in line)
    assert row.count("**") == 2
    assert row.count("†") == 1
    assert "Wilcoxon" in text
    assert "Holm" in text


def test_clients_of_different_splits_are_not_paired(tmp_path):
    grid = STUDIES["reduction"].grids["quick"]
    for variant in grid.variants:
        write_record(tmp_path, configure(variant, grid.columns[0], QUICK), split=variant.title)
    assert results_of(tmp_path, "reduction").comparisons[grid.columns[0].title] == {}


def test_one_seed_has_no_deviation(tmp_path):
    write_records(tmp_path, STUDIES["main"], QUICK)
    table, *_ = make_tables(results_of(tmp_path, "main"))
    assert "±" not in table.to_markdown()
    assert table.data["std"].isna().all()
    assert "One seed (0)" in table.caption


def test_fewer_seeds_than_the_others_are_marked(folder, tmp_path):
    grid = STUDIES["reduction"].grids["quick"]
    for seed, variant in ((0, 0), (1, 0), (0, 1)):
        write_record(tmp_path, configure(grid.variants[variant], grid.columns[0], QUICK, seed))
    table, *_ = make_tables(results_of(tmp_path, "reduction"))
    assert "‡" in cell(table, "Digits (20, 2)", "Without MR")
    assert "‡" not in cell(table, "Digits (20, 2)", "With MR")
    assert table.notes == ("‡ fewer seeds than others of the setting: Without MR on Digits (20, 2) (seed 0)",)


def test_seeds_are_marked_where_methods_of_a_setting_differ_in_them(tmp_path):
    grid = STUDIES["sparse"].grids["quick"]
    first, second = grid.columns
    for seed, variant, column in (
        (0, 0, first),
        (0, 1, first),
        (0, 0, second),
        (1, 0, second),
        (1, 1, second),
    ):
        write_record(tmp_path, configure(grid.variants[variant], column, QUICK, seed))
    table, *_ = make_tables(results_of(tmp_path, "sparse"))
    assert table.notes == (
        "‡ fewer seeds than others of the setting: PPFE (Sparse) on Digits, α = 0.3 (seed 1)",
        "fewer seeds: all on Digits (20, 2) (seed 0)",
    )
    assert table.to_markdown().split("\n- ")[0].count("‡") == 1


def test_seeds_can_be_chosen(folder):
    assert results_of(folder, "main", PAPER, seeds=(0, 1)).seeds == [0, 1]
    assert results_of(folder, "main", PAPER).seeds == [0, 1, 2]


def test_the_caption_says_what_the_figures_are(table):
    for part in (
        "last round",
        "weighted by their test samples",
        "seeds 0, 1, 2",
        "100 clients, 10 % of them in a round, 160 rounds; split: shards; flips; dropout 0.6 on cifar100",
    ):
        assert part in table.caption
    assert "natural" not in table.caption  # Sent140 has no record


def test_without_records_the_caption_is_of_the_plan(tmp_path):
    empty = table_maker("accuracy")(results_of(tmp_path, "main", PAPER))
    for part in ("No record yet", "100 to 136 clients", "50 to 160 rounds", "natural or shards"):
        assert part in empty.caption


@pytest.mark.parametrize("study", WITH_RUNS, ids=lambda study: study.name)
def test_quick_tables_say_what_they_are(study, tmp_path):
    for table in make_tables(results_of(tmp_path, study.name)):
        assert table.caption.startswith("A check of the machinery on small data, not the paper's result.")
        figures = table.shown.iloc[:, 1:].drop(columns=list(WORDS), errors="ignore")
        assert not re.search(r"\d\.\d\d", "".join(map(str, figures.to_numpy().ravel())))  # no records


@pytest.mark.parametrize("study", WITH_RUNS, ids=lambda study: study.name)
def test_all_three_forms_hold_the_same_table(study, tmp_path):
    write_records(tmp_path, study, QUICK, skip=("pfedfda",))
    for table in make_tables(results_of(tmp_path, study.name)):
        rows = len(table.shown)
        grid = [line for line in table.to_markdown().splitlines() if line.startswith("|")]
        assert len(grid) == rows + 2
        assert {line.count("|") for line in grid} == {len(table.shown.columns) + 1}
        read = pd.read_csv(io.StringIO(table.to_csv()))
        assert list(read.columns) == list(table.data.columns)
        assert len(read) == len(table.data)
        latex = table.to_latex()
        body = latex[latex.index(r"\midrule") : latex.index(r"\bottomrule")]
        assert body.count(r"\\") == rows
        assert latex.count("{") == latex.count("}")
        columns = {line.count("&") + 1 for line in body.splitlines() if line.endswith(r"\\")}
        assert columns == {len(table.latex.columns)}
        assert all(letter.isascii() for letter in latex)


def test_latex_is_what_a_paper_prints(table):
    text = table.to_latex()
    for rule in (r"\toprule", r"\cmidrule(lr){2-3}", r"\midrule", r"\bottomrule"):
        assert rule in text
    assert r"\multicolumn{2}{c}{CIFAR-10 (100, 2)}" in text
    assert "89.17" in text


def test_ranks_take_only_settings_that_all_have(main):
    table = table_maker("ranks")(main)
    assert [name for name in table.shown.columns if "(" in name] == main.columns[:4]
    ranks = table.data.set_index("method")
    assert "FedRep" not in ranks.index
    assert ranks["average_rank"].mean() == pytest.approx((1 + len(METHODS) - 1) / 2)


def test_spread_prefers_the_smallest_and_worst10_the_largest(main):
    column = main.columns[0]
    for name, metric, pick in (
        ("spread", "accuracy_std", "idxmin"),
        ("worst10", "accuracy_worst10", "idxmax"),
    ):
        best = getattr(main.means(metric)[column], pick)()
        assert "**" in cell(table_maker(name)(main), best, column)


def test_the_best_round_is_above_the_last_by_what_choosing_on_test_data_adds(tmp_path):
    column, variants = STUDIES["main"].grids["quick"].columns[0], METHODS
    for variant in variants:
        folder = write_record(tmp_path, configure(variant, column, QUICK))
        if variant.algo in ("fedper", "fedavg-ft"):
            lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
            evaluated = [line for line in lines if "accuracy" in line]
            evaluated[-3]["accuracy"] = evaluated[-1]["accuracy"] + 0.03
            (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = table_maker("best-round")(results_of(tmp_path, "main"))
    gains = table.shown.set_index("method")[column.title].to_dict()
    assert gains.pop("FedPer") == "3.00"
    assert gains.pop("FedAvg+FT") == gains.pop("FedBABU") == MISSING  # other models than the rounds before
    assert set(gains.values()) == {"0.00"}
    assert f"one in {SETTINGS[column.setting].values['eval_every']}, and the last" in table.caption
    assert "fine-tune clients after the last round alone" in table.caption
    assert "**" not in table.to_markdown()


def test_traffic_adds_up_to_the_summaries(main):
    data = table_maker("communication")(
        dataclasses.replace(main, study=STUDIES["communication"])
    ).data.set_index(["setting", "method", "stage"]).sort_index()  # fmt: skip
    column = "CIFAR-10 (100, 2)"
    summary = main.at("PPFE", column)[0].summary
    whole, stages = data.loc[(column, "PPFE", "all")], data.loc[(column, "PPFE")].drop("all")
    assert list(stages.index) == ["1", "2", "3", "4"]
    for field in ("bytes_up", "bytes_down", "bytes_broadcast"):
        assert whole[field] == summary[field] == stages[field].sum()
    assert whole["samples"] == summary["samples"] + summary["adaptation_samples"]
    assert data.loc[(column, "FedAvg", "all"), "share_of_fedavg"] == 1
    assert data.loc[(column, "Local Only", "all"), "bytes_total"] == 0
    assert stages["share_of_model"].tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], abs=1e-3)
    assert data.loc[(column, "FedRep", "all")].isna().all()


def test_a_diverged_run_is_named_below_the_table(tmp_path):
    grid = STUDIES["reduction"].grids["quick"]
    folders = [write_record(tmp_path, configure(v, grid.columns[0], QUICK)) for v in grid.variants]
    (folders[0] / "done").unlink()
    (folders[0] / "failed.json").write_text('{"reason": "training diverged: the loss is none; try less"}')
    table, *_ = make_tables(results_of(tmp_path, "reduction"))
    assert table.notes == ("no record of With MR on Digits (20, 2): training diverged: the loss is none",)


def test_the_fingerprint_follows_records_and_nothing_else(folder, main):
    assert results_of(folder, "main", PAPER).fingerprint() == main.fingerprint()
    assert results_of(folder, "main", PAPER, seeds=(0,)).fingerprint() != main.fingerprint()
