"""Cards of methods as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from pfl_benchmark.config.fields import as_typed
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.experiment.card import Card

__all__ = ["markdown", "overview"]


def markdown(method: type[Algorithm], card: Card) -> str:
    """The card of a method: what it is, what flows where, costs, hyper-parameters, sources."""
    costs = ", ".join(f"{value:.2f} × {name}" for name, value in card.costs.items())
    options = [
        f"`{spec.name}={as_typed(spec.default)}`: {spec.metadata['doc']}"
        for spec in dataclasses.fields(method.Hyper)
    ]
    ablations = [
        f"`{name}`: {' '.join(f'{key}={as_typed(value)}' for key, value in values.items())}"
        for name, values in method.ablations.items()
    ]
    blocks = [
        f"## {method.name}",
        f"{method.title}. {card.summary}",
        *([card.parts["More"]] if "More" in card.parts else []),
        _lines(f"{name}: {words}" for name, words in card.flow.items()),
        f"Cost relative to FedAvg (CIFAR-10, S = 2): {costs}.",
        *(f"**{name}.** {_capitalised(words)}" for name, words in card.parts.items() if name != "More"),
        *([f"**Hyper-parameters.**\n\n{_lines(options)}"] if options else []),
        *([f"**Ablations.**\n\n{_lines(ablations)}"] if ablations else []),
    ]
    return "\n\n".join(blocks) + "\n"


_INTRODUCTION = """\
# Methods

A card for each method: what is sent, what it costs, sources, deviations. One card:
`python -m benchmark list methods NAME`. Costs are those of the setting `cifar10-s2`, as the method declares
them and a run counts them. conv1 to fc3 are layers of the network; other names are those of the method's own
tensors. Passes over training data that are metered count as training samples.
"""


def _capitalised(text: str) -> str:
    """With a capital first letter, unless a symbol or a name in code comes first, such as α or fc2."""
    word = text.split()[0].rstrip(",:;")
    return text[0].upper() + text[1:] if word.isascii() and word.isalpha() else text


def overview(cards: Iterable[tuple[type[Algorithm], Card]]) -> str:
    """A page's beginning: a table with name, title, the card's first sentence, what is sent and kept."""
    lines = [
        _INTRODUCTION,
        "| name | method | in one sentence | sent to the server | kept by clients |",
        "|---|---|---|---|---|",
    ]
    for method, card in cards:
        cells = (f"[`{card.name}`](#{card.name})", method.title, card.summary, *_sent_and_kept(card))
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _sent_and_kept(card: Card) -> tuple[str, str]:
    return card.flow["sent to the server"], card.flow["kept by clients"]


def _lines(items: Iterable[str]) -> str:
    return "\n".join(f"* {item}" for item in items)
