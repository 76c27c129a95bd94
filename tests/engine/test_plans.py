"""What budgets come to for every method: as it was when bytes and epochs were declared by hand.

`plans.json` holds rounds, what set them, limit and planned costs. Two differ from those of that time: samples
of FedALA and FedFomo on the tweets, whose parts of an epoch were not rounded as they are in a run.
"""

import json
from pathlib import Path

import pytest

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.resolve.run import with_hyper
from pfl_benchmark.studies.dry_run import dry_run

PLANS = json.loads((Path(__file__).parent / "plans.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("key", PLANS)
def test_plans_stay_what_they_were(key):
    setting, algo, budget = key.split()
    if (setting, algo) == ("cifar10-s2", "phn"):
        pytest.skip("its hypernetwork has 30 million weights, drawn for every number of rounds that is tried")
    config = with_hyper(RunConfig(algo=algo, **{**SETTINGS[setting].values, "budget": budget}), {})
    with dry_run(config, config.samples_per_client) as dry:
        plan = dry.plan()
    assert [plan.rounds, plan.set_by, plan.limit, plan.planned] == PLANS[key]
