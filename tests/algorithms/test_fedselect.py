"""FedSelect: which parameters become a client's own, how they train, and what is averaged."""

import pytest
import torch
from equations import EVERYONE, ONE_STEP, close, gradient_at

from pfl_benchmark.algorithms.fedselect import BEFORE, MODEL, OWN, USED, grown
from pfl_benchmark.method import add_prefix, row, strip_prefix


def test_a_mask_grows_by_what_has_moved_most_outside_of_it():
    mask = torch.tensor([True, False, False, False, False])
    moved = torch.tensor([9.0, 1.0, 4.0, 3.0, 2.0])
    assert grown(mask, moved, 0.5, 1.0).tolist() == [True, False, True, True, False]
    assert grown(mask, moved, 0.0, 1.0).tolist() == mask.tolist()
    assert grown(mask, moved, 1.0, 1.0).all()
    assert grown(mask, moved, 0.5, 0.1).tolist() == mask.tolist()  # a fifth is above the limit
    assert grown(mask, moved, 0.5, 0.2).sum() == 3  # and this one is passed
    assert grown(torch.ones(5).bool(), moved, 0.5, 1.0).all()


def some_own(algorithm, clients, seed=0):
    """Let the clients keep random masks, which were used last, and models."""
    rng, kept = torch.Generator().manual_seed(seed), algorithm.clients.gather(clients)
    masks = {n: torch.rand(t.shape, generator=rng) < 0.4 for n, t in strip_prefix(OWN, kept).items()}
    models = {n: t + 0.05 for n, t in strip_prefix(MODEL, kept).items()}
    kept |= {**add_prefix(OWN, masks), **add_prefix(USED, masks), **add_prefix(MODEL, models)}
    algorithm.clients.scatter(clients, kept)
    return masks, models


def test_own_parameters_train_first_and_then_the_others(tiny, ready):
    """Weight decay moves a parameter only in its own pass, too."""
    algorithm = ready(tiny("fedselect", {}, weight_decay=0.1, **ONE_STEP)).algorithm
    task, lr = algorithm.task, algorithm.config.lr
    masks, models = some_own(algorithm, [2])
    call = algorithm.begin([2], algorithm.message([2], 2), 2)
    start = row(call.models["model"].params, 0)
    for name, tensor in start.items():
        assert torch.equal(tensor, torch.where(masks[name][0], models[name][0], algorithm.server[name]))
    outcome = task.executor.train(call)
    point = dict(start)
    for own in (True, False):
        slopes = gradient_at(task, point, 2)
        for name, old in point.items():
            part = masks[name][0] == own
            decay = 0.0 if ".bias" in name else 0.1
            point[name] = torch.where(part, old - lr * (slopes[name] + decay * old), old)
    close(row(outcome.models["model"], 0), point)


def test_a_parameter_is_averaged_over_those_whose_own_it_is_not(begun):
    algorithm, _, _ = begun("fedselect")
    masks, _ = some_own(algorithm, [0, 1, 2])
    outcome = algorithm.task.executor.train(algorithm.begin([0, 1, 2], algorithm.message([0, 1, 2], 2), 2))
    before, sent = dict(algorithm.server), algorithm.upload(outcome)
    gathered = algorithm.aggregator()
    gathered.add([0, 1, 2], sent, torch.tensor([1.0, 2.0, 3.0]))
    algorithm.keep(outcome)
    algorithm.aggregate(gathered.value())
    for name, tensor in outcome.models["model"].items():
        assert (sent[name][masks[name]] == 0).all()
        weights = torch.tensor([1.0, 2.0, 3.0]).view(-1, *[1] * (tensor.dim() - 1)) * ~masks[name]
        total = weights.sum(0)
        mean = (weights * tensor).sum(0) / total.clamp(min=1)
        close(algorithm.server[name], torch.where(total > 0, mean, before[name]))
    (member,) = algorithm.members(EVERYONE)
    for name, tensor in member.params.items():
        for client in (0, 2):
            own = outcome.models["model"][name][client]
            assert torch.equal(tensor[client], torch.where(masks[name][client], own, algorithm.server[name]))
        assert torch.equal(tensor[5], algorithm.server[name])


@pytest.mark.parametrize(("begin_with", "first"), [("shared", False), ("own", True)])
def test_every_so_many_participations_masks_change(begin_with, first, begun):
    """Biases keep theirs; what has become own or shared is so from the next training on."""
    hyper = {"begin_with": begin_with, "every": 2, "rate": 0.25}
    algorithm, call, outcome = begun("fedselect", hyper, (3,))
    changed = []
    for participation in range(5):
        before = strip_prefix(BEFORE, algorithm.clients.gather([3]))
        old = strip_prefix(OWN, algorithm.clients.gather([3]))
        algorithm.keep(outcome)
        kept = algorithm.clients.gather([3])
        new = strip_prefix(OWN, kept)
        if any(not torch.equal(old[name], mask) for name, mask in new.items()):
            changed.append(participation)
            model = outcome.models["model"]
            moved = (model["fc3.weight"] - before["fc3.weight"]).abs()[old["fc3.weight"] == first]
            cut = round(0.25 * moved.numel())
            flips = old["fc3.weight"] != new["fc3.weight"]
            assert flips.sum() == cut
            threshold = moved.topk(cut, largest=not first).values[-1]
            beyond = (model["fc3.weight"] - before["fc3.weight"]).abs()[flips]
            assert ((beyond <= threshold) if first else (beyond >= threshold)).all()
            assert all(torch.equal(strip_prefix(BEFORE, kept)[n], model[n]) for n in before)
        assert all(torch.equal(strip_prefix(USED, kept)[n], old[n]) for n in old)
        assert (new["fc3.bias"] == first).all()
        call = algorithm.begin([3], algorithm.message([3], 2), 2)
        outcome = algorithm.task.executor.train(call)
    assert changed == [2, 4]


def test_with_all_parameters_shared_it_is_fedavg(tiny, play):
    """In whole batches: an epoch has a pass before, that trains nothing."""
    ours, fedavg = play(tiny("fedselect", {"rate": 0.0}, **ONE_STEP)), play(tiny("fedavg", **ONE_STEP))
    close(ours.history[-1], fedavg.history[-1])
    assert ours.summary["samples"] == 2 * fedavg.summary["samples"]


def test_with_all_parameters_ones_own_clients_train_alone(tiny, play):
    ours = play(tiny("fedselect", {"begin_with": "own", "rate": 0.0}, **ONE_STEP))
    local = play(tiny("local", **ONE_STEP))
    close(ours.models(), local.models())
    assert all(torch.equal(ours.history[-1][n], t) for n, t in ours.algorithm.task.initial.items())
