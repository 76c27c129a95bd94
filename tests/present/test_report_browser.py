"""The report in a real headless Chromium: quiet, within the window, and alive."""

import pytest
from browser import Browser, find_browser
from own_studies import COSTS, SIZES
from record_folders import write_records

from pfl_benchmark.present.page.page import write_page
from pfl_benchmark.present.render import render
from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.catalogue import PROFILES

WINDOWS = [(360, False), (360, True), (1280, False), (1280, True)]
BOTH = (SIZES, COSTS)
UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"

# What a table shows in one column; of the list of runs only the rows, not what they open.
COLUMN = """[...document.querySelectorAll('%s tbody tr:not(.more)')].filter(row => row.checkVisibility())
    .map(row => row.cells[%d].innerText.trim())"""


@pytest.fixture(scope="module")
def browser():
    executable = find_browser()
    if executable is None:
        pytest.skip("there is no Chromium here")
    chromium = Browser(executable)
    yield chromium
    chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    for study in BOTH:
        write_records(root, study, PROFILES["quick"], skip=("pfedfda",))
    store = Store.scan(root)
    render(BOTH, PROFILES["quick"], store)
    write_page(BOTH, PROFILES["quick"], store)
    return root / "report.html"


@pytest.fixture
def page(browser, report):
    """The report, freshly loaded at desktop width; whatever it complains about fails the test."""
    browser.complaints.clear()
    browser.requests.clear()
    browser.show(report)
    browser.run(UNFOLD)
    yield browser
    browser.run("localStorage.clear()")
    assert browser.complaints == []


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_nothing_is_wider_than_the_window(page, report, width, dark):
    page.show(report, width=width, dark=dark)
    page.run(UNFOLD)
    assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    # With a run opened as well, whose configuration is the widest text there is.
    page.run("document.querySelector('button.open').click()")
    assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    wide = page.run("document.querySelector('.detail').getBoundingClientRect().width")
    assert 0 < wide <= width


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_text_stands_out_from_what_is_behind_it(page, report, width, dark):
    page.show(report, width=width, dark=dark)
    shown = page.run(
        """(() => {
          const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
          const light = (color) => {
            canvas.fillStyle = color;
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(
              (v) => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const behind = (node) => {
            const color = getComputedStyle(node).backgroundColor;
            return color === 'rgba(0, 0, 0, 0)' ? behind(node.parentElement) : color;
          };
          return ['h1', '.lead', '.notice', 'nav a', 'pre', 'figcaption', 'tbody th', 'td.figure', '.small',
                  'thead button'].map((where) => {
            const node = document.querySelector(where);
            const [one, two] = [light(getComputedStyle(node).color), light(behind(node))];
            return [where, (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05), two < 0.2];
          });
        })()"""
    )
    assert {where: contrast for where, contrast, _ in shown if contrast < 4.5} == {}
    assert {is_dark for _, _, is_dark in shown} == {dark}


def test_the_page_asks_for_nothing(page, report):
    page.run("document.querySelectorAll('img').length")
    assert {url.partition(":")[0] for url in page.requests} <= {"file", "data"}
    assert [url for url in page.requests if url.startswith("file")] == [report.resolve().as_uri()]


def test_every_figure_is_drawn(page):
    sizes = page.run(
        "[...document.images].map(image => [image.naturalWidth, image.getBoundingClientRect().width])"
    )
    assert len(sizes) == 3
    assert all(natural > 100 and shown > 100 for natural, shown in sizes)


def test_tables_sort_by_click_and_by_key(page):
    table = "#study-costs table"
    before = page.run(COLUMN % (table, 7))
    head = "document.querySelectorAll('#study-costs thead th')[7]"
    page.run(f"{head}.querySelector('button').click()")
    assert page.run(f"{head}.getAttribute('aria-sort')") == "ascending"
    rising = [in_bytes(text) for text in page.run(COLUMN % (table, 7))]
    assert rising == sorted(rising)
    assert len(set(rising)) > 5
    page.run(f"{head}.querySelector('button').focus()")
    page.press("Enter", 13)
    assert page.run(f"{head}.getAttribute('aria-sort')") == "descending"
    falling = [in_bytes(text) for text in page.run(COLUMN % (table, 7))]
    assert falling == sorted(rising, reverse=True)
    page.press(" ", 32)
    assert page.run(f"{head}.hasAttribute('aria-sort')") is False
    assert page.run(COLUMN % (table, 7)) == before


