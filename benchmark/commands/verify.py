"""``verify``: whether the code that is here still gives the figures of finished runs."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from benchmark.config.flags import add_data_dir, add_flag, count, path
from benchmark.experiment.flags import add_execution, execution_of

if TYPE_CHECKING:
    from benchmark.experiment.verify import Verdict

HELP = "repeat rounds of finished runs: does the present code give the recorded figures?"
USAGE = "RECORD [RECORD ...] [--rounds N | --all] [flags]"
EXAMPLES = """\
  python -m benchmark verify results/runs/fedper-digits-s2-seed0-*            the first 3 rounds
  python -m benchmark verify results/paper/ppfe-cifar10-* --rounds 10
  python -m benchmark verify results/runs --all                               all records there, all rounds
  python -m benchmark verify results/runs --json | jq '.[] | {record, verdict}'

The verdict is bit-equal, equal within tolerance (0.001, or a thousandth of figures above 1; counts must be
equal) or different. The exit code is 1 if any record is different. The tolerance is for other executors,
hardware and versions of PyTorch, which round differently. These differences grow with the rounds: after some
tens of rounds, even correct code is different on them. Seconds are not compared. The verdict is saved in the
record as verified.json; `run`, `tables` and `report` then no longer call it computed by other code."""

_SHOWN = 3  # differences a record that are printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    text = "folder of a finished run, or a results folder: all finished runs that are in it"
    add_flag(parser, "RECORD ...", text, path, dest="records")
    length = parser.add_mutually_exclusive_group()
    add_flag(length, "--rounds N", "number of rounds to repeat, from the first (default: 3)", count)
    add_flag(length, "--all", "repeat all rounds; also compare the summary and every client's result")
    execution = parser.add_argument_group(
        "execution (default: as the record was made, where this machine can)"
    )
    add_data_dir(execution)
    add_execution(execution)
    add_flag(parser, "--json", "print one JSON list instead")


def execute(arguments: argparse.Namespace) -> None:
    """Check all records, then run and compare one after the other.

    Raises:
        UserError: a record or data that cannot be used; told before anything is trained.
        SystemExit: with code 1, if a record is different.
    """
    from benchmark.console.terminal import say, shown_path
    from benchmark.experiment.progress import RunProgress
    from benchmark.experiment.verify import ROUNDS, check_record, execution_for, load_data, verify
    from benchmark.records.freshness import DIFFERENT
    from benchmark.records.gather import gather

    asked = execution_of(arguments)
    asked.check_executor()
    gathered = gather(arguments.records)
    records = gathered.records
    data = load_data(records, asked.data_dir)
    work = []
    for record in records:
        total = len(record.rounds)
        rounds = total if arguments.all else arguments.rounds or min(ROUNDS, total)
        dataset = data[record.config.dataset, record.config.embedding]
        execution = execution_for(record, asked)
        check_record(record, rounds, execution, dataset)
        work.append((record, rounds, execution, dataset))
    verdicts = []
    for place, (record, rounds, execution, dataset) in enumerate(work, start=1):
        name = shown_path(record.folder)
        headline = f"{place}/{len(work)} {name}: {_span(rounds, len(record.rounds))} again"
        with RunProgress(headline, headline, resumes=False) as progress:
            verdict = verify(record, rounds, execution, dataset, progress)
        verdict.save()
        verdicts.append({"record": name, **verdict.to_dict()})
        if not arguments.json:
            print("\n".join(_lines(name, verdict)), flush=True)
    for line in gathered.left_out:
        say(f"left out: {line}")
    if arguments.json:
        print(json.dumps(verdicts))
    if any(verdict["verdict"] == DIFFERENT for verdict in verdicts):
        raise SystemExit(1)


def _span(rounds: int, total: int) -> str:
    if not rounds:
        return f"none of {total} rounds"
    if rounds == total:
        return f"all {total} rounds"
    return f"round 1 of {total}" if rounds == 1 else f"rounds 1-{rounds} of {total}"


def _lines(name: str, verdict: Verdict) -> list[str]:
    """The verdict, the first differences beyond tolerance, the largest, and what was otherwise."""
    what = f"{_span(verdict.rounds, len(verdict.record.rounds))}, {verdict.figures} figures"
    lines = [f"{verdict.verdict:16}  {name} ({what})"]
    if verdict.gaps:
        lines += [f"  {gap}" for gap in verdict.beyond[:_SHOWN]]
        lines.append(f"  {len(verdict.gaps)} not bit-equal, {len(verdict.beyond)} of them beyond tolerance")
        lines.append(f"  largest: {verdict.largest}")
        lines.append(f"  besides the code: {'; '.join(verdict.elsewhere) or 'made on the same'}")
    return lines
