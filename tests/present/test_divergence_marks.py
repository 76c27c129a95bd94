"""Runs whose training diverged without being stopped: every table and figure tells them apart."""

import pytest
from record_folders import amend, write_records

from pfl_benchmark.cli import main
from pfl_benchmark.present.figures import make_figures
from pfl_benchmark.present.tables import make_tables
from pfl_benchmark.records.record import read_record
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.formats import FORMATS
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.results import collect

QUICK = PROFILES["quick"]
CASES = [
    (study, "fedrep" if study != "data-size" else "fedper")
    for study in ("main", "budgets", "data-size", "methods", "rates", "points", "new-clients", "targets")
] + [("main", "ppfe")]


def explode(folder, loss=2.7e9):
    amend(folder / "rounds.jsonl", lambda lines: lines[-1].update(loss=loss))


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def results(request, tmp_path_factory):
    """The records of a study, of which one method's have diverged on the first setting."""
    name, algo = request.param
    root = tmp_path_factory.mktemp(name)
    written = write_records(root, STUDIES[name], QUICK)
    explode(next(folder for folder in written if folder.name.startswith(f"{algo}-")))
    return collect(STUDIES[name], QUICK, Store.scan(root), None)


def lost(results):
    return {row for column in results.columns for row in results.lost(column)}


def test_every_table_marks_and_explains_it(results):
    assert len(lost(results)) == 1
    for table in make_tables(results):
        marked = [cell for cell in table.cells if cell.diverged]
        assert marked or not any(cell.value in lost(results) for cell in table.cells), table.name
        assert not any(cell.best for cell in marked)
        assert len([note for note in table.notes if note.startswith("§ training diverged")]) == 1
        for name, form in FORMATS.items():
            if name not in ("csv", "json"):
                assert "training diverged" in form.write(table), name


def texts(picture):
    return [text.get_text() for axes in picture.figure.axes for text in axes.texts]


def test_every_figure_names_it_and_draws_no_line(results):
    assert lost(results)
    for picture in make_figures(results):
        drawn = texts(picture) + [axes.get_title(loc="left") for axes in picture.figure.axes]
        if picture.name != "main-ppfe-stages" or "PPFE" in lost(results):
            assert any("diverged" in text for text in drawn), picture.name


def test_axes_are_those_of_the_others(tmp_path):
    """A method that stayed at chance does not make room for itself."""
    write_records(tmp_path, STUDIES["main"], QUICK)
    study = STUDIES["main"]
    before = make_figures(collect(study, QUICK, Store.scan(tmp_path), None))[0].figure.axes[0].get_ylim()
    for folder in tmp_path.glob("fedavg-digits-s2-*"):
        amend(
            folder / "rounds.jsonl",
            lambda lines: [line.update(accuracy=0.0) for line in lines[:-1] if "accuracy" in line],
        )
        explode(folder)
    after = make_figures(collect(study, QUICK, Store.scan(tmp_path), None))[0].figure.axes[0].get_ylim()
    assert after[0] >= before[0]


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "runs"
    written = write_records(root, STUDIES["main"], QUICK)
    explode(next(folder for folder in written if folder.name.startswith("fedrep-digits-s2")))
    return root


@pytest.mark.parametrize("words", [["compare"], ["compare", "--json"], ["compare", "--across"]])
def test_compare_tells_it(words, folder, capsys):
    main([words[0], str(folder), *words[1:]])
    told = "".join(capsys.readouterr())
    assert "diverged" in told


@pytest.mark.parametrize(("words", "file"), [("board", "board.html"), ("report", "report.html")])
def test_pages_tell_it(words, file, folder, tmp_path, capsys):
    if words == "board":
        main(["board", str(folder), "--out", str(tmp_path / file)])
    else:
        main(["report", "--profile", "quick", "--results-dir", str(folder)])
    page = next(tmp_path.rglob(file)).read_text()
    assert page.count("§") >= 3


@pytest.mark.parametrize("loss", [0.0, 2.3, 23.0])
def test_ordinary_losses_are_no_divergence(loss, folder):
    for place in folder.glob("fed*-digits-s2-*"):
        explode(place, loss)
    assert not any(record.diverged for record in Store.scan(folder).records())


@pytest.mark.parametrize(
    ("first", "test_loss", "diverged"), [(327, 0.8, False), (327, 5, True), (2, 0.8, True)]
)
def test_a_large_loss_that_falls_is_no_divergence_where_tests_go_well(first, test_loss, diverged, folder):
    place = next(folder.glob("fed*-digits-s2-*"))
    explode(place, 112)
    record = read_record(place)
    record.rounds[0]["loss"], record.summary["test_loss"] = first, test_loss
    assert record.diverged == diverged
