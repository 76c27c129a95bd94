"""Tables against the records they were made from."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
from own_studies import (
    AGAINST,
    AS_ROWS,
    BYTES,
    COSTS,
    DITTO,
    EVERY,
    FEDAVG,
    FOUR,
    LOCAL,
    MAIN,
    NEW,
    ONE,
    OTHER,
    PROFILE,
    REP,
    ROWS,
    SPENT,
    STAGED,
    TEXTS,
    TUNED,
    results_of,
)  # fmt: skip
from printed_tables import facts_frame, printed_frame
from record_folders import amend, write_record, write_records

from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.present.tables import GENERAL, make_table, make_tables
from pfl_benchmark.records.record import BadRecord, read_record
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.formats.latex import latex
from pfl_benchmark.render.formats.markdown import markdown
from pfl_benchmark.render.table import MISSING
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.grid import Column, Grid, Variant, configure
from pfl_benchmark.studies.results import collect
from pfl_benchmark.studies.statistics import holm, wilcoxon

QUICK = PROFILES["quick"]
WITH_RUNS = [study for study in STUDIES.values() if "quick" in study.grids]
SEEDS = (0, 1, 2)


def read(study, root, seeds=None):
    return results_of(study, Store.scan(root), seeds)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three seeds of the main study, without FedRep."""
    root = tmp_path_factory.mktemp("own")
    write_records(root, MAIN, PROFILE, SEEDS, skip=("fedrep",))
    return root


@pytest.fixture(scope="module")
def main(folder):
    return read(MAIN, folder)


@pytest.fixture(scope="module")
def table(main):
    return make_table(main, "accuracy")


def cell(table, row, column):
    frame = printed_frame(table)
    return frame.set_index(frame.columns[0]).loc[row, column]


def test_every_kind_of_table_is_tested():
    studies = (*EVERY, *(STUDIES[name] for name in ("natural", "pacs", "shifts", "pfllib")))
    assert {kind for study in studies for kind in study.tables} == set(GENERAL)


def test_mean_and_standard_deviation_over_seeds(main, table):
    values = [100 * record.summary["accuracy"] for record in main.at("Ditto", OTHER.title)]
    assert len(values) == 3
    assert f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}" in cell(table, "Ditto", OTHER.title)


def test_the_papers_figure_and_the_difference_stand_beside_ours(main, table):
    ours = 100 * np.mean(main.values("FedAvg", ONE.title))
    difference = f"{ours - 40.25:+.2f}".replace("-", "−")
    assert cell(table, "FedAvg", ONE.title).endswith(f"(40.25, {difference})")


def test_what_has_no_record_is_never_a_number(table):
    assert set(printed_frame(table).set_index("method").loc["FedRep"]) == {MISSING}
    data = facts_frame(table)
    assert len(data) == len(ROWS) * 2
    missing = data[data["seeds"] == 0]
    assert set(missing["method"]) == {"FedRep"}
    assert missing[["mean", "std", "difference"]].isna().all(axis=None)
    assert data.set_index(["setting", "method"])["paper"].isna().sum() == 5  # dashes of printed.csv
    line = next(line for line in latex(table).splitlines() if line.startswith("FedRep"))
    assert set(line.split(" & ")[1::2]) == {"--"}


def test_the_papers_figures_stand_in_latex_also_where_we_have_none(tmp_path):
    table = make_table(read(MAIN, tmp_path), "accuracy")
    assert r"Ditto & -- & 70.10 & -- & 66.60 \\" in latex(table)
    assert "70.10" not in markdown(table)


def test_the_best_of_a_column_is_bold(main, table):
    for column in main.columns:
        best = main.means()[column].idxmax()
        assert [row for row in main.rows if "**" in cell(table, row, column)] == [best]
    assert latex(table).count(r"\textbf") == len(main.columns)


