"""Cards of methods as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from pfl_benchmark.config.fields import as_typed
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.experiment.card import GROUPS, Card
from pfl_benchmark.render.markup import template

_HERE = Path(__file__).resolve().parent


def markdown(method: type[Algorithm], card: Card) -> str:
    """Write the card of a method: what it is, what flows where, costs, hyper-parameters, sources."""
    options = dataclasses.fields(method.Hyper)
    text: str = template(_HERE / "card.jinja").render(
        method=method,
        card=card,
        options=options,
        typed=as_typed,
        capitalised=_capitalised,
        cited=cited(method),
        bibtex=bibtex(method),
    )
    return text


def bibtex(method: type[Algorithm]) -> str:
    """The BibTeX entry of a method's publication; empty where there is none."""
    if method.publication is None:
        return ""
    title, authors, venue, year, link = method.publication
    key = f"{authors.split(',')[0].split()[-1].lower()}{year}{method.name.replace('-', '')}"
    kind, place = ("misc", "note") if venue.startswith("arXiv") else ("inproceedings", "booktitle")
    fields = {"title": f"{{{title}}}", "author": authors, place: venue, "year": year, "url": link}
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def cited(method: type[Algorithm]) -> str:
    """Authors, title, venue and year in a line, with a link; else the reference."""
    if method.publication is None:
        return f"{method.reference}."
    title, authors, venue, year, link = method.publication
    names = [" ".join(reversed(name.split(", "))) for name in authors.split(" and ")]
    where = venue if str(year) in venue else f"{venue} {year}"
    return f"{', '.join(names)}. [{title}]({link}). {where}."


def _capitalised(text: str) -> str:
    """With a capital first letter, unless a symbol or a name in code comes first, such as α or fc2."""
    word = text.split()[0].rstrip(",:;")
    return text[0].upper() + text[1:] if word.isascii() and word.isalpha() else text


def overview(cards: Iterable[tuple[type[Algorithm], Card]]) -> str:
    """Write a page's beginning: by group name, title, year, first sentence, what is sent and kept."""
    found = list(cards)
    groups = {
        title: [(method, card) for method, card in found if method.group == group]
        for group, title in GROUPS.items()
    }
    return str(template(_HERE / "cards.jinja").render(groups=groups))
