"""The board: methods × settings over folders and bundles."""

import json
import re

import pytest
from answers import refused
from browser import Browser, find_browser
from damages import CONFIG
from record_folders import amend, with_seed, write_record

from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.records.bundle import unpacked, write_bundle, write_verdicts
from pfl_benchmark.records.seal import write_verdict
from pfl_benchmark.records.store import gather
from pfl_benchmark.resolve.run import with_hyper

BY = {"verdict": "bit-equal", "rounds": 3, "of": 8, "by": "A. Smith", "code": "c" * 64}


def verdict(record, **changes):
    return {**BY, "environment": {"commit": "0123456789ab"}, "record_digest": record.digest, **changes}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Our results folder, two seeds of one method verified, and a bundle of somebody else's."""
    root = tmp_path_factory.mktemp("board")
    for algo, seed in (("fedavg", 0), ("fedavg", 1), ("ditto", 0), ("fedper", 0)):
        write_record(root / "ours", with_seed(configured(algo), seed))
    write_record(root / "ours", configured("ditto", lr=0.05))
    write_record(root / "ours", configured("ditto", validation=0.2))
    write_record(root / "theirs", configured("fedrep"))
    for record in gather([root / "ours"]).records:
        if record.config.algo == "fedavg":
            write_verdict(record.folder, verdict(record))
    write_bundle(gather([root / "theirs"]).records, root / "theirs.zip")
    return root


def configured(algo, **changes):
    return RunConfig(
        **{**CONFIG.to_dict(), "lr": SETTINGS["digits-s2"].values["lr"], "algo": algo, **changes}
    )


@pytest.fixture
def board(folders, tmp_path, capsys, monkeypatch):
    def make(*sources):
        monkeypatch.chdir(folders)
        assert main(["board", *sources, "--out", str(tmp_path / "board.html")]) == 0
        return (tmp_path / "board.html").read_text()

    return make


def rows(page):
    """Cells in words, by the head of their row, of methods × settings."""
    body = re.search(r'<table class="sortable board".*?</table>', page, re.S)[0]
    found = {}
    for row in re.findall(r"<tr>(<th scope=\"row\".*?)</tr>", body, re.S):
        cells = re.split(r"</t[hd]>", row)[:-1]
        head, *words = [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in cells]
        found[head] = words
    return found


def test_every_method_is_a_row_and_every_setting_a_column(board):
    found = rows(board("ours", "theirs.zip"))
    assert set(found) == {
        "ditto ours", "ditto, lr 0.05 ours", "fedavg ours", "fedper ours", "fedrep theirs.zip",
    }  # fmt: skip
    assert {len(cells) for cells in found.values()} == {2}
    assert found["fedper ours"][1] == "–"
    assert "2 seeds" in found["fedavg ours"][0]
    assert "±" in found["fedavg ours"][0]


def test_the_best_of_a_column_is_bold(board):
    page = board("ours", "theirs.zip")
    table = re.search(r'<table class="sortable board".*?</table>', page, re.S)[0]
    bold, values = [], []
    for row in re.findall(r"<tr><th scope=\"row\".*?</tr>", table, re.S):
        first = re.split("</td>", row)[0]
        values += [float(text) for text in re.findall(r'data-v="([\d.]+)"', first)]
        bold += [float(text) for text in re.findall(r"<strong>([\d.]+)</strong>", first)]
    assert len(values) == 5
    assert bold == [round(100 * max(values), 2)] * values.count(max(values))


def test_what_was_found_different_is_not_bold(tmp_path, board):
    for algo, level in (("ditto", 0.9), ("fedper", 0.5)):
        write_record(tmp_path / "two", configured(algo), level)
    for record in gather([tmp_path / "two"]).records:
        if record.config.algo == "ditto":
            write_verdict(record.folder, verdict(record, verdict="different"))
    table = re.search(r'<table class="sortable board".*?</table>', board(str(tmp_path / "two")), re.S)[0]
    (bold,) = re.findall(r"<strong>([\d.]+)</strong>", table)
    assert float(bold) < 80


def test_configurations_whose_names_are_cut_are_two_rows(tmp_path, board):
    long = {"personal_start": "average", "T": 2, "stage_rounds": (3, 1), "body_rate": (1.0, 0.5), "heads": 1}
    for space in ("vote", "probability"):
        config = with_hyper(configured("ppfe", rounds=4), {**long, "ens_space": space})
        write_record(tmp_path / "two", config)
    found = rows(board(str(tmp_path / "two")))
    assert len(found) == 2
    assert not any("seeds" in cells[0] for cells in found.values())


def test_nothing_is_bold_under_a_budget_whose_runs_may_stand_elsewhere(folders, tmp_path, board):
    write_record(tmp_path / "fitted", configured("ditto", budget="samples"))
    table = re.search(r'<table class="sortable board".*?</table>', board(str(tmp_path / "fitted")), re.S)[0]
    assert "budget samples" in table
    assert "<strong>" not in table


def test_a_folder_named_in_two_ways_is_one(folders, board):
    assert rows(board("ours", str(folders / "ours"))) == rows(board("ours"))