@pytest.mark.parametrize(("more", "marks"), [(0, 0), (1, 1)])
def test_the_best_of_half_the_methods_or_fewer_is_not_marked(more, marks, tmp_path):
    for variant in ROWS[: len(ROWS) // 2 + more]:
        write_record(tmp_path, configure(variant, ONE, PROFILE))
    table = make_table(read(MAIN, tmp_path), "accuracy")
    texts = printed_frame(table)[ONE.title]
    assert list(texts.str.contains("**", regex=False)).count(True) == marks
    assert texts.str.contains("†").any() <= bool(marks)
    assert ("more than half of the methods" in table.caption) == (marks == 0)


def test_not_significantly_worse_is_tested_over_clients_and_seeds(main, table):
    from scipy import stats  # takes a second to import

    column = ONE.title
    best = main.means()[column].idxmax()
    others = [row for row in main.rows if row != best and main.at(row, column)]

    def accuracies(row):
        return np.concatenate([record.accuracies for record in main.at(row, column)])

    gaps = [(accuracies(best) - accuracies(row)).round(9) for row in others]  # 0.3 − 0.2 is 0.2 − 0.1
    raw = [stats.wilcoxon(gap, zero_method="pratt").pvalue for gap in gaps]
    expected = dict(zip(others, holm(raw), strict=True))
    found = facts_frame(make_table(main, "significance")).query("setting == @column").set_index("method")
    assert found["p_holm"].to_dict() == pytest.approx(expected)
    assert set(found["pairs"]) == {len(accuracies(best))}
    errors = {row: 100 * stats.sem(accuracies(best) - accuracies(row)) for row in others}
    assert found["standard_error"].to_dict() == pytest.approx(errors)
    below = {row: -100 * np.mean(gap) for row, gap in zip(others, gaps, strict=True)}
    assert found["difference"].to_dict() == pytest.approx(below)
    assert set(found["direction"]) == {-1}, "against the best"
    marked = {row for row in others if "†" in cell(table, row, column)}
    assert marked == {row for row, p in expected.items() if p >= 0.05}


def test_differences_are_of_the_clients_and_seeds_that_both_have(tmp_path):
    from scipy import stats  # takes a second to import

    count, column = configure(FEDAVG, ONE, PROFILE).clients, ONE.title
    base = np.linspace(0.3, 0.7, count)
    # By how much each row is above FedAvg, client by client: clearly, hardly at all, and in between.
    above = {
        "Local Only": np.full(count, -0.2),
        "FedAvg+FT": np.where(np.arange(count) % 2, 0.05, -0.04),
        "Ditto": np.where(np.arange(count) % 4, 0.03, -0.06) * np.linspace(0.1, 1, count),
        "FedRep": np.full(count, 0.1),
    }
    for row in ROWS[:-1]:
        for seed in (0,) if row == REP else SEEDS[:2]:
            write_record(tmp_path, configure(row, ONE, PROFILE, seed), shares=base + above.get(row.title, 0))
    results = read(AGAINST, tmp_path)
    table = make_table(results, "differences")
    found = facts_frame(table).query("setting == @column").set_index("method")
    assert set(found.index) == set(above)
    gaps = {}
    for row in above:
        common = results.samples(row, column).keys()
        own, other = (
            np.concatenate([results.samples(name, column)[key] for key in common]) for name in (row, "FedAvg")
        )
        gaps[row] = (own - other).round(9)
        assert found.loc[row, "pairs"] == count * (1 if row == "FedRep" else 2)
        assert found.loc[row, "difference"] == pytest.approx(100 * gaps[row].mean())
    raw = {row: stats.wilcoxon(gap, zero_method="pratt").pvalue for row, gap in gaps.items()}
    corrected = dict(zip(raw, holm(list(raw.values())), strict=True))
    assert found["p_holm"].to_dict() == pytest.approx(corrected)
    assert raw["Ditto"] < 0.9 * corrected["Ditto"] < 1 > corrected["FedAvg+FT"] > 0.05
    for row, p in corrected.items():
        mean = 100 * gaps[row].mean()
        shown = (
            f"{'+' if mean >= 0 else '−'}{abs(mean):.2f}{' †' * bool(p >= 0.05)}{' ‡' * (row == 'FedRep')}"
        )
        assert cell(table, row, column) == f"{shown} ({'< 0.001' if p < 0.001 else f'{p:.3f}'})"
    assert cell(table, "FedAvg", column) == "reference"
    assert cell(table, "Staged", column) == MISSING


def test_a_test_that_contradicts_the_mean_is_told(tmp_path):
    count = configure(FEDAVG, ONE, PROFILE).clients
    write_record(tmp_path, configure(FEDAVG, ONE, PROFILE), shares=np.full(count, 0.4))
    few = np.where(np.arange(count) < 2, 0.9, 0.35)  # two gain much, all others lose a little
    write_record(tmp_path, configure(DITTO, ONE, PROFILE), shares=few)
    table = make_table(read(AGAINST, tmp_path), "differences")
    assert re.fullmatch(r"\+0\.50 \(0\.0\d\d, worse by ranks\)", cell(table, "Ditto", ONE.title))
    assert "By ranks: " in table.caption


def test_differences_need_records_of_the_same_seed_and_split(tmp_path):
    write_record(tmp_path, configure(DITTO, ONE, PROFILE, 0))
    write_record(tmp_path, configure(FEDAVG, ONE, PROFILE, 1))
    write_record(tmp_path, configure(DITTO, OTHER, PROFILE, 0))
    table = make_table(read(AGAINST, tmp_path), "differences")
    ditto, fedavg = (next(line for line in table.rows if line[0].value == row) for row in ("Ditto", "FedAvg"))
    assert [part.value for part in ditto[1:]] == [None, None]
    assert ditto[1].reason == "no seed and split in common with that of FedAvg"
    assert ditto[2].reason == "no record of FedAvg"
    assert [part.value for part in fedavg[1:]] == ["reference", None]
    assert table.caption.count(f"{MISSING}: no records of the same seed and split.") == 1


def test_differences_in_a_ranked_study_without_records_of_the_reference(tmp_path):
    write_record(tmp_path, configure(DITTO, ONE, PROFILE, 0))
    table = make_table(read(dataclasses.replace(AGAINST, ranked=True), tmp_path), "differences")
    (ditto,) = table.rows
    assert ditto[1].reason == "no record of FedAvg"


def test_differences_from_nothing_are_refused(main):
    with pytest.raises(ValueError, match="its reference '' is none of its rows"):
        make_table(main, "differences")


def test_ranked_rows_are_ordered_by_accuracy_in_the_first_column(tmp_path):
    for variant, share in ((LOCAL, 0.4), (TUNED, 0.8), (DITTO, 0.6)):
        write_record(tmp_path, configure(variant, ONE, PROFILE), shares=np.full(20, share))
    write_record(tmp_path, configure(REP, OTHER, PROFILE), shares=np.full(20, 0.9))
    results = read(dataclasses.replace(MAIN, ranked=True), tmp_path)
    for table in (make_table(results, kind) for kind in ("accuracy", "significance", "worst10")):
        rows = [row[0].value for row in table.rows]
        assert rows == ["FedAvg+FT", "Ditto", "Local Only", "FedRep"], table.name


def test_only_the_first_table_bears_the_name_and_title_of_its_study(main, folder):
    names = [(table.name, table.title) for table in make_tables(main)]
    assert names[0] == ("main", MAIN.title)
    assert names[1] == ("main-significance", "Significance: the main of tests")
    assert names[-1] == ("main-communication", "Bytes by method and stage")
    (bytes_,) = make_tables(read(BYTES, folder))
    assert (bytes_.name, bytes_.title) == ("bytes", BYTES.title)
    shouted = dataclasses.replace(main, study=dataclasses.replace(MAIN, title="PPFE alone"))
    assert make_table(shouted, "significance").title == "Significance: PPFE alone"


def test_near_ties_are_marked(tmp_path):
    shares = np.linspace(0.5, 0.9, 20)
    gains = np.where(np.arange(20) % 2, 0.05, -0.05) + 0.05 * (np.arange(20) == 0)  # a hair better on average
    study = dataclasses.replace(
        AS_ROWS, grids={"own": dataclasses.replace(AS_ROWS.grids["own"], variants=ROWS[:2])}
    )
    for variant, own in zip(ROWS, (shares, shares + gains), strict=False):
        write_record(tmp_path, configure(variant, ONE, PROFILE), shares=own)
    table = make_tables(read(study, tmp_path))[0]
    row = next(line for line in markdown(table).splitlines() if ONE.title in line)
    assert row.count("**") == 2
    assert row.count("†") == 1
    assert "Wilcoxon" in table.caption
    assert "Holm" in table.caption


def test_clients_of_different_splits_are_not_paired(tmp_path):
    for variant in ROWS:
        write_record(tmp_path, configure(variant, ONE, PROFILE), split=variant.title)
    assert read(MAIN, tmp_path).comparisons[ONE.title] == {}


def test_one_seed_has_no_deviation(tmp_path):
    write_records(tmp_path, MAIN, PROFILE)
    table = make_table(read(MAIN, tmp_path), "accuracy")
    assert "±" not in markdown(table)
    assert facts_frame(table)["std"].isna().all()
    assert "One seed (0)" in table.caption


def test_fewer_seeds_than_the_others_are_marked(tmp_path):
    for seed, variant in ((0, DITTO), (1, DITTO), (0, FEDAVG)):
        write_record(tmp_path, configure(variant, ONE, PROFILE, seed))
    table = make_table(read(AS_ROWS, tmp_path), "accuracy")
    assert "‡" in cell(table, ONE.title, "FedAvg")
    assert "‡" not in cell(table, ONE.title, "Ditto")
    assert table.notes == (f"‡ fewer seeds than others of the setting: FedAvg on {ONE.title} (seed 0)",)


def test_seeds_are_marked_where_methods_of_a_setting_differ_in_them(tmp_path):
    places = [(0, DITTO, ONE), (0, FEDAVG, ONE), (0, DITTO, OTHER), (1, DITTO, OTHER), (1, FEDAVG, OTHER)]
    for seed, variant, column in places:
        write_record(tmp_path, configure(variant, column, PROFILE, seed))
    table = make_table(read(MAIN, tmp_path), "accuracy")
    assert table.notes == (
        f"‡ fewer seeds than others of the setting: FedAvg on {OTHER.title} (seed 1)",
        f"fewer seeds: all on {ONE.title} (seed 0)",
    )
    assert markdown(table).split("\n- ")[0].count("‡") == 1


def test_where_most_rows_have_fewer_seeds_the_note_names_the_others(tmp_path):
    for variant in ROWS:
        write_record(tmp_path, configure(variant, ONE, PROFILE))
    write_record(tmp_path, configure(DITTO, ONE, PROFILE, 1))
    note = make_table(read(MAIN, tmp_path), "accuracy").notes[0]
    assert note == f"‡ fewer seeds than others of the setting: all but Ditto on {ONE.title} (seed 0)"


def test_seeds_can_be_chosen(folder):
    assert read(MAIN, folder, seeds=(0, 1)).seeds == [0, 1]
    assert read(MAIN, folder).seeds == [0, 1, 2]


def test_the_caption_says_what_the_figures_are(table):
    for part in (
        PROFILE.warning,
        "last round",
        "weighted by their test samples",
        "seeds 0, 1, 2",
        "20 clients, 25 % of them in a round, 40 rounds; split: dirichlet or distinct; no augmentation",
    ):
        assert part in table.caption


def test_without_records_the_caption_is_of_the_plan(tmp_path):
    empty = make_table(read(BYTES, tmp_path), "communication")
    assert "No record yet" in empty.caption
    assert "dirichlet or distinct or natural" in empty.caption


@pytest.mark.parametrize("study", WITH_RUNS, ids=lambda study: study.name)
def test_quick_tables_say_what_they_are_and_print_no_figure_without_a_record(study, tmp_path):
    for table in make_tables(collect(study, QUICK, Store.scan(tmp_path), None)):
        assert table.caption.startswith("A check of the machinery on small data, not the paper's result.")
        words = [head.text for head in table.heads if head.words]
        figures = printed_frame(table).drop(columns=words)
        assert not re.search(r"\d\.\d\d", "".join(figures.to_numpy().ravel()))


def test_ranks_take_only_settings_that_all_have(main, folder, tmp_path):
    table = make_table(main, "ranks")
    assert [head.text for head in table.heads] == ["method", ONE.title, OTHER.title, "average rank"]
    ranks = facts_frame(table).set_index("method")
    assert "FedRep" not in ranks.index
    assert ranks["average_rank"].mean() == pytest.approx((1 + len(ROWS) - 1) / 2)
    assert set(printed_frame(table).set_index("method").loc["FedRep"]) == {MISSING}
    for variant, column in ((DITTO, ONE), (FEDAVG, ONE), (DITTO, OTHER)):
        write_record(tmp_path, configure(variant, column, PROFILE))
    assert [head.text for head in make_table(read(MAIN, tmp_path), "ranks").heads][1:] == [
        ONE.title,
        "average rank",
    ]


def test_statistics_over_settings_are_those_of_the_blocks(tmp_path):
    """Of rows that have a record at all, and of settings and seeds that have all of these."""
    write_records(tmp_path, FOUR, PROFILE, seeds=(0, 1), skip=("fedrep",))
    results = read(FOUR, tmp_path)
    table = make_table(results, "over-settings")
    facts = facts_frame(table).set_index("method")
    assert [*facts.index] == ["Ditto", "Local Only", "FedAvg"]
    assert facts["average_rank"].tolist() == [1, 2, 3]
    assert facts["improvement"].dropna().tolist() == [0, 0]
    for row in facts.index:
        values = np.sort([value for column in results.columns for value in results.values(row, column)])
        assert facts["iqm"][row] == pytest.approx(100 * values[2:6].mean())
        assert values[0] * 100 <= facts["iqm_low"][row] <= facts["iqm_high"][row] <= values[-1] * 100
    assert "4 of 4 settings have a record of each of 3 methods, 8 with their seeds" in table.caption
    assert "critical difference of average ranks (Nemenyi, 0.05): 1.66" in table.caption  # 2.343 √(12 / 24)


def test_statistics_over_few_settings_are_not_shown(tmp_path):
    write_records(tmp_path, FOUR, PROFILE)
    last = read(FOUR, tmp_path).at("Ditto", "50")[0].folder
    (last / "done").unlink()
    table = make_table(read(FOUR, tmp_path), "over-settings")
    assert "3 of 4 settings have a record of every method; statistics over settings need 4" in table.caption
    assert facts_frame(table).empty
    assert set(printed_frame(table).drop(columns="method").to_numpy().ravel()) == {MISSING}
    names = {found.name for found in make_tables(read(FOUR, tmp_path))}
    assert names == {"four", "four-over-settings"}
    small = dataclasses.replace(FOUR, grids={"own": Grid((LOCAL, DITTO), FOUR.grids["own"].columns[:3])})
    assert {found.name for found in make_tables(read(small, tmp_path))} == {"four"}


def test_best_and_order_are_by_common_seeds(tmp_path):
    """Of two seeds the second is easier: who has it too is not the better for it."""
    study = dataclasses.replace(FOUR, ranked=True)
    write_records(tmp_path, FOUR, PROFILE, seeds=(0, 1))
    results = read(study, tmp_path)
    column, best = results.columns[0], results.rows[0]
    alone = {place: dict(found) for place, found in results.records.items()}
    seeds = {seed: alone[best, column][seed].summary["accuracy"] for seed in (0, 1)}
    easier = max(seeds, key=seeds.__getitem__)
    del alone[best, column][easier]
    fewer = dataclasses.replace(results, records=alone)
    assert fewer.rows[0] == best
    table = make_table(fewer, "accuracy")
    (row,) = [line for line in table.rows if line[0].value == best]
    assert row[1].best
    assert row[1].short
    assert "by the seeds that all of its methods have" in table.caption


def test_spread_prefers_the_smallest_and_worst10_the_largest(main):
    for name, metric, pick in (
        ("spread", "accuracy_std", "idxmin"),
        ("worst10", "accuracy_worst10", "idxmax"),
    ):
        best = getattr(main.means(metric)[ONE.title], pick)()
        assert "**" in cell(make_table(main, name), best, ONE.title)


def _better_before(lines):
    evaluated = [line for line in lines if "accuracy" in line]
    evaluated[-3]["accuracy"] = evaluated[-1]["accuracy"] + 0.03


def test_the_best_round_is_above_the_last_by_what_choosing_on_test_data_adds(tmp_path):
    for variant in ROWS:
        folder = write_record(tmp_path, configure(variant, ONE, PROFILE))
        if variant in (DITTO, TUNED):
            amend(folder / "rounds.jsonl", _better_before)
    table = make_table(read(MAIN, tmp_path), "best-round")
    gains = printed_frame(table).set_index("method")[ONE.title].to_dict()
    assert gains.pop("Ditto") == "3.00"
    assert gains.pop("FedAvg+FT") == MISSING  # other models than the rounds before
    assert set(gains.values()) == {"0.00"}
    assert f"one in {SETTINGS[ONE.setting].values['eval_every']}, and the last" in table.caption
    assert "fine-tune clients after the last round alone" in table.caption
    assert "**" not in markdown(table)


def test_traffic_adds_up_to_the_summaries(main):
    table = make_table(main, "communication")
    data = facts_frame(table).set_index(["setting", "method", "stage"]).sort_index()
    column = ONE.title
    summary = main.at("Staged", column)[0].summary
    whole, stages = data.loc[(column, "Staged", "all")], data.loc[(column, "Staged")].drop("all")
    assert list(stages.index) == ["1", "2", "3", "4"]
    for field in ("bytes_up", "bytes_down", "bytes_broadcast"):
        assert whole[field] == summary[field] == stages[field].sum()
    assert whole["samples"] == summary["samples"] + summary["adaptation_samples"]
    assert data.loc[(column, "FedAvg", "all"), "share_of_fedavg"] == 1
    assert data.loc[(column, "Local Only", "all"), "bytes_total"] == 0
    assert stages["share_of_model"].tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], abs=1e-3)
    assert data.loc[(column, "FedRep", "all")].isna().all()


