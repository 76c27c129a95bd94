"""What is said of a run that has diverged although all of its values are finite."""

import pytest

from pfl_benchmark.experiment import runner
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.records import record
from pfl_benchmark.records.record import read_record
from pfl_benchmark.resolve.run import resolve


@pytest.mark.parametrize(("far", "told"), [(0.1, True), (record.FAR, False)])
def test_a_loss_far_above_that_of_guessing_is_told(far, told, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(record, "FAR", far)
    execution = Execution(device="cpu", results_dir=tmp_path)
    summary = runner.run_judged(resolve(tiny("fedavg")), execution, Quiet())
    loss = read_record(tmp_path / summary["record"]).rounds[-1]["loss"]
    line = (
        f"training has probably diverged: its loss in the last round is {loss:.3g}, that of guessing 2.30; "
        "try a smaller --lr"
    )
    assert summary.get("warnings", []) == [line] * told
    assert capsys.readouterr().err == f"warning: {line}\n" * told
