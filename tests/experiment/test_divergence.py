"""What is said of a run that has diverged although all of its values are finite."""

import pytest

from pfl_benchmark.experiment import runner
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.records.record import Record, read_record
from pfl_benchmark.resolve.run import resolve


@pytest.mark.parametrize(("guessing", "told"), [(0.01, True), (2.3, False)])
def test_a_loss_far_above_that_of_guessing_is_told(guessing, told, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Record, "guessing", guessing)
    execution = Execution(device="cpu", results_dir=tmp_path)
    summary = runner.run_judged(resolve(tiny("fedavg")), execution, Quiet())
    loss = read_record(tmp_path / summary["record"]).rounds[-1]["loss"]
    line = (
        f"training has probably diverged: its loss in the last round is {loss:.3g}, that of guessing 0.01; "
        "try a smaller --lr"
    )
    assert summary.get("warnings", []) == [line] * told
    assert capsys.readouterr().err == f"warning: {line}\n" * told
