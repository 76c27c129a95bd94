"""Cards of methods as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from pfl_benchmark.config.fields import as_typed
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.experiment.card import Card
from pfl_benchmark.render.markup import template

_HERE = Path(__file__).resolve().parent


def markdown(method: type[Algorithm], card: Card) -> str:
    """Write the card of a method: what it is, what flows where, costs, hyper-parameters, sources."""
    options = dataclasses.fields(method.Hyper)
    text: str = template(_HERE / "card.jinja").render(
        method=method, card=card, options=options, typed=as_typed, capitalised=_capitalised
    )
    return text


def _capitalised(text: str) -> str:
    """With a capital first letter, unless a symbol or a name in code comes first, such as α or fc2."""
    word = text.split()[0].rstrip(",:;")
    return text[0].upper() + text[1:] if word.isascii() and word.isalpha() else text


def overview(cards: Iterable[tuple[type[Algorithm], Card]]) -> str:
    """Write a page's beginning: name, title, the card's first sentence, what is sent and kept, as a table."""
    return str(template(_HERE / "cards.jinja").render(cards=cards))
