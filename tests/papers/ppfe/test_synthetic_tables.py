"""The study of synthetic data in the command `tables`: computed without runs, once."""

import pandas as pd
import pytest

from pfl_benchmark.cli import main
from pfl_benchmark.papers.ppfe.studies import synthetic
from pfl_benchmark.papers.ppfe.synthetic.study import Profile, Study
from pfl_benchmark.studies import catalogue


@pytest.fixture
def tables(capsys, tmp_path):
    """``tables("--only synthetic")`` with results below `tmp_path`: exit code, standard output and error."""

    def go(words):
        capsys.readouterr()
        return main(
            ["tables", "--results-dir", str(tmp_path / "results"), *words.split()]
        ), *capsys.readouterr()

    return go


def test_it_is_computed_once(tables, tmp_path, monkeypatch):
    calls = []

    def compute(profile, seeds):
        calls.append((profile, seeds))
        points = [("A", 20, "0.5"), ("A", 50, "0.5"), ("B", 100, "0.0"), ("B", 100, "U(0,1)")]
        return pd.DataFrame(
            [
                {"study": study, "clients": clients, "r_p": ratio, "samples": 100, "method": method}
                | {"seed": seed, "mse": 0.3 + i / 10}
                for study, clients, ratio in points
                for i, method in enumerate(synthetic.METHODS)
                for seed in (0, 1)
            ]
        )  # fmt: skip

    monkeypatch.setattr(synthetic, "compute", compute)
    assert tables("--only synthetic")[0] == 0
    root = tmp_path / "results"
    text = (root / "tables" / "synthetic.md").read_text()
    assert text.count("**0.300 ± 0.000**") == 4
    assert "U(0,1)" in text
    assert (root / "figures" / "synthetic-ratio.svg").exists()
    assert "up to date" in tables("--only synthetic")[1]
    tables("--only synthetic --seeds 2")
    assert calls == [("quick", None), ("quick", (0, 1))]
    assert catalogue.STUDIES["synthetic"].computed.is_done(catalogue.PROFILES["quick"], root, (0, 1))


def test_it_has_no_settings(tables, tmp_path):
    code, _, err = tables("--only synthetic --settings digits-s2")
    assert code == 2
    assert "synthetic is computed, without runs; drop --settings" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("damage", [b"", b"study,clients\n", b"\xff\x00", None])
def test_damaged_numbers_are_refused_and_nothing_is_written(damage, tables, tmp_path, monkeypatch, capsys):
    chosen = catalogue.PROFILES["quick"].name
    points = Profile({"A": Study("", (2, 3), (0.5,), 20), "B": Study("", (3,), (0.0, "U(0,1)"), 20)}, seeds=1)
    monkeypatch.setitem(synthetic.PROFILES, chosen, points)
    root, document = tmp_path / "results", tmp_path / "NOTES.md"
    document.write_text("<!-- table synthetic: begin -->\nstale\n<!-- table synthetic: end -->\n")
    assert tables("--only synthetic")[0] == 0
    if damage is None:
        (root / "synthetic.json").unlink()
    else:
        (root / "synthetic.csv").write_bytes(damage)
    report = ["report", "--only", "synthetic", "--results-dir", str(root), "--into", str(document)]
    assert main(report) == 2
    err = capsys.readouterr().err
    assert "synthetic.csv is damaged or without its synthetic.json; remove it" in err
    assert err.count("\n") == 1
    assert "stale" in document.read_text()
    (root / "synthetic.csv").unlink()
    assert tables("--only synthetic")[0] == 0
    assert main(report) == 0
    assert "stale" not in document.read_text()
