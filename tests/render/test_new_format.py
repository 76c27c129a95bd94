"""The worked example of CONTRIBUTING.md: adding a format of tables really is one new file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from pathlib import Path
from benchmark.present.render import _files
from benchmark.render.table import Cell, Head, Table
from benchmark.studies.catalogue import STUDIES

heads = (Head("method", words=True), Head("accuracy"))
table = Table("Title", "Caption.", heads, ((Cell("a | b"), Cell(0.5, "percent", paper=0.4)),), name="mine")
print(_files(STUDIES["methods"], [table], [], [])["tables/mine.org"])
"""


def test_the_worked_example_is_one_new_file(tmp_path):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = (
        code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "render.registry" in code
    )
    (place,) = re.findall(r"Saved as `(benchmark/render/formats/\w+\.py)`", text)
    for package in ("algorithms", "benchmark", "datasets"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / place).write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:4] == [
        "#+CAPTION: Title. Caption.",
        "| method | accuracy |",
        "|--------+----------|",
        r"| a \vert{} b | 50.00 (40.00, +10.00) |",
    ]
