"""Pages of methods: their cards, with a picture of what flows and what is on record in results/."""

from __future__ import annotations

import json
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pfl_benchmark.algorithms import ALGORITHMS, needed
from pfl_benchmark.config.fields import as_words, setting_in_words
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.experiment.card import GROUPS, card_of
from pfl_benchmark.present.cards import markdown, overview
from pfl_benchmark.render.forms import percent, size
from pfl_benchmark.resolve.run import method_label

from . import parity

__all__ = ["menu", "pages"]

Runs = dict[str, dict[str, list[dict[str, Any]]]]  # summaries by method and setting


def pages(root: Path) -> dict[str, str]:
    """A page for each method, and one of all."""
    cards = [(method, card_of(method)) for _, method in sorted(ALGORITHMS.items())]
    table, found, runs, compared = overview(cards), {}, _runs(root), parity.table(root)
    for method, card in cards:
        name = method.name
        head, _, body = markdown(method, card).removeprefix(f"## {name}\n\n").partition("\n\n")
        head = head.removeprefix(f"{method.title}. ")
        words = ["--algo", name, "--dataset digits --rounds 10"]
        words += [word for field, value in needed(name).items() for word in as_words(field, value)]
        example = f"python -m benchmark {' '.join(words)}"
        found[f"methods/{name}.md"] = (
            f"# {method.title}\n\n`--algo {name}`. {head}\n\n"
            f"{_picture(card.flow)}\n\n{body}\n{_measured(runs.get(name, {}))}"
            f"\n**[Public code](../parity.md).** {parity.line(compared, name)}.\n"
            f"\n**Try it.**\n\n```\n{example}\npython -m benchmark list methods {name}\n```\n"
        )
        table = table.replace(f"](#{name})", f"]({name}.md)")
    example = "\n```\npython -m benchmark list methods\npython -m benchmark list methods fedper\n```\n"
    return {"methods/index.md": table + example, **found}


def menu() -> list[Any]:
    """The part of the site's menu: methods by title, in groups."""
    grouped = [
        {title: [{method.title: f"methods/{name}.md"} for name, method in sorted(ALGORITHMS.items())
                 if method.group == group]}
        for group, title in GROUPS.items()
    ]  # fmt: skip
    return ["methods/index.md", *(part for part in grouped if any(part.values()))]


def _measured(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Accuracy, bytes and samples in the named settings, over seeds."""
    if not runs:
        return ""
    rows = ["| setting | accuracy, % | seeds | sent | samples |", "|---|---|---|---|---|"]
    for setting in (name for name in SETTINGS if name in runs):
        found = runs[setting]
        values = [run["accuracy"] for run in found]
        spread = f" ± {percent(stdev(values))}" if len(values) > 1 else ""
        sent = fmean(run["bytes_up"] + run["bytes_down"] + run["bytes_broadcast"] for run in found)
        samples = fmean(run["samples"] + run["adaptation_samples"] for run in found)
        cells = [
            f"`{setting}`",
            percent(fmean(values)) + spread,
            str(len(found)),
            size(sent),
            f"{samples:,.0f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    note = (
        "With default hyper-parameters, after the last round; mean ± sample deviation over seeds. Sent: up, "
        "down and broadcast, in all rounds. Samples: trained on, fine-tuning included."
    )
    return "\n**Measured.**\n\n" + "\n".join(rows) + f"\n\n{note}\n"


def _runs(root: Path) -> Runs:
    """Summaries of the committed records that differ from a named setting in nothing."""
    found: Runs = defaultdict(lambda: defaultdict(list))
    for config, summary in _records(root):
        setting = setting_in_words(config)
        if setting in SETTINGS and config.algo in ALGORITHMS and method_label(config) == config.algo:
            found[config.algo][setting].append(summary)
    return found


def _records(root: Path) -> Iterator[tuple[RunConfig, dict[str, Any]]]:
    for done in sorted((root / "results").glob("*/*/done")):
        about, summary = (
            json.loads(done.with_name(name).read_text(encoding="utf-8"))
            for name in ("config.json", "summary.json")
        )
        yield RunConfig.from_dict(about["config"]), summary


_WIDTH, _LINE, _FEW = 720, 17, 6


def _picture(flow: Mapping[str, str]) -> str:
    """Server and client as boxes, with what is sent between them and what the client keeps."""
    sent_down, sent_up, stays = flow["sent to clients"], flow["sent to the server"], flow["kept by clients"]
    down, up, kept = map(_lines, (sent_down, sent_up, stays))
    high = max(len(down) + len(up) + 3, len(kept) + 4) * _LINE
    middle = 16 + (len(down) + 1) * _LINE
    drawn = "".join(
        [
            _box(8, 120, high, ["Server"]),
            _box(470, 242, high, ["Client", "keeps:", *kept]),
            _arrow(128, 470, middle, down, above=True),
            _arrow(470, 128, middle + 10, up, above=False),
        ]
    )
    words = escape(f"Sent to clients: {sent_down}. Sent to the server: {sent_up}. Kept by clients: {stays}.")
    size = f'viewBox="0 0 {_WIDTH} {high + 16}"'
    return f'<svg class="flow" {size} role="img" aria-label="{words}">{drawn}</svg>'


def _lines(text: str) -> list[str]:
    lines = [line for part in text.split("; ") for line in textwrap.wrap(part, 40)]
    return lines if len(lines) <= _FEW else [*lines[: _FEW - 1], "…"]


def _box(x: int, width: int, height: int, lines: list[str]) -> str:
    texts = "".join(
        f'<text x="{x + 10}" y="{28 + place * _LINE}" class="line-{place}">{escape(line)}</text>'
        for place, line in enumerate(lines)
    )
    return f'<rect x="{x}" y="8" width="{width}" height="{height}" rx="6"/>{texts}'


def _arrow(start: int, end: int, y: int, lines: list[str], above: bool) -> str:
    """An arrow, and what it carries, above or below it."""
    back = 8 if end < start else -8
    first = y - 7 - _LINE * (len(lines) - 1) if above else y + _LINE
    texts = "".join(
        f'<text x="299" y="{first + place * _LINE}" text-anchor="middle">{escape(line)}</text>'
        for place, line in enumerate(lines)
    )
    head = f"M{end + back} {y - 5}L{end} {y}L{end + back} {y + 5}"
    return f'<path d="M{start} {y}H{end}{head}"/>{texts}'