def test_extra_traffic_is_not_hidden(tmp_path):
    plain = write_record(tmp_path, configure(FEDAVG, TEXTS, PROFILE))
    record = write_record(tmp_path, configure(STAGED, TEXTS, PROFILE))
    wholes = [json.loads(line) for line in (plain / "rounds.jsonl").read_text().splitlines()]

    def send_more(lines):
        for line, whole in zip(lines, wholes, strict=True):
            line["bytes_up"] = round(1.325 * whole["bytes_up"])

    amend(record / "rounds.jsonl", send_more)
    table = make_table(read(BYTES, tmp_path), "communication")
    assert f"More is sent up than by FedAvg: Staged on {TEXTS.title} (132.5 %)." in table.caption
    assert any("synthetic" in name.lower() for name in printed_frame(table)["setting"])


def test_where_a_method_is_not_defined(tmp_path):
    for variant in (FEDAVG, STAGED):
        write_record(tmp_path, configure(variant, TEXTS, PROFILE))
    for study, kind in ((COSTS, "communication"), (COSTS, "accuracy")):
        notes = make_table(read(study, tmp_path), kind).notes
        assert [note for note in notes if "not defined" in note] == [
            f"pFedFDA is not defined for {TEXTS.title}"
        ]


def test_the_stages_of_a_method_name_it_once_where_rows_keep_their_order(main):
    table = make_table(main, "communication")
    assert printed_frame(table)["method"].eq("Staged").sum() == 2 * 5  # also where rows may be sorted
    assert markdown(table).count("| Staged ") == 2
    assert latex(table).count("Staged") == 2
    assert latex(table).count(ONE.title.replace("=", "=")) == 1  # a setting once, above a rule
    assert latex(table).count(r"\midrule") == 2


