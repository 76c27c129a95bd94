"""LEAF's files: JSON with users, numbers of samples, and everybody's samples (Caldas et al., 2018)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pfl_benchmark.datasets.layouts.base import unreadable
from pfl_benchmark.errors import UserError

__all__ = ["EXTRA", "People", "leaf_files", "read_leaf"]

EXTRA = "pfl_benchmark"  # what our own files say besides, which other readers leave alone
_EXPECTED = "LEAF's JSON with users, num_samples and user_data"


@dataclass
class People:
    """Everybody's samples as the files have them.

    x, y: by user, in the order of the users' names in the files.
    held_out: by user, how many of them are for testing, the last ones; empty where the files do not say.
    extra: what files of our own say besides.
    """

    x: dict[str, list[Any]] = field(default_factory=dict)
    y: dict[str, list[Any]] = field(default_factory=dict)
    held_out: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


def leaf_files(root: Path) -> dict[str, list[Path]]:
    """The files below `root` by what they are for: ``train`` and ``test``, or ``all``; {}: there are none.

    They lie in folders of these names (of all: ``all_data``, or none), perhaps in a folder ``data``.

    Raises UserError where one half is missing.
    """
    if root.is_file():
        return {"all": [root]}
    for home in (root, root / "data"):
        halves = {half: sorted((home / half).glob("*.json")) for half in ("train", "test")}
        if halves["train"] and halves["test"]:
            return halves
        if halves["test"]:
            raise UserError(f"{home} has a folder test and no train with JSON files; expected both")
        if halves["train"]:
            return {"all": halves["train"]}
        for folder in (home / "all_data", home):
            if files := sorted(folder.glob("*.json")):
                return {"all": files}
    return {}


def read_leaf(files: dict[str, list[Path]]) -> People:
    """Read files, one after the other; a user's samples for testing come last.

    Raises UserError for a file that is damaged or another one, and for users without samples for training.
    """
    people = People()
    for half, paths in files.items():
        for path in paths:
            content = _read(path)
            if (extra := content.get(EXTRA, {})) != people.extra and people.x:
                raise UserError(
                    f"{path} says of the data what other files beside it do not; write them together again"
                )
            people.extra = extra
            for user in dict.fromkeys(content["users"]):
                x, y = _samples(path, user, content["user_data"])
                if half == "test" and user not in people.x:
                    raise UserError(
                        f"{path} tests '{user}', of whom no file for training has samples: LEAF divided the "
                        "users; divide everybody's samples, by its preprocess.sh with -t sample"
                    )
                people.x.setdefault(user, []).extend(x)
                people.y.setdefault(user, []).extend(y)
                if half == "test":
                    people.held_out[user] = people.held_out.get(user, 0) + len(y)
    return people


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, _EXPECTED, error) from error
    if not (
        isinstance(content, dict)
        and isinstance(content.get("users"), list)
        and all(isinstance(user, str) for user in content["users"])
        and isinstance(content.get("user_data"), dict)
    ):
        keys = ", ".join(list(content)[:4]) if isinstance(content, dict) else type(content).__name__
        raise unreadable(path, _EXPECTED, f"it has {keys or 'nothing'}")
    return content


def _samples(path: Path, user: str, data: dict[str, Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    own = data.get(user)
    x, y = (own.get("x"), own.get("y")) if isinstance(own, dict) else (None, None)
    if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
        raise unreadable(path, f"as many x as y of user '{user}'", "they are missing or differ")
    return x, y
