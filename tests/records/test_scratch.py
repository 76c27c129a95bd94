"""Temporary folders: nothing stays, whatever becomes of the process."""

import signal
import subprocess
import sys

import pytest

from pfl_benchmark.records.scratch import scratch

HOLD = """
import sys, time
from pfl_benchmark.records.scratch import scratch
with scratch() as folder:
    (folder / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_nothing_stays(temporary, error):
    def use():
        with scratch() as folder:
            (folder / "file").write_text("x")
            if error:
                raise error

    if error:
        with pytest.raises(error):
            use()
    else:
        use()
    assert not [*temporary.iterdir()]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_what_a_killed_process_left_goes_and_what_a_living_one_has_stays(temporary):
    processes = [
        subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        killed, living = (process.stdout.readline().strip() for process in processes)
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        with scratch():
            left = {path.name for path in temporary.iterdir() if path.is_dir()}
        assert living.rpartition("/")[2] in left
        assert killed.rpartition("/")[2] not in left
    finally:
        for process in processes:
            process.kill()
            process.wait()
