"""What tests of a method's defining equation share: plain gradients, and steps on quadratic losses."""

import dataclasses

import torch
import torch.nn.functional as F

from pfl_benchmark.engine.step import Noise, Step
from pfl_benchmark.models import Network

ONE_STEP = {"batch_size": 20, "local_epochs": 1}  # every client has 20 samples
EVERYONE = range(6)


def loss_at(task, params, client):
    """The plain loss of a model (not stacked) on a client's whole training set."""
    return F.cross_entropy(task.network.apply(params, task.data.inputs(client)), task.data.labels(client))


def gradient_at(task, params, client):
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in params.items()}
    return dict(zip(leaves, torch.autograd.grad(loss_at(task, leaves, client), leaves.values()), strict=True))


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-6)


@dataclasses.dataclass(frozen=True)
class Quadratic:
    """Each client's loss is (c/2) ‖w − x‖², where x is its only input."""

    curvature: float = 1.0

    def __call__(self, step):
        return self.curvature / 2 * (step.params["w.at"] - step.x[:, 0]).square().sum(1)


def quadratic_step(params, rates, x, **more):
    """A step of clients whose data are the points x [m, B, d]."""
    count = torch.full((len(x),), x.shape[1])
    given = {"objective": Quadratic(), "constants": {}, **more}

    def descend(gradients):  # the engine's step without momentum
        for name, gradient in gradients.items():
            params[name].sub_(gradient, alpha=rates[name])

    return Step(
        Network(()), params, rates=rates, x=x, y=torch.zeros(x.shape[:2], dtype=torch.int64),
        sample_weights=torch.full(x.shape[:2], 1 / x.shape[1]), count=count, noise=Noise(None, 1, 1),
        descend=descend, **given,
    )  # fmt: skip
