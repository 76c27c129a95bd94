"""``sys.exit`` in a method's hook is an error, but not where this process was told to end."""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
from collections.abc import Iterator

from pfl_benchmark.errors import UserError

GIVEN: list[object] = []  # functions whose ``sys.exit`` is meant
ENDING = threading.Event()  # set by handlers of signals that raise SystemExit


def refuse_exit(algo: str, error: BaseException | None) -> None:
    """Raise UserError where `error` is a SystemExit of a hook of method `algo`."""
    if isinstance(error, SystemExit) and not ENDING.is_set() and not _of_others(error):
        raise UserError(
            f"'{algo}' has called sys.exit({error.code!r}) before the end; raise an error in its place"
        ) from error


def _of_others(error: SystemExit) -> bool:
    """Whether it comes from the handler of a signal, or from a function that a script has given."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(one, "__code__", None) for one in (*handlers, *GIVEN)}
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(code in codes for code in frames)


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
