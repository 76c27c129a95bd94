"""``sys.exit`` in a method's hook is an error, but not where this process was told to end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from pfl_benchmark.errors import UserError

ENDING = threading.Event()  # set by handlers of signals that raise SystemExit


def refuse_exit(algo: str, error: BaseException | None) -> None:
    """Raise UserError where `error` is a SystemExit of a hook of method `algo`."""
    if isinstance(error, SystemExit) and not ENDING.is_set():
        raise UserError(
            f"'{algo}' has called sys.exit({error.code!r}) before the end; raise an error in its place"
        ) from error


@contextlib.contextmanager
def no_exit(algo: str) -> Iterator[None]:
    """Refuse ``sys.exit`` in hooks of method `algo`: nobody would see that there is no result.

    Raises:
        UserError: one has called it.
    """
    try:
        yield
    except SystemExit as error:
        refuse_exit(algo, error)
        raise