def test_a_diverged_run_is_named_below_the_table_and_in_its_cell(tmp_path):
    record = write_record(tmp_path, configure(DITTO, ONE, PROFILE))
    write_record(tmp_path, configure(FEDAVG, ONE, PROFILE))
    (record / "done").unlink()
    (record / "failed.json").write_text('{"reason": "training diverged: the loss is none; try less"}')
    table = make_table(read(MAIN, tmp_path), "accuracy")
    assert table.notes == (f"no record of Ditto on {ONE.title}: training diverged: the loss is none",)
    reasons = {cell.reason for row in table.rows if row[0].value == "Ditto" for cell in row[1:]}
    assert reasons == {"training diverged: the loss is none", "no record"}
    assert {cell.reason for row in table.rows if row[0].value == REP.title for cell in row[1:]} == {
        "no record"
    }


def test_a_method_that_diverged_with_one_seed_is_marked_and_not_the_best(tmp_path):
    for variant, shares in ((DITTO, np.full(20, 0.9)), (FEDAVG, np.full(20, 0.5))):
        for seed in (0, 1):
            record = write_record(tmp_path, configure(variant, ONE, PROFILE, seed), shares=shares)
            if (variant, seed) == (DITTO, 1):
                (record / "done").unlink()
                (record / "failed.json").write_text('{"reason": "training diverged: the loss is none"}')
    results = read(MAIN, tmp_path)
    table = make_table(results, "accuracy")
    (ditto, fedavg) = (
        next(cell for cell in row[1:] if cell.value is not None)
        for title in (DITTO.title, FEDAVG.title)
        for row in table.rows
        if row[0].value == title
    )
    assert (ditto.diverged, fedavg.diverged) == (True, False)
    assert (ditto.best, ditto.tied) == (False, False)
    assert {test.reference for test in results.comparisons[ONE.title].values()} == {FEDAVG.title}
    assert (
        f"no record of Ditto on {ONE.title} with seed 1: training diverged: the loss is none" in table.notes
    )
    assert f"§ training diverged with another seed: Ditto on {ONE.title} (seed 0)" in table.notes


