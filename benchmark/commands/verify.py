"""``verify``: whether the code that is here still gives the figures of finished runs."""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pfl_benchmark.config.flags import add_data_dir, add_flag, count, path
from pfl_benchmark.config.weights import checksum_of, file_of_weights
from pfl_benchmark.console.terminal import say, say_left_out, shown_path
from pfl_benchmark.errors import UserError, printable
from pfl_benchmark.experiment.flags import add_execution, execution_of

if TYPE_CHECKING:
    from pfl_benchmark.experiment.verdict import Verdict
    from pfl_benchmark.records.bundle import Bundle
    from pfl_benchmark.records.record import Record
    from pfl_benchmark.records.store import Gathered

HELP = "repeat rounds of finished runs: does the present code give the recorded figures?"
USAGE = "RECORD|BUNDLE.zip [RECORD ...] [--sample N] [--rounds N | --all] [flags]"
EXAMPLES = """\
  python -m benchmark verify results/runs/fedper-digits-s2-seed0-*            the first 3 rounds
  python -m benchmark verify results/paper/ppfe-cifar10-* --rounds 10
  python -m benchmark verify results/runs --all                               all records there, all rounds
  python -m benchmark verify quick.zip --sample 5 --by "A. Smith"            5 records of somebody's bundle
  python -m benchmark verify results/runs --json | jq '.[] | {record, verdict}'

The verdict is bit-equal, equal within tolerance (0.001, or a thousandth of figures above 1; counts must be
equal), drifted or different. The exit code is 1 if any record is different. The tolerance is for other
executors, hardware, numbers of cores and versions of PyTorch, which round differently. (Records of the
executors loop and stacked are run again on as many cores as they were made on, if there are as many here.)
These differences grow with the rounds. So where a record was made elsewhere and is beyond the tolerance, the
rounds are run once more from weights that are a rounding error away: up to ten times as far as that run the
record has drifted, beyond that it is different. Seconds are not compared. The verdict is saved in the record
as verified.json; `run`, `tables` and `report` then no longer call it computed by other code (unless it has
drifted). Nothing is written into records that git knows, unless --write is given.

Of a bundle (`python -m benchmark pack`) all files are checked first; then some records, drawn at random, are
verified, and the verdicts are saved beside the bundle, in BUNDLE.zip.verified.json. Plugin files in
it are somebody else's code. They are listed, and run only under --trust-plugins; records that need them
are left out otherwise."""

SAMPLE = 3  # records of a bundle that are verified if nothing else is asked for
_SHOWN = 3  # differences a record that are printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    text = "folder of a finished run, or a results folder: all finished runs that are in it; or one bundle"
    add_flag(parser, "RECORD ...", text, path, dest="records")
    text = "verify N records, drawn at random (default: all of folders, 3 of a bundle)"
    add_flag(parser, "--sample N", text, count)
    length = parser.add_mutually_exclusive_group()
    add_flag(length, "--rounds N", "number of rounds to repeat, from the first (default: 3)", count)
    add_flag(length, "--all", "repeat all rounds; also compare the summary and every client's result")
    execution = parser.add_argument_group(
        "execution (default: as the record was made, where this machine can)"
    )
    add_data_dir(execution)
    add_execution(execution)
    text = "files of weights that runs under --weights begin with (needed where they were made elsewhere)"
    add_flag(execution, "--weights FILE ...", text, path, default=[])
    add_flag(parser, "--by NAME", "who verifies, for the record and the board (default: not named)")
    add_flag(parser, "--write", "save the verdicts of records that git knows, too")
    add_flag(parser, "--trust-plugins", "run the plugin files of a bundle, which are its maker's code")
    add_flag(parser, "--json", "print one JSON list instead")


def execute(arguments: argparse.Namespace) -> None:
    """Check all records, then run and compare one after the other.

    Raises:
        UserError: a bundle, a record or data that cannot be used; told before anything is trained.
        SystemExit: with code 1, if a record is different.
    """
    from pfl_benchmark.records.bundle import unpacked
    from pfl_benchmark.records.store import gather

    if arguments.by is not None and not (arguments.by.strip() and arguments.by.isprintable()):
        raise UserError(f"--by is {arguments.by!r:.60}; expected a name")
    bundles = [path for path in arguments.records if path.suffix.lower() == ".zip" and not path.is_dir()]
    if bundles and len(arguments.records) > 1:
        raise UserError(f"{bundles[0]} is a bundle; verify one bundle at a time, without folders beside it")
    if not bundles:
        if arguments.trust_plugins:
            raise UserError("--trust-plugins is for bundles; for records in folders give --plugin FILE.py")
        _verify(arguments, gather(arguments.records), None)
        return
    with unpacked(bundles[0]) as bundle:
        _verify(arguments, _trusted(bundle, arguments.trust_plugins), bundle)


