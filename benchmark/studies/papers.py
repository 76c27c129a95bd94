"""Papers: a package below `papers` for everything that only one publication needs.

What a paper offers is found by the names of its modules:

=============  ==========================================================================
``studies``    ``STUDIES``: a tuple of `studies.grid.Study`
``tables``     ``TABLES``: makers of tables by the names that studies use
``figures``    ``FIGURES``: makers of figures by the names that studies use
``commands``   a package of commands (`commands`)
=============  ==========================================================================

All are optional. Nothing outside of a paper imports it, so that it can be deleted.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any

_PLACE = "pfl_benchmark.papers"


def offered(part: str) -> list[ModuleType]:
    """The module of that name of every paper that has it, by the papers' names."""
    if importlib.util.find_spec(_PLACE) is None:
        return []
    papers = sorted(paper.name for paper in pkgutil.iter_modules(importlib.import_module(_PLACE).__path__))
    names = [f"{_PLACE}.{paper}.{part}" for paper in papers]
    return [importlib.import_module(name) for name in names if importlib.util.find_spec(name) is not None]


@cache
def makers(part: str) -> dict[str, Any]:
    """The makers of tables or figures that papers add, by the names that studies use."""
    return {name: maker for paper in offered(part) for name, maker in getattr(paper, part.upper()).items()}