def test_who_gains_by_ranks_is_not_significantly_worse(tmp_path):
    """A little better for 17 clients of 20, and much worse for three: the mean is lower, the test for it."""
    for seed in (0, 1):
        write_record(tmp_path, configure(FEDAVG, ONE, PROFILE, seed), shares=np.full(20, 0.7))
        for other in (REP, LOCAL):
            write_record(tmp_path, configure(other, ONE, PROFILE, seed), shares=np.full(20, 0.1))
        shares = np.array([0.8] * 17 + [0.0] * 3)
        write_record(tmp_path, configure(DITTO, ONE, PROFILE, seed), shares=shares)
    results = read(MAIN, tmp_path)
    assert results.comparisons[ONE.title][DITTO.title].opposed
    table = make_table(results, "accuracy")
    (ditto,) = (row[1] for row in table.rows if row[0].value == DITTO.title)
    assert (ditto.best, ditto.tied) == (False, True)


def test_the_fingerprint_follows_records_and_nothing_else(folder, main):
    assert read(MAIN, folder).fingerprint() == main.fingerprint()
    assert read(MAIN, folder, seeds=(0,)).fingerprint() != main.fingerprint()


def test_single_clients_are_shown_where_they_are_the_same_with_every_seed(tmp_path):
    study = STUDIES["natural"]
    profile = PROFILES["paper"]
    study = dataclasses.replace(
        study, grids={"paper": Grid(study.grid(profile).variants[:3], study.grid(profile).columns)}
    )
    fixed, first, second = study.grid(profile).columns[0], *study.grid(profile).variants[:2]
    shares = np.linspace(0.2, 0.8, 30)
    for seed, change in ((0, 0.1), (1, -0.1)):
        write_record(tmp_path, configure(first, fixed, profile, seed), shares=shares + change)
        write_record(tmp_path, configure(second, fixed, profile, seed), shares=1 - shares)
    table = make_table(collect(study, profile, Store.scan(tmp_path), None), "clients")
    found = facts_frame(table).pivot(index="client", columns="method", values="mean")
    assert len(found) == 30
    assert np.allclose(found[first.title], 100 * shares, atol=0.5)  # whole samples
    assert np.allclose(found[second.title], 100 - 100 * shares, atol=0.5)
    printed = printed_frame(table).set_index("method")
    assert list(printed) == [str(client) for client in range(30)]
    assert printed["29"].to_dict() == {first.title: "80", second.title: "20"}


