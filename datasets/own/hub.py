"""``hf:OWNER/NAME[:SPLIT]``: images of the Hugging Face Hub, from the parquet files of a data set."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pfl_benchmark.datasets.layouts.base import one_line
from pfl_benchmark.datasets.own.found import Found
from pfl_benchmark.datasets.own.parquet import guessed, read_images
from pfl_benchmark.errors import UserError, nearest, optional

__all__ = ["read_hub"]

_CONVERTED = "refs/convert/parquet"  # where the Hub itself keeps parquet files of data sets in other forms
_TESTING = ("test", "validation", "valid", "val")  # the first of these that there is


def read_hub(name: Path, side: int, columns: Mapping[str, str] = MappingProxyType({})) -> Found:
    """Read a data set's splits train and test (or validation), or the one that is asked for.

    columns: what the columns are called; and the ``revision``, a commit or branch (else the newest).

    Raises:
        UserError: there is no such data set or split, the Hub cannot be reached, or it holds no images.
    """
    wanted = {role: column for role, column in columns.items() if role != "revision"}
    repository, _, split = str(name).partition(":")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise UserError(
            f"--dataset hf:{name}: expected OWNER/NAME and, optionally, :SPLIT, such as ylecun/mnist"
        )
    hub = optional("huggingface_hub", f"--dataset hf:{name}", package="huggingface-hub")
    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        revision, files = _files(hub.HfApi(endpoint=endpoint), repository, columns.get("revision", ""))
        halves = _halves(repository, files, split)
        paths = [
            Path(
                hub.hf_hub_download(
                    repository, file, repo_type="dataset", revision=revision, endpoint=endpoint
                )
            )
            for part in halves
            for file in part
        ]
    except UserError:
        raise
    except Exception as error:  # of the net, of the Hub, of the disk
        raise UserError(
            f"--dataset hf:{name} could not be fetched ({type(error).__name__}: {one_line(error)}); check "
            "the name, the network and, for data sets that ask for it, `hf auth login`"
        ) from error
    tested = [number > 0 for number, part in enumerate(halves) for _ in part]
    wanted = guessed(paths[0], wanted)
    found = read_images(name, paths, tested if len(halves) > 1 else None, side, wanted)
    told = f"{' and '.join(f'{len(part)} of {_split(part[0])}' for part in halves)}, revision {revision}"
    return _with_names(found, paths[0], wanted.get("label", "label"), told)


def _files(api: Any, repository: str, revision: str) -> tuple[str, list[str]]:
    """The commit and its parquet files; if there are none, those that the Hub has made."""
    for asked in [revision] if revision else ["", _CONVERTED]:
        info = api.dataset_info(repository, revision=asked or None)
        files = sorted(one.rfilename for one in info.siblings if one.rfilename.endswith(".parquet"))
        if files:
            return str(info.sha), files
    raise UserError(f"hf:{repository} has no parquet files; download it, and give a folder of images")


def _split(file: str) -> str:
    """The split that a file is of: ``data/train-00000-of-00002.parquet``, ``default/train/0000.parquet``."""
    folder, _, name = file.rpartition("/")
    stem = re.sub(r"(-\d+-of-\d+(-\w+)?)?\.parquet$", "", name)
    return folder.rpartition("/")[2] if stem.isdecimal() else stem


def _halves(repository: str, files: Sequence[str], split: str) -> list[list[str]]:
    """The files of the split, or of those for training and for testing."""
    by_split: dict[str, list[str]] = {}
    for file in files:
        by_split.setdefault(_split(file), []).append(file)
    if split and split not in by_split:
        raise UserError(
            f"hf:{repository} has no split {split}{nearest(split, by_split)}; it has {', '.join(by_split)}"
        )
    testing = next((name for name in _TESTING if name in by_split), "")
    if not split and "train" not in by_split:
        raise UserError(
            f"hf:{repository} has the splits {', '.join(by_split)}; name one, as hf:{repository}:SPLIT"
        )
    halves = [split] if split else ["train", *([testing] if testing else [])]
    for name in halves:
        if len(places := sorted({_place(file) for file in by_split[name]})) > 1:
            raise UserError(
                f"hf:{repository} has {name} in several configurations ({', '.join(places[:5])}); download "
                "the one that you mean, and give it as --dataset parquet:PATH"
            )
    return [by_split[name] for name in halves]


def _place(file: str) -> str:
    """The folder of a configuration."""
    parts = file.split("/")[:-1]
    return "/".join(parts[:-1] if parts and parts[-1] == _split(file) else parts) or "."


def _with_names(found: Found, path: Path, label: str, told: str) -> Found:
    """With the names of classes that the file's own description has."""
    import pyarrow.parquet as pq

    told = f"{told}, {found.told}"
    try:
        about = json.loads((pq.read_schema(path).metadata or {})[b"huggingface"])
        names = [str(name) for name in about["info"]["features"][label]["names"]]
        numbers = [int(number) for number in found.labels]
        if min(numbers) < 0:  # as the Hub marks a test set whose classes are kept secret
            raise UserError(f"{path} has samples without a class (label {min(numbers)}); name another split")
        labels = [names[number] for number in numbers]
    except (KeyError, ValueError, IndexError, TypeError):
        return dataclasses.replace(found, told=told)
    if len(set(names)) < len(names):
        return dataclasses.replace(found, told=told)
    return dataclasses.replace(found, labels=labels, class_names=tuple(names), told=told)
