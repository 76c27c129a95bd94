"""FedCP: a gate divides the features of each sample among a personal and a global head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.method import (
    Algorithm,
    Between,
    LocalCall,
    LocalResult,
    Message,
    Params,
    Part,
    Phase,
    RunContext,
    StackedModel,
    Step,
    expand,
    option,
    register,
    row,
    select,
)

HEAD = ("global.weight", "global.bias")  # frozen in local training
GATE = ("gate.weight", "gate.bias", "gate.gain", "gate.offset")
BANDWIDTHS = (10, 15, 20, 50)  # clientcp.py


@dataclass(frozen=True)
class FedCPHyper:
    """Hyper-parameters of FedCP."""

    lam: float = option(
        5.0,
        "weight λ of the discrepancy of features and received features",
        least=0,
        search=Between(0.01, 10),
    )


def shares(params: Params, features: Tensor, head: Tensor, noise: Tensor | float = 0.0) -> Tensor:
    """Shares [m, B, 2, d] of features [m, B, d] for both heads, by the personal head [m, C, d] as context."""
    given = features * F.normalize(head.detach().sum(1), dim=1).unsqueeze(1)
    hidden = torch.einsum("moi,mbi->mbo", params["gate.weight"], given) + params["gate.bias"].unsqueeze(1)
    hidden = F.layer_norm(hidden, hidden.shape[2:])
    hidden = F.relu(hidden * params["gate.gain"].unsqueeze(1) + params["gate.offset"].unsqueeze(1))
    return (hidden.unflatten(2, (2, -1)) + noise).softmax(2)


def discrepancy(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Maximum mean discrepancy [m] of x and y [m, B, d] with weights [m, B] of sum 1."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        squares = (a.unsqueeze(2) - b.unsqueeze(1)).square().sum(3)
        pairs = torch.stack([torch.exp(-squares / (2 * width)) for width in BANDWIDTHS]).sum(0)
        return (pairs * weights.unsqueeze(2) * weights.unsqueeze(1)).sum((1, 2))

    return kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)


@dataclass(frozen=True)
class Gated:
    """Cross-entropy of the two heads' sum, and λ times the discrepancy to the received body's features."""

    lam: float

    def __call__(self, step: Step) -> Tensor:
        features = step.apply(stop=-1).flatten(2)
        received = step.apply(step.constants["received"], stop=-1).flatten(2)
        uniform = step.uniform("gumbel").clamp(1e-10, 1 - 1e-7)
        parts = shares(step.params, features, step.constants["context"]["head"], -(-uniform.log()).log())
        personal = step.apply(x=features * parts[:, :, 0], start=-1)
        common = torch.einsum("mbd,mcd->mbc", features * parts[:, :, 1], step.params[HEAD[0]])
        common = common + step.params[HEAD[1]].unsqueeze(1)
        return step.cross_entropy(personal + common) + self.lam * discrepancy(
            features, received, step.sample_weights
        )


@register
class FedCP(Algorithm):
    """Body, global head and gate are averaged; the personal head stays, and is the context of the gate.

    Source: Zhang et al., KDD 2023; TsingZ0/PFLlib system/flcore/clients/clientcp.py, servers/servercp.py. The
    global head that a client sends is the mean of the received one and its personal one. The gate is a
    Gumbel softmax at temperature 1 over the two heads, for each feature of each sample.

    Defaults: λ = 5, as in system/run_me.sh of TsingZ0/FedCP.

    Deviations: without noise in evaluations (there with). Participants begin with the last aggregate; there
    body, head and gate of a client that missed rounds are of different rounds. Local SGD has momentum, and
    the mean is unweighted unless ``--aggregation samples``.

    Traps: in PFLlib the context of the first round is drawn at random. Bandwidths of the discrepancy are
    fixed, so that λ depends on the scale of the features.
    """

    name = "fedcp"
    title = "FedCP"
    reference = "Zhang et al., KDD 2023; TsingZ0/PFLlib clientcp.py"
    group = "decoupled"
    publication = (
        "FedCP: Separating Feature Information for Personalized Federated Learning via Conditional Policy",
        "Zhang, Jianqing and Hua, Yang and Wang, Hao and Song, Tao and Xue, Zhengui and Ma, Ruhui and "
        "Guan, Haibing",
        "KDD",
        2023,
        "https://arxiv.org/abs/2307.01217",
    )
    pseudocode = (
        "(r, s) ← gate(z · Σ_c h_k), r + s = 1, of features z = θ_k(x)",
        "(θ_k, h_k, gate_k) ← SGD on ℓ(h_k(r z) + g(s z)) + λ MMD(θ_k(x), θ(x)), g not changed by it",
        "(θ, g, gate) ← mean of the (θ_k, (g + h_k) / 2, gate_k)",
    )
    Hyper = FedCPHyper
    needs_bias = True
    averages = False  # the head that it sends is a mean with another one
    too_large = ("lam",)
    tuning = ({"lam": 1.0}, {"lam": 0.1}, {"lam": 10.0})

    def __init__(self, task: RunContext, hyper: FedCPHyper) -> None:
        super().__init__(task, hyper)
        self._last = task.network.names[-1]
        weight, bias = (task.initial[f"{self._last}.{kind}"] for kind in ("weight", "bias"))
        width, rng = weight.shape[1], task.streams.get("init", 1)
        bound = width**-0.5  # as PyTorch draws a linear layer
        drawn = [rng.uniform(-bound, bound, shape) for shape in ((2 * width, width), (2 * width,))]
        gate = [*(torch.from_numpy(values).to(weight) for values in drawn)]
        gate += [torch.ones_like(gate[1]), torch.zeros_like(gate[1])]
        self.server |= {**dict(zip(HEAD, (weight, bias), strict=True)), **dict(zip(GATE, gate, strict=True))}

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names[:-1]

    def phases(self, round: int) -> list[Phase]:
        rates = dict.fromkeys((*self.network.names, "gate"), self.config.lr)
        width = self.server[HEAD[0]].shape[1]
        objective, noise = Gated(self.hyper.lam), {"gumbel": (2, width)}
        given = {"received": {**self.task.initial, **select(self.server, self.shared_tensors())}}
        # The received body runs on every batch, too.
        return [Phase(rates, self.local_work, objective=objective, constants=given, passes=2, uniform=noise)]

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        params = call.models["model"].params
        params.update(expand(select(message.common, (*HEAD, *GATE)), len(clients)))
        call.constants["context"] = {"head": params[f"{self._last}.weight"]}
        return call

    def upload(self, outcome: LocalResult) -> Params:
        model = outcome.models["model"]
        own = [model[f"{self._last}.{kind}"] for kind in ("weight", "bias")]
        heads = {name: (model[name] + tensor) / 2 for name, tensor in zip(HEAD, own, strict=True)}
        return {**select(model, (*self.shared_tensors(), *GATE)), **heads}

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        common = expand(select(self.server, (*HEAD, *GATE)), len(clients))
        return [StackedModel(self.network, {**self.assemble(clients, self.server), **common})]

    def scores(self, members: Sequence[StackedModel], clients: Sequence[int], part: Part) -> list[Tensor]:
        (member,), last = members, len(self.network.names) - 1
        outputs, found = self.task.executor.forward(self.network, member.params, clients, part, last), []
        for position, features in enumerate(outputs):
            own = {name: tensor[position : position + 1] for name, tensor in member.params.items()}
            z = features.flatten(1)
            personal, common = shares(own, z.unsqueeze(0), own[f"{self._last}.weight"])[0].unbind(1)
            head = row(own, 0)
            logits = self.network.apply(head, z * personal, start=last)
            found.append(logits + F.linear(z * common, head[HEAD[0]], head[HEAD[1]]))
        return found

    def capacities(self) -> list[tuple[int, int]]:
        shared = sum(tensor.numel() for tensor in self.server.values())
        return [(shared, self.network.count([self._last]))]
