"""The page: whole, valid, self-contained, and about exactly the records that are there."""

import dataclasses
import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from own_studies import CATALOGUE, FEW, MAIN, PAIR
from record_folders import amend, write_record, write_records

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.present.page.mixtures import cautions, in_words, mixed
from pfl_benchmark.present.page.page import write_page
from pfl_benchmark.present.render import render
from pfl_benchmark.records.store import Store
from pfl_benchmark.resolve.run import with_hyper
from pfl_benchmark.studies.catalogue import PROFILES

QUICK = PROFILES["quick"]
STUDIES = {study.name: study for study in CATALOGUE}
VOID = {"meta", "link", "img", "input", "br"}


class Page(HTMLParser):
    """Checks nesting on the way, and keeps what was found."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.text, self.open, self.found, self.words, self.unfolded = text, [], [], [], []
        self.folds = []  # depths of what is folded or hidden
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
            given = dict(attributes)
            if "hidden" in given or (tag == "details" and "open" not in given):
                self.folds.append(len(self.open))

    def handle_endtag(self, tag):
        if self.folds and self.folds[-1] == len(self.open):
            self.folds.pop()
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)
            titled = len(self.open) > self.folds[-1] if self.folds else False
            if not self.folds or (titled and self.open[self.folds[-1]] == "summary" and len(self.folds) == 1):
                self.unfolded += data.split()

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]

    @property
    def shown(self):
        return " ".join(" ".join(self.words).split())


def page_of(root, names, profile=QUICK, seeds=None):
    studies, store = [STUDIES[name] for name in names], Store.scan(root)
    render(studies, profile, store, seeds)
    write_page(studies, profile, store, seeds)
    return Page((root / "report.html").read_text())


def change(folder, **environment):
    amend(folder / "summary.json", lambda summary: summary["environment"].update(environment))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quick")
    write_records(folder, MAIN, QUICK, skip=("ppfe",))
    return folder


@pytest.fixture(scope="module")
def page(root):
    return page_of(root, ("main", "alone"))


def test_the_page_is_valid(page):
    assert page.text.startswith("<!DOCTYPE html>")
    names = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(names) == len(set(names))
    links = [link["href"] for link in page.all("a")]
    assert {link[1:] for link in links if link.startswith("#")} <= set(names)
    for _, attributes in page.found:
        for pointer in ("aria-labelledby", "aria-controls", "for"):
            assert attributes.get(pointer, names[0]) in names
    assert all(image["alt"] for image in page.all("img"))
    assert len(page.all("table")) == len(page.all("caption"))
    assert [tag for tag, _ in page.found if tag in ("header", "nav", "main", "footer")] == [
        "header", "nav", "main", "footer",
    ]  # fmt: skip


def test_the_page_needs_nothing_but_itself(page):
    sources = [a[name] for _, a in page.found for name in ("src", "srcset", "poster") if name in a]
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|\bimport\b", page.text)
    files = [link["href"] for link in page.all("a") if not link["href"].startswith("#")]
    assert all(re.fullmatch(r"(tables|figures)/[\w-]+\.\w+", file) for file in files)
    assert "default-src 'none'" in page.text


def test_files_that_it_names_are_there(page, root):
    files = {link["href"] for link in page.all("a") if not link["href"].startswith("#")}
    written = {
        f"{path.parent.name}/{path.name}" for path in (*root.glob("tables/*"), *root.glob("figures/*"))
    }
    # A study without a record has tables of dashes, which the page does without.
    assert files == {name for name in written if not name.startswith("tables/alone")}


def test_one_table_and_one_figure_are_seen_at_first(tmp_path):
    """A study in which everything is asked for, and others that are folded behind a title and a sentence."""
    for study in (MAIN, PAIR, FEW):
        write_records(tmp_path, study, QUICK)
    names = ("main", "pair", "few")
    page = page_of(tmp_path, names)
    seen = " ".join(page.unfolded)
    assert len(page.unfolded) < 800 < len(page.words)
    assert all(STUDIES[name].title in seen for name in names)
    assert STUDIES["pair"].shows in seen
    assert "p-values" not in seen
    assert "p-values" in page.shown
    assert "Seed 0 " in seen


def test_what_captions_have_in_common_stands_there_once(page):
    for words in (
        QUICK.warning,
        "One seed (0).",
        "of them in a round, 40 rounds",
        "weighted by their test samples",
    ):
        assert page.shown.count(words) == 1, words


def test_every_run_is_there_with_its_figures_and_configuration(page, root):
    records = Store.scan(root).records()
    rows = [a for a in page.all("tbody") if "data-words" in a]
    assert len(rows) == len(records)
    for record in records:
        assert f"Record: {record.folder.name} ." in page.shown
        assert f"{100 * record.summary['accuracy']:.2f}" in page.shown
    assert page.shown.count("python -m benchmark --algo") == len(records)
    assert page.shown.count("samples_per_client") == 2 * len(records)  # of training, of test


def test_the_quick_profile_says_what_it_is(page):
    lines = [tag for tag, a in page.found if a.get("class") == "notice"]
    assert lines
    assert page.shown.index(QUICK.warning) < page.shown.index("How to repeat")


def test_best_values_are_bold_and_the_papers_stand_beside(tmp_path):
    write_records(tmp_path, PAIR, QUICK)
    page = page_of(tmp_path, ("pair",))
    table = page.text[page.text.index('id="table-pair"') :]
    table = table[: table.index("</table>")]
    assert table.count("<strong>") == 2  # one in every setting
    assert re.search(r'<span class="paper">paper 70\.10 <span class="(above|near|below)">[+−]\d', table)


def test_what_is_missing_failed_or_damaged_is_listed(tmp_path):
    folders = write_records(tmp_path, PAIR, QUICK)
    (folders[0] / "done").unlink()
    (folders[1] / "done").unlink()
    (folders[1] / "failed.json").write_text('{"reason": "training diverged <b>"}')
    (folders[2] / "clients.csv").unlink()
    page = page_of(tmp_path, ("pair",))
    assert "Not run yet: 2 " in page.shown
    assert re.search(r"training diverged: 1 \S+ on \S+, seed 0: training diverged <b>", page.shown)
    assert f"not used: 1 {folders[2].name}: clients.csv" in page.shown
    assert "3 of 4 runs have no record" in page.shown


def test_complete_studies_miss_nothing(tmp_path):
    write_records(tmp_path, FEW, QUICK)
    shown = page_of(tmp_path, ("few",)).shown
    assert "Every run of these studies has a record" in shown
    assert "Incomplete" not in shown
    assert "Mixed" not in shown


def test_all_runs_stand_in_one_flat_table(tmp_path):
    write_records(tmp_path, PAIR, QUICK)
    write_record(tmp_path, RunConfig(**with_hyper(RunConfig(dataset="digits"), {}).to_dict()))  # of no study
    page_of(tmp_path, ["pair"])
    records = {record.folder.name: record for record in Store.scan(tmp_path).records()}
    table = pd.read_csv(tmp_path / "runs.csv").set_index("record")
    assert set(table.index) == set(records)
    for name, record in records.items():
        line = table.loc[name]
        assert line["result.accuracy"] == pytest.approx(record.summary["accuracy"])
        assert (line["algo"], line["seed"], line["split"]) == (
            record.config.algo, record.config.seed, record.split,
        )  # fmt: skip
        assert set(record.config.to_dict()) - {"hyper"} < set(table)
        assert name.startswith(line["method"] + "-digits-")
    parts = [column.partition(".")[0] for column in table if "." in column]
    assert list(dict.fromkeys(parts)) == ["result", "budget", "hyper", "environment"]
    assert table["hyper.lam"].notna().sum() == 2  # of Ditto alone


def test_mixtures_are_told_where_they_are(tmp_path):
    write_records(tmp_path, PAIR, QUICK)
    write_records(tmp_path, FEW, QUICK)
    one, other = sorted(tmp_path.glob("fedavg-ft-*"))
    change(one, commit="abc", device="NVIDIA H200")
    change(other, commit="def+")
    studies = [PAIR, FEW]
    page = page_of(tmp_path, ("pair", "few"))
    assert page.text.count('class="mixed"') == len(FEW.tables)  # all of one of the studies
    assert "Mixes 3 commits and 2 devices" in page.shown
    assert "1 run made with code that differs" in page.shown
    assert cautions(studies, QUICK, Store.scan(tmp_path)) == [
        "records of several commits share a table: few",
        "records of several devices share a table: few",
    ]


def test_a_mixture_is_of_values_that_differ(tmp_path):
    folders = write_records(tmp_path, FEW, QUICK)
    assert mixed(Store.scan(tmp_path).records()) == {}
    for folder in folders:
        change(folder, torch="2.13.0")
    assert mixed(Store.scan(tmp_path).records()) == {}
    change(folders[0], torch="2.4.0")
    assert in_words(mixed(Store.scan(tmp_path).records())) == "2 PyTorch versions"


def test_a_run_of_two_stretches_tells_them(tmp_path):
    write_records(tmp_path, MAIN, QUICK)
    folder = next(tmp_path.glob("fedrep-*"))
    ours = {"from_round": 9, "commit": "abc", "code": "1"}
    origins = [{"from_round": 1, "commit": "def+", "code": "2"}, ours]
    amend(folder / "summary.json", lambda summary: summary.update(origins=origins))
    page = page_of(tmp_path, ["main"])
    assert page.text.count("rounds 1-8 were computed with other code (commit def+)") == 1
    assert "1 run made with code that differs" in page.shown


def test_nothing_in_a_record_is_markup(tmp_path):
    (folder, *_) = write_records(tmp_path, FEW, QUICK)
    change(folder, processor='</td><script>alert("&")</script>', device="<i>", commit='" onload="')
    page = page_of(tmp_path, ("few",))
    assert len(page.all("script")) == 2
    assert page.all("i") == []
    assert not any("onload" in attributes for _, attributes in page.found)
    assert '</td><script>alert("&")</script>' in page.shown


def test_a_study_without_a_record_says_so(root, page):
    assert "No record yet" in page.shown
    assert 'id="table-alone"' not in page.text


def test_seeds_are_those_that_were_asked_for(tmp_path):
    write_records(tmp_path, FEW, QUICK, seeds=(0, 1, 2))
    rows = {
        seeds: page_of(tmp_path, ("few",), seeds=seeds).text.count("data-words") for seeds in (None, (0,))
    }
    assert rows == {None: 12, (0,): 4}


def test_the_page_is_written_again_only_if_something_has_changed(tmp_path):
    study = FEW
    folders = write_records(tmp_path, study, QUICK)

    def write():
        store = Store.scan(tmp_path)
        render([study], QUICK, store)
        return write_page([study], QUICK, store)

    assert [write(), write()] == [True, False]
    text = (tmp_path / "report.html").read_text()
    change(folders[0], commit="abc")
    assert [write(), write()] == [True, False]
    (tmp_path / "report.html").unlink()
    assert [write(), write()] == [True, False]
    change(folders[0], commit="")
    write()
    # Made from records alone: the same records, the same page (but for the entry that was added).
    assert len((tmp_path / "report.html").read_text()) == pytest.approx(len(text), abs=100)
    write_record(tmp_path, RunConfig(dataset="digits", clients=6))
    assert write()  # a run that no study uses is in the list of runs


def test_the_same_records_make_the_same_page(tmp_path):
    texts = []
    for name in ("one", "two"):
        (tmp_path / name / "quick").mkdir(parents=True)
        write_records(tmp_path / name / "quick", FEW, QUICK)
        texts.append(page_of(tmp_path / name / "quick", ("few",)).text)
    assert texts[0] == texts[1]
    assert str(tmp_path) not in texts[0]


@pytest.mark.parametrize(("algo", "hyper"), [("deleted", {}), ("fedper", {"renamed": 0.5})])
def test_runs_that_this_code_does_not_know_stand_in_the_list(algo, hyper, tmp_path):
    """A method that was renamed or thrown away must not take the other runs with it."""
    write_records(tmp_path, FEW, QUICK)
    (folder, *_) = write_records(tmp_path / "other", FEW, QUICK)
    config = dataclasses.replace(Store.scan(tmp_path).records()[0].config, algo=algo, hyper=hyper)
    amend(folder / "config.json", lambda about: about.update(config=config.to_dict()))
    name = f"{algo}-digits-s2-seed{config.seed}-{config.hash}"
    folder.rename(tmp_path / name)
    page = page_of(tmp_path, ["few"])
    assert name in page.text
    assert not Store.scan(tmp_path).damaged
    assert page.text.count("<code>python -m benchmark --algo") == len(Store.scan(tmp_path).records()) - 1
