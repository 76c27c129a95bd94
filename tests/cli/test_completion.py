"""The script of `completion`, asked as bash asks it."""

import shutil
import subprocess

import pytest

from pfl_benchmark.cli import main

ASK = """
. {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _pfl_benchmark; echo "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["completion"]) == 0
    path = tmp_path_factory.mktemp("completion") / "complete.sh"
    path.write_text(out.getvalue())
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pfl-benchmark gr", ["grid"]),
        ("pfl-benchmark grid --algo fedp", ["fedpac", "fedper", "fedproto", "fedprox"]),
        ("pfl-benchmark --algo fedrep --dataset dig", ["digits"]),
        ("pfl-benchmark --abl", ["--ablation"]),
        ("pfl-benchmark tables --prof", ["--profile"]),
        ("pfl-benchmark run --budget b", ["bytes"]),
        ("pfl-benchmark list netw", ["networks"]),
        ("pfl-benchmark grid --setting digits-s", ["digits-s2"]),
        ("pfl-benchmark grid --algo fedrep dit", ["ditto"]),
        ("pfl-benchmark grid --algo fedrep --sett", ["--setting"]),
        ("pfl-benchmark tables --only multi", ["multiverse"]),
        ("pfl-benchmark list methods dit", ["ditto"]),
    ],
)
def test_it_completes(words, expected, script):
    ask = ASK.format(script=script, words=words)
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == expected
