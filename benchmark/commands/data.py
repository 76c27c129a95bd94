"""``data``: a dataset, and which client of a setting gets what of it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pfl_benchmark.config.fields import DATA_FIELDS, changes, describe_split
from pfl_benchmark.config.flags import add_data, add_flag, config_of, file_of, path
from pfl_benchmark.console.terminal import columns, show, shown_path
from pfl_benchmark.datasets.export import FORMS, export
from pfl_benchmark.errors import UserError, flag, nearest, why
from pfl_benchmark.render.quantiles import MANY, QUANTILES

if TYPE_CHECKING:
    import pandas as pd
    from rich.padding import Padding

HELP = "source of a dataset, and how a setting divides it among clients: table and picture"
USAGE = "[--setting NAME] [flags]"
EXAMPLES = """\
  python -m benchmark data --dataset digits
  python -m benchmark data --setting cifar10-dir0.3 --seed 1 --full
  python -m benchmark data --dataset digits --dirichlet 0.1 --clients 10 --out split.png
  python -m benchmark data --dataset folder:my_images      images of your own: what was read
  python -m benchmark data --setting digits-s2 --export pfllib split      for PFLlib, a client a file"""

_PICTURES = Path("results/splits")
_ENDS = 6  # rows of a long table that are shown at its beginning and at its end
_ROOM = 60  # characters for the names of a client's classes, but with --full


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_data(parser, (*DATA_FIELDS, "seed"))
    output = parser.add_argument_group("output")
    add_flag(output, "--out FILE.png", f"the picture (default: in {_PICTURES})", file_of(".png"))
    add_export(output)
    add_flag(output, "--full", "show all rows of the table of clients")
    add_flag(output, "--json", "print one JSON object, with all clients, instead of the tables")


def add_export(group: argparse._ActionsContainer) -> None:
    """Declare ``--export FORM DIR``."""

    class Export(argparse.Action):
        """A form and a folder."""

        def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
            form, folder = values
            if form not in FORMS:
                known = " or ".join(FORMS)
                raise UserError(f"--export {form}: expected {known} and a folder{nearest(form, FORMS)}")
            namespace.export = (form, path("--export", folder))

    text = (
        "write the split, as LEAF's or PFLlib's files that these and other programs read, into a new folder"
    )
    group.add_argument("--export", nargs=2, metavar=("FORM", "DIR"), action=Export, help=text)


def execute(arguments: argparse.Namespace) -> None:
    """Print the description and save the picture."""
    setting, config = config_of(arguments)

    from pfl_benchmark.datasets import api as datasets
    from pfl_benchmark.datasets.describe import images_picture, split_picture, split_table
    from pfl_benchmark.experiment.prepare import shifted, split_of
    from pfl_benchmark.records.writer import slug
    from pfl_benchmark.resolve.run import check_data

    check_data(config)
    info = datasets.DATASETS[config.dataset]
    loaded = datasets.load(config.dataset, arguments.data_dir, embedding=config.embedding)
    arranged = config.partitioner.arranged(loaded)
    changed = shifted(config, arranged, split_of(config, arranged))
    dataset, split = changed.dataset, changed.split
    exported = ""
    if arguments.export:
        form, folder = arguments.export
        export(form, folder, info, dataset, split)
        exported = f"{shown_path(folder)} (read it by --dataset {form}:{shown_path(folder)})"
    name = f"{setting}-seed{config.seed}"
    if changes(setting, config, DATA_FIELDS):
        name = f"{slug(config)}-{split.checksum[:8]}"
    picture = arguments.out or _PICTURES / f"{name}.png"
    images = (
        picture.with_name(f"{picture.stem}-images.png") if config.shifts and info.kind == "images" else None
    )
    try:
        split_picture(split, dataset, picture, MANY)
        if images:
            images_picture(split, dataset, images)
    except OSError as error:
        reason = why(error)
        done = f" (--export has written {exported})" * bool(exported)
        raise UserError(
            f"cannot write the picture {picture}: {reason}; choose another --out{done}"
        ) from error
    table, halves = split_table(split, dataset), loaded.halves
    facts = {
        "setting": setting,
        "changed": changes(setting, config, DATA_FIELDS),
        "seed": config.seed,
        "split": describe_split(config),
        "dataset": dataset.name,
        "source": dataset.source,
        "licence": info.licence,
        "citation": info.citation,
        "train_samples": len(halves[0]) if halves else len(loaded.train),
        "test_samples": len(halves[1]) if halves else 0,
        "dataset_classes": dataset.classes,
        "unit": dataset.unit,
        "shape": list(info.shape),
        "network": info.network or "of its plugin",
        "users": split.facts,
        "checksum": split.checksum,
        "data_checksum": loaded.checksum,
        "picture": shown_path(picture),
        **({"shifts": changed.facts} if changed.facts else {}),
        **({"images_picture": shown_path(images)} if images else {}),
        **({"exported": exported} if exported else {}),
    }
    if arguments.json:
        rows = table.assign(class_names=table["class_names"].str.split(", ")).reset_index()
        print(json.dumps({**facts, "clients": rows.to_dict("records")}))
    else:
        print(_overview(facts, table, config.partitioner.tell(split.facts)))
        show("", _clients(table, arguments.full), "")
        print(f"picture  {facts['picture']}")
        if images:
            print(f"images   {facts['images_picture']}")
        if exported:
            print(f"exported {exported}")


def _overview(facts: dict[str, Any], table: pd.DataFrame, told: str) -> str:
    changed = "".join(f" {flag(name)} {value}" for name, value in facts["changed"].items())
    unit = facts["unit"]
    samples = f"{facts['train_samples']:,}"
    if facts["test_samples"]:  # else a user's own are divided
        samples += f" training, {facts['test_samples']:,} test"
    rows = [
        ("setting", f"{facts['setting']}{changed}, seed {facts['seed']}"),
        ("source", f"{facts['dataset']}, {facts['source']}"),
        ("licence", facts["licence"]),
        ("to cite", facts["citation"]),
        (unit, f"{samples}, {facts['dataset_classes']} classes, checksum {facts['data_checksum']}"),
        ("shape", f"{' x '.join(map(str, facts['shape']))}, network {facts['network']}"),
        ("split", facts["split"]),
        ("drawn", told),
        ("training", f"{_range(table['train'])} {unit} a client, {table['train'].sum():,} in all"),
        ("test", f"{_range(table['test'])} {unit} a client"),
        ("classes", f"{_range(table['classes'])} a client"),
        ("checksum", f"{facts['checksum']} (equal splits have equal checksums)"),
    ]
    rows = [(name, value) for name, value in rows if value]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _range(column: pd.Series) -> str:
    low, high = column.min(), column.max()
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _names(names: Sequence[str], full: bool) -> str:
    """Classes, as many as a line has room for; at least one."""
    shown, *others = names
    for name in others:
        if not full and len(shown) + len(name) > _ROOM:
            return f"{shown}, …"
        shown += f", {name}"
    return shown


def _clients(table: pd.DataFrame, full: bool) -> Padding:
    """The table of clients; unless `full`, without its middle and with a line for each, of many quantiles."""
    if not full and len(table) > MANY:
        counts = table[["train", "test", "classes"]]
        found = counts.quantile([share / 100 for share in QUANTILES.values()], interpolation="nearest")
        lines = [(name, *map(str, row)) for name, row in zip(QUANTILES, found.values.tolist(), strict=True)]
        return columns((f"of {len(table):,} clients (--full: each)", *counts), lines, indent=0)
    rows = [(*map(str, row), _names(names.split(", "), full)) for *row, names in table.itertuples()]
    if not full and len(rows) > 2 * _ENDS + 1:
        left_out = f"({len(rows) - 2 * _ENDS} more, --full shows all)"
        rows = [*rows[:_ENDS], ("...", "", "", "", left_out), *rows[-_ENDS:]]
    heads = ("client", "train", "test", "classes", "which, the most frequent first")
    return columns(heads, rows, words=[4], wrapped=[4] if full else (), indent=0)
