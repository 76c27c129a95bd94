"""What somebody most likely meant whose words a command does not know: stray words, flags and commands."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
from collections.abc import Iterator, Sequence

from pfl_benchmark.config.fields import DATA_FIELDS, JOINTS, PROTOCOL_FIELDS, meant
from pfl_benchmark.errors import flag, nearest
from pfl_benchmark.installation import CHECKOUT, PROGRAM

__all__ = ["of_command", "of_flag", "of_word", "one_value", "twice"]

_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"  # which word processors make of hyphens
_ONE = {"algo": "method", "setting": "setting", "dataset": "dataset", "seed": "seed"}
_OPTIONS = {"dirichlet": "--dirichlet"} | dict.fromkeys(("distinct", "shards"), "--classes-per-client")
# How other programs call flags that are no fields; those that the command has not are passed over.
_CALLED = {
    "gpu": "--device cuda", "cuda": "--device cuda", "iid": "--partition iid", "non-iid": "--dirichlet X",
    "noniid": "--dirichlet X", "hyper": "--set KEY=VALUE", "param": "--set KEY=VALUE",
    "params": "--set KEY=VALUE", "output": "--results-dir DIR", "out": "--results-dir DIR",
    "output-dir": "--results-dir DIR", "out-dir": "--results-dir DIR", "save-dir": "--results-dir DIR",
    "lambda": "--set lam=VALUE", "variant": "--ablation NAME",
    "quick": "--profile quick", "lite": "--profile lite",
    "paper": "--profile paper", "workers": "--jobs N", "num-workers": "--jobs N",
}  # fmt: skip
_NEEDLESS = {
    "resume": "an interrupted run is continued by the same command; drop it",
    "continue": "an interrupted run is continued by the same command; drop it",
    "force": "a finished run is not repeated: remove its record, or give another --results-dir",
    "overwrite": "a finished run is not repeated: remove its record, or give another --results-dir",
    "space": "a method says itself what tune searches; fix a value by --set KEY=VALUE",
    "verbose": "progress is shown on standard error; drop it",
    "quiet": "progress is shown on standard error: send it away by 2>/dev/null",
}


def of_word(parser: argparse.ArgumentParser, words: Sequence[str], stray: str) -> str:
    """What to say of a word that belongs to no flag."""
    actions = {name: action for action in parser._actions for name in action.option_strings}

    def single(word: str) -> bool:
        return word in actions and actions[word].nargs is None

    place = next(i for i, word in enumerate(words) if word == stray and not (i and single(words[i - 1])))
    before = next((i for i in range(place - 1, -1, -1) if words[i].startswith("-")), None)
    name, equals, value = words[before].partition("=") if before is not None else ("", "", "")
    action, own = actions.get(name), name.lstrip("-")
    told = f"unexpected '{stray}'"
    if stray[0] in _DASHES:
        return (
            f"{told}: it begins with a dash of another kind; type two plain hyphens{_nearest(stray, actions)}"
        )
    if action is not None and before is not None and action.nargs is None:
        given = [*([value] if equals else []), *words[before + 1 : place]]
        if name == "--set":
            return _of_set(told, given, words[place:])
        if name == "--columns":
            return f"{told} behind --columns: put commas between columns, such as image=img,label=fine_label"
    key, equals, value = stray.partition("=")
    if equals and (field := key if flag(key) in actions else meant(key, [n.lstrip("-") for n in actions])):
        return f"{told}; type it as {flag(field)} {value}"
    if equals and "--set" in actions:
        return f"{told}; a hyper-parameter is given as --set {stray}"
    if stray.endswith(".py"):
        return f"{told}; a plugin is given as --plugin {stray}, once for each"
    for kind, known in _names().items():
        if flag(kind) in actions and stray in known and own != kind:
            return f"{told}: it is a {_ONE[kind]}; give it as {flag(kind)} {stray}"
    if "--profile" in actions and stray in ("quick", "lite", "paper"):
        return f"{told}; did you mean --profile {stray}?"
    if "--results-dir" in actions and own != "results-dir" and os.path.isdir(stray):
        return f"{told}; a results folder is given as --results-dir {stray}"
    if action is None:
        return f"{told}; values follow a flag, and --help shows all flags"
    if action.nargs == 0:
        no = flag(f"no-{own}")
        instead = no if stray.lower() in ("false", "no", "0", "off") and no in actions else name
        return f"{told}: {name} takes no value; give {instead} alone"
    if own == "partition" and (option := _OPTIONS.get(words[place - 1].rpartition("=")[2])):
        return f"{told}; give it as {option} {stray}"
    return f"{told} as a second value of {name}: {one_value(own)}"


def one_value(name: str) -> str:
    """That a flag takes one value, and what to do for several."""
    if name == "seed":
        return f"one run has one seed; give a command for each, or run a study: {PROGRAM} tables --seeds 3"
    if name in _ONE:
        return f"one run has one {_ONE[name]}; give a command for each"
    return "it takes one; give a command for each"


def twice(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """What to say of a flag of what is run that has two values, of which the last counts; empty: nothing."""
    for action in parser._actions:
        if action.nargs is not None or action.dest not in (*DATA_FIELDS, *PROTOCOL_FIELDS, *_ONE, "ablation"):
            continue
        if action.dest in JOINTS:
            continue  # it may be repeated
        given: list[str] = []
        for i, word in enumerate(words):
            name, equals, value = word.partition("=")
            if name in action.option_strings and (equals or i + 1 < len(words)):
                given.append(value if equals else words[i + 1])
        if len({*given}) > 1:
            more = f" ({one_value(action.dest)})" if action.dest in _ONE else ""
            first, last = given[0], given[-1]
            return f"{action.option_strings[0]} is given twice, as {first} and as {last}; {last} counts{more}"
    return ""


def of_flag(parser: argparse.ArgumentParser, given: str, algo: str | None) -> str:
    """What to say of a flag that is no field and no hyper-parameter under any name; empty: nothing."""
    known = parser._option_string_actions
    name = given.lstrip("-").replace("_", "-").lower()
    if any(word.startswith(flag(name)) for word in known) or difflib.get_close_matches(
        flag(name), known, 1, 0.9
    ):
        return ""  # a slip, which needs no more words
    if name in ("results-dir", "results", "folder") and any(
        not each.option_strings for each in parser._actions
    ):
        return f"unknown flag '{given}': folders are given as plain words; drop it, and leave the folder"
    instead = _CALLED.get(name, "")
    if instead and instead.split()[0].rstrip(",") in known:
        return f"unknown flag '{given}' (did you mean '{instead}'?); --help shows all flags"
    if name in _NEEDLESS and "--algo" in known:
        return f"there is no flag '{given}': {_NEEDLESS[name]}"
    if "--ablation" in known and name in (owners := _ablations()):
        owner = algo if algo in owners[name] else owners[name][0]
        return f"'{name}' is an ablation of {owner}: give it as --algo {owner} --ablation {name}"
    if elsewhere := [*_commands_with(flag(name))]:
        return f"unknown flag '{given}': it is a flag of {', '.join(elsewhere)}, not of this command; drop it"
    return ""


def of_command(name: str) -> str:
    """What somebody meant who typed this in the place of a command; empty: nothing that is known."""
    if name[0] in _DASHES:
        return "it begins with a dash of another kind; type two plain hyphens"
    if CHECKOUT and name in ("doctor", "setup", "docs", "test"):
        return f"type ./run_all.sh {name}"
    if name == "doctor":
        return "type python -m pfl_benchmark.doctor"
    key, equals, value = name.partition("=")
    if equals and key in _ONE:
        return f"type it as {flag(key)} {value}"
    for kind, known in _names().items():
        if name in known:
            return f"it is a {_ONE[kind]}; give it as {flag(kind)} {name}"
    return ""


def _of_set(told: str, given: Sequence[str], rest: Sequence[str]) -> str:
    if "=" not in rest[0] or rest[0] == "=" or (given[-1].endswith("=") and "=" not in rest[0]):
        end = next((i for i, word in enumerate(rest) if word.startswith("-")), len(rest))
        key, value = given[0].rstrip(":= "), rest[:end][-1].lstrip(":= ")
        return f"{told} behind --set: type it without spaces, as --set {key}={value}"
    return f"{told}: --set takes one KEY=VALUE; repeat it for each, as --set {given[0]} --set {rest[0]}"


def _nearest(stray: str, known: Sequence[str] | dict[str, argparse.Action]) -> str:
    return nearest(stray.lstrip(_DASHES), known)


def _names() -> dict[str, Sequence[str]]:
    from pfl_benchmark.algorithms import ALGORITHMS
    from pfl_benchmark.config.settings import SETTINGS
    from pfl_benchmark.datasets.api import DATASETS

    return {"algo": [*ALGORITHMS], "setting": [*SETTINGS], "dataset": [*DATASETS]}


def _ablations() -> dict[str, list[str]]:
    from pfl_benchmark.algorithms import ALGORITHMS

    owners: dict[str, list[str]] = {}
    for method in ALGORITHMS.values():
        for name in method.ablations:
            owners.setdefault(name, []).append(method.name)
    return owners


def _commands_with(name: str) -> Iterator[str]:
    """The commands that have a flag."""
    commands = importlib.import_module("pfl_benchmark.commands")
    for command in commands.command_names():
        parser = argparse.ArgumentParser(add_help=False)
        commands.find_command(command).add_arguments(parser)
        if name in parser._option_string_actions:
            yield command
