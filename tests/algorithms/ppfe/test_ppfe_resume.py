"""PPFE killed anywhere, in and between stages, ends as if nothing had happened."""

import pytest
from stopping import Stop

from pfl_benchmark.engine.executors import LoopExecutor

VARIANTS = [
    {},
    {"reduction": "sparse"},
    {"reduction": "width", "rw_target": "ensemble", "ens_space": "probability", "fc_init": "fedavg_heads"},
    {"rw_apply": "resample", "personal_start": "average", "ens_space": "vote", "fc_init": "fedavg_chain"},
]


@pytest.mark.parametrize("hyper", VARIANTS, ids=str)
def test_killed_after_every_round(hyper, staged, launch, tmp_path):
    """Rounds 2, 4 and 6 close a stage, 3, 5 and 7 lie inside one."""
    config = staged(hyper, learning=True, local_epochs=2)
    unbroken = launch(config, tmp_path / "unbroken")
    for _ in range(8):
        with pytest.raises(KeyboardInterrupt):
            launch(config, tmp_path / "killed", Stop())
    resumed = launch(config, tmp_path / "killed")
    assert resumed.content() == unbroken.content()


@pytest.mark.parametrize("work", ["train", "forward"])
def test_killed_in_the_middle_of_every_round(work, staged, launch, tmp_path, monkeypatch):
    """In training, and in the evaluation and reweighting that follow it."""
    config = staged(learning=True, local_epochs=2, eval_every=1)
    unbroken = launch(config, tmp_path / "unbroken")
    calls, original = [], getattr(LoopExecutor, work)

    def interrupted(self, *args, **kwargs):
        calls.append(work)
        # Training is one call a round. The others come in bunches: sooner and later in turn, so that every
        # one of them is hit and some attempts get on.
        if len(calls) == (2 if work == "train" else 2 + attempts % 6):
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(LoopExecutor, work, interrupted)
    attempts = 0
    while True:
        calls.clear()
        attempts += 1
        try:
            resumed = launch(config, tmp_path / "killed")
            break
        except KeyboardInterrupt:
            assert attempts < 100, "no attempt gets on"
    assert attempts > 4
    assert resumed.content() == unbroken.content()
