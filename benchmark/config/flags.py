"""Flags made from the fields of `RunConfig`, and the way back from flags and setting to a `RunConfig`."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import DEFAULT_SETTING, SETTINGS, default_setting, find_setting
from pfl_benchmark.datasets.api import DATASETS
from pfl_benchmark.datasets.own import is_own, with_columns
from pfl_benchmark.datasets.partitioners import OPTIONS, PARTITIONERS, find_partitioner
from pfl_benchmark.errors import UserError, check_range, flag, is_plain

_FIELDS = {spec.name: spec for spec in dataclasses.fields(RunConfig)}
_KINDS = get_type_hints(RunConfig)
_MORE_HELP = {
    "dataset": ", or data of your own: folder:PATH, parquet:PATH, csv:PATH, leaf:PATH, pfllib:PATH or "
    "hf:OWNER/NAME; without --setting, the first setting with this dataset is used",
    "partition": "; an option of only one partition selects that partition",
}


NONE = "none"  # how an empty text is typed
_OF_BUDGETS = {"byte_budget": "bytes", "compute_cap": "bytes", "sample_budget": "samples"}
_Group = argparse.ArgumentParser | argparse._ActionsContainer


def add_flag(
    group: _Group,
    usage: str,
    text: str,
    kind: Callable[[str, str], Any] | None = None,
    **more: Any,
) -> None:
    """Add one flag.

    Args:
        usage: ``--json``, ``--seeds N``, ``--only STUDY ...`` (one or more); or ``FOLDER ...``, with `dest`.
        text: its help.
        kind: converts its text, given its name as well: `count`, `path`, `number(…)`.
        more: further arguments of `argparse`.
    """
    *names, value = usage.removesuffix(" ...").split()
    if value.startswith("--"):
        group.add_argument(value, action="store_true", help=text, **more)
        return
    if usage.endswith(" ..."):
        more |= {"nargs": "+"} | ({"action": "extend"} if names else {})
    if kind is not None:
        more["type"] = partial(kind, names[0] if names else value)
    group.add_argument(*(names or [more.pop("dest")]), metavar=value, help=text, **more)


def add_method(group: _Group, default: str | None, text: str) -> None:
    """Add ``--algo``, ``--ablation`` and ``--set``; `text` is the help of the first."""
    add_flag(group, "--algo METHOD", text, default=default)
    add_flag(group, "--ablation NAME", "a named variant of the method")
    text = "a hyper-parameter of the method; may be repeated"
    add_flag(group, "--set KEY=VALUE", text, action="append", default=[])


def add_data(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add a group of the setting, of fields of the data by `names`, and of their folder."""
    group = parser.add_argument_group("setting and data")
    text = f"dataset, split and protocol: {', '.join(SETTINGS)} (default: {DEFAULT_SETTING})"
    add_flag(group, "--setting NAME", text)
    add_config_flags(group, names)
    text = "with parquet:, csv: or hf: what columns are called, such as image=img,label=fine_label"
    add_flag(group, "--columns NAMES", text, _columns)
    add_data_dir(group)


def add_data_dir(group: _Group) -> None:
    """Add ``--data-dir``."""
    text = "folder that holds the datasets (default: the environment's PFL_DATA_DIR, else a cache folder)"
    add_flag(group, "--data-dir DIR", text, path)


def add_config_flags(group: _Group, names: Iterable[str], usual: Mapping[str, Any] | None = None) -> None:
    """Add the flags of some fields; a flag that is not given leaves None.

    usual: defaults of this command that are not those of runs, by field.
    """
    for name in names:
        spec, kind = _FIELDS[name], _KINDS[name]
        default = _in_words(usual[name]) if usual and name in usual else _default(name)
        text = spec.metadata["doc"] + _MORE_HELP.get(name, "") + f" (default: {default})"
        text = text.replace("%", "%%")
        if kind is bool:
            group.add_argument(flag(name), action=_YesOrNo, default=None, help=text)
            continue
        if joint := spec.metadata.get("joint"):
            group.add_argument(
                flag(name),
                type=partial(read_field, name),
                action=_joined(joint),
                metavar="KIND=NAME",
                help=text,
            )
            continue
        choices = spec.metadata.get("choices")
        metavar = spec.metadata.get("metavar") or {int: "N", float: "X", str: "NAME"}[kind]
        metavar = f"{{{','.join(choices)}}}" if choices else metavar
        group.add_argument(flag(name), type=partial(read_field, name), metavar=metavar, help=text)


def _joined(joint: str) -> type[argparse.Action]:
    """The action of a flag that may be repeated, whose values are one text."""

    class Joined(argparse.Action):
        def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
            before = getattr(namespace, self.dest)
            setattr(namespace, self.dest, values if before is None else f"{before}{joint}{values}")

    return Joined


