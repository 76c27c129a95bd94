"""The main table of a document, renewed from records."""

import pytest
from record_folders import write_record

from benchmark.cli import main
from benchmark.errors import UserError
from benchmark.report.front import PICTURE, write_parts
from benchmark.store import Store
from benchmark.studies.catalogue import PROFILES, STUDIES
from benchmark.studies.grid import configure

QUICK = PROFILES["quick"]
TEXT = "# Title\n\n<!-- main table: begin -->\n\nolder\n\n<!-- main table: end -->\n\nThe end.\n"


@pytest.fixture
def root(tmp_path):
    """Records of two methods on the first column."""
    grid = STUDIES["main"].grids["quick"]
    for variant in grid.variants:
        if variant.algo in ("local", "ppfe"):
            write_record(tmp_path / "records", configure(variant, grid.columns[0], QUICK))
    return tmp_path / "records"


def test_only_what_has_records_is_shown_and_the_rest_of_the_document_stays(root, tmp_path):
    document = tmp_path / "README.md"
    document.write_text(TEXT)
    write_parts(document, QUICK, Store.scan(root))
    text = document.read_text()
    before, after = TEXT.split("older")
    assert text.startswith(before)
    assert text.endswith(after)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["Local Only", "PPFE"]
    assert lines[0].count("|") == 3  # method and one setting
    assert "older" not in text
    assert "\n#" not in text.split("main table: begin")[1]  # no heading among those of the document
    assert f"(records/{PICTURE})" in text
    assert (root / PICTURE).read_bytes().startswith(b"\x89PNG")
    write_parts(document, QUICK, Store.scan(root))
    assert document.read_text() == text


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
    grid = STUDIES["main"].grids["quick"]
    for part in (first, second):
        lines = [line for line in part.splitlines() if line.startswith("|")]
        assert lines[0].count("|") == 2 + len(grid.columns)  # gaps are shown
        assert len(lines) == 2 + len(grid.variants)
    assert "Test accuracy" in first
    assert "Standard deviation" in second


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "<!-- table man: begin -->\n<!-- table man: end -->\n",
            "unknown table 'man' (did you mean 'main'?)",
        ),
        ("<!-- table main: begin -->\n", "needs the lines"),
    ],
)
def test_unknown_tables_and_single_marks_are_one_line(text, message, root, tmp_path, capsys):
    document = tmp_path / "NOTES.md"
    document.write_text(text)
    assert main(["report", "--results-dir", str(root), "--into", str(document)]) == 2
    assert message in capsys.readouterr().err
    assert document.read_text() == text


def test_without_records_of_the_study_nothing_is_claimed(tmp_path):
    document = tmp_path / "README.md"
    document.write_text(TEXT)
    write_record(
        tmp_path / "records",
        configure(
            STUDIES["sparse"].grids["quick"].variants[1], STUDIES["main"].grids["quick"].columns[0], QUICK
        ),
    )
    with pytest.raises(UserError, match="no records of the study main"):
        write_parts(document, QUICK, Store.scan(tmp_path / "records"))
    assert document.read_text() == TEXT
