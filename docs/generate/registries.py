"""Pages made from the registries: methods, datasets, networks, partitioners, commands, configuration."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pfl_benchmark.cli import parser_of
from pfl_benchmark.commands import command_names, find_command
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.datasets.api import DATASETS, PARTITIONERS
from pfl_benchmark.datasets.registry import MODULES
from pfl_benchmark.errors import flag
from pfl_benchmark.models import ARCHITECTURES, Network, sample_shape
from pfl_benchmark.models.layers import Layer

from . import methods, parity

__all__ = ["DOCUMENTS", "LANDING", "Change", "navigation", "pages"]

Change = Callable[[str], str]

_RESULTS = (
    "adapters", "budgets", "calibration", "lite", "methods", "natural", "new-clients", "pfllib", "ppfe",
    "protocols", "shifts", "synthetic", "tuning",
)  # fmt: skip
# Documents of the checkout that are a page as they are, by their place.
DOCUMENTS = {
    "CHANGELOG.md": "changelog.md",
    "docs/performance.md": "performance.md",
    "docs/reliability.md": "reliability.md",
    "docs/board.md": "board.md",
    "docs/grid.md": "grid.md",
    "docs/training.md": "training.md",
    "results/README.md": "results/index.md",
    **{f"results/{name}.md": f"results/{name}.md" for name in _RESULTS},
}
# Where links to whole documents lead that are pages only in parts.
LANDING = {
    "README.md": ("index.md", ""),
    "CONTRIBUTING.md": ("extend/index.md", ""),
    "algorithms": ("methods/index.md", ""),
    "datasets/partitioners": ("partitioners.md", ""),
    "benchmark/config/run_config.py": ("configuration.md", ""),
}


def pages(root: Path) -> dict[str, str]:
    """Markdown by path."""
    return {
        **methods.pages(root),
        "parity.md": parity.page(parity.table(root)),
        **_datasets(root),
        **_networks(),
        "partitioners.md": _partitioners(),
        "commands.md": _commands(),
        "configuration.md": _configuration(),
    }


def navigation(made: Mapping[str, str]) -> list[Any]:
    """The site's menu; generated pages are listed by name."""

    def all_of(folder: str) -> list[str]:
        names = sorted(
            name for name in made if name.startswith(f"{folder}/") and not name.endswith("/index.md")
        )
        return [f"{folder}/index.md", *names]

    menu: list[Any] = [
        {"Start": ["index.md", "quickstart.md", "python.md", "own-data.md", "faq.md", "changelog.md"]},
        {"Protocol": ["protocol.md", "records.md", "configuration.md", "bound.md"]},
        {"Methods": [*methods.menu(), "parity.md"]},
        {"Data": [*all_of("datasets"), "partitioners.md", "shifts.md"]},
        {"Networks": [*all_of("networks"), "adapters.md"]},
        {
            "Running": [
                "commands.md",
                "training.md",
                "grid.md",
                "running.md",
                "performance.md",
                "reliability.md",
            ]
        },
        {"Results": [*all_of("results"), *(["board.md"] if "board.md" in made else [])]},
        {"Extending": [*all_of("extend"), {"API": all_of("api")}]},
    ]
    return menu


# -- datasets -----------------------------------------------------------------------------------------


def _datasets(root: Path) -> dict[str, str]:
    copies = _copies(root)
    rows, found = ["| name | dataset | kind | classes | samples | files |", "|---|---|---|---|---|---|"], {}
    for name, info in DATASETS.items():
        size = f"{sum(info.sizes):,}"
        needs = "needs none" if not info.needs_files else info.origin
        rows.append(
            f"| [{name}]({name}.md) | {info.title} | {info.kind} | {info.classes} | {size} | {needs} |"
        )
        found[f"datasets/{name}.md"] = _dataset(name, copies.get(name, {}))
    text = "\n".join(rows)
    example = "```\npython -m benchmark list datasets\npython -m benchmark data --dataset digits\n```"
    intro = (
        "Images of your own need no code: [own data](../own-data.md). How files are found: [files](#files)."
    )
    files = "## Files\n\n<!-- include docs/data.md # Files of datasets -->"
    return {"datasets/index.md": f"# Datasets\n\n{intro}\n\n{text}\n\n{example}\n\n{files}\n", **found}


