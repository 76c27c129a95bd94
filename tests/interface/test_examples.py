"""The notebooks in examples/ run from the first cell to the last."""

import json
import linecache
import warnings
from pathlib import Path

import pytest

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.records.sources import SOURCES

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(notebook, tmp_path, monkeypatch):
    """As from a fresh checkout: what it writes goes beside it, and nothing is kept in it."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path / "examples")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.syspath_prepend(str(ROOT))
    for registry in (ALGORITHMS, SOURCES):
        for name in set(registry):
            monkeypatch.setitem(registry, name, registry[name])
    scope = {"__name__": "notebook"}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []
        source, file = "".join(cell["source"]), f"<{notebook.stem} {cell['id']}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            exec(compile(source, file, "exec"), scope)
    for name in [name for name in ALGORITHMS if name.startswith("notebook")]:
        del ALGORITHMS[name]
    assert (tmp_path / "examples" / f"{notebook.stem}.png").stat().st_size > 5_000
