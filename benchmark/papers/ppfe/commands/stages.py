"""``stages``: what a finished run of a staged method (PPFE) has to say about its stages."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pfl_benchmark.config.flags import add_flag, file_of, path
from pfl_benchmark.console.terminal import open_table, percent, show, shown_path
from pfl_benchmark.errors import UserError

if TYPE_CHECKING:
    from pfl_benchmark.records.store import Record

HELP = "accuracy, β and sample weights by stage, from the record of a staged method: table and figure"
USAGE = "RECORD_FOLDER [--out FILE]"
EXAMPLES = """\
  python -m benchmark --algo ppfe --dataset digits
  python -m benchmark stages results/runs/ppfe-digits-s2-seed0-...
  python -m benchmark stages results/runs/ppfe-digits-s2-seed0-... --out stages.svg"""

_PER_CLIENT = ("epsilon", "beta", "edge", "weight_min", "weight_max", "effective_samples")
_HINDSIGHT = "hindsight_test_accuracy"
_SHARES = tuple(f"{kind}_{part}_accuracy" for kind in ("stage", "ensemble") for part in ("train", "test"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_flag(parser, "RECORD_FOLDER", "folder of a finished run", path, dest="record")
    text = "the figure, .png or .svg (default: stages.png in the record)"
    add_flag(parser, "--out FILE", text, file_of(".png", ".svg", ".pdf"))


def execute(arguments: argparse.Namespace) -> None:
    """Print the table and save the figure."""
    folder: Path = arguments.record
    out: Path = arguments.out or folder / "stages.png"

    from pfl_benchmark.config.fields import setting_in_words
    from pfl_benchmark.records.store import named_record

    record = named_record(folder)
    stages, title = read_stages(record), record.folder.name.rpartition("-")[0]

    from pfl_benchmark.papers.ppfe.figures.stage_record import stage_figure
    from pfl_benchmark.present.pictures import write_picture
    from pfl_benchmark.render.picture import Picture
    from pfl_benchmark.resolve.run import titled

    config = record.config
    about = f"{titled(record.method, config.algo)}, {setting_in_words(config)}, seed {config.seed}"
    write_picture(Picture(out.stem, about, "", stage_figure(stages, about)), out)
    show(Text(title, "bold"), "", Padding(_table(stages), (0, 0, 0, 2)), "", *_remarks(record, stages))
    print(f"figure  {shown_path(out)}")


def read_stages(record: Record) -> list[dict[str, Any]]:
    """The stages that a record tells of, with all that the table shows.

    Raises:
        UserError: it tells of none, or not of all that.
    """
    from pfl_benchmark.papers.ppfe.recorded import stages_of  # imports PyTorch, which help does without

    stages = stages_of(record)
    if not stages:
        raise UserError(f"{record.folder} tells of no stages; give a record of --algo ppfe")
    hindsight = (_HINDSIGHT, "hindsight_weights") if _HINDSIGHT in stages[0] else ()  # not in older records
    for stage in stages:
        clients = stage.get("clients", {})
        absent = [name for name in ("rounds", "error_bound", *_SHARES, *hindsight) if name not in stage]
        absent += [name for name in _PER_CLIENT if not clients.get(name)]
        if absent:
            raise UserError(
                f"{record.folder} does not tell '{absent[0]}' of stage {stage['stage']}; run it again"
            )
    return stages


def _table(stages: Sequence[dict[str, Any]]) -> Table:
    """One column a stage."""
    table = open_table()
    table.add_column("", no_wrap=True)
    for stage in stages:
        table.add_column(f"stage {stage['stage']}", justify="right", no_wrap=True)
    table.add_column("", style="dim", no_wrap=True)

    def row(name: str, cell: Callable[[dict[str, Any]], str], meaning: str) -> None:
        table.add_row(name, *(cell(stage) for stage in stages), meaning)

    def share(field: str) -> Callable[[dict[str, Any]], str]:
        return lambda stage: percent(stage[field])

    def clients(field: str, *summaries: Callable[[list[float]], float], digits: int = 3) -> Any:
        return lambda stage: " / ".join(f"{of(stage['clients'][field]):.{digits}f}" for of in summaries)

    row("rounds", lambda stage: "{}-{}".format(*stage["rounds"]), "")
    row("personal layers", lambda stage: ", ".join(stage["personal"]) or "none", "")
    for kind, words in (("stage", "its model alone"), ("ensemble", "the stages so far")):
        for part in ("train", "test"):
            row(f"{kind}, {part}", share(f"{kind}_{part}_accuracy"), f"accuracy of {words}")
    if _HINDSIGHT in stages[0]:
        row("hindsight, test", share(_HINDSIGHT), "best common weights")
    row("error ε", clients("epsilon", fmean), "weighted loss, mean")
    row("weight β", clients("beta", fmean), "in the ensemble, mean")
    row("", clients("beta", min, max), "smallest / largest")
    row("samples' ω", clients("weight_min", min), "after the stage, smallest")
    row("", clients("weight_max", max), "largest")
    row("effective", clients("effective_samples", fmean, digits=1), "samples (Σω)²/Σω², mean")
    row("edge γ", clients("edge", fmean), "½ − weighted error, mean")
    row("", clients("edge", min), "smallest")
    row("exp(−2γ²T)", lambda stage: f"{stage['error_bound']:.3f}", "bound, mean")
    return table


def _remarks(record: Record, stages: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader of the table would otherwise take amiss."""
    lines = [
        "Means and extremes are over clients. Errors, γ and ω are of training samples; exp(−2γ²T) bounds the "
        "ensemble's training error by the client's smallest γ so far."
    ]
    if _HINDSIGHT in stages[0]:
        best = ", ".join(f"{weight:.1f}" for weight in stages[-1]["hindsight_weights"])
        lines.append(
            f"Hindsight: non-negative weights that all clients share ({best} after the last stage), chosen "
            "by the test samples themselves: no result, but about what better weights could bring."
        )
    if any(min(stage["clients"]["edge"]) <= 0 for stage in stages):
        lines.append("Where a client has no edge (γ ≤ 0) the bound says nothing and counts as 1.")
    hyper = record.config.hyper
    if hyper.get("reweight") is False:
        lines.append("Reweighting is off in this run: ω and effective samples were computed but not used.")
    else:
        lines.append(
            "The weights ω after a stage are those that the next stage trains with; the last are unused."
        )
    if hyper.get("ensemble") == "last":
        lines.append("This run predicts with its last stage alone; its ensemble is shown but not used.")
    return [*lines, ""]