def _dataset(name: str, copies: Mapping[str, str]) -> str:
    info = DATASETS[name]
    module = inspect.getdoc(sys.modules[MODULES[name]]) or ""
    train, test = info.sizes
    sizes = f"{train:,} training and {test:,} test" if test else f"{train:,}, divided by user"
    settings = {key: setting for key, setting in SETTINGS.items() if setting.values["dataset"] == name}
    rows = [
        ("origin", " ".join(module.split("\n\n")[0].split())),
        ("licence", info.licence),
        ("to cite", info.citation),
        ("samples", sizes),
        ("shape of a sample", " × ".join(map(str, info.shape))),
        (
            "classes",
            f"{info.classes}: {', '.join(map(str, info.class_names[:12]))}{', …' * (info.classes > 12)}",
        ),
        ("network of its own", f"[{info.network}](../networks/{info.network}.md)"),
        ("files", info.origin if info.needs_files else "none needed"),
    ]
    if info.download is not None:
        rows.append(("download", f"{info.download.what}: `{info.download.command('.')}`"))
    rows += [
        ("checksum behind results/paper", f"`{sum_}` ({sizes} samples)") for sum_, sizes in copies.items()
    ]
    table = "\n".join(["| | |", "|---|---|", *(f"| {key} | {_cell(value)} |" for key, value in rows)])
    split = "\n".join(
        f"| `{key}` | [{setting.values['partition']}](../partitioners.md#{setting.values['partition']}) | "
        f"{RunConfig(**setting.values).partitioner.describe()} | {setting.values.get('clients', RunConfig.clients)} |"
        for key, setting in settings.items()
    )
    more = "\n\n".join(module.split("\n\n")[1:])
    example = f"python -m benchmark data --dataset {name}\npython -m benchmark --algo fedper --dataset {name}"
    if not settings:
        split = "| none: a plugin or SETTINGS has to name one | | | |"
        example = "python -m benchmark list datasets"
    return (
        f"# {name}\n\n{info.title}.\n\n{table}\n\n{more}\n\n## Split\n\n"
        f"| setting | partitioner | each client | clients |\n|---|---|---|---|\n{split}\n\n```\n{example}\n```\n"
    )


