"""Every method against public code, number by number: float64, equal data, weights and batch orders."""

import math

import federation
import flbench
import official
import pfllib
import pytest
import torch
from checkouts import CHECKOUTS, enter

from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.models import Network

PLAYERS = {"pfllib": pfllib.play, "fedah": pfllib.play, "flbench": flbench.play, **official.PLAYERS}
PAIRS = [*pfllib.PAIRS, *flbench.PAIRS, *official.PAIRS]


@pytest.fixture(autouse=True)
def float64(monkeypatch):
    """New tensors and drawn networks are of float64."""
    init, before = Network.init, torch.get_default_dtype()
    monkeypatch.setattr(Network, "init", lambda *of: {n: t.double() for n, t in init(*of).items()})
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


CASES = [
    pytest.param(pair, share, id=f"{pair.algo}-{pair.label}-{share:g}")
    for pair in PAIRS
    for share in pair.participations
]


@pytest.mark.parametrize(("pair", "participation"), CASES)
def test_three_rounds_are_those_of_public_code(pair, participation):
    path = CHECKOUTS[pair.source].find()
    if pair.needs:
        pytest.importorskip(pair.needs)
    fed = federation.federation(
        pair.algo, pair.hyper, participation, pair.norm, pair.streams or Streams, pair.start, pair.sizes,
        **pair.changes,
    )  # fmt: skip
    ours = federation.play(fed, pair.ours, pair.start, pair.sorted_batches)
    theirs = PLAYERS[pair.source](pair, fed, path)
    assert len(ours) == len(theirs) == federation.ROUNDS
    gaps = {
        what: federation.largest(federation.gap(a[what], b[what]) for a, b in zip(ours, theirs, strict=True))
        for what in pair.ours
    }
    print({what: f"{value:.1e}" for what, value in gaps.items()})
    largest = federation.largest(gaps.values())
    assert math.isfinite(largest), gaps
    if pair.within is None:
        assert largest > 1e-6, f"they are equal to {largest:.1e}: it no longer deviates as is said"
    else:
        assert largest <= pair.within, gaps
    enter(pair, participation, gaps)
