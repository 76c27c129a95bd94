"""Learning curves of finished runs that are compared, whatever study they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from pfl_benchmark.present.compare import Group
from pfl_benchmark.present.figures.curves import curve, draw
from pfl_benchmark.present.figures.style import LINE_HEIGHT, End, color_of, label_ends, panels, tidy
from pfl_benchmark.render.picture import Picture, styled

_CAPTION = (
    "Test accuracy, weighted by test samples, at every evaluation, mean over seeds. The dot is the figure "
    "after the last round. Dotted: the step from the model in training to the one that counts (fine-tuned, "
    "or an ensemble)."
)


def compared(groups: Sequence[Group]) -> Picture:
    """A panel for each group, a line for each candidate."""
    most = max(len(group.candidates) for group in groups)
    longest = max(len(candidate.title) for group in groups for candidate in group.candidates)
    with styled():
        height = max(2.3, LINE_HEIGHT * most)
        titles = [group.setting for group in groups]
        figure, axes = panels(titles, width=3.6, height=height, right=0.35 + 0.065 * longest)
        for panel, group in zip(axes, groups, strict=True):
            ends = []
            for place, candidate in enumerate(group.candidates):
                records = list(candidate.records.values())
                line, color = curve(records), color_of(candidate.title, place)
                x, y = line["round"], 100 * line["accuracy"]
                draw(panel, records, x, y, color)
                ends.append(End(float(x[-1]), float(y[-1]), candidate.title, color))
            panel.margins(x=0.03, y=0.06)
            tidy(panel, "communication round", "test accuracy, %")
            label_ends(panel, ends)
    return Picture("compared", "Learning curves", _CAPTION, figure)
