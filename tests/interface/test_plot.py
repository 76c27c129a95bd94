"""Learning curves from Python."""

import numpy as np
import pytest

from pfl_benchmark import plot_curves, run
from pfl_benchmark.errors import UserError
from tests.helpers.python import TINY

STARTS = {"curves.pdf": b"%PDF", "curves.png": b"\x89PNG", "curves.svg": b"<?xml"}


def test_a_panel_a_setting_and_a_line_a_method(tmp_path):
    records = [run(algo, results_dir=tmp_path, **TINY) for algo in ("fedper", "local")]
    records.append(run("local", results_dir=tmp_path, **{**TINY, "clients": 5}))
    figure = plot_curves(*records)
    assert len([axes for axes in figure.axes if axes.get_title(loc="left")]) == 2
    assert {"FedPer", "Local Only"} <= {text.get_text() for text in figure.legends[-1].get_texts()}
    for name, start in STARTS.items():
        plot_curves(tmp_path, path=tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)


def test_a_line_is_the_mean_over_seeds(tmp_path):
    records = run("fedper", results_dir=tmp_path, **{**TINY, "seed": [0, 1]})
    evaluated = [[line for line in record.rounds if "accuracy" in line] for record in records]
    rounds = [line["round"] for line in evaluated[0]]
    means = 100 * np.mean([[line["accuracy"] for line in lines] for lines in evaluated], axis=0)
    lines = plot_curves(*records).axes[0].lines  # in pieces, where what is evaluated changes
    drawn = np.unique(np.concatenate([line.get_xydata() for line in lines]).round(6), axis=0)
    np.testing.assert_allclose(drawn, np.stack([rounds, means], 1), atol=1e-5)


def test_bad_input(tmp_path):
    record = run("local", results_dir=tmp_path, **TINY)
    with pytest.raises(UserError, match=r"ends in \.pdf, \.svg or \.png"):
        plot_curves(record, path=tmp_path / "curves.docx")
    with pytest.raises(UserError, match="no runs are given"):
        plot_curves()
