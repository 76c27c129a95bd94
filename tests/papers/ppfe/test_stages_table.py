"""The table of PPFE's stages against the records it was made from."""

import pytest
from printed_tables import facts_frame, printed_frame
from record_folders import amend, write_record

from pfl_benchmark.present.tables import make_table
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.formats.latex import latex
from pfl_benchmark.render.formats.markdown import markdown
from pfl_benchmark.render.table import MISSING
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.grid import configure
from pfl_benchmark.studies.results import collect

QUICK, PAPER = PROFILES["quick"], PROFILES["paper"]


def stages_of(root, name, profile=QUICK):
    return make_table(collect(STUDIES[name], profile, Store.scan(root), None), "stages")


def test_stages_are_means_over_seeds(tmp_path):
    grid = STUDIES["reduction"].grids["quick"]
    variant = grid.variants[0]
    for seed, level in enumerate((0.7, 0.8)):
        write_record(tmp_path, configure(variant, grid.columns[0], QUICK, seed), level)
    table = stages_of(tmp_path, "reduction")
    assert list(facts_frame(table)["stage"]) == [1, 2, 3, 4]
    assert set(facts_frame(table)["method"]) == {"With MR"}
    assert list(facts_frame(table)["personal"]) == ["none", "fc3", "fc2, fc3", "fc1, fc2, fc3"]
    assert list(facts_frame(table)["stage_test_accuracy"]) == pytest.approx([73, 71, 69, 67])
    assert list(facts_frame(table)["ensemble_test_accuracy"]) == pytest.approx([69, 71, 73, 75])
    assert set(printed_frame(table)["β"]) == {MISSING}  # not told by these records
    assert facts_frame(table)["beta"].isna().all()
    assert r"$\beta$" in latex(table)


def test_what_predicts_with_its_last_stage_alone_has_no_ensemble(tmp_path):
    study = STUDIES["distinct"]
    grid = study.grids["paper"]
    for variant in grid.variants:
        if variant.title in ("PPFE", "M1"):
            write_record(tmp_path, configure(variant, grid.columns[0], PAPER))
    shown = printed_frame(stages_of(tmp_path, "distinct", PAPER)).set_index("method")
    assert set(shown.loc["M1", "test, ensemble"]) == {MISSING}
    assert MISSING not in set(shown.loc["PPFE", "test, ensemble"]) | set(shown.loc["M1", "test, stage"])


def _tell_hindsight(told):
    for stage in told["stages"]:
        stage["hindsight_test_accuracy"] = 0.81


def test_hindsight_is_shown_where_a_record_tells_it(tmp_path):
    """Older records do not; what predicts with its last stage alone has no weights."""
    grid = STUDIES["distinct"].grids["paper"]
    older, newer = tmp_path / "older", tmp_path / "newer"
    for variant in grid.variants:
        if variant.title in ("PPFE", "PPFE (Sparse)", "M1"):
            write_record(older, configure(variant, grid.columns[0], PAPER))
            made = write_record(newer, configure(variant, grid.columns[0], PAPER))
            if variant.title != "PPFE (Sparse)":
                amend(made / "diagnostics.json", _tell_hindsight)
    without = stages_of(older, "distinct", PAPER)
    assert "hindsight" not in markdown(without).lower()
    table = stages_of(newer, "distinct", PAPER)
    shown = printed_frame(table).set_index("method")["test, hindsight"]
    assert {name: set(shown[name]) for name in set(shown.index)} == {
        "PPFE": {"81.00"}, "PPFE (Sparse)": {MISSING}, "M1": {MISSING},
    }  # fmt: skip
    assert "Hindsight: " in table.caption


def test_without_staged_runs_the_table_of_stages_is_empty(tmp_path):
    table = stages_of(tmp_path, "main")
    assert facts_frame(table).empty
    assert "No record tells of stages." in markdown(table)
