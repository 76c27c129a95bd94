"""The W&B Report, built from the package's own classes; only handing it over is left out."""

import json
import shutil
import sys

import pytest
from own_studies import BORROWED, FEW, MAIN, ONE, OTHER, SIZES, replace_catalogue
from record_folders import write_records

from pfl_benchmark.errors import UserError
from pfl_benchmark.present import wandb_report as module
from pfl_benchmark.present.render import render
from pfl_benchmark.present.tracked import tables_of
from pfl_benchmark.present.wandb_report import build, destination, publish, runs_of
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.formats.markdown import markdown
from pfl_benchmark.studies import catalogue
from pfl_benchmark.studies.grid import configure

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the package itself
PROFILE = catalogue.PROFILES["quick"]
BOTH = (FEW, SIZES)


@pytest.fixture(scope="module", autouse=True)
def _own_catalogue():
    with pytest.MonkeyPatch.context() as patch:
        replace_catalogue(patch)
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A results folder in which two studies are rendered; of one of them a column is missing."""
    root = tmp_path_factory.mktemp("results")
    for study in BOTH:
        write_records(root, study, PROFILE)
    found = Store.scan(root)
    for record in found.records():
        if record.config.samples_per_client == 40:
            (record.folder / "done").unlink()
    render(BOTH, PROFILE, found)
    return Store.scan(root)


@pytest.fixture(scope="module")
def blocks(store):
    """What is sent to the service, block by block."""
    pytest.importorskip("wandb_workspaces", reason="wandb-workspaces is not installed")
    report = build("team", "project", PROFILE, tables_of(store.root), runs_of(PROFILE, store))
    assert (report.entity, report.project, report.title) == (
        "team",
        "project",
        "pfl-benchmark: profile quick",
    )
    return json.loads(report._to_model().spec.model_dump_json(by_alias=True, exclude_none=True))["blocks"]


def texts(block):
    return "".join(child.get("text") or "".join(texts(child)) for child in block.get("children", []))


def test_it_says_what_it_is(blocks):
    said = [text for block in blocks if (text := texts(block))]
    assert said[0] == PROFILE.warning
    headings = [texts(block) for block in blocks if block["type"] == "heading"]
    wanted = [FEW.title, ONE.title, OTHER.title, SIZES.title, "20", "60", "All runs"]
    assert headings == wanted


def test_every_table_is_there_as_it_was_rendered(blocks, store):
    sent = [block["content"] for block in blocks if block["type"] == "markdown-block"]
    assert sent == [f"#{markdown(table)}" for own in tables_of(store.root).values() for table in own]
    assert len(sent) == sum(len(study.tables) for study in BOTH)
    assert all(text.startswith("### ") for text in sent)


def test_charts_are_of_the_runs_of_a_setting(blocks, store):
    grids = [block["metadata"] for block in blocks if block["type"] == "panel-grid"]
    wanted = [
        {configure(row, column, PROFILE, seed).hash for row in grid.variants for seed in PROFILE.seeds}
        for grid in (study.grid(PROFILE) for study in BOTH)
        for column in grid.columns
        if column.title != "40"
    ]
    shown = []
    for grid in grids[:-1]:
        (runs,) = grid["runSets"]
        (chosen,) = runs["filters"]["filters"]
        assert (chosen["key"]["section"], chosen["key"]["name"], chosen["op"]) == ("run", "name", "IN")
        shown.append({*chosen["value"]})
        assert runs["grouping"] == [{"section": "config", "name": "method.value"}]
    assert shown == wanted
    assert set().union(*shown) == {record.config.hash for record in store.records()}
    (everything,) = grids[-1]["runSets"]
    assert [key["name"] for key in everything["grouping"]] == ["study.value", "setting.value", "method.value"]
    for grid in grids:
        panels = grid["panelBankSectionConfig"]["panels"]
        axes = [panel["config"].get("xAxis") for panel in panels]
        assert axes == ["round", "cumulative/bytes", None]
        assert {name for panel in panels for name in panel["config"]["metrics"]} == {"accuracy"}


def test_publishing_gives_the_address(store, monkeypatch):
    pytest.importorskip("wandb_workspaces", reason="wandb-workspaces is not installed")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setattr(module, "_save", lambda report: f"https://host/{report.entity}/{report.project}")
    assert publish("team", "project", PROFILE, store) == "https://host/team/project"
    with pytest.raises(UserError, match="there are no rendered tables in nowhere"):
        publish("team", "project", PROFILE, Store(type(store.root)("nowhere")))

    def fail(report):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(module, "_save", fail)
    with pytest.raises(
        UserError, match=r"cannot publish .* to team/project: no route to host \(Connection"
    ) as told:
        publish("team", "project", PROFILE, store)
    assert "\n" not in str(told.value)


def test_what_is_missing_is_named(store, monkeypatch, tmp_path):
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "wandb_workspaces", None)
        with pytest.raises(UserError, match="not installed: pip install wandb-workspaces"):
            publish("team", "project", PROFILE, store)
    pytest.importorskip("wandb_workspaces", reason="wandb-workspaces is not installed")
    with pytest.raises(UserError, match="needs a W&B key and finds none"):
        publish("team", "project", PROFILE, store)


@pytest.mark.parametrize("text", ["", "team", "team/", "/project", "a/b/c", " / "])
def test_a_destination_has_two_parts(text):
    with pytest.raises(UserError, match="expected ENTITY/PROJECT"):
        destination(text)


def test_destination():
    assert destination("team/project") == ("team", "project")


def test_a_study_that_borrows_its_runs_has_no_charts(tmp_path):
    """No run is filed under it."""
    write_records(tmp_path, MAIN, PROFILE)
    runs = runs_of(PROFILE, Store.scan(tmp_path))
    assert runs["main"]
    assert BORROWED.name not in runs


def test_a_damaged_table_is_told_in_one_line(store, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(store.root, root)
    (root / "tables" / "few.json").write_text("{")
    with pytest.raises(
        UserError, match=r"few\.json cannot be read .*; make it again: python -m benchmark report"
    ):
        tables_of(root)
