"""``speed``: how fast clients are trained here, executor by executor."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pfl_benchmark.config.flags import add_flag, few, path
from pfl_benchmark.console.terminal import say
from pfl_benchmark.errors import UserError, flag, unknown
from pfl_benchmark.experiment.flags import add_client_memory, add_tf32

HELP = "how fast this machine trains clients: every executor against plain PyTorch"
USAGE = "[--cell NAME] [--epochs N] [--only PART ... | --all | --scale] [--output FILE] [--into FILE]"
EXAMPLES = """\
  python -m benchmark speed                                      the executors and plain PyTorch, two networks
  python -m benchmark speed --epochs 5                           the same in calls as long as the paper's
  python -m benchmark speed --only cohorts crowds                growth with the cohort and with the clients
  python -m benchmark speed --scale                              10,000 clients that keep models; half an hour
  python -m benchmark speed --cell digits --json
  python -m benchmark speed --all --output speed.json            the whole measurement; minutes on a GPU
  python -m benchmark speed --from speed.json --into docs/performance.md"""

_PARTS = ("cells", "cohorts", "crowds", "runs", "scale")
_USUAL = _PARTS[:-1]  # of --all
_DEFAULT = _PARTS[:1]  # the others answer what fewer people ask, and take minutes on CPUs
_CELLS = ("cifar10", "digits")
_ONLY_OF = {  # flags that not all parts heed
    "epochs": ("cells", "cohorts"),
    "repeats": ("cells", "cohorts", "crowds"),
    "cell": ("cells", "cohorts", "scale"),
    "client_memory": ("scale",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    what = parser.add_argument_group("what")
    add_flag(what, "--cell NAME", "cifar10 or digits (default: both)", action="append")
    add_flag(what, "--only PART ...", f"some of {', '.join(_PARTS)} (default: {', '.join(_DEFAULT)})")
    add_flag(what, "--all", "all parts but scale; on CPUs the whole runs use small data")
    text = "only scale: rounds, memory and checkpoints of five methods with 100 to 10,000 clients"
    add_flag(what, "--scale", text)
    text = "local epochs of a timed call of cells and cohorts (default: the paper's 5; on CPUs 1 of cifar10)"
    add_flag(what, "--epochs N", text, few)
    add_flag(what, "--repeats N", "timed repeats (default: 3; not of runs and scale)", few)
    add_flag(what, "--from FILE", "measure nothing; show a file that --output wrote", path, dest="source")
    where = parser.add_argument_group("execution")
    add_flag(where, "--device NAME", "auto, cpu, cuda, cuda:N or mps", default="auto")
    add_tf32(where)
    add_client_memory(where, "of scale: memory for what clients keep (default: 1GiB)")
    output = parser.add_argument_group("output")
    add_flag(output, "--json", "print one JSON list, on one line")
    add_flag(output, "--output FILE", "keep everything measured, as JSON", path)
    add_flag(output, "--into FILE", "update the tables in a document (docs/performance.md)", path)


def execute(arguments: argparse.Namespace) -> None:
    """Measure and print.

    Raises:
        UserError: unknown part or cell, or a file that cannot be used; told before anything is measured.
        SystemExit: with code 1, if a part failed.
    """
    parts = _check(arguments)
    failed: list[str] = []
    from pfl_benchmark.experiment.execution import Execution
    from pfl_benchmark.present.document import Document
    from pfl_benchmark.speed import parts as measured
    from pfl_benchmark.speed.tables import as_markdown, document_part, only_in, part_of

    def room(name: str, parts: Collection[str]) -> Document:
        """The document, whose part of that name has no table that these parts of a measurement lack."""
        document = Document(arguments.into)
        if lost := only_in(document.text(name), parts):
            raise UserError(
                f"--into {arguments.into}: its tables of {', '.join(lost)} would be lost; measure everything "
                "in one call (--only), or take those tables out first"
            )
        return document

    if arguments.source:
        found = measured.load(arguments.source)
    else:
        execution = Execution(
            device=arguments.device, tf32=bool(arguments.tf32), client_memory=arguments.client_memory
        )
        device = execution.pick_device()
        if arguments.into:
            room(part_of(device.type), parts)
        sizes = measured.sizes_for(device, arguments.repeats or 3, arguments.cell or (), arguments.epochs)

        kept = ""

        def keep(rows: list[dict[str, Any]]) -> None:
            nonlocal kept
            if arguments.output:
                measured.save(arguments.output, rows, execution)
                kept = f"{arguments.output} has what was measured so far; "

        try:
            rows, failed = measured.measure(parts, execution, sizes, say, keep)
        except KeyboardInterrupt:
            say(f"interrupted; {kept}the same command measures everything again")
            raise SystemExit(130) from None
        found = measured.load(arguments.output) if arguments.output and rows else {"rows": rows}
    if arguments.into and not failed:
        name, text = document_part(found)
        room(name, {row["part"] for row in found["rows"]}).save({name: text})
    print(json.dumps(found["rows"]) if arguments.json else as_markdown(found["rows"]))
    if failed:
        left = f"; {arguments.into} is left as it was" if arguments.into else ""
        say(f"failed: {', '.join(failed)}; see the messages above{left}")
        raise SystemExit(1)


def _check(arguments: argparse.Namespace) -> list[str]:
    """The parts to measure."""
    wanted = arguments.only or []
    for kind, values, known in (("part", wanted, _PARTS), ("cell", arguments.cell or (), _CELLS)):
        for value in values:
            if value not in known:
                raise unknown(kind, value, known)
    if sum(map(bool, (arguments.all, wanted, arguments.scale))) > 1:
        raise UserError("--all, --only and --scale contradict each other; give one of them")
    others = ("only", "all", "scale", "output", "cell", "epochs", "repeats", "tf32", "client_memory")
    given = [flag(name) for name in others if getattr(arguments, name)]
    if arguments.device != "auto":
        given.append("--device")
    if arguments.source and given:
        raise UserError(f"--from shows what was measured before; drop {', '.join(given)}")
    if "," in arguments.device:
        raise UserError(f"--device {arguments.device}: one device is measured at a time; name one")
    if arguments.into and not (arguments.source or arguments.output):
        raise UserError("--into needs a saved measurement; add --output FILE, or --from FILE")
    file: Path | None = arguments.output
    if file and ((file.exists() and not file.is_file()) or not file.parent.is_dir()):
        raise UserError(f"--output {file}: expected a file in a folder that exists")
    if file and not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UserError(f"--output {file} cannot be written; give another file")
    if arguments.into and not arguments.into.is_file():
        raise UserError(f"--into {arguments.into}: there is no such document")
    parts = ["scale"] if arguments.scale else list(_USUAL) if arguments.all else wanted or list(_DEFAULT)
    for name, heeding in _ONLY_OF.items():
        if getattr(arguments, name) and not {*heeding} & {*parts}:
            raise UserError(
                f"{flag(name)} is for {', '.join(heeding)}, of which nothing is measured; drop it"
            )
    return parts