def test_it_says_who_verified_with_which_code(board, folders):
    page = board("ours", "theirs.zip")
    assert "✓" in rows(page)["fedavg ours"][0]
    assert "✓" not in rows(page)["fedper ours"][0]
    assert "bit-equal, rounds 1-3 of 8, by A. Smith with commit 0123456789ab, code cccccccccccc" in page


def test_a_packs_numbers_are_verified_only_beside_it(board, folders):
    assert "✓" not in rows(board("theirs.zip"))["fedrep"][0]
    with unpacked(folders / "theirs.zip") as bundle:
        for name, mark in (("bit-equal", "✓"), ("drifted", "≈"), ("different", "✗")):
            file = write_verdicts(
                bundle, {bundle.records[0].folder.name: verdict(bundle.records[0], verdict=name)}
            )
            assert mark in rows(board("theirs.zip"))["fedrep"][0]
    file.unlink()


def test_every_number_has_the_command_that_repeats_it(board, folders):
    page = board("ours")
    commands = re.findall(r"<pre><code>(python -m benchmark [^<]*)</code></pre>", page)
    assert len(commands) == len(gather([folders / "ours"]).records)
    assert all("--algo" in command and "--seed" in command for command in commands)


def test_another_copy_of_the_data_is_another_column(folders, tmp_path, board):
    for place, checksum in (("one", "0123456789abcdef"), ("two", "fedcba9876543210")):
        folder = write_record(tmp_path / place, configured("fedper"))
        amend(folder / "config.json", lambda about, c=checksum: about["split"].update(data_checksum=c))
    page = board(str(tmp_path / "one"), str(tmp_path / "two"))
    assert "data 0123456789abcdef" in page
    assert sorted(cells.count("–") for cells in rows(page).values()) == [1, 1]


def test_text_of_others_is_escaped(folders, tmp_path, board):
    folder = write_record(tmp_path / "evil", configured("fedper"))
    amend(
        folder / "summary.json",
        lambda summary: summary["environment"].update(commit="<script>alert(1)</script>", device="<img>"),
    )
    page = board(str(tmp_path / "evil"))
    assert "<script>alert" not in page
    assert "<img>" not in page


def test_a_method_that_is_not_here_is_shown(folders, tmp_path, board):
    folder = write_record(tmp_path / "runs", configured("fedper"))
    config = configured("fedper")
    unknown = RunConfig(**{**config.to_dict(), "algo": "theirs", "hyper": {"lam": 0.5}})
    other = folder.with_name(f"theirs-{folder.name.split('-', 1)[1][:-10]}{unknown.hash}")
    folder.rename(other)
    amend(other / "config.json", lambda about: about.update(config=unknown.to_dict()))
    assert "theirs, lam=0.5" in rows(board(str(tmp_path / "runs")))


def test_it_fetches_nothing(board):
    page = board("ours")
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("ours", "--out", "{tmp}/board.pdf"), ("ends in .html",)),
        (("nowhere", "--out", "{tmp}/board.html"), ("there is no folder",)),
        (("ours", "nowhere.zip", "--out", "{tmp}/board.html"), ("nowhere.zip cannot be read",)),
        (("ours", "--out", "theirs.zip/board.html"), ("cannot write", "choose another folder")),
    ],
)
def test_bad_input(words, parts, folders, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(folders)
    code = main(["board", *(word.format(tmp=tmp_path) for word in words)])
    refused((code, *capsys.readouterr()), *parts)
    assert not list(tmp_path.iterdir())


# In a browser


@pytest.fixture(scope="module")
def browser():
    executable = find_browser()
    if executable is None:
        pytest.skip("there is no Chromium here")
    chromium = Browser(executable)
    yield chromium
    chromium.close()


SHOWN = "[...document.querySelectorAll('#board tbody tr')].filter(row => !row.hidden).length"


def test_filters_and_links(browser, board, tmp_path):
    board("ours", "theirs.zip")
    for width in (390, 1280):
        browser.complaints.clear()
        browser.show(tmp_path / "board.html", width=width)
        assert browser.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert browser.run(SHOWN) == 5
        browser.run(_typed("methods", "ditto"))
        assert browser.run(SHOWN) == 2
        browser.run(_typed("methods", ""))
        browser.run(_typed("settings", "validation"))
        assert browser.run(SHOWN) == 1
        assert (
            browser.run("document.getElementById('board-count').textContent")
            == "1 of 5 rows, 1 of 2 settings"
        )
        browser.run(_typed("settings", ""))
        browser.run("document.getElementById('board-verified').click()")
        assert browser.run(SHOWN) == 1
        browser.run("document.getElementById('board-verified').click()")
        browser.run("location.hash = document.querySelector('#board td a').hash")
        opened = "document.querySelectorAll('[aria-expanded=true]').length"
        for _ in range(50):
            if browser.run(opened) == 1:
                break
        assert browser.run(opened) == 1
        assert browser.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert browser.complaints == []


def _typed(name, text):
    return (
        f"(() => {{ const input = document.getElementById('board-{name}'); input.value = {json.dumps(text)};"
        " input.dispatchEvent(new Event('input')); })()"
    )