def test_missing_values_stay_last(page):
    table, head = (
        "#study-costs table",
        "document.querySelectorAll('#study-costs thead th')[11]",
    )
    for _ in range(2):
        page.run(f"{head}.querySelector('button').click()")
        shown = page.run(COLUMN % (table, 11))
        assert "" in shown  # stages have no accuracy of their own
        assert shown == [text for text in shown if text] + [text for text in shown if not text]


def test_runs_are_found_by_words(page):
    everything = page.run(COLUMN % (".runs", 0))
    page.run("document.getElementById('filter').focus()")
    page.call("Input.insertText", text="PPFE samples")
    found = page.run(COLUMN % (".runs", 0))
    assert found == ["ppfe"] * 2  # the points of the sweep that differ from the setting
    assert page.run("document.getElementById('filtered').textContent") == f"2 of {len(everything)} runs"
    page.run("document.getElementById('filter').value = ''")
    page.run("document.getElementById('filter').dispatchEvent(new Event('input'))")
    assert page.run(COLUMN % (".runs", 0)) == everything


def test_a_run_opens_and_stays_with_its_row(page):
    opener = "document.querySelectorAll('button.open')[5]"
    more = f"document.getElementById({opener}.getAttribute('aria-controls'))"
    assert page.run(f"{more}.checkVisibility()") is False
    page.run(f"{opener}.focus()")
    page.press("Enter", 13)
    assert page.run(f"{more}.checkVisibility()") is True
    assert "samples_per_client" in page.run(f"{more}.innerText")
    page.run(f"window.opened = {opener}")
    page.run("document.querySelectorAll('.runs thead button')[3].click()")
    assert page.run("opened.closest('tr').nextElementSibling.checkVisibility()") is True
    shares = [float(text.removesuffix(" %")) for text in page.run(COLUMN % (".runs", 3))]
    assert shares == sorted(shares)


def test_the_theme_can_be_chosen_and_is_kept(page, report):
    def background():
        return page.run("getComputedStyle(document.body).backgroundColor")

    light = background()
    for name in ("light", "dark"):
        page.run("document.getElementById('theme').click()")
        assert page.run("document.getElementById('theme').textContent") == f"Theme: {name}"
    dark = background()
    assert dark != light
    page.show(report)
    assert background() == dark
    page.run("document.getElementById('theme').click()")
    assert background() == light


def test_what_is_folded_opens_by_link_by_key_and_in_print(page, report):
    page.show(report)
    folded = "document.querySelector('#study-costs table').checkVisibility({contentVisibilityAuto: true})"
    is_open = "document.getElementById('study-costs').open"
    assert page.run("document.querySelector('#study-sizes table').checkVisibility()") is True
    assert page.run(f"{is_open} || {folded}") is False
    page.run("document.querySelector('nav a[href=\"#study-costs\"]').click()")
    page.run("new Promise((done) => setTimeout(done, 0))")
    assert page.run(is_open) is True
    page.run("document.querySelector('#study-costs > summary').focus()")
    page.press("Enter", 13)
    assert page.run(is_open) is False
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run(is_open) is True
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run(is_open) is False


def test_printing_leaves_out_what_is_for_the_screen(page):
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.run("document.querySelector('nav').checkVisibility()") is False
    assert page.run("document.getElementById('theme').checkVisibility()") is False
    assert page.run("document.querySelector('#study-costs table').checkVisibility()") is True
    page.call("Emulation.setEmulatedMedia", media="")


def in_bytes(text):
    """Bytes of ``1.5 MB``; what is missing comes after everything."""
    digits, _, unit = text.partition(" ")
    return float(digits) * {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
