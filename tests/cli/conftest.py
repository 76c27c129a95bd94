"""How the tests of the command line give commands."""

import json
from dataclasses import dataclass

import pytest

from pfl_benchmark.cli import main

# A run of a second.
TINY = (
    "--dataset digits --clients 6 --samples-per-client 20 --test-samples-per-client 10 --rounds 4 "
    "--local-epochs 1 --participation 0.5 --eval-every 2 --device cpu --executor loop"
)


@dataclass
class Answer:
    """What came back from a command."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out.splitlines()[-1])


@pytest.fixture
def command(capsys):
    """``command("list methods")`` or, with odd arguments, ``command("run", "--set", "a b")``."""

    def go(*words) -> Answer:
        capsys.readouterr()
        code = main([part for word in words for part in (word.split() if isinstance(word, str) else word)])
        return Answer(code, *capsys.readouterr())

    return go


@pytest.fixture
def tiny_run(command, tmp_path):
    """``tiny_run("--algo fedper")``: a tiny run on digits with its record below `tmp_path`."""

    def go(*words) -> Answer:
        return command(TINY, ["--results-dir", str(tmp_path / "runs")], *words)

    return go
