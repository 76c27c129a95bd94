"""The list of runs: what each reached and cost, and on demand its whole configuration and environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from benchmark.config.fields import setting_in_words
from benchmark.console.terminal import duration
from benchmark.engine.origins import foreign_rounds
from benchmark.present.page.command import command
from benchmark.present.page.content import bytes_sent
from benchmark.present.page.mixtures import UNKNOWN
from benchmark.records.store import Record
from benchmark.render.forms import percent, size
from benchmark.studies.grid import Profile

__all__ = ["run_list"]

_HEADS = {
    "method": "word",
    "setting": "word",
    "seed": "figure",
    "accuracy": "figure",
    "worst\N{NO-BREAK SPACE}10\N{NO-BREAK SPACE}%": "figure",
    "bytes": "figure",
    "time": "figure",
    "device": "word",
    "executor": "word",
    "commit": "word",
}
_LEGEND = (
    "Accuracy in % after the last round, weighted by test samples; worst 10 %: mean of the clients that fare "
    "worst. Bytes: up, down and broadcast. Time: of training and evaluation. A run's name opens its command, "
    "configuration and environment."
)
_COSTS = ("bytes_up", "bytes_down", "bytes_broadcast", "samples", "adaptation_samples", "steps", "rounds")


def run_list(records: Sequence[Record], studies: Mapping[str, Sequence[str]], profile: Profile) -> str:
    """All runs as a table that can be searched and sorted.

    Args:
        studies: names of the studies that use a run, by the hash of its configuration.
    """
    if not records:
        return "<p>There is no record yet.</p>"
    heads = "".join(
        f'<th scope="col" class="{kind}"><button type="button">{name}</button></th>'
        for name, kind in _HEADS.items()
    )
    rows = "\n".join(
        _run(place, record, studies.get(record.config.hash, ()), profile)
        for place, record in enumerate(records)
    )
    return (
        '<div class="filter"><label for="filter">Show runs with</label>'
        '<input id="filter" type="search" placeholder="such as: ppfe seed0" autocomplete="off">'
        f'<output for="filter" id="filtered">{len(records)} of {len(records)} runs</output></div>\n'
        '<figure class="table runs">\n<div class="scroll" role="region" tabindex="0" '
        'aria-labelledby="run-list">\n'
        f'<table class="sortable"><caption class="unseen" id="run-list">All runs</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n{rows}\n</table></div>\n<figcaption><p>{_LEGEND}</p></figcaption>"
        "</figure>"
    )


def _run(place: int, record: Record, studies: Sequence[str], profile: Profile) -> str:
    config, summary = record.config, record.summary
    environment = summary["environment"]
    setting = setting_in_words(config, common=profile.changes)
    sent = bytes_sent(record)
    figures = (
        (str(config.seed), config.seed),
        (percent(summary["accuracy"]), summary["accuracy"]),
        (percent(summary["accuracy_worst10"]), summary["accuracy_worst10"]),
        (size(sent), sent),
        (duration(summary["seconds"]), summary["seconds"]),
    )
    # Words that the search knows although the row does not show them.
    words = f"seed{config.seed} {' '.join(studies)}"
    cells = [
        '<th scope="row"><button type="button" class="open" aria-expanded="false" '
        f'aria-controls="run-{place}">{escape(record.method)}</button></th>',
        f"<td>{escape(setting)}</td>",
        *(f'<td class="figure" data-v="{value:.10g}">{escape(text)}</td>' for text, value in figures),
        *(
            f"<td>{escape(str(environment.get(name) or UNKNOWN))}</td>"
            for name in ("device", "executor", "commit")
        ),
    ]
    return (
        f'<tbody data-words="{escape(words)}"><tr>{"".join(cells)}</tr>\n'
        f'<tr class="more" id="run-{place}" hidden><td colspan="{len(_HEADS)}"><div class="detail">'
        f"{_detail(record, studies)}</div></td></tr></tbody>"
    )


def _detail(record: Record, studies: Sequence[str]) -> str:
    config, summary = record.config.to_dict(), record.summary
    hyper = config.pop("hyper")
    results = {
        "accuracy": summary["accuracy"],
        "unweighted": summary["accuracy_unweighted"],
        "worst 10 %": summary["accuracy_worst10"],
        "spread over clients": summary["accuracy_std"],
        "evaluated model": summary["evaluated"],
        **{name.replace("_", " "): summary[name] for name in _COSTS if name in summary},
        "seconds": summary["seconds"],
        "samples per second": summary["samples_per_second"],
        "rounds taken over": summary.get("shared_rounds", UNKNOWN),
        "times resumed": summary.get("resumed", 0),
        "rounds set by": summary.get("budget", {}).get("set_by", ""),
    }
    blocks = (
        ("Configuration", config),
        ("Hyper-parameters", hyper),
        ("Environment", summary["environment"]),
        ("Result and cost", results),
    )
    used = ", ".join(studies) if studies else "no study of this page"
    again = command(record.config)
    parts = [
        f"<p>Record: <code>{escape(record.folder.name)}</code>. Used by: {escape(used)}. "
        f"Split: <code>{escape(record.split)}</code> of {escape(str(record.data))}.</p>",
        f"<pre><code>{escape(again)}</code></pre>" if again else "",
        *(f"<p>{escape(str(note))}</p>" for note in summary.get("notes", ())),
        *(f"<p>{escape(line)}.</p>" for line in foreign_rounds(summary.get("origins", ()))),
        f'<div class="blocks">{"".join(_block(*block) for block in blocks if block[1])}</div>',
    ]
    return "".join(parts)


def _block(title: str, values: Mapping[str, Any]) -> str:
    width = max(map(len, values))
    lines = "\n".join(f"{name:{width}}  {_value(value)}" for name, value in values.items())
    return f"<div><h3>{title}</h3><pre>{escape(lines)}</pre></div>"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else json.dumps(value)
