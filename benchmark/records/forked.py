"""One function over many items in forked processes, which share what this one has read."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import current_process, get_context
from typing import Any, TypeVar

from pfl_benchmark.records.environment import available_cores

Item = TypeVar("Item")
Made = TypeVar("Made")

_function: Callable[[Any], Any] | None = None  # of a forked process


def forked(
    function: Callable[[Item], Made], items: Sequence[Item], worthwhile: bool, chunk: int = 1
) -> Iterator[Made]:
    """``map(function, items)``, on all cores where that is `worthwhile` and processes can be forked.

    Args:
        function: need not be picklable, as its items and results must be.
        chunk: items that a process takes at a time.
    """
    processes = min(available_cores(), len(items))
    if not worthwhile or processes < 2 or sys.platform != "linux" or current_process().daemon:
        yield from map(function, items)
        return
    gc.freeze()  # a collection in a process would copy all that was read
    try:
        with get_context("fork").Pool(processes, _begin, (function,)) as pool:
            yield from pool.imap(_call, items, chunk)
            pool.close()
            pool.join()  # a block that ends terminates processes, even those that still begin
    finally:
        gc.unfreeze()


def _begin(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the command line's handler, which raises
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)  # of a parent's OpenMP threads none is here, and a child would wait for them


def _call(item: Any) -> Any:
    assert _function is not None
    return _function(item)
