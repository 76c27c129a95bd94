"""GPFL against its modules as PyTorch has them."""

import torch
import torch.nn.functional as F
from equations import ONE_STEP, close
from torch import nn

LAM, MU, LR = 0.3, 0.2, 0.05


class Valve(nn.Module):
    """The conditional valve by PyTorch's own layers, with the method's tensors."""

    def __init__(self, server):
        super().__init__()
        width = len(server["gamma.bias"])
        self.gamma, self.beta = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width)) for _ in range(2)
        )
        for side in ("gamma", "beta"):
            linear, _, norm = getattr(self, side)
            pairs = [
                (linear.weight, "weight"),
                (linear.bias, "bias"),
                (norm.weight, "gain"),
                (norm.bias, "offset"),
            ]
            for tensor, kind in pairs:
                tensor.data.copy_(server[f"{side}.{kind}"])

    def forward(self, features, context):
        return F.relu(features * (self.gamma(context) + 1) + self.beta(context))


def test_a_step_is_that_of_the_modules_with_weight_decay_on_valve_and_embeddings(begun):
    algorithm, _, outcome = begun("gpfl", {"lam": LAM, "mu": MU}, (1, 4), momentum=0.0, **ONE_STEP)
    task, stop = algorithm.task, algorithm.network.index("fc3")
    for position, client in enumerate((1, 4)):
        x, y = task.data.inputs(client), task.data.labels(client)
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in task.initial.items()}
        passes, embedding = Valve(algorithm.server), nn.Embedding(10, 32)
        frozen = algorithm.server["classes.weight"]
        embedding.weight.data.copy_(frozen)
        personal = torch.stack([frozen[label] for label in y]).mean(0)
        features = task.network.apply(leaves, x, stop=stop)
        logits = task.network.apply(leaves, passes(features, personal), stop)
        guided = passes(features, frozen.mean(0))
        cosines = F.cosine_similarity(guided[:, None], embedding.weight[None], dim=2)
        loss = F.cross_entropy(logits, y) + F.cross_entropy(cosines, y)
        loss = loss + LAM * torch.norm(guided - frozen[y], 2)
        guides = [*passes.parameters(), *embedding.parameters()]
        optimizer = torch.optim.SGD(
            [{"params": list(leaves.values())}, {"params": guides, "weight_decay": MU}], lr=LR
        )
        loss.backward()
        optimizer.step()
        trained = {name: tensor[position] for name, tensor in outcome.models["model"].items()}
        close({name: trained[name] for name in leaves}, {n: t.detach() for n, t in leaves.items()})
        close(trained["classes.weight"], embedding.weight.detach())
        for side in ("gamma", "beta"):
            linear, _, norm = getattr(passes, side)
            close(trained[f"{side}.weight"], linear.weight.detach())
            close(trained[f"{side}.bias"], linear.bias.detach())
            close(trained[f"{side}.gain"], norm.weight.detach())
            close(trained[f"{side}.offset"], norm.bias.detach())


def test_clients_predict_by_the_personal_side_of_the_valve(tiny, ready):
    algorithm = ready(tiny("gpfl")).algorithm
    task, stop = algorithm.task, algorithm.network.index("fc3")
    clients = [5, 2]
    scores = algorithm.scores(algorithm.members(clients), clients, "test")
    passes = Valve(algorithm.server)
    for found, client in zip(scores, clients, strict=True):
        personal = algorithm.server["classes.weight"][task.data.labels(client)].mean(0)
        features = task.network.apply(task.initial, task.data.inputs(client, "test"), stop=stop)
        with torch.no_grad():
            close(found, task.network.apply(task.initial, passes(features, personal), stop))


def test_body_valve_and_embeddings_are_averaged_and_the_head_stays(tiny, play):
    played = play(tiny("gpfl", participation=1.0))
    server, heads = played.algorithm.server, played.algorithm.clients.gather(range(6))
    assert set(heads) == {"fc3.weight", "fc3.bias"}
    assert not torch.equal(heads["fc3.weight"][0], heads["fc3.weight"][1])
    assert not set(heads) & set(server)
    moved = [name for name, tensor in server.items() if not torch.equal(tensor, played.history[0][name])]
    assert set(moved) == set(server)