def _trusted(bundle: Bundle, trusted: bool) -> Gathered:
    """The records of a bundle that may be run here; loads its plugins if they are trusted."""
    import hashlib

    from pfl_benchmark.records.bundle import plugins_of
    from pfl_benchmark.records.store import Gathered
    from pfl_benchmark.resolve.plugins import LOADED, load_plugins

    for plugin in bundle.plugins:
        content = plugin.read_bytes()
        what = f"{len(content):,} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}"
        say(f"{'runs' if trusted else 'not run'}: plugins/{plugin.name} of the bundle ({what})")
    loaded = {Path(plugin).name for plugin in LOADED}
    here = {Path(plugin).name: Path(plugin) for plugin in LOADED if Path(plugin).is_file()}
    if trusted:
        for plugin in bundle.plugins:
            if plugin.name in here and here[plugin.name].read_bytes() != plugin.read_bytes():
                raise UserError(
                    f"--plugin {plugin.name} is another file than the bundle's, which --trust-plugins would "
                    "run; drop one of the two flags (PFL_PLUGINS of the environment names plugins, too)"
                )
        load_plugins([str(plugin) for plugin in bundle.plugins if plugin.name not in here])
        return Gathered([*bundle.records])
    for plugin in bundle.plugins:
        if plugin.name in here and here[plugin.name].read_bytes() != plugin.read_bytes():
            say(f"warning: {plugin.name} of --plugin is another file than the bundle's; yours is used")
    own = [record for record in bundle.records if loaded.issuperset(plugins_of(record))]
    if not own:
        raise UserError(
            f"all records of {bundle.path} were made with its plugins, which are its maker's code; "
            "read them first (unzip), then give --trust-plugins"
        )
    left_out = []
    if others := [record for record in bundle.records if record not in own]:
        left_out.append(
            f"{len(others)} made with plugins of the bundle, such as {others[0].folder.name}; read these "
            "plugins first, then give --trust-plugins"
        )
    return Gathered(own, left_out)


def _verify(arguments: argparse.Namespace, gathered: Gathered, bundle: Bundle | None) -> None:
    """Verify gathered records, or some of them drawn at random; keep the verdicts and print them."""
    from pfl_benchmark.experiment import verify as again
    from pfl_benchmark.experiment.processes import at_most
    from pfl_benchmark.experiment.progress import RunProgress
    from pfl_benchmark.records.bundle import write_verdicts
    from pfl_benchmark.records.environment import is_committed
    from pfl_benchmark.records.same_data import source_of
    from pfl_benchmark.records.seal import DIFFERENT
    from pfl_benchmark.resolve.code import replacement_note
    from pfl_benchmark.resolve.run import resolve

    asked = execution_of(arguments)
    asked.check_executor()
    for file in arguments.weights:
        checksum_of(str(file))
    usable, elsewhere = _known(gathered.records)
    say_left_out([*gathered.left_out, *elsewhere])
    records = _drawn(usable, arguments.sample or (SAMPLE if bundle else None))
    if len(records) < len(usable):
        say(f"drawn at random: {len(records)} of {len(usable)} records (--sample N draws more)")
    if note := replacement_note():
        say(f"warning: {note}")
    data = again.load_data(records, asked.data_dir)
    work = []
    for record in records:
        total = len(record.rounds)
        rounds = total if arguments.all else arguments.rounds or min(again.ROUNDS, total)
        dataset = data[source_of(record.config)]
        run = resolve(record.config)
        execution = again.execution_for(record, run, asked)
        run = run.placed(execution)
        again.check_record(record, run, rounds, execution, dataset)
        work.append((record, run, rounds, execution, dataset))
    verdicts, kept, known = [], None, 0
    for number, (record, run, rounds, execution, dataset) in enumerate(work, start=1):
        name = record.folder.name if bundle else shown_path(record.folder)
        headline = f"{number}/{len(work)} {name}: {_span(rounds, len(record.rounds))} again"
        cores = at_most(again.cores_for(record, run))
        with cores, RunProgress(headline, headline, resumes=False) as progress:
            verdict = again.verify(record, run, rounds, execution, dataset, progress)
        told = verdict.to_dict(arguments.by or "")
        verdicts.append({"record": name, **told})
        if not arguments.json:
            print("\n".join(_lines(name, verdict)), flush=True)
        try:
            if bundle:
                kept = write_verdicts(bundle, {record.folder.name: told})
            elif arguments.write or not is_committed(record.folder / "summary.json"):
                verdict.save(arguments.by or "")
            else:
                known += 1
        except UserError as error:
            say(f"the verdict is not kept: {error}")
    if kept:
        say(f"verdicts: {shown_path(kept)}")
    if known:
        say(
            f"not saved: {known} verdict{'s' * (known > 1)} of records that git knows; --write saves them too"
        )
    if arguments.json:
        print(json.dumps(verdicts))
    if any(verdict["verdict"] == DIFFERENT for verdict in verdicts):
        raise SystemExit(1)


