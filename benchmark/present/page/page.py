"""The page itself, put together from its parts and written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

import benchmark
from benchmark.present.files import Ledger, renderer_digest, section_file
from benchmark.present.page.content import Content
from benchmark.present.page.flat import RUNS, runs_csv
from benchmark.present.page.overview import contents, header, repeat
from benchmark.present.page.runs import run_list
from benchmark.present.page.state import cells, environment
from benchmark.records.store import Store
from benchmark.studies.grid import Profile, Study

__all__ = ["NAME", "write_page"]

NAME = "report.html"

_HERE = Path(__file__).resolve().parent
# Nothing is fetched from anywhere, whatever the page holds.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
# Before anything is drawn, lest the other theme flash up.
_EARLY = (
    'try { const theme = localStorage.getItem("pfl-theme"); if (theme !== "automatic" && theme) '
    "document.documentElement.dataset.theme = theme; } catch { /* as the system has it */ }"
)
_WITHOUT_SCRIPT = "tr[hidden] { display: table-row; } .filter, .theme { display: none; }"


def write_page(
    studies: Sequence[Study],
    profile: Profile,
    store: Store,
    seeds: Sequence[int] | None = None,
    again: bool = False,
) -> bool:
    """Write ``report.html`` and ``runs.csv`` into the store's folder, unless they are up to date.

    `render` the studies first.

    Args:
        seeds: the only ones to show; None stands for all that have records.
        again: write them even then.

    Returns:
        Whether they were written.

    Raises:
        UserError: they cannot be written.
    """
    content, ledger = Content(studies, profile, store, seeds), Ledger(store.root)
    parts = [ledger.fingerprint(study.name) for study in studies]
    runs = sorted(store.records(), key=lambda record: record.folder.name)  # of all seeds
    source = repr((renderer_digest(), parts, content.source, [record.digest for record in runs]))
    fingerprint = hashlib.sha256(source.encode()).hexdigest()
    if ledger.is_current("report", fingerprint) and not again:
        return False
    ledger.write("report", fingerprint, {NAME: _html(content), RUNS: runs_csv(runs)})
    return True


def _html(content: Content) -> str:
    style, script = ((_HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    users = {key: cell.studies for key, cell in content.planned.items()}
    main = [
        _section("repeat", "How to repeat", repeat(content)),
        *(_study(content, study) for study in content.studies),
        _section("cells", "Cells without a record", cells(content)),
        _section("environment", "Versions and hardware", environment(content)),
        _section("runs", "All runs", run_list(content.records, users, content.profile)),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>pfl-benchmark, {escape(content.profile.name)} profile</title>",
            '<link rel="icon" href="data:,">',
            f"<script>{_EARLY}</script>",
            f"<style>\n{style}</style>",
            f"<noscript><style>{_WITHOUT_SCRIPT}</style></noscript>",
            "</head>",
            "<body>",
            '<a class="skip" href="#content">Skip to the content</a>',
            header(content),
            '<div class="columns">',
            contents(content),
            '<main id="content">',
            *main,
            "</main>",
            "</div>",
            f"<footer><p>pfl-benchmark {benchmark.__version__}. Made from the records of this folder alone; "
            "needs no network.</p></footer>",
            f"<script>\n{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _study(content: Content, study: Study) -> str:
    done, total = content.of(study)
    above = f"<code>{escape(study.name)}</code>" + (f" · {done} of {total} cells done" if total else "")
    part = (content.store.root / section_file(study.name)).read_text(encoding="utf-8")
    return _section(f"study-{study.name}", study.title, part, f'<p class="small">{above}</p>\n')


def _section(key: str, title: str, part: str, above: str = "") -> str:
    return (
        f'<section id="{key}" aria-labelledby="{key}-title">\n'
        f'{above}<h2 id="{key}-title">{escape(title)}</h2>\n{part}\n</section>'
    )
