"""The checkout under all of its names: one module a file, and pickles that every process reads."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import FLAGS, SMALL

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.records.record import read_record

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("algorithms", "benchmark", "datasets")
RUN = "run('fedper', **SMALL, progress=False, results_dir=folder)"

# What is imported first decides under which name all else is found.
STARTS = {
    "python -m benchmark": (
        f"import runpy; sys.argv = ['', '--algo', 'fedper', *{FLAGS}, '--results-dir', folder]; "
        "runpy.run_module('benchmark', run_name='__main__', alter_sys=True)"
    ),
    "benchmark": f"import benchmark; benchmark.run; from benchmark import run; {RUN}",
    "algorithms": f"from algorithms.fedper import FedPer; from benchmark.interface import run; {RUN}",
    "pfl_benchmark": f"import pfl_benchmark; pfl_benchmark.run; from pfl_benchmark import run; {RUN}",
}

PROGRAM = """
import importlib, json, os, pickle, sys
from pathlib import Path

folder, pickled, *given = sys.argv[1:]
SMALL, FOLDERS = map(json.loads, given)
try:
    {start}
except SystemExit as ended:
    assert not ended.code
for name in ("algorithms", "algorithms.fedper", "benchmark", "benchmark.algorithms.fedper", "benchmark.cli",
             "benchmark.datasets.api", "benchmark.config.run_config", "pfl_benchmark.datasets.api"):
    importlib.import_module(name)
modules = {{}}
for name, module in sys.modules.items():
    file = os.path.realpath(getattr(module, "__file__", None) or "")
    if file.startswith(tuple(os.path.join(os.getcwd(), top, "") for top in FOLDERS)):
        modules.setdefault(file, {{}})[id(module)] = module.__name__
from benchmark.records.record import read_record
(record,) = Path(folder).glob("fedper-*")
print(json.dumps([[[*names.values()] for names in modules.values()],
                  pickle.dumps(read_record(record)).hex(), pickle.loads(bytes.fromhex(pickled)).to_dict()]))
"""


@pytest.mark.parametrize("start", STARTS)
def test_no_file_is_two_modules_and_pickles_are_read_by_all(start, tmp_path):
    config = RunConfig(**SMALL)
    words = [str(tmp_path), pickle.dumps(config).hex(), json.dumps(SMALL), json.dumps(FOLDERS)]
    program = PROGRAM.format(start=STARTS[start])
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded, pickled, read = json.loads(done.stdout.splitlines()[-1])
    assert len(loaded) > 100
    assert [names for names in loaded if len(names) > 1] == []
    assert {name.partition(".")[0] for (name,) in loaded} <= {"pfl_benchmark", "__main__"}
    assert read == config.to_dict()
    record = pickle.loads(bytes.fromhex(pickled))
    assert record.digest == read_record(record.folder).digest
    assert type(record.config) is RunConfig
