"""Tables in documents, renewed from records."""

from functools import cache

import pytest
from matplotlib.figure import Figure
from own_studies import MAIN
from record_folders import write_record

from pfl_benchmark.cli import main
from pfl_benchmark.errors import UserError
from pfl_benchmark.present.figures import make_figures
from pfl_benchmark.present.page.front import PICTURE, DocumentParts, table_names
from pfl_benchmark.present.tables import make_table
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.picture import Picture
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.grid import Variant, configure
from pfl_benchmark.studies.results import collect

QUICK = PROFILES["quick"]
FIGURE = "<!-- figure main-learning-curves: begin -->\n<!-- figure main-learning-curves: end -->\n"
PICTURES = "<!-- main picture: begin -->\n<!-- main picture: end -->\n"
TEXT = "# Title\n\n<!-- main table: begin -->\n\nolder\n\n<!-- main table: end -->\n\nThe end.\n"


def write_parts(document, profile, store):
    parts = DocumentParts([document], profile)
    parts.make(store)
    return parts.write(store.root)


def test_only_parts_of_chosen_studies_are_renewed(root, tmp_path):
    document = tmp_path / "README.md"
    name = next(name for name in table_names(QUICK) if not name.startswith("main"))
    other = f"<!-- table {name}: begin -->\nolder\n<!-- table {name}: end -->\n"
    document.write_text(TEXT + other)
    parts = DocumentParts([document], QUICK, ["main"])
    parts.make(Store.scan(root))
    assert parts.write(root) == [(document, ["main table"], [])]
    assert document.read_text().endswith(other)
    document.write_text(TEXT)
    with pytest.raises(UserError, match=r"has no table or figure of sweep; .* its studies: main"):
        DocumentParts([document], QUICK, ["sweep"])


@pytest.fixture
def root(tmp_path, own_catalogue):
    """Records of two methods on the first column."""
    grid = MAIN.grids["quick"]
    for variant in grid.variants:
        if variant.algo in ("local", "ppfe"):
            write_record(tmp_path / "records", configure(variant, grid.columns[0], QUICK))
    return tmp_path / "records"


def test_only_what_has_records_is_shown_and_the_rest_of_the_document_stays(root, tmp_path):
    document = tmp_path / "README.md"
    document.write_text(PICTURES + TEXT)
    write_parts(document, QUICK, Store.scan(root))
    text = document.read_text()
    before, after = TEXT.split("older")
    pictures, text = text.split("# Title")
    text = f"# Title{text}"
    assert text.startswith(before)
    assert text.endswith(after)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["Local Only", "Staged"]
    assert lines[0].count("|") == 3  # method and one setting
    assert "older" not in text
    assert "\n#" not in text.split("main table: begin")[1]  # no heading among those of the document
    assert f"(records/{PICTURE})" in pictures
    assert (root / PICTURE).read_bytes().startswith(b"\x89PNG")
    write_parts(document, QUICK, Store.scan(root))
    assert document.read_text() == pictures + text


def test_a_document_without_marks_is_left_alone(root, tmp_path, capsys):
    document = tmp_path / "README.md"
    document.write_text("nothing here\n")
    assert main(["report", "--results-dir", str(root), "--into", str(document)]) == 2
    assert "needs the lines '<!-- main table: begin -->'" in capsys.readouterr().err
    assert document.read_text() == "nothing here\n"
    assert not (root / "report.html").exists()


def test_any_table_of_a_study_can_stand_in_a_document(root, tmp_path, capsys):
    document = tmp_path / "NOTES.md"
    marks = [
        f"<!-- table {name}: begin -->\n<!-- table {name}: end -->\n" for name in ("main", "main-spread")
    ]
    document.write_text("\nbetween\n\n".join(marks))
    assert main(["report", "--results-dir", str(root), "--into", str(document)]) == 0
    assert "NOTES.md: table main, table main-spread" in capsys.readouterr().out
    first, second = document.read_text().split("between")
    grid = MAIN.grids["quick"]
    for part in (first, second):
        lines = [line for line in part.splitlines() if line.startswith("|")]
        assert lines[0].count("|") == 2 + len(grid.columns)  # gaps are shown
        assert len(lines) == 2 + len(grid.variants)
    assert "Test accuracy" in first
    assert "Standard deviation" in second


def test_a_figure_of_a_study_can_stand_in_a_document(root, tmp_path, capsys):
    document = tmp_path / "NOTES.md"
    document.write_text(FIGURE)
    assert main(["report", "--results-dir", str(root), "--into", str(document)]) == 0
    assert "NOTES.md: figure main-learning-curves" in capsys.readouterr().out
    results = collect(MAIN, QUICK, Store.scan(root), None)
    (drawn,) = (figure for figure in make_figures(results) if figure.name == "main-learning-curves")
    text = document.read_text()
    assert f"![{drawn.title}](records/main-learning-curves.png)" in text
    assert drawn.caption in text
    assert (root / "main-learning-curves.png").read_bytes() == drawn.to_png()