def test_single_clients_of_a_drawn_split_are_not_shown(folder):
    assert make_table(read(MAIN, folder), "clients").rows == ()


@pytest.mark.parametrize(("clients", "shown"), [(20, True), (8, True), (10, False)])
def test_accuracy_by_domain(tmp_path, clients, shown):
    """Clients of PACS follow its four domains, where these have equally many."""
    column = Column("PACS", "pacs", {"clients": clients})
    study = dataclasses.replace(
        STUDIES["natural"],
        grids={"paper": Grid(STUDIES["natural"].grid(PROFILES["paper"]).variants[:2], (column,))},
    )
    variant, profile = study.grid(PROFILES["paper"]).variants[0], PROFILES["paper"]
    shares = np.repeat([0.2, 0.4, 0.6, 0.8], clients // 4 + (not shown))[:clients]
    for seed, change in ((0, 0.1), (1, -0.1)):
        write_record(tmp_path, configure(variant, column, profile, seed), shares=shares + change)
    table = make_table(collect(study, profile, Store.scan(tmp_path), None), "domains")
    if not shown:
        assert table.rows == ()
        return
    found = facts_frame(table).set_index("domain")
    assert list(found.index) == ["art painting", "cartoon", "photo", "sketch"]
    assert np.allclose(found["mean"], [20, 40, 60, 80])
    assert np.allclose(found["std"], np.sqrt(2) * 10)
    assert list(printed_frame(table)) == ["setting", "method", *found.index]


# Budgets


def test_what_is_spent_under_each_budget(tmp_path):
    write_records(tmp_path, SPENT, PROFILE, (0, 1), skip=("fedrep",))
    results = read(SPENT, tmp_path)
    table = make_table(results, "spent")
    found = facts_frame(table)
    assert len(found) == len(ROWS) * 6
    assert found.loc[found["method"] == "FedRep", "rounds"].isna().all()
    lines = found.set_index(["setting", "budget", "method"]).sort_index()
    for column in results.grid.columns:
        for row in results.rows:
            if not (records := results.at(row, column.title)):
                continue
            line, sums = lines.loc[column.group, column.budget, row], [own.summary for own in records]
            sent = [own["bytes_up"] + own["bytes_down"] + own["bytes_broadcast"] for own in sums]
            trained = [own["samples"] + own["adaptation_samples"] for own in sums]
            assert (line["bytes"], line["samples"]) == (np.mean(sent), np.mean(trained))
            assert line["rounds"] == records[0].config.rounds
            assert line["accuracy"] == pytest.approx(np.mean([own["accuracy"] for own in sums]))
        ranked = lines.loc[column.group, column.budget].dropna(subset="rank").sort_values("rank")
        assert ranked["accuracy"].is_monotonic_decreasing
        assert ranked["rank"].sum() == 15  # of five methods
    same = [results.at("FedAvg", column.title) for column in results.grid.columns[:3]]
    assert same[0] == same[1] == same[2]  # the run under equal rounds
    assert "rounds or as many as equal bytes or samples allow" in table.caption


def test_ranks_under_budgets_are_of_complete_methods_over_common_seeds(tmp_path):
    for path in write_records(tmp_path, SPENT, PROFILE, (0, 1)):
        config = json.loads((path / "config.json").read_text())["config"]
        fewer = config["budget"] == "samples" and config["dataset"] == "digits"
        if fewer and (config["algo"] == "ditto" or (config["algo"], config["seed"]) == ("ppfe", 1)):
            shutil.rmtree(path)
    results = read(SPENT, tmp_path)
    lines = facts_frame(make_table(results, "spent")).set_index(["setting", "budget", "method"]).sort_index()
    for column in results.grid.columns:
        found = lines.loc[column.group, column.budget]["rank"]
        complete = [row for row in results.rows if row != "Ditto"]
        first = {row: results.at(row, column.title)[0].summary["accuracy"] for row in complete}
        assert np.isnan(found["Ditto"])
        for row in complete:
            others = np.array([first[other] for other in complete])
            assert found[row] == 1 + (others > first[row]).sum() + ((others == first[row]).sum() - 1) / 2


def test_single_clients_are_not_shown_where_seeds_draw_users(tmp_path):
    """Users have test samples in numbers of their own."""
    study, profile = STUDIES["natural"], PROFILES["paper"]
    row, column = study.grid(profile).variants[0], study.grid(profile).columns[0]
    study = dataclasses.replace(study, grids={"paper": Grid((row,), (column,))})
    for seed in (0, 1):
        write_record(tmp_path, configure(row, column, profile, seed))
    results = collect(study, profile, Store.scan(tmp_path), None)
    assert make_table(results, "clients").rows
    place = (row.title, column.title)
    one, other = results.at(*place)
    drawn = dataclasses.replace(other, test_samples=other.test_samples[::-1] + np.arange(30))
    results = dataclasses.replace(results, records={place: {0: one, 1: drawn}})
    assert not make_table(results, "clients").rows


def test_the_best_point_of_a_method_is_one_that_can_be_selected(tmp_path):
    points = [Variant(f"Ditto, lam={lam}", "ditto", hyper={"lam": lam}) for lam in (0.5, 2.0)]
    other = Variant("Without", "ppfe", ablation="no-reduction")
    column = Column("held out", "digits-s2", {"validation": 0.2})
    study = dataclasses.replace(
        MAIN, tables=("tuning",), grids={"own": Grid((*points, STAGED, other), (column,))}
    )
    for row, level, seeds in (
        (points[0], 0.5, (0, 1)),
        (points[1], 0.9, (0,)),
        (STAGED, 0.8, (0,)),
        (other, 0.3, (0,)),
    ):
        for seed in seeds:
            write_record(tmp_path, configure(row, column, PROFILE, seed), level=level)
    bold = {row[0].value: row[1].best for row in make_table(read(study, tmp_path), "tuning").rows}
    assert bold == {points[0].title: True, points[1].title: False, STAGED.title: True, other.title: True}


# New clients


def test_old_and_new_clients_side_by_side(tmp_path):
    write_records(tmp_path, NEW, PROFILE, (0, 1), skip=("fedrep",))
    results = read(NEW, tmp_path)
    _, title, alone = results.columns
    table = make_table(results, "new-clients")
    found = facts_frame(table).set_index(["setting", "method"])
    assert len(found) == 2 * len(ROWS)
    assert found.xs("FedRep", level="method")[["old", "new", "samples"]].isna().all(axis=None)
    assert found.loc[alone, ["part", "difference", "p"]].isna().all(axis=None)
    for row in results.rows:
        if records := results.at(row, title):
            new = [record.newcomers for record in records]
            assert [len(own.total) for own in new] == [5, 5]
            line = found.loc[title, row]
            assert line["new"] == pytest.approx(
                np.mean([own.correct.sum() / own.total.sum() for own in new]), abs=1e-5
            )
            assert line["old"] == pytest.approx(np.mean([own.summary["accuracy"] for own in records]))
            assert (line["received"], line["samples"], line["seeds"]) == (160, 80, 2)
    assert not table.notes
    assert "New: the 25 % that did not" in table.caption
    assert "at most 5 epochs" in table.caption
    best = found.loc[title]["new"].idxmax()
    printed = printed_frame(table).iloc[: len(ROWS)].set_index("method")
    assert printed.loc[best, "new"].startswith("**")


def test_new_clients_are_compared_with_themselves_as_participants(tmp_path):
    new = [7, 2, 11, 19, 5]
    for path in write_records(tmp_path, NEW, PROFILE, (0, 1), skip=("local", "fedrep", "ppfe")):
        if "new_clients" in json.loads((path / "config.json").read_text())["split"]:
            amend(path / "config.json", lambda found: found["split"].update(new_clients=new))
    results = read(NEW, tmp_path)
    found = facts_frame(make_table(results, "new-clients")).set_index(["setting", "method"])
    for row in ("FedAvg", "FedAvg+FT", "Ditto"):
        began, took_part = ([*results.records[row, title].values()] for title in results.columns[1::-1])
        ours = np.concatenate([record.newcomers.accuracies for record in began])
        theirs = np.concatenate([record.accuracies[new] for record in took_part])
        line = found.loc[results.columns[1], row]
        assert line["part"] == pytest.approx(theirs.mean())
        assert line["difference"] == pytest.approx((ours - theirs).mean())
        assert line["p"] == pytest.approx(wilcoxon(ours, theirs))


def test_each_run_with_new_clients_has_its_own_run_of_everyone(tmp_path):
    columns = [
        Column(f"{share}, {lr}", "digits-s2", {"new_clients": share, "lr": lr}, group="one")
        for lr in (0.02, 0.3)
        for share in (0.0, 0.25)
    ]
    study = dataclasses.replace(NEW, grids={"own": Grid((FEDAVG,), tuple(columns))})
    for column in columns:
        path = write_record(tmp_path, configure(FEDAVG, column, PROFILE), level=column.changes["lr"])
        if column.changes["new_clients"]:
            amend(path / "config.json", lambda found: found["split"].update(new_clients=[7, 2, 11, 19, 5]))
    results = read(study, tmp_path)
    found = facts_frame(make_table(results, "new-clients")).set_index("setting")["part"]
    for lr in (0.02, 0.3):
        (record,) = results.at(FEDAVG.title, f"0.0, {lr}")
        assert found[f"0.25, {lr}"] == pytest.approx(record.accuracies[[7, 2, 11, 19, 5]].mean())


@pytest.mark.parametrize("new", [[0, 1, 2, 3], [0, 1, 2, 3, 3], [0, 1, 2, 3, 20]])
def test_numbers_of_new_clients_that_cannot_be_are_refused(new, tmp_path):
    path = write_records(tmp_path, NEW, PROFILE)[1]
    amend(path / "config.json", lambda found: found["split"].update(new_clients=new))
    with pytest.raises(BadRecord, match="the new clients of config"):
        read_record(path)
