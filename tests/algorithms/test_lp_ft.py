"""LP-FT: fine-tuning that begins with the last layer alone."""

import pytest
import torch
from equations import close, gradient_at

from pfl_benchmark.algorithms.fedavg_ft import FedAvgFT
from pfl_benchmark.engine.hyper import recorded
from pfl_benchmark.engine.local import LocalCall, StackedModel
from pfl_benchmark.errors import UserError
from pfl_benchmark.resolve.run import method_label


def test_the_ablation_trains_the_head_and_then_everything(tiny, ready):
    algorithm = ready(tiny("fedavg-ft", dict(FedAvgFT.ablations["lp-ft"]))).algorithm
    head, everything = algorithm.adaptation()
    assert (set(head.rates), head.epochs) == ({"fc3"}, 5)
    assert (set(everything.rates), everything.epochs) == (set(algorithm.network.names), 5)


def test_both_stages_follow_their_gradients(tiny, ready):
    """One full batch each: the head moves by its gradient, then all layers by those at the moved head."""
    hyper = {"ft_head_epochs": 1, "ft_epochs": 1, "ft_lr": 0.1}
    algorithm = ready(tiny("fedavg-ft", hyper, batch_size=20, momentum=0.5)).algorithm
    task = algorithm.task
    (member,) = algorithm.members([3])
    model = StackedModel(member.network, member.params)
    adapted = task.executor.train(LocalCall(5, [3], {"model": model}, algorithm.adaptation())).models["model"]
    w = dict(task.initial)
    slope = gradient_at(task, w, 3)
    w |= {name: w[name] - 0.1 * slope[name] for name in ("fc3.weight", "fc3.bias")}
    slope = gradient_at(task, w, 3)
    close({name: tensor[0] for name, tensor in adapted.items()}, {n: w[n] - 0.1 * slope[n] for n in w})


def test_without_its_first_stage_nothing_has_changed(tiny, ready):
    algorithm = ready(tiny("fedavg-ft")).algorithm
    (phase,) = algorithm.adaptation()
    assert (phase.epochs, phase.rates["conv1"]) == (5, algorithm.config.lr)
    assert "ft_head_epochs" not in recorded(algorithm.hyper)


def test_a_head_that_is_trained_alone_may_have_a_rate(tiny, ready):
    hyper = {"ft_head_epochs": 2, "ft_epochs": 0, "ft_lr": 0.01}
    (phase,) = ready(tiny("fedavg-ft", hyper)).algorithm.adaptation()
    assert phase.rates == {"fc3": 0.01}
    with pytest.raises(UserError, match="nothing is fine-tuned"):
        ready(tiny("fedavg-ft", {**hyper, "ft_head_epochs": 0}))


def test_it_costs_both_stages_and_is_called_by_its_name(tiny, play):
    config = tiny("fedavg-ft", {"ft_head_epochs": 5})
    assert method_label(config) == "fedavg-ft-lp-ft"
    played = play(config)
    assert played.summary["adaptation_samples"] == 10 * 6 * 20
    assert played.summary["evaluated"] == "personal"
    assert torch.isfinite(torch.tensor(played.summary["test_loss"]))