def test_captions_are_text_not_markup(root, tmp_path, monkeypatch):
    drawn = Picture("main-learning-curves", "Curves [all]", "β * <b>", Figure())
    monkeypatch.setattr("pfl_benchmark.present.page.front.make_figures", lambda results: [drawn])
    document = tmp_path / "NOTES.md"
    document.write_text(FIGURE)
    write_parts(document, QUICK, Store.scan(root))
    text = document.read_text()
    assert "![Curves \\[all\\]](records/" in text
    assert "β \\* \\<b>" in text


def test_parts_of_other_names_are_named_and_stay(root, tmp_path, capsys):
    document, other = tmp_path / "NOTES.md", FIGURE.replace("figure", "figures")
    document.write_text(FIGURE + other)
    assert main(["report", "--results-dir", str(root), "--into", str(document)]) == 0
    answer = capsys.readouterr().out
    assert "figure main-learning-curves; no table or figure, left as it is: figures main-" in answer
    assert document.read_text().endswith(other)


def test_a_figure_without_records_is_refused(root, tmp_path, capsys):
    document = tmp_path / "NOTES.md"
    document.write_text(FIGURE.replace("learning-curves", "budgets-bytes"))
    assert main(["report", "--results-dir", str(root), "--into", str(document)]) == 2
    answer = capsys.readouterr().err
    assert "there is no figure main-budgets-bytes; made in" in answer
    assert "main-learning-curves" in answer
    assert [path.name for path in root.glob("*.png")] == []


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_names_of_tables_are_those_of_their_files(profile, tmp_path):
    store = Store.scan(tmp_path)
    results = cache(lambda study: collect(STUDIES[study], profile, store, None))
    for name, (study, kind) in table_names(profile).items():
        assert make_table(results(study.name), kind).name == name


GOOD = "<!-- table main: begin -->\nold\n<!-- table main: end -->\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "<!-- table man: begin -->\n<!-- table man: end -->\n",
            "unknown table 'man' (did you mean 'main'?)",
        ),
        (f"{GOOD}<!-- table mian-spread: begin -->\n<!-- table mian-spread: end -->", "mean 'main-spread'?"),
        ("<!-- table main: begin -->\n", "the part 'table main' does not end"),
        (f"{GOOD}  <!-- table few: end -->\n", "stands behind no line that begins it"),
        (GOOD.replace("old", "<!-- table few: begin -->\n<!-- table few: end -->"), "stands inside"),
        (f"{GOOD}\n{GOOD}", "stands there twice"),
        ("nothing\n", "needs the lines '<!-- main table: begin -->'"),
        (
            FIGURE.replace("main-", "mian-"),
            "no study draws a figure 'mian-learning-curves'; names of figures begin with",
        ),
    ],
)
def test_bad_lines_are_one_line_and_nothing_is_written(text, message, root, tmp_path, capsys):
    good, bad = tmp_path / "GOOD.md", tmp_path / "BAD.md"
    good.write_text(GOOD)
    bad.write_text(text)
    assert main(["report", "--results-dir", str(root), "--into", str(good), str(bad)]) == 2
    answer = capsys.readouterr().err
    assert message in answer
    assert "BAD.md" in answer
    assert answer.count("\n") == 1
    assert (good.read_text(), bad.read_text()) == (GOOD, text)
    assert not (root / "report.html").exists()


def test_a_missing_main_study_spoils_no_other_document(root, tmp_path, capsys):
    other = tmp_path / "other"
    write_record(other, configure(Variant("FedPer", "fedper"), MAIN.grids["quick"].columns[0], QUICK))
    documents = [tmp_path / "A.md", tmp_path / "B.md"]
    for document, text in zip(documents, (GOOD, TEXT), strict=True):
        document.write_text(text)
    assert main(["report", "--results-dir", str(other), "--into", *map(str, documents)]) == 2
    assert "no records of the study main" in capsys.readouterr().err
    assert [document.read_text() for document in documents] == [GOOD, TEXT]


def test_links_modes_and_line_ends_stay(root, tmp_path):
    folder = tmp_path / "docs (1)"
    folder.mkdir()
    document, link = folder / "REAL.md", tmp_path / "LINK.md"
    document.write_bytes(("\ufeff" + TEXT + PICTURES).replace("\n", "\r\n").encode())
    document.chmod(0o640)
    link.symlink_to(document)
    assert main(["report", "--results-dir", str(root), "--into", str(link)]) == 0
    assert link.is_symlink()
    assert document.stat().st_mode & 0o777 == 0o640
    content = document.read_bytes()
    assert content.count(b"\n") == content.count(b"\r\n") > TEXT.count("\n")
    assert f"(records/{PICTURE})".encode() in content
