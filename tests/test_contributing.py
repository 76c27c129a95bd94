"""The worked example of CONTRIBUTING.md: adding a method really is one new file."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_worked_example_is_one_new_file_and_runs(tmp_path):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    for package in ("algorithms", "benchmark", "datasets"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    (tmp_path / "algorithms" / "fast_head.py").write_text(code, encoding="utf-8")

    def benchmark(*words):
        command = [sys.executable, "-m", "benchmark", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    small = [
        "--dataset",
        "digits",
        "--clients",
        "4",
        "--rounds",
        "2",
        "--local-epochs",
        "1",
        "--samples-per-client",
        "20",
    ]
    output = benchmark("--algo", "fast-head", *small, "--set", "head_rate=5", "--json")
    summary = json.loads(output.splitlines()[-1])
    assert summary["evaluated"] == "personal"
    assert "head_rate=5" in Path(summary["record"]).name
    # Its head is personal: only the body travels, in each direction (1 of 4 clients, then all 4).
    body_floats = 15_466 - 330
    assert summary["bytes_up"] == summary["bytes_down"] == (1 + 4) * 4 * body_floats
    assert "fast-head" in benchmark("list", "methods")
