"""What holds of every table in every format."""

import csv
import io
import re
from html.parser import HTMLParser

import pytest
from own_studies import EVERY, PROFILE, results_of
from record_folders import write_records

from pfl_benchmark.present.tables import make_tables
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.formats import FORMATS
from pfl_benchmark.render.formats.json_file import from_json
from pfl_benchmark.render.formats.latex import latex
from pfl_benchmark.render.formats.markdown import grid
from pfl_benchmark.render.markup import html_table
from pfl_benchmark.render.table import MISSING
from pfl_benchmark.studies.catalogue import PROFILES, STUDIES
from pfl_benchmark.studies.results import collect

QUICK = PROFILES["quick"]
OF_PAPERS = [study for study in STUDIES.values() if "quick" in study.grids]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Records of all studies, with some gaps; of these tests' own two seeds of most methods."""
    root = tmp_path_factory.mktemp("records")
    write_records(root, EVERY, PROFILE, skip=("fedrep",))
    write_records(root, EVERY, PROFILE, (1,), skip=("fedrep", "fedavg"))
    write_records(root / "papers", OF_PAPERS, QUICK, skip=("pfedfda",))
    return Store.scan(root), Store.scan(root / "papers")


@pytest.fixture(scope="module", params=[*EVERY, *OF_PAPERS], ids=lambda study: f"{study.name}")
def tables(request, store):
    """All tables of a study."""
    study, (own, papers) = request.param, store
    if study in EVERY:
        return make_tables(results_of(study, own))
    return make_tables(collect(study, QUICK, papers, None))


class Cells(HTMLParser):
    """Texts of the cells of a table, row by row, without those of its head."""

    def __init__(self, table):
        super().__init__()
        self.rows, self.within = [], False
        self.feed(str(html_table(table)))
        self.rows = self.rows[1:]

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def markdown_cells(table):
    lines = grid(table).splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def latex_cells(table):
    text = latex(table)
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")].splitlines()
    rows = [line.removesuffix(r"\\") for line in body if line.endswith(r"\\")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)&", row)] for row in rows]


def numbers(text):
    """Those in a text, without regard to how it sets minus signs and thousands."""
    return re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text))


def test_every_figure_appears_as_printed_in_every_format(tables):
    for table in tables:
        in_html, in_markdown, in_latex = Cells(table).rows, markdown_cells(table), latex_cells(table)
        assert len(table.rows) == len(in_html) == len(in_markdown) == len(in_latex)
        for place, row in enumerate(table.rows):
            assert len(row) == len(in_html[place]) == len(in_markdown[place])
            for cell, html, markdown in zip(row, in_html[place], in_markdown[place], strict=True):
                for part in (cell.text, cell.around, *cell.marks):
                    assert part in html
                    assert cell.again or part in markdown
            figures = [cell for head, cell in zip(table.heads, row, strict=True) if not head.words]
            found = numbers(" ".join(in_latex[place]))
            assert all(number in found for cell in figures for number in numbers(cell.text))


def test_the_numbers_of_programs_are_those_that_people_see(tables):
    """Where a fact is the value of its cell, unrounded, it rounds to what is printed."""
    for table in tables:
        names, lines = table.facts()
        read = list(csv.DictReader(io.StringIO(FORMATS["csv"].write(table))))
        assert len(read) == len(lines)
        for line, found in zip(lines, read, strict=True):
            assert list(found) == list(names)
            for name in names:
                value = line.get(name)
                if isinstance(value, float):
                    assert float(found[name]) == pytest.approx(value, rel=1e-5)
                else:
                    assert found[name] == ("" if value is None else str(value))
        for cell in table.cells:
            if "mean" in cell.facts:
                assert cell.text == f"{cell.facts['mean']:.2f}"
                assert cell.around == ("" if cell.facts["std"] is None else f"{cell.facts['std']:.2f}")
                assert cell.best == cell.facts["best"]
            elif "p_holm" in cell.facts and cell.form == "p":
                assert cell.text in ("< 0.001", f"{cell.facts['p_holm']:.3f}")


def test_a_table_comes_back_from_its_json(tables):
    for table in tables:
        again = from_json(FORMATS["json"].write(table))
        assert again == table
        assert all(form.write(again) == form.write(table) for form in FORMATS.values())


def test_what_has_no_record_says_why(tables):
    gaps = [cell for table in tables for cell in table.cells if "seeds" in cell.facts and cell.value is None]
    assert all(cell.reason for cell in gaps)
    assert all(cell.text == MISSING for cell in gaps)


def test_latex_is_whole(tables):
    for table in tables:
        text = latex(table)
        assert all(letter.isascii() for letter in text)
        assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
        widths = {len(row) for row in latex_cells(table)}
        assert len(widths) <= 1
        (kinds,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
        assert widths <= {len(kinds)}
