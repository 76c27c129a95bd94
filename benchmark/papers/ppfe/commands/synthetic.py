"""``synthetic``: the paper's linear study in closed form, as tables and figures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pfl_benchmark.config.flags import add_flag, few, number, path
from pfl_benchmark.errors import UserError, unknown, why

if TYPE_CHECKING:
    import pandas as pd

    from pfl_benchmark.papers.ppfe.synthetic.study import Profile
    from pfl_benchmark.render.table import Table

HELP = "the paper's synthetic linear study (ridge regressions in closed form): tables and figures"
USAGE = "[--profile quick|paper] [flags]"
EXAMPLES = """\
  python -m benchmark synthetic
  python -m benchmark synthetic --profile paper --seeds 5
  python -m benchmark synthetic --tie 0                    λ strictly by the smallest validation error"""

_DEFAULT_DIR = Path("results")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    study = parser.add_argument_group("study")
    text = "quick: few points; paper: all (default: quick)"
    add_flag(study, "--profile NAME", text, default="quick")
    text = "seeds 0 to N−1 for every point (default: the profile's, 2 or 10)"
    add_flag(study, "--seeds N", text, few)
    text = (
        "validation errors that differ by at most this share are equal, and the largest of their λ is "
        "taken; 0: the smallest error (default: 0.002)"
    )
    add_flag(study, "--tie X", text, number("[0, inf)", 0.002))
    output = parser.add_argument_group("output")
    text = f"the files go to its subfolder synthetic (default: {_DEFAULT_DIR})"
    add_flag(output, "--results-dir DIR", text, path, default=_DEFAULT_DIR)
    add_flag(output, "--json", "print one JSON object instead of the tables")


def execute(arguments: argparse.Namespace) -> None:
    """Carry out the study, write its files and print the tables."""
    from pfl_benchmark.console.terminal import shown_path
    from pfl_benchmark.papers.ppfe.synthetic.study import PROFILES, TIE, run_studies, summarise

    name = arguments.profile
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    profile = PROFILES[name]
    seeds = arguments.seeds or profile.seeds
    tie = TIE if arguments.tie is None else arguments.tie
    folder = _folder(arguments.results_dir)
    total = sum(len(study.clients) * len(study.ratios) for study in profile.studies.values())
    print(f"synthetic study, profile {name}: {total} points, {seeds} seed(s)", file=sys.stderr)
    frame = run_studies(profile, range(seeds), tie)
    tables = {study: summarise(frame[frame["study"] == study]) for study in profile.studies}
    files = _write(folder, frame, profile, tables, tie)
    if arguments.json:
        found = {"profile": name, "seeds": seeds, "tie": tie, "studies": tables}
        print(json.dumps({**found, "files": [str(file) for file in files]}))
        return
    for study, points in tables.items():
        print(f"{_caption(study, profile, seeds)}\n{_as_text(_table(study, points))}\n")
    print("\n".join(f"{'files' if not place else '':<7}{shown_path(f)}" for place, f in enumerate(files)))


def _folder(root: Path) -> Path:
    folder = root / "synthetic"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot use results folder {root}: {why(error)}; choose another --results-dir"
        ) from error
    return folder


def _table(title: str, points: list[dict[str, Any]]) -> Table:
    """The points of a study, the smallest error of each marked."""
    from pfl_benchmark.papers.ppfe.studies.synthetic import error_cells
    from pfl_benchmark.papers.ppfe.synthetic.study import METHODS
    from pfl_benchmark.render.table import Cell, Head, Table

    (varied, *_) = points[0]
    rows = []
    for point in points:
        errors = {method: (point[f"{method}_mean"], point[f"{method}_std"]) for method in METHODS}
        rows.append((Cell(str(point[varied])), *error_cells(errors)))
    heads = ("K" if varied == "clients" else varied, *METHODS.values())
    return Table(title, "", tuple(map(Head, heads)), tuple(rows))


def _as_text(table: Table) -> str:
    from pfl_benchmark.render.table import plain

    rows = [[plain(cell) for cell in row] for row in table.rows]
    heads = [head.text for head in table.heads]
    return tabulate(rows, headers=heads, tablefmt="simple", disable_numparse=True)


def _caption(name: str, profile: Profile, seeds: int) -> str:
    study = profile.studies[name]
    fixed = f"r_p = {study.ratios[0]}" if len(study.ratios) == 1 else f"K = {study.clients[0]}"
    many = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    return f"Study {name}, {study.title} ({fixed}, n_k = {study.samples}): test MSE, {many}"


def _write(
    folder: Path,
    errors: pd.DataFrame,
    profile: Profile,
    tables: dict[str, list[dict[str, Any]]],
    tie: float,
) -> list[Path]:
    from pfl_benchmark.papers.ppfe.synthetic.figures import clients_picture, ratio_picture
    from pfl_benchmark.present.pictures import write_picture
    from pfl_benchmark.records.files import write_text
    from pfl_benchmark.render.formats.markdown import grid

    seeds = errors["seed"].nunique()
    sections = [
        f"{_caption(study, profile, seeds)}.\n\n{grid(_table(study, points))}"
        for study, points in tables.items()
    ]
    files = [folder / "errors.csv", folder / "tables.md"]
    write_text(files[0], errors.to_csv(index=False, lineterminator="\n"))
    write_text(files[1], "\n\n".join(["# Synthetic linear study", *sections, _notes(tie)]) + "\n")
    for picture in (clients_picture(errors), ratio_picture(errors)):
        for ending in ("svg", "png"):
            files.append(folder / f"{picture.name}.{ending}")
            write_picture(picture, files[-1])
    return files


def _notes(tie: float) -> str:
    from pfl_benchmark.papers.ppfe.synthetic.model import DIMENSION, NOISE_VARIANCE
    from pfl_benchmark.papers.ppfe.synthetic.study import STAGES

    chosen = (
        f"of the λ whose error there is within {100 * tie:g} % of the smallest, the largest is taken"
        if tie
        else ("the one with the smallest error there is taken")
    )
    return (
        f"d = {DIMENSION}, noise variance {NOISE_VARIANCE:g} (the smallest error possible). All points of a "
        "study and seed have the same draws. λ is chosen for each method on a held-out fifth of the training "
        f"samples of all clients: {chosen}; the fit is then repeated on all samples. Local Only, own λ: each "
        "client chooses on its own held-out fifth. PPFE, one λ: one is chosen and halved "
        "from stage to stage; PPFE's first stage has FedAvg's instead. PPFE sends "
        f"{STAGES * DIMENSION} floats a client in {STAGES} stages, FedAvg and FedAvg+FT "
        f"(not in the paper) {DIMENSION} in one, Local Only none."
    )
