"""``list``: the methods, settings, datasets, networks and studies there are."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
from collections.abc import Callable
from typing import Any

from rich.markdown import Markdown
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pfl_benchmark.config.fields import as_typed
from pfl_benchmark.config.flags import add_flag
from pfl_benchmark.console.terminal import Console, columns, show
from pfl_benchmark.errors import UserError, flag, nearest

HELP = (
    "methods with their hyper-parameters and ablations, settings, datasets, networks, partitions, shifts, "
    "studies"
)
USAGE = "[methods [NAME ...] | settings | datasets | networks | partitions | shifts | studies] [--json]"
EXAMPLES = """\
  python -m benchmark list
  python -m benchmark list methods
  python -m benchmark list methods ppfe fedrep     the card of each: what is sent and kept, costs, sources
  python -m benchmark list methods all --markdown > cards.md
  python -m benchmark list settings --json"""

_WIDE = 100  # columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "what",
        nargs="?",
        help="methods, settings, datasets, networks, partitions, shifts or studies (default: all)",
    )
    text = "of methods, or all: their cards instead of the list"
    parser.add_argument("names", nargs="*", metavar="NAME", help=text)
    add_flag(parser, "--json", "print one JSON object")
    add_flag(parser, "--markdown", "print cards as Markdown")


def execute(arguments: argparse.Namespace) -> None:
    """Print what was asked for."""
    from pfl_benchmark.algorithms import ALGORITHMS

    what = arguments.what
    if what is not None and what not in _PARTS:
        called = {"models": "networks", "algorithms": "methods", "algos": "methods", "splits": "partitions"}
        likely = called.get(what) or ("methods" if what in ("ablations", "hyper", "hyper-parameters") else "")
        guess = f" (did you mean '{likely}'?)" if likely else nearest(what, _PARTS)
        hint = f"; for the card of a method: list methods {what}" if what in ALGORITHMS else ""
        raise UserError(f"list knows no '{what}'{guess}; known: {', '.join(_PARTS)}{hint}")
    if arguments.names:
        _show_cards(what, arguments.names, arguments.json, arguments.markdown)
        return
    if arguments.markdown:
        raise UserError(
            "--markdown is for cards of methods; name some, such as: list methods fedavg --markdown"
        )
    parts = {name: describe() for name, (describe, *_) in _PARTS.items() if what in (None, name)}
    if arguments.json:
        print(json.dumps(parts))
        return
    for position, (name, entries) in enumerate(parts.items()):
        if position:
            print()
        _show(name, entries)


def _show_cards(what: str, names: list[str], as_json: bool, as_markdown: bool) -> None:
    from pfl_benchmark.algorithms import ALGORITHMS, find
    from pfl_benchmark.experiment.card import card_of
    from pfl_benchmark.present.cards import markdown, overview

    if what != "methods":
        raise UserError(f"list {what} takes no names; drop {' '.join(names)}")
    methods = [find(name) for name in (sorted(ALGORITHMS) if names == ["all"] else names)]
    cards = [(method, card_of(method)) for method in methods]
    if as_json:
        print(json.dumps({"methods": {method.name: dataclasses.asdict(card) for method, card in cards}}))
    elif as_markdown:
        tables = [overview(cards)] * (len(cards) > 1)
        print("\n".join([*tables, *(markdown(*card) for card in cards)]), end="")
    else:
        show(*(Markdown(markdown(*card)) for card in cards))


# -- what there is, as JSON values --------------------------------------------------------------------

Entry = dict[str, Any]


def methods() -> list[Entry]:
    """Name, title, reference, hyper-parameters and ablations of every method."""
    from pfl_benchmark.algorithms import ALGORITHMS
    from pfl_benchmark.engine.hyper import spaces

    return [
        {
            "name": method.name,
            "title": method.title,
            "reference": method.reference,
            "hyper": {
                spec.name: {
                    "default": spec.default,
                    "doc": spec.metadata["doc"],
                    "choices": list(spec.metadata["choices"]),
                    "search": _space(spaces(method.Hyper).get(spec.name)),
                }
                for spec in dataclasses.fields(method.Hyper)
            },
            "ablations": {name: dict(values) for name, values in method.ablations.items()},
        }
        for _, method in sorted(ALGORITHMS.items())
    ]


def _space(space: Any) -> Entry | None:
    """What `tune` tries of a hyper-parameter, as JSON values; None: nothing."""
    if space is None:
        return None
    return {"values": list(space)} if isinstance(space, tuple) else dataclasses.asdict(space)


def settings() -> list[Entry]:
    """Name, title and all configuration fields of every setting."""
    from pfl_benchmark.config.run_config import RunConfig
    from pfl_benchmark.config.settings import DEFAULT_SETTING, SETTINGS

    entries = []
    for name, setting in SETTINGS.items():
        config = RunConfig(**setting.values)
        fields = {key: val for key, val in config.to_dict().items() if key not in ("algo", "hyper", "seed")}
        about = {"default": name == DEFAULT_SETTING, "split": config.partitioner.slug, "config": fields}
        entries.append({"name": name, "title": setting.title, **about})
    return entries


def datasets() -> list[Entry]:
    """Name, title, shape, sizes, classes, source, licence and citation of every dataset."""
    from pfl_benchmark.datasets.api import DATASETS

    return [
        {
            "name": name,
            "title": info.title,
            "shape": list(info.shape),
            "classes": info.classes,
            "train_samples": info.sizes[0],
            "test_samples": info.sizes[1],
            "builtin": not info.needs_files,
            "origin": info.origin,
            "licence": info.licence,
            "citation": info.citation,
        }
        for name, info in DATASETS.items()
    ]


def networks() -> list[Entry]:
    """Name, title, source and data of every network, and the datasets whose own it is."""
    from pfl_benchmark.models import ARCHITECTURES, OWN
    from pfl_benchmark.models.registry import PACKAGES

    return [
        {
            "name": name,
            "title": network.title,
            "source": network.source,
            "fits": network.fits,
            "default_of": [dataset for dataset, own in OWN.items() if own == name],
        }
        for name, network in sorted(ARCHITECTURES.items())
    ] + [
        {
            "name": f"{package}:NAME",
            "title": f"any network of the package {package}",
            "source": package,
            "fits": "images",
            "default_of": [],
        }
        for package in PACKAGES
    ]


def studies() -> list[Entry]:
    """Name, title and profiles of every study, and in which of them it is made only if it is named."""
    from pfl_benchmark.studies.catalogue import PROFILES, STUDIES

    return [
        {
            "name": study.name,
            "title": study.title,
            "profiles": [name for name, profile in PROFILES.items() if study.belongs_to(profile)],
            "on_request": list(study.on_request),
        }
        for study in STUDIES.values()
    ]


def partitions() -> list[Entry]:
    """Name, description and options of every partitioner."""
    from pfl_benchmark.datasets.api import PARTITIONERS

    told = ("doc", "within", "such_as")  # of an option
    return [
        {
            "name": name,
            "doc": inspect.getdoc(partitioner).splitlines()[0],  # type: ignore[union-attr]  # registered partitioners have one
            "options": {
                option: {"default": spec.default, **{key: spec.metadata[key] for key in told}}
                for option, spec in partitioner.options().items()
            },
        }
        for name, partitioner in PARTITIONERS.items()
    ]


def shifts() -> list[Entry]:
    """Name, description, use and options of every shift."""
    from pfl_benchmark.datasets.api import SHIFTS

    return [
        {
            "name": shift.usage(),
            "kind": shift.kind,
            "doc": inspect.getdoc(shift).splitlines()[0],  # type: ignore[union-attr]  # registered shifts have one
            "options": {
                spec.name: {"default": spec.default, **{key: spec.metadata[key] for key in ("doc", "within")}}
                for spec in dataclasses.fields(shift)
                if "within" in spec.metadata
            },
        }
        for shift in SHIFTS.values()
    ]


# -- for people: an entry's title, a note on it, and lines of words and their meaning -------------------

Shown = tuple[str, str, list[tuple[str, str]]]


def _method(method: Entry) -> Shown:
    rows = []
    for name, spec in method["hyper"].items():
        choices = f" ({', '.join(spec['choices'])})" if spec["choices"] else ""
        words = spec["doc"] + choices + _searched(spec["search"])
        rows.append((f"--set {name}={as_typed(spec['default'])}", words))
    for name, values in method["ablations"].items():
        sets = " ".join(f"{key}={as_typed(value)}" for key, value in values.items())
        rows.append((f"--ablation {name}", sets))
    return method["title"], method["reference"], rows


def _searched(space: Entry | None) -> str:
    """What `tune` tries, in words."""
    if space is None:
        return ""
    values = [as_typed(value) for value in space["values"]] if "values" in space else []
    return f" [tune: {', '.join(values) or '{low:g} to {high:g}'.format(**space)}]"


def _dataset(info: Entry) -> Shown:
    samples = f"{info['train_samples']:,}"
    if info["test_samples"]:  # else a user's own are divided
        samples += f" training, {info['test_samples']:,} test"
    shape = f"{samples}; {' x '.join(map(str, info['shape']))}, {info['classes']} classes"
    names = {"from": "origin", "licence": "licence", "to cite": "citation"}
    return info["title"], "", [("samples", shape), *((head, info[name]) for head, name in names.items())]


def _network(network: Entry) -> Shown:
    own = [("own network of", ", ".join(network["default_of"]))] * bool(network["default_of"])
    return network["title"], network["source"], [("for", network["fits"]), *own]


def _partition(partitioner: Entry) -> Shown:
    options = partitioner["options"].items()
    rows = [
        (f"{flag(name)} {spec['default']}" if spec["such_as"] is None else flag(name), _option(spec))
        for name, spec in options
    ]
    return partitioner["doc"], "", rows


def _option(spec: Entry) -> str:
    """What an option is, and, where it has no default, an example."""
    return spec["doc"] + (
        f" (no default; such as {spec['such_as']:g})" if spec["such_as"] is not None else ""
    )


def _shift(shift: Entry) -> Shown:
    rows = [(f"{name} {spec['default']:g}", spec["doc"]) for name, spec in shift["options"].items()]
    return shift["doc"], "", rows


def _setting(setting: Entry) -> Entry:
    from pfl_benchmark.datasets.partitioners import find_partitioner

    names = {"clients": "clients", "train": "samples_per_client", "test": "test_samples_per_client"}
    partitioner = find_partitioner(setting["config"]["partition"])
    ignored = () if partitioner.by_user else partitioner.ignores  # of users they are about the mean
    return {
        "name": setting["name"] + " *" * setting["default"],
        "title": setting["title"],
        "dataset": setting["config"]["dataset"],
        "split": setting["split"],
        **{head: "" if name in ignored else setting["config"][name] for head, name in names.items()},
        "rounds": setting["config"]["rounds"],
    }


def _study(study: Entry) -> Entry:
    profiles = (name + "*" * (name in study["on_request"]) for name in study["profiles"])
    return {"name": study["name"], "profiles": ", ".join(profiles), "title": study["title"]}


def _show(name: str, entries: list[Entry]) -> None:
    _, tell, flags = _PARTS[name]
    show(Text.assemble((name.capitalize(), "bold"), f"   {flags}"))
    told = [tell(entry) for entry in entries]
    if isinstance(told[0], dict):
        _show_table(told)
        return
    for entry, (title, note, options) in zip(entries, told, strict=True):
        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column(no_wrap=True)
        for words, meaning in options:
            rows.add_row(f"    {words}", meaning)
        notes = [Padding(Text(note, "dim"), (0, 0, 0, 4))] * bool(note)
        head = Text.assemble("\n  ", (entry["name"], "bold"), f"   {title}")
        show(head, *notes, *([rows] if options else []))


def _show_table(rows: list[Entry]) -> None:
    # On a narrow terminal titles go, since names say as much: figures must not be cut.
    wide = Console().width >= _WIDE
    shown = [name for name in rows[0] if name != "title" or wide]
    texts = (
        [f"{row[name]:,}" if isinstance(row[name], int) else row[name] for name in shown] for row in rows
    )
    words = [place for place, name in enumerate(shown) if not isinstance(rows[0][name], int)]
    titles = [place for place, name in enumerate(shown) if name == "title"]
    show("", columns(shown, texts, words, titles, gap=1 + wide))


# Of each: all entries, what is shown of one (or its row of a table), and the flags that take its name.
_PARTS: dict[str, tuple[Callable[[], list[Entry]], Callable[[Entry], Any], str]] = {
    "methods": (methods, _method, "--algo NAME, --set KEY=VALUE, --ablation NAME"),
    "settings": (settings, _setting, "--setting NAME (* the default); train and test samples are per client"),
    "datasets": (datasets, _dataset, "--dataset NAME; files are looked for in --data-dir"),
    "networks": (networks, _network, "--network NAME (default: the dataset's own)"),
    "partitions": (partitions, _partition, "--partition NAME"),
    "shifts": (shifts, _shift, "--shift NAME; may be repeated, each kind once"),
    "studies": (studies, _study, "tables --only NAME (* made there only if named)"),
}
