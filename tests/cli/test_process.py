"""The command line as a process of its own: start-up, signals, pipes."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WAIT = 300  # seconds, for a machine that is busy with other things


def start(*words, **options):
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_what_is_slow_to_import_is_loaded_where_it_is_used():
    """Help needs no PyTorch; methods and runner need nothing that only some data, tables or figures need."""
    code = (
        "import sys; from pfl_benchmark.cli import main; assert main(['--help']) == 0; "
        "assert not {'torch', 'pandas', 'pyarrow'} & set(sys.modules); "
        "import pfl_benchmark.algorithms, pfl_benchmark.experiment.runner; "
        "assert not {'pandas', 'pyarrow', 'scipy', 'sklearn', 'matplotlib', 'PIL'} & set(sys.modules)"
    )
    process = start("-c", code)
    _, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (0, "")


def test_request_to_terminate(tmp_path):
    """Ends a run as Ctrl-C does."""
    flags = "--algo fedavg --dataset digits --rounds 100000 --eval-every 0 --device cpu"
    process = start("-m", "benchmark", *flags.split(), "--results-dir", str(tmp_path))
    assert process.stderr is not None
    headline = process.stderr.readline()  # from here on it trains
    process.terminate()
    out, err = process.communicate(timeout=WAIT)
    assert process.returncode == 130
    assert headline.startswith("fedavg on digits-s2")
    assert (out, err) == ("", "interrupted; to continue, give the same command again\n")
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.rglob("done"))


def test_reader_that_goes_away():
    """Also for output that is still buffered when the process ends."""
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmark", "--help"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    _, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (141, "")


def test_letters_that_the_output_lacks():
    """An ASCII terminal gets a question mark for α, not a traceback."""
    process = start("-m", "benchmark", "--help", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err) == (0, "")
    assert "concentration ? of" in out


def test_an_interruption_while_the_program_is_imported():
    code = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pfl_benchmark.cli':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from pfl_benchmark.__main__ import start\n"
        "sys.exit(start())"
    )
    process = start("-c", code)
    assert process.communicate(timeout=WAIT) == ("", "interrupted\n")
    assert process.returncode == 130
