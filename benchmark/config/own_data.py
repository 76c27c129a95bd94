"""``--dataset folder:PATH``: data of one's own as a dataset, its network and a setting; and ``pacs@64``.

The environment's PFL_OWN_DATA, one a line, tells them to the processes begun by this one.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, cast

from pfl_benchmark.config.settings import SETTINGS, Setting, default_setting, find_setting
from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.own import OWN_DATA, describe_own, sized
from pfl_benchmark.datasets.registry import DATASETS, register
from pfl_benchmark.models import NETWORKS, find_architecture, sample_shape

_LOADED: dict[str, str] = {}  # names of datasets by what was given


def load_own(text: str, anew: bool = True) -> str:
    """Make known what ``folder:PATH`` and the like, or ``NAME@SIDE``, names; UserError: unreadable.

    anew: read it again if this process has read it before: it may have changed since.

    Returns the name of the dataset, which is also that of a setting with values that suit it.
    """
    if text in _LOADED and not anew:
        return _LOADED[text]
    name = register_own(*(describe_own(text) if ":" in text else _scaled(text)))
    _LOADED[text] = name
    os.environ[OWN_DATA] = "\n".join(_LOADED)
    return name


def register_own(info: DatasetInfo, values: Mapping[str, Any]) -> str:
    """Make a dataset known in this process, and a setting of its name with these values; returns the name."""
    if info.name not in DATASETS:
        shape = sample_shape(info, values.get("embedding", 0))
        architecture = find_architecture(info.network)
        if info.kind == "series" and shape[1] < architecture.least:
            info = dataclasses.replace(info, network="")  # runs have to name one of the user's
        else:
            NETWORKS[info.name] = architecture.build(shape, info.classes, info.kind)
        register(info, describe_own.__module__)  # once nothing can go wrong any more
        SETTINGS[info.name] = Setting(info.name, {"dataset": info.name, **values})
    return info.name


def _scaled(text: str) -> tuple[DatasetInfo, Mapping[str, Any]]:
    """A dataset by name with images of another side, and the values of the setting that is its own."""
    name, side = sized(text)
    info, values = DATASETS[name], find_setting(default_setting(name)).values
    if side == info.shape[1]:
        return info, values
    reader = dataclasses.replace(cast(Any, info.reader), side=side)
    shape = (info.shape[0], side, side)
    network = info.network if side >= find_architecture(info.network).least else "cnn-digits"
    info = dataclasses.replace(info, name=f"{name}-{side}", shape=shape, reader=reader, network=network)
    return info, {**values, "dataset": info.name}
