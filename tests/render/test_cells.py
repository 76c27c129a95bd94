"""Single cells in every format: what is printed, what is markup, what is sorted by."""

import json
import re
from html import unescape

import pytest

from pfl_benchmark.render.formats import FORMATS
from pfl_benchmark.render.formats.json_file import from_json, to_json
from pfl_benchmark.render.formats.latex import latex
from pfl_benchmark.render.formats.markdown import grid, markdown
from pfl_benchmark.render.markup import html_table
from pfl_benchmark.render.registry import register
from pfl_benchmark.render.table import MISSING, Cell, Head, Table, plain

WHOLE = Cell(
    0.8728, "percent", deviation=0.0012, paper=0.8658, best=True, tied=True, short=True, facts={"mean": 87.28}
)
CELLS = {
    "whole": WHOLE,
    "below": Cell(0.8, "percent", paper=0.8658),
    "missing": Cell(paper=0.8658, form="percent", reason="training <diverged>"),
    "blank": Cell(""),
    "words": Cell("of & with <i>, 50 % | * _ # $ { } ~ ^ \\ λ ± “ü”"),
    "p": Cell(0.00012, "p"),
    "bytes": Cell(1.5e6, "size"),
    "many": Cell(1234567, ","),
    "rank": Cell(2.5, "rank"),
    "first": Cell(1.0, "rank", best=True),
    "gain": Cell(-0.0123, "signed", beside=Cell("FedAvg (all)")),
    "again": Cell("Ditto", again=True),
}


def table_of(cell, **more):
    heads = (Head("method", words=True), Head("A (100, 2)"))
    return Table("Title", "Caption.", heads, ((Cell("row"), cell),), name="name", **more)


def html_cell(cell):
    (found,) = re.findall(r"<td.*?</td>", str(html_table(table_of(cell))), flags=re.DOTALL)
    return found


def words_of(html):
    return unescape(re.sub(r"<[^>]*>", " ", html)).split()


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_every_format_prints_the_same(cell):
    assert html_cell(cell).count("<td") == 1
    row = grid(table_of(cell)).splitlines()[2]
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
    if not cell.again:
        unescaped = re.sub(r"\\(.)", r"\1", row.split("|", 2)[2].rsplit("|", 1)[0].replace("**", ""))
        assert " ".join(unescaped.split()) == plain(cell)
        html = [word for word in words_of(html_cell(cell)) if word != "paper"]
        assert "".join(html) == re.sub(r"[(),]|\s", "", plain(cell)) or cell.paper is None
        assert "".join(words_of(html_cell(cell))).startswith("".join(cell.text.split()))
    assert from_json(to_json(table_of(cell))) == table_of(cell)


def test_a_whole_cell():
    assert plain(WHOLE) == "87.28 ± 0.12 † ‡ (86.58, +0.70)"
    assert "| **87.28 ± 0.12** † ‡ (86.58, +0.70) |" in grid(table_of(WHOLE))
    assert r"row & \textbf{87.28} {\scriptsize $\pm$ 0.12}$^{\dagger}$$^{\ddagger}$ & 86.58 \\" in latex(
        table_of(WHOLE)
    )
    html = html_cell(WHOLE)
    assert words_of(html) == ["87.28", "±", "0.12", "†", "‡", "paper", "86.58", "+0.70"]
    assert '<strong>87.28 <span class="std">± 0.12</span></strong>' in html
    assert 'class="near"' in html
    assert 'class="below"' in html_cell(CELLS["below"])
    assert FORMATS["csv"].write(table_of(WHOLE)) == "mean\n87.28\n"


def test_what_is_missing_is_a_dash_with_its_reason():
    cell = CELLS["missing"]
    assert html_cell(cell) == f'<td class="figure missing" title="training &lt;diverged&gt;">{MISSING}</td>'
    assert f" {MISSING} |" in grid(table_of(cell))
    assert r"row & -- & 86.58 \\" in latex(table_of(cell))


def test_numbers_sort_by_their_value_and_words_by_themselves():
    assert 'data-v="1500000"' in html_cell(CELLS["bytes"])
    assert 'data-v="0.00012"' in html_cell(CELLS["p"])  # before 0.001, although it prints "< 0.001"
    assert "data-v" not in html_cell(CELLS["words"])
    assert "↳ Ditto" in html_cell(CELLS["again"])


def test_a_name_keeps_its_mark_in_html():
    table = Table("t", "", (Head("method", words=True),), ((Cell("Ditto", diverged=True),),))
    assert 'Ditto<span class="marks"> §' in str(html_table(table))


def test_nothing_in_a_cell_head_title_or_note_is_markup():
    text = CELLS["words"].value
    table = Table(text, text, (Head(text, words=True),), ((CELLS["words"],),), notes=(text,))
    html = str(html_table(table))
    assert "<i>" not in html
    assert html.count("&lt;i&gt;") == 3
    for line in markdown(table).splitlines():
        assert not re.search(r"(?<!\\)(<i>|\*)", line)
    assert markdown(table).count(r"\|") == 5
    assert (
        r"of \& with $<$i$>$, 50 \% \textbar{} {*} \_ \# \$ \{ \} \textasciitilde{} \textasciicircum{} "
        r"\textbackslash{} $\lambda$ $\pm$ “ü” \\"
    ) in latex(table)


def test_intraword_underlines_and_comparisons_stay_as_they_are():
    assert " r_p < 0.05 |" in grid(table_of(Cell("r_p < 0.05")))


def test_rules_and_repeated_words():
    rows = tuple((Cell(group), Cell(place, "d")) for place, group in enumerate("aab"))
    table = Table("T", "", (Head("group", words=True, once=True), Head("n")), rows, rules=(2,))
    body = latex(table).split(r"\midrule")
    assert len(body) == 3
    assert body[1].splitlines()[1:] == [r"a & 0 \\", r" & 1 \\"]
    assert str(html_table(table)).count('<tr class="rule">') == 1


def test_facts_by_row_and_by_cell():
    rows = tuple(tuple(Cell(facts={"at": f"{row}{column}"}) for column in "ab") for row in "xy")
    heads = (Head("one"), Head("two"))
    by = {line: Table("T", "", heads, rows, line=line).facts()[1] for line in ("row", "cell", "column")}
    assert [line["at"] for line in by["row"]] == ["xb", "yb"]
    assert [line["at"] for line in by["cell"]] == ["xa", "xb", "ya", "yb"]
    assert [line["at"] for line in by["column"]] == ["xa", "ya", "xb", "yb"]


def test_what_is_no_number_is_nothing():
    cell = Cell(float("nan"), ".2f", facts={"loss": float("nan"), "left": 1})
    assert (cell.text, cell.facts) == (MISSING, {"loss": None, "left": 1})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"heads": [], "rows": [[{"colour": 1}]]}', '{"heads": 1, "rows": 1}']
)
def test_json_that_is_no_table(text):
    with pytest.raises(ValueError, match=r"no table|Expecting value"):
        from_json(text)


def test_json_leaves_out_what_is_as_usual():
    found = json.loads(to_json(table_of(Cell(0.5, "percent"))))
    assert found["rows"] == [[{"value": "row"}, {"value": 0.5, "form": "percent"}]]


def test_a_row_has_a_cell_for_each_column():
    with pytest.raises(ValueError, match="has not 1 cells"):
        Table("T", "", (Head("one"),), ((Cell("a"), Cell("b")),))


def test_an_ending_belongs_to_one_format():
    with pytest.raises(ValueError, match=r"end in \.md"):
        register("md", "another")(markdown)
