"""pFedFDA's statistics and head of an evaluated client against the official code."""

import sys
import types
from unittest.mock import MagicMock

import federation
import numpy as np
import pytest
import torch
from checkouts import PFEDFDA, enter
from pfllib import Pair

from pfl_benchmark.algorithms.gaussian_head import Gaussians, class_prior, estimate, head

CLASSES, WIDTH = 6, 8
ABSENT = ("statsmodels", "statsmodels.stats", "statsmodels.stats.correlation_tools", "torchmin")
OWN = ("clients", "servers", "utils", "data")
PAIR = Pair(
    "pfedfda", "servers.server_fedfda:ServerFedFDA", {"few_samples": "own"}, source="pfedfda",
    left_out=("training, whose last short batches are dropped there", "the coefficients: both are 1"),
)  # fmt: skip


@pytest.fixture
def official(monkeypatch):
    """The official modules, with stubs of what reads files, and of packages that are not needed."""
    path = PFEDFDA.find()
    monkeypatch.syspath_prepend(str(path))
    for name in [name for name in sys.modules if name.split(".")[0] in OWN]:
        monkeypatch.delitem(sys.modules, name)
    for name in (*ABSENT, "data", "data.utils", "data.utils.loader"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    # What it clips has no negative eigenvalues.
    sys.modules[ABSENT[2]].cov_nearest = lambda matrix, method: matrix
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    from servers import server_fedfda

    yield server_fedfda
    torch.set_default_dtype(before)
    for name in [name for name in sys.modules if name.split(".")[0] in OWN]:
        del sys.modules[name]


def problem():
    """Features of classes with 1, 2, 3 and more samples, and one that is absent."""
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(CLASSES - 1), (1, 2, 3, 20, 30))
    features = torch.from_numpy(rng.standard_normal((len(labels), WIDTH)) + labels[:, None])
    means = torch.from_numpy(rng.standard_normal((CLASSES, WIDTH)))
    return features, labels, Gaussians(means, torch.eye(WIDTH))


def evaluated(module, features, labels, common):
    """Their client after its evaluation; predictions are not asked for."""
    client = object.__new__(module.ClientFedFDA)
    prior = class_prior(torch.from_numpy(labels), CLASSES)
    client.__dict__.update(
        D=WIDTH, num_classes=CLASSES, device="cpu", eps=1e-4, min_samples=2, num_cv_folds=2, local_beta=True,
        num_test=1, priors=prior, means_beta=torch.ones(1), cov_beta=torch.ones(1),
        **{name: torch.zeros(CLASSES, WIDTH) for name in ("means", "adaptive_means", "global_means")},
        **{f"{name}covariance": torch.eye(WIDTH) for name in ("", "adaptive_", "global_")},
    )  # fmt: skip
    found = {}

    def evaluate():
        layer = client.model.fc
        found.update(weight=layer.weight.clone(), bias=layer.bias.clone())
        return torch.tensor(0.0), torch.tensor(0.0)

    client.compute_feats, client.evaluate = (lambda split: (features, labels)), evaluate
    model = torch.nn.ModuleDict({"fc": torch.nn.Linear(WIDTH, CLASSES)})
    model.fc = model["fc"]
    client.model = model
    server = types.SimpleNamespace(
        clients=[client, client], model=model, device="cpu", num_classes=CLASSES, D=WIDTH,
        global_means=common.means, global_covariance=common.covariance,
    )  # fmt: skip
    module.ServerFedFDA.evaluate_personalized(server)
    return {"means": client.means, "covariance": client.covariance, **found}


def test_an_evaluated_clients_head_is_the_official_one(official):
    features, labels, common = problem()
    theirs = evaluated(official, features, labels, common)
    y = torch.from_numpy(labels)
    own, other = (
        estimate(features, y, common.means, "official", least=3, centre=centre)
        for centre in ("own", "common")
    )
    weight, bias = head(own, class_prior(y, CLASSES))
    ours = {"means": own.means, "covariance": own.covariance, "weight": weight, "bias": bias}
    gaps = {what: federation.gap([ours[what]], [theirs[what]]) for what in ours}
    assert federation.largest(gaps.values()) < 1e-12, gaps
    assert federation.gap([other.covariance], [theirs["covariance"]]) > 1e-3
    enter(PAIR, 1.0, gaps)
