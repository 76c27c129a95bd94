"""The examples of the page about Python, run one after the other."""

import importlib
import re
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/site/python.md"


def test_its_examples_run(tmp_path, monkeypatch, registries_restored):
    pytest.importorskip("safetensors")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 4
    (tmp_path / "page_of_examples.py").write_text("\n\n".join(blocks).replace("rounds=10", "rounds=1"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        page = importlib.import_module("page_of_examples")
    finally:
        sys.modules.pop("page_of_examples", None)
    assert len(page.records) == 3
    assert (tmp_path / "results/grid/tables/grid.tex").is_file()
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")
    assert page.record.config.network == "net"
