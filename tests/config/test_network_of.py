"""The network of a dataset that a plugin brings, and what is said of one without a flattening."""

import dataclasses
from collections import OrderedDict

import pytest
from torch import nn

from pfl_benchmark.config.network import knows_network, network_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import network_from_module


@pytest.mark.parametrize("asked", ["dataset", "cnn-digits"])
def test_the_network_that_its_dataset_names(asked, monkeypatch):
    monkeypatch.setitem(DATASETS, "bars", dataclasses.replace(DATASETS["digits"], name="bars"))
    config = RunConfig(dataset="bars", network=asked)
    assert knows_network(config)
    assert network_of(config).names == network_of(RunConfig(dataset="digits")).names


def test_no_network_at_all(monkeypatch):
    monkeypatch.setitem(DATASETS, "bars", dataclasses.replace(DATASETS["digits"], name="bars", network=""))
    with pytest.raises(UserError, match="'bars' has no network that fits: choose one by --network"):
        network_of(RunConfig(dataset="bars"))


def test_a_missing_flattening_is_named():
    def make():
        fc = nn.Sequential(nn.Identity(), nn.Linear(144, 5))
        return nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 4, 3), fc=fc, out=nn.Linear(5, 2)))

    with pytest.raises(UserError, match=r"'fc' .* takes 144: put nn.Flatten\(\) before that"):
        network_from_module(make, ("conv", "fc", "out"), (1, 8, 8))