def _refusal(record: Record) -> str:
    """Why this version cannot make a run of a record's data; empty: it can."""
    from pfl_benchmark.resolve.run import check_data

    try:
        check_data(record.config)
    except UserError as error:
        return f"{record.folder.name} ({error})"
    return ""


def _known(records: Sequence[Record]) -> tuple[Sequence[Record], list[str]]:
    """The records that can be repeated, and lines about others; all of a kind where none can."""
    from pfl_benchmark.algorithms import ALGORITHMS
    from pfl_benchmark.config.network import knows_network
    from pfl_benchmark.datasets.api import DATASETS

    lines = []
    for field, registry, what, advice in (
        ("algo", ALGORITHMS, "of methods", "--plugin FILE.py"),
        ("dataset", DATASETS, "on data", "--plugin folder:PATH"),
    ):
        known = [record for record in records if getattr(record.config, field) in registry]
        if names := sorted({getattr(record.config, field) for record in records} - registry.keys()):
            count = len(records) - len(known)
            lines.append(f"{count} {what} that are not here ({', '.join(names)}); give {advice}")
        if not known:
            return records, lines[:-1]  # whatever is done with one of them says so
        records = known
    records = [record for record in known if knows_network(record.config)]
    if gone := sorted({record.config.network for record in known} - {r.config.network for r in records}):
        count = len(known) - len(records)
        lines.append(f"{count} of networks that are not here ({', '.join(gone)}); give --plugin FILE.py")
        if not records:
            return known, lines[:-1]
    possible = {record.folder: _refusal(record) for record in records}
    if reasons := [reason for reason in possible.values() if reason]:
        lines.append(f"{len(reasons)} that this version refuses, such as: {reasons[0]}")
        if len(reasons) == len(records):
            return records, lines[:-1]
        records = [record for record in records if not possible[record.folder]]
    begun = [record for record in records if _has_weights(record)]
    if begun and len(begun) < len(records):
        count = len(records) - len(begun)
        return begun, [*lines, f"{count} that begin with weights of files not given; give --weights FILE"]
    return records, lines


def _has_weights(record: Record) -> bool:
    """Whether the file of weights that a run begins with is here, if it begins with one."""
    try:
        if record.config.weights:
            file_of_weights(record.config.weights)
    except UserError:
        return False
    return True


def _drawn(records: Sequence[Record], count: int | None) -> list[Record]:
    """So many records (None: all), drawn at random: whoever made a bundle must not know which."""
    if count is None or count >= len(records):
        return list(records)
    positions = sorted(random.SystemRandom().sample(range(len(records)), count))
    return [records[position] for position in positions]


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
    if verdict.drift:
        largest = verdict.drift[""]
        lines.append(
            f"  a run from weights a rounding error away drifts by {largest:.3g} tolerances in as many rounds"
        )
    if verdict.gaps:
        lines += [f"  {printable(gap)}" for gap in verdict.beyond[:_SHOWN]]
        lines.append(f"  {len(verdict.gaps)} not bit-equal, {len(verdict.beyond)} of them beyond tolerance")
        lines.append(f"  largest: {printable(verdict.largest)}")
        if verdict.suspicious:
            lines.append("  by the same code on the same kind of machine: were some changed?")
        else:
            lines.append(
                f"  besides the code: {printable('; '.join(verdict.elsewhere)) or 'made on the same'}"
            )
    return lines