class _YesOrNo(argparse.BooleanOptionalAction):
    """``--augment`` and ``--no-augment``, which contradict each other."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        super().__call__(parser, namespace, values, option_string)
        if before is not None and getattr(namespace, self.dest) != before:
            raise UserError(f"{' and '.join(self.option_strings)} contradict each other; give one of them")


def _in_words(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value}" or NONE


def _default(name: str) -> str:
    text = _in_words(_FIELDS[name].default)
    if any(name in setting.values for setting in SETTINGS.values()):
        return f"the setting's, else {text}"
    return text


def read_field(name: str, text: str) -> Any:
    """The value of a field from the text of its flag, with our own words where that fails."""
    kind = _KINDS[name]
    if joint := _FIELDS[name].metadata.get("joint"):
        text = joint.join(part.strip() for part in re.split(f"[{re.escape(joint)},;]", text))
    if kind is str:
        if not text.strip():
            raise UserError(f"{flag(name)} is empty; expected a name")
        return "" if text == NONE and _FIELDS[name].default == "" else text
    value = _finite(flag(name), kind, text, _FIELDS[name].default)
    if kind is int and abs(value) >= 2**63:
        raise UserError(f"{flag(name)} is {text}; expected a number that fits 64 bits")
    return value


def _finite(name: str, kind: Callable[[str], Any], text: str, such_as: Any) -> Any:
    try:
        value = kind(text) if is_plain(text) else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        what = "a whole number" if kind is int else "a number"
        meant = _plainly(text)
        several = not meant and re.fullmatch(r"\W*[\d.]+(?:[-,:; ]+[\d.]+)+\W*", text)
        more = f"; {what.removeprefix('a ')}s are given one by one, in a command for each" if several else ""
        raise UserError(f"{name} is '{text:.40}'; expected {what}, such as {meant or such_as}{more}")
    return value


def _plainly(text: str) -> str:
    """A number that people type otherwise as it is expected: ``1e2``, ``10k``, ``1,000``, ``5 %``."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?(?:e\+?\d)?) ?([kmg]?)b?", text.lower()):
        value = float(found[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[found[2]]
        return f"{value:.0f}" if value.is_integer() else ""
    if re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+", text):
        return text.replace(",", "")
    if re.fullmatch(r"0,\d+", text):
        return text.replace(",", ".")
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text)
    return f"{float(found[1]) / 100:g}" if found else ""


def _columns(name: str, text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    roles = [role.strip() for role, _, _ in pairs]
    if not all(column.strip() for _, _, column in pairs) or len({*roles}) < len(roles):
        raise UserError(
            f"{name} is '{text}'; expected HOLDS=COLUMN, each once, such as image=img,label=fine_label"
        )
    return {role.strip(): column.strip() for role, _, column in pairs}


def number(within: str, such_as: float) -> Callable[[str, str], float]:
    """Converts the text of a flag that is a number in an interval, as `check_range` has it."""

    def read(name: str, text: str) -> float:
        value = float(_finite(name, float, text, such_as))
        check_range(name.removeprefix("--"), value, within, such_as=such_as)
        return value

    return read


def count(name: str, text: str, most: int = 10**6) -> int:
    """The value of a flag that is a number of what it is called."""
    if not (text.isascii() and text.isdecimal()) or not text.strip("0"):
        raise UserError(f"{name} is '{text}'; expected how many, a whole number of at least 1, such as 3")
    if len(text) > 18 or int(text) > most:
        raise UserError(f"{name} is {text}; expected at most {most:,} {name.removeprefix('--')}")
    return int(text)


def few(name: str, text: str) -> int:
    """As `count`, at most 1,000."""
    return count(name, text, most=1000)


def memory(name: str, text: str) -> int:
    """The value of a flag that is a number of bytes: ``4GiB``, ``500MB``, ``0``."""
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?) ?([kmgt]?)(i?)b?", text.strip().lower(), re.ASCII)
    if not found or (found[3] and not found[2]):
        raise UserError(f"{name} is '{text:.40}'; expected bytes, such as 4GiB, 500MB, or 0 for none at all")
    step = 1024 if found[3] or not text.strip().lower().endswith("b") else 1000
    return int(float(found[1]) * step ** " kmgt".index(found[2] or " "))


def path(name: str, text: str) -> Path:
    """The value of a flag that takes a path."""
    if not text or "\0" in text:
        raise UserError(f"{name} is {'empty' if not text else 'no name of a file'}; expected a path")
    if any(len(os.fsencode(part)) > 255 for part in Path(text).parts) or len(os.fsencode(text)) > 4000:
        raise UserError(f"{name} is {text[:40]}…, a name too long for a file; expected a shorter path")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # ~name of a user whom this machine does not know
        raise UserError(f"{name} is {text}: {error}; expected a path") from error


def file_of(*endings: str) -> Callable[[str, str], Path]:
    """As `path`, of a file whose name ends in one of these."""

    def read(name: str, text: str) -> Path:
        file = path(name, text)
        if file.suffix.lower() not in endings:
            raise UserError(f"{name} is {text}; expected a name that ends in {' or '.join(endings)}")
        return file

    return read


# -- from flags to a configuration ------------------------------------------------------------------


def config_of(arguments: argparse.Namespace) -> tuple[str, RunConfig]:
    """The setting's name and the configuration that the flags ask for, as `config_from`."""
    given = {name: value for name in _FIELDS if (value := getattr(arguments, name, None)) is not None}
    given.pop("algo", None)
    return config_from(given, arguments.setting, getattr(arguments, "columns", None))


def config_from(
    given: Mapping[str, Any], setting: str | None = None, columns: Mapping[str, str] | None = None
) -> tuple[str, RunConfig]:
    """The setting's name and the configuration that some fields ask for, without the method.

    columns: what the columns of a parquet file are called, by what they hold.

    Fields that are not given are the setting's (None: the first with the dataset that is given). An unknown
    setting or dataset is a UserError, and so are fields that contradict each other.
    """
    given = dict(given)
    dataset = given.get("dataset")
    if columns:
        dataset = with_columns(dataset or "", columns)
    if dataset and is_own(dataset):
        from pfl_benchmark.config.own_data import load_own

        dataset = given["dataset"] = load_own(dataset)
    name = setting or (default_setting(dataset) if dataset else DEFAULT_SETTING)
    values = find_setting(name).values
    if dataset not in (None, values["dataset"]):
        raise UserError(
            f"--setting {name} uses the dataset '{values['dataset']}', not '{dataset}'; "
            "give one of the two flags"
        )
    asked = {**values, **given}
    for field, budget in _OF_BUDGETS.items():
        if field in given and asked.get("budget", RunConfig.budget) != budget:
            raise UserError(f"{flag(field)} has an effect only under --budget {budget}; add that flag")
    if "adapt_epochs" in given and not asked.get("new_clients"):
        raise UserError("--adapt-epochs has an effect only under --new-clients; add that flag")
    if "standardise" in given and DATASETS[values["dataset"]].kind != "rows":
        raise UserError(
            f"--standardise is for tables, and '{values['dataset']}' holds "
            f"{DATASETS[values['dataset']].unit}; drop it"
        )
    if given.get("local_steps") and "local_epochs" in given:
        raise UserError(
            "--local-steps and --local-epochs say twice how long a participation trains; give one of them"
        )
    elif "local_epochs" in given:
        given["local_steps"] = 0  # whatever the setting has
    config = dataclasses.replace(RunConfig(), **{**values, **given, "partition": _partition(values, given)})
    config.validate()
    if "momentum" in given and config.optimizer != "sgd":
        raise UserError(
            f"--momentum {config.momentum:g} has no effect under --optimizer {config.optimizer}; drop it"
        )
    for field in ("eval_adapted", "eval_clients"):
        if given.get(field) and not config.eval_every:
            raise UserError(f"{flag(field)} does nothing under --eval-every 0; drop one of the two flags")
    if "crop_padding" in given and not config.augment:
        raise UserError(
            f"--crop-padding {config.crop_padding} does nothing without augmentation; "
            "drop it, or give --augment"
        )
    return name, config.settled()


def _partition(values: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The partition that the flags mean: the one they name, else the setting's, else the first they fit."""
    options = {name for name in OPTIONS if name in given}
    fitting = [name for name, partitioner in PARTITIONERS.items() if options <= {*partitioner.options()}]
    if not fitting:
        words = " and ".join(flag(name) for name in OPTIONS if name in options)
        raise UserError(f"{words} belong to different partitions; give only one of them")
    usual, info = values["partition"], DATASETS[values["dataset"]]
    partition = given.get("partition", usual if usual in fitting else fitting[0])
    partitioner = find_partitioner(partition)
    for name in given:
        if name in partitioner.ignores or name in options - {*partitioner.options()}:
            raise UserError(f"{flag(name)} has no effect under --partition {partition}; remove it")
    try:
        partitioner.check(values["dataset"], users=info.by_users)
    except UserError as error:
        if partition in (usual, given.get("partition")):
            raise
        asked = " and ".join(flag(name) for name in OPTIONS if name in options)
        ask, it = ("ask", "them") if len(options) > 1 else ("asks", "it")
        usable = [name for name in fitting if PARTITIONERS[name].by_user == info.by_users]
        other = f", or give --partition {' or '.join(usable)}" * bool(usable)
        raise UserError(f"{error}; {asked} {ask} for that partition: drop {it}{other}") from error
    return partition
