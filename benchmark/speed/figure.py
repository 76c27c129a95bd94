"""Measurements of speed as a picture: trainers against each other, growth with cohort and clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes

from benchmark.present.figures.style import panels, tidy
from benchmark.render.picture import Picture, grey, styled

__all__ = ["speed_figure"]

Row = dict[str, Any]

_COLORS = {"plain": "#8a8a8a", "loop": "#88ccee", "threads": "#117733", "stacked": "#332288"}


def speed_figure(rows: Sequence[Row]) -> Picture | None:
    """Panels for each cell, for growth with the cohort and with the clients, as far as measured."""
    kept: dict[str, list[Row]] = {part: [] for part in ("cells", "cohorts", "crowds")}
    for row in rows:
        kept.get(row["part"], []).append(row)
    drawings: list[tuple[str, Callable[[Axes], None]]] = []
    for cell in dict.fromkeys(row["cell"] for row in kept["cells"]):
        own = [row for row in kept["cells"] if row["cell"] == cell]
        drawings.append((f"{cell}: a cohort of {own[0]['clients']}", _bars(own)))
    if kept["cohorts"]:
        drawings.append((f"{kept['cohorts'][0]['cell']}: growth with the cohort", _cohorts(kept["cohorts"])))
    if kept["crowds"]:
        drawings.append(("digits: clients that sit out", _crowds(kept["crowds"])))
    if not drawings:
        return None
    with styled():
        figure, axes = panels([title for title, _ in drawings], width=2.6, height=2.2, left=0.75)
        for axis, (_, draw) in zip(axes, drawings, strict=True):
            draw(axis)
    device = next(row["device"] for part in kept.values() for row in part)
    return Picture("speed", "Speed", f"Training on random images; device: {device}.", figure)


def _bars(rows: Sequence[Row]) -> Callable[[Axes], None]:
    def draw(axis: Axes) -> None:
        most = max(row["samples_per_second"] for row in rows)
        for place, row in enumerate(rows):
            rate = row["samples_per_second"]
            axis.bar(place, rate / 1000, width=0.6, color=_color(row["executor"]), zorder=3)
            axis.text(
                place,
                (rate + 0.02 * most) / 1000,
                f"{row['times_plain']:.2f} ×",
                ha="center",
                fontsize=7.5,
            )
        axis.set_xticks(range(len(rows)), [row["executor"] for row in rows])
        axis.grid(False, axis="x")
        axis.set_ylim(0, 1.12 * most / 1000)
        tidy(axis, "trainer (× plain)", "samples per second, thousands")

    return draw


def _cohorts(rows: Sequence[Row]) -> Callable[[Axes], None]:
    def draw(axis: Axes) -> None:
        for name in dict.fromkeys(row["executor"] for row in rows):
            own = [row for row in rows if row["executor"] == name]
            x, y = [row["clients"] for row in own], [row["seconds"] for row in own]
            axis.plot(x, y, "o-", color=_color(name), markersize=3, label=name)
        tidy(axis, "clients in the cohort", "seconds of a local call")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.legend(frameon=False, fontsize=7.5)

    return draw


def _crowds(rows: Sequence[Row]) -> Callable[[Axes], None]:
    def draw(axis: Axes) -> None:
        x, y = [row["crowd"] for row in rows], [row["seconds"] for row in rows]
        axis.plot(x, y, "o-", color=_color(rows[0]["executor"]), markersize=3)
        axis.set_xscale("log")
        axis.set_ylim(0, 1.3 * max(y))
        tidy(axis, f"clients, {rows[0]['clients']} of them taking part", "seconds of a round")

    return draw


def _color(executor: str) -> str:
    return _COLORS.get(executor, grey)
