"""``--dataset folder:PATH``: images of one's own as a dataset, its network and a setting.

The environment's PFL_OWN_DATA, one a line, tells them to the processes begun by this one.
"""

from __future__ import annotations

import os

from pfl_benchmark.config.settings import SETTINGS, Setting
from pfl_benchmark.datasets.own import OWN_DATA, describe_own
from pfl_benchmark.datasets.registry import DATASETS, register
from pfl_benchmark.models import NETWORKS, find_architecture, sample_shape

_LOADED: dict[str, str] = {}  # names of datasets by what was given


def load_own(text: str, anew: bool = True) -> str:
    """Make known what ``folder:PATH`` or ``parquet:PATH`` names; UserError: unreadable.

    anew: read it again if this process has read it before: it may have changed since.

    Returns the name of the dataset, which is also that of a setting with values that suit it.
    """
    if text in _LOADED and not anew:
        return _LOADED[text]
    info, values = describe_own(text)
    if info.name not in DATASETS:
        register(info, describe_own.__module__)
        shape = sample_shape(info)
        NETWORKS[info.name] = find_architecture(info.network).build(shape, info.classes, info.kind)
        SETTINGS[info.name] = Setting(info.name, {"dataset": info.name, **values})
    _LOADED[text] = info.name
    os.environ[OWN_DATA] = "\n".join(_LOADED)
    return info.name
