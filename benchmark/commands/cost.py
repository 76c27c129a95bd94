"""``cost``: what finished runs spent until they first reached an accuracy."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from pfl_benchmark.config.flags import add_flag, number, path
from pfl_benchmark.console.terminal import say, say_left_out
from pfl_benchmark.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pfl_benchmark.present.compare import Group
    from pfl_benchmark.studies.targets import Target

HELP = "rounds, bytes and samples until finished runs first reach an accuracy"
USAGE = "FOLDER [FOLDER ...] [--targets X ...] [--json]"
EXAMPLES = """\
  python -m benchmark cost results/runs                    to FedAvg's and Local Only's final accuracy
  python -m benchmark cost results/paper/{fedper,fedrep}-cifar10-shards5-seed0-* --targets 0.6 0.7
  python -m benchmark --algo fedbabu --eval-adapted        a run that is evaluated fine-tuned on the way

Runs on the same splits stand in one table. Runs are evaluated every --eval-every rounds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    text = "record of a finished run, or a results folder: all its finished runs"
    add_flag(parser, "FOLDER ...", text, path, dest="folders")
    text = "accuracies in (0, 1) (default: those of FedAvg and of Local Only after their last round)"
    add_flag(parser, "--targets X ...", text, number("(0, 1)", 0.6), default=[])
    add_flag(parser, "--json", "print JSON instead (accuracies in 0..1)")


def execute(arguments: argparse.Namespace) -> None:
    """Read, search, print.

    Raises:
        UserError: a folder without finished runs, damaged ones, runs of which none says what to reach.
    """
    from pfl_benchmark.present.compare import groups
    from pfl_benchmark.present.tables.captions import sampled
    from pfl_benchmark.present.tables.targets import EXPLANATION, lines_of, targets_table
    from pfl_benchmark.records.store import gather
    from pfl_benchmark.render.formats.markdown import markdown

    gathered = gather(arguments.folders)
    say_left_out(gathered.left_out)
    asked = [
        (group, wanted)
        for group in groups(gathered.records)
        if (wanted := _targets(group, arguments.targets))
    ]
    if not asked:
        raise UserError(
            "there is no run of FedAvg or Local Only here, whose accuracy is the target; add one, or give "
            "--targets"
        )
    lines = [
        line
        for group, wanted in asked
        for line in lines_of(group.setting, {c.title: c.records for c in group.candidates}, wanted)
    ]
    told = sampled(record.config for group, _ in asked for record in group.records)
    table = targets_table(lines, f"{EXPLANATION} {told}".strip())
    if arguments.json:
        print(json.dumps(table.facts()[1], indent=2))
    else:
        print(markdown(table), end="")
    if left := len(gathered.records) - sum(len(group.records) for group, _ in asked):
        say(f"left out: {left} of {len(gathered.records)} runs, on splits without FedAvg or Local Only")


def _targets(group: Group, given: Sequence[float]) -> list[Target]:
    """What the runs of a group are to reach."""
    from pfl_benchmark.studies.targets import Target, at_last

    if given:
        seeds = {seed for candidate in group.candidates for seed in candidate.records}
        return [Target("", dict.fromkeys(seeds, accuracy)) for accuracy in dict.fromkeys(given)]
    targets = []
    for algo, title in (("fedavg", "FedAvg's"), ("local", "Local Only's")):
        candidates = [c for c in group.candidates if next(iter(c.records.values())).config.algo == algo]
        if len(candidates) > 1:
            raise UserError(
                f"{candidates[0].title} and {candidates[1].title} are both of '{algo}' on the same splits; "
                "leave one out, or give --targets"
            )
        targets += [at_last(title, candidate.records) for candidate in candidates]
    return targets
