"""Processes of `forked` keep none of the command line's handlers of signals."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pfl_benchmark.records.forked import forked

ROOT = Path(__file__).resolve().parents[2]


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


PROGRAM = """
import torch
import pfl_benchmark.records.forked as forked

forked.available_cores = lambda: 2
torch.set_num_threads(2)
x = torch.ones(2_000_000)
print([(x + 1).sum().item(), *forked.forked(lambda n: (x + n).sum().item(), range(4), worthwhile=True)])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_forked_processes_compute_with_tensors_where_their_parent_did():
    """They would wait for ever for threads that only the parent has."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=100, check=True
    )
    assert json.loads(done.stdout) == [4e6, 2e6, 4e6, 6e6, 8e6]