def _copies(root: Path) -> dict[str, dict[str, str]]:
    """Checksums of the data of the committed records, with the numbers of samples."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted((root / "results" / "paper").glob("*/config.json")):
        about = json.loads(path.read_text(encoding="utf-8"))
        split, config = about["split"], about["config"]
        sizes = next((split[key] for key in split if key.startswith("dataset_")), None)
        if "data_checksum" in split and sizes and not config.get("validation"):
            of = " and ".join(f"{size:,}" for size in sizes)
            found.setdefault(config["dataset"], {})[split["data_checksum"]] = of
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# -- networks -----------------------------------------------------------------------------------------


def _networks() -> dict[str, str]:
    rows, found = ["| name | network | fits |", "|---|---|---|"], {}
    for name, one in sorted(ARCHITECTURES.items()):
        rows.append(f"| [{name}]({name}.md) | {one.title} | {one.fits} |")
        found[f"networks/{name}.md"] = _network(name)
    example = "```\npython -m benchmark list networks\n```"
    intro = "`--network NAME` trains a method with a network that fits the data."
    packages = "`timm:NAME` and `torchvision:NAME` are [networks of these packages](../adapters.md#weights)."
    more = f"{packages} One of your own: [adding a network](../extend/network.md)."
    table = "\n".join(rows)
    return {"networks/index.md": f"# Networks\n\n{intro} {more}\n\n{table}\n\n{example}\n", **found}


# For networks that no registered dataset fits.
_TABLE = dataclasses.replace(
    DATASETS["digits"], name="csv:my.csv", title="64 features and ten classes", kind="rows", shape=(64,)
)


def _network(name: str) -> str:
    one = ARCHITECTURES[name]
    alike = [info for info in DATASETS.values() if info.kind == one.kind]
    fitting = [info for info in alike if min(info.shape[1:], default=one.least) >= one.least]
    own = [info for info in DATASETS.values() if info.network == name]
    info = (own or [each for each in fitting if each.name == "cifar10"] or fitting or [_TABLE])[0]
    width = {"sent140": 300, "synth-tweets": 16}.get(info.name, 0)
    network = one.build(sample_shape(info, width), info.classes, info.kind)
    rows = [
        f"| `{layer.name}` | {_tensors(layer)} | {network.count([layer.name]):,} |"
        for layer in network.layers
    ]
    doc = inspect.getdoc(one.make) or ""
    of = (
        ", ".join(f"[{each.name}](../datasets/{each.name}.md)" for each in own)
        or "no dataset; choose it by `--network`"
    )
    example = f"python -m benchmark --algo fedper --dataset {info.name} --network {name}"
    if own:
        example = f"python -m benchmark --algo fedper --dataset {info.name}"
    table = "\n".join(["| layer | tensors | parameters |", "|---|---|---|", *rows])
    return (
        f"# {name}\n\n{one.title}. {doc}\n\n* source: {one.source}\n* fits: {one.fits}\n* default network of: "
        f"{of}\n\nFor {info.title} it has {network.count():,} parameters{_beside(network)}. Methods share, keep or "
        f"send whole layers, in this order:\n\n{table}\n\n```\n{example}\n```\n"
    )


def _beside(network: Network) -> str:
    """That running statistics are among what `Network.count` counts."""
    return ", running statistics of batch normalisation included" if network.buffers else ""


def _tensors(layer: Layer) -> str:
    """Names, within the layer, and shapes."""
    prefix = f"{layer.name}."
    return ", ".join(f"{name.replace(prefix, '')} {list(shape)}" for name, shape in layer.shapes().items())


# -- partitioners, commands, configuration --------------------------------------------------------------------


def _partitioners() -> str:
    parts = [
        "# Partitions\n\nHow samples are dealt to clients: `--partition NAME`. Splits depend on the data and "
        "`--seed` alone, so all methods have the same. `python -m benchmark data` shows one.\n\n"
        "```\npython -m benchmark list partitions\npython -m benchmark data --dataset digits --dirichlet 0.1\n```"
    ]
    for name, partitioner in PARTITIONERS.items():
        doc = (inspect.getdoc(partitioner) or "").replace("``", "`")
        options = "\n".join(
            f"* `{flag(option)}`{_default(spec)}: {spec.metadata['doc']}"
            for option, spec in partitioner.options().items()
        )
        parts.append(f"## {name}\n\n{doc}\n\n{options}".rstrip())
    return "\n\n".join(parts) + "\n"


def _default(spec: dataclasses.Field[Any]) -> str:
    """The default of an option of a partitioner; those that have to be given say what is usual."""
    if (usual := spec.metadata["such_as"]) is not None:
        return f" (no default, such as {usual:g})"
    return f" (default {spec.default:g})"


def _commands() -> str:
    parts = ["<!-- include docs/commands.md -->"]
    for name in command_names():
        command = find_command(name)
        parser: argparse.ArgumentParser = parser_of(name, command)
        parts.append(
            f"## {name}\n\n{command.HELP[0].upper()}{command.HELP[1:]}{'.' * (command.HELP[-1] not in '.?')}\n\n"
            f"```text\n{parser.format_help().rstrip()}\n```"
        )
    return "\n\n".join(parts) + "\n"


def _configuration() -> str:
    rows = []
    for spec in dataclasses.fields(RunConfig):
        default = "" if spec.default is dataclasses.MISSING else f"`{spec.default}`"
        text = spec.metadata["doc"]
        if spec.metadata.get("choices"):
            text += f": {', '.join(spec.metadata['choices'])}"
        rows.append(f"| `{spec.name}` | {default} | {_cell(text)} |")
    return (
        "# Configuration\n\nEverything that decides the result of a run, as `config.json` has it under `config`. A "
        "flag has the name of its field; `hyper` is set by `--set`. A setting (`python -m benchmark list settings`) "
        "names values for some of them.\n\n"
        "```\npython -m benchmark --algo fedavg --dataset digits --rounds 5 --lr 0.05 --batch-size 20\n```\n\n"
        "| field | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + f"\n\n{_settings()}"
    )


def _settings() -> str:
    rows = []
    for name, setting in SETTINGS.items():
        config = RunConfig(**setting.values)
        dataset = f"[{config.dataset}](datasets/{config.dataset}.md)"
        partitioner = (
            f"[{config.partition}](partitioners.md#{config.partition}): {config.partitioner.describe()}"
        )
        size = f"{config.clients}, {100 * config.participation:g} %"
        rows.append(
            f"| `{name}` | {dataset} | {partitioner} | {size} | {config.rounds} × {config.local_epochs} | {config.lr:g} | "
            f"{'yes' if config.augment else 'no'} |"
        )
    heads = "| setting | dataset | partitioner | clients, in a round | rounds × epochs | rate | flips |"
    return (
        "## Settings\n\n`--setting NAME`; `--dataset NAME` alone takes the first setting of the dataset.\n\n"
        f"{heads}\n|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )
