"""Processes of `forked` keep none of the command line's handlers of signals."""

import signal
import sys

import pytest

from pfl_benchmark.records.forked import forked


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_forked_processes_have_no_handler_of_the_command_line(monkeypatch):
    monkeypatch.setattr("pfl_benchmark.records.forked.available_cores", lambda: 2)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        handlers = list(
            forked(lambda number: (number, signal.getsignal(signal.SIGTERM)), range(8), worthwhile=True)
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert handlers == [(number, signal.SIG_DFL) for number in range(8)]
