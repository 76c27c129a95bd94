"""The eight baselines: what each is, as equalities between methods and against plain PyTorch."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from costs import cost_of
from plain_digits import PlainDigits
from stopping import Stop

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.api import Dataset, Samples, Split
from pfl_benchmark.engine.algorithm import RunContext
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.executors import LoopExecutor
from pfl_benchmark.engine.local import LocalResult
from pfl_benchmark.engine.params import nbytes
from pfl_benchmark.engine.rounds import Diverged
from pfl_benchmark.engine.schedule import Schedule
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.models import NETWORKS
from pfl_benchmark.resolve.run import resolve, with_hyper

HEAD = ["fc3.weight", "fc3.bias"]
EVERYONE = range(6)
CURVES = ("accuracy", "accuracy_unweighted", "accuracy_worst10", "accuracy_std", "test_loss")


def figures(played):
    return {name: played.summary[name] for name in CURVES}


def different(stacked):
    """Number of clients whose rows are not those of another."""
    return len({tuple(row.flatten().tolist()) for row in stacked})


def body(params):
    return {name: tensor for name, tensor in params.items() if name not in HEAD}


# One method is another one at the end of its range


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("fedper", {"n_personal": 0}), ("fedavg", {})),
        (("fedper", {"n_personal": 5}), ("local", {})),
        (("lg-fedavg", {"lg_shared": 5}), ("fedavg", {})),
        (("lg-fedavg", {"lg_shared": 0}), ("local", {})),
        (("fedavg-ft", {"ft_epochs": 0}), ("fedavg", {})),
        (("fedper", {"n_personal": 0, "ft_epochs": 3}), ("fedavg-ft", {"ft_epochs": 3})),
        (("fedrep", {"head_epochs": 0, "body_epochs": 2}), ("fedbabu", {"ft_epochs": 0})),
        (("ditto", {"personal_epochs": 2}), ("ditto", {})),  # −1 stands for --local-epochs
    ],
    ids=lambda side: "-".join(map(str, [side[0], *side[1].values()])),
)
def test_equal_methods(left, right, tiny, play, differing):
    a, b = (play(tiny(*side, local_epochs=2)) for side in (left, right))
    assert differing(a.models(), b.models()) == []
    assert figures(a) == figures(b)
    for ours, theirs in zip(a.history, b.history, strict=True):
        assert differing(ours, theirs) == []


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("fedrep", {"n_personal": 0, "head_epochs": 3, "body_epochs": 2}), ("fedavg", {})),
        (("fedrep", {"n_personal": 5, "head_epochs": 2}), ("local", {})),
    ],
)
def test_fedrep_without_a_head_or_a_body(left, right, tiny, play, differing):
    a, b = (play(tiny(*side, local_epochs=2)) for side in (left, right))
    assert differing(a.models(), b.models()) == []


def test_a_frozen_last_round_without_a_head(tiny, play):
    """Nothing is left to train: everyone has what the server had before."""
    played = play(tiny("fedper", {"n_personal": 0, "final_round": "frozen"}))
    assert all(torch.equal(played.history[-1][name], t) for name, t in played.history[-2].items())
    for name, tensor in played.models().items():
        assert all(torch.equal(own, played.algorithm.server[name]) for own in tensor)


# FedAvg


@pytest.mark.parametrize("decay", [0.0, 1e-2])
def test_fedavg_of_one_client_is_sgd_with_a_fresh_momentum_each_round(decay, tiny, play):
    config = tiny("fedavg", clients=1, participation=1.0, local_epochs=5, rounds=3, weight_decay=decay)
    played = play(config)
    task = played.prepared.task
    net = PlainDigits(task.initial)
    inputs, labels = task.data.inputs(0), task.data.labels(0)
    for number in (1, 2, 3):
        optimiser = torch.optim.SGD(net.groups(decay), lr=0.05, momentum=0.5)
        order = task.streams.get("batches-main", number, 0)
        for _ in range(5):
            for batch in np.array_split(order.permutation(20), [8, 16]):
                optimiser.zero_grad()
                F.cross_entropy(net(inputs[batch]), labels[batch]).backward()
                optimiser.step()
        state = {name: tensor.detach() for name, tensor in net.state_dict().items()}
        torch.testing.assert_close(played.history[number - 1], state, rtol=1e-4, atol=1e-5)


def test_fedavg_averages_its_participants(tiny, ready):
    played = ready(tiny("fedavg"))
    algorithm, executor = played.algorithm, played.prepared.task.executor
    outcome = executor.train(algorithm.begin([1, 4, 5], algorithm.message([1, 4, 5], 1), 1))
    stacked = algorithm.upload(outcome)
    lone = [executor.train(algorithm.begin([k], algorithm.message([k], 1), 1)) for k in (1, 4, 5)]
    for name, tensor in stacked.items():
        assert torch.equal(tensor, torch.cat([one.models["model"][name] for one in lone]))


@pytest.mark.parametrize("algo", ["fedavg", "fedper", "fedrep", "lg-fedavg", "fedbabu"])
def test_clients_are_evaluated_with_the_last_aggregate(algo, tiny, play):
    played = play(tiny(algo))
    models = played.models()
    for name, tensor in played.algorithm.server.items():
        assert all(torch.equal(models[name][k], tensor) for k in EVERYONE)


def test_fine_tuning_is_an_ordinary_local_call_on_copies(tiny, play):
    tuned, plain = (
        play(tiny(name, {"ft_epochs": 1} if "-" in name else {})) for name in ("fedavg-ft", "fedavg")
    )
    assert tuned.summary["test_loss"] != plain.summary["test_loss"]
    again = tuned.prepared.task.executor.train(
        plain.algorithm.begin(EVERYONE, plain.algorithm.message(EVERYONE, 5), 5)
    )
    task = plain.prepared.task
    losses = [
        F.cross_entropy(
            task.network.apply(
                {n: t[k] for n, t in again.models["model"].items()}, task.data.inputs(k, "test")
            ),
            task.data.labels(k, "test"),
        )
        for k in EVERYONE
    ]
    assert tuned.summary["test_loss"] == pytest.approx(float(torch.stack(losses).mean()), rel=1e-4)


@pytest.mark.parametrize("algo", ["fedavg-ft", "fedbabu"])
@pytest.mark.parametrize(
    ("part", "layers"),
    [
        ("full", ("conv1", "conv2", "fc1", "fc2", "fc3")),
        ("head", ("fc3",)),
        ("body", ("conv1", "conv2", "fc1", "fc2")),
    ],
)
def test_what_is_fine_tuned(algo, part, layers, tiny, ready):
    (phase,) = ready(tiny(algo, {"ft_part": part, "ft_epochs": 7})).algorithm.adaptation()
    assert phase.rates == dict.fromkeys(layers, 0.05)
    assert phase.epochs == 7


# Local only


def test_local_clients_never_learn_from_each_other(tiny, play, differing):
    """A client's model depends on its own data alone: others may train or not."""
    few, many = (play(tiny("local", participation=share, rounds=1)) for share in (0.2, 1.0))
    assert differing(few.models(), many.models()) == []
    assert few.history == [{}]


def test_local_training_at_once(tiny, play, differing):
    played = play(tiny("local", {"total_epochs": 3}, rounds=3))
    assert played.summary["samples"] == 6 * 3 * 20
    task = played.prepared.task
    (member,) = played.algorithm.members([2])
    assert differing({n: t[0] for n, t in member.params.items()}, task.initial) == list(task.initial)


# FedPer, FedRep


def test_fedper_keeps_the_head_it_trained(tiny, play):
    heads = []

    def watch(algorithm, line):
        heads.append(algorithm.clients.gather(EVERYONE)["fc3.weight"])

    played = play(tiny("fedper"), watch=watch)
    assert sorted(played.algorithm.server) == sorted(body(played.prepared.task.initial))
    assert different(heads[-1]) == 6
    cohort = played.prepared.task.schedule.cohort(2, full=False)
    moved = [not torch.equal(a, b) for a, b in zip(heads[0], heads[1], strict=True)]
    assert [k for k in EVERYONE if moved[k]] == cohort


@pytest.mark.parametrize("count", [1, 2, 3])
def test_number_of_personal_layers(count, tiny, ready):
    algorithm = ready(tiny("fedper", {"n_personal": count})).algorithm
    network = algorithm.network
    assert algorithm.personal_layers() == network.tail(count)
    assert sorted(algorithm.clients.initial) == sorted(network.keys(network.tail(count)))


def test_fedrep_with_only_a_body_phase_is_fedbabu_before_fine_tuning(tiny, play, differing):
    rep = play(tiny("fedrep", {"head_epochs": 0, "body_epochs": 5}))
    babu = play(tiny("fedbabu", {"ft_epochs": 0}, local_epochs=5))
    for ours, theirs in zip(rep.history, babu.history, strict=True):
        assert differing(ours, theirs) == []
    heads = rep.algorithm.clients.gather(EVERYONE)
    initial = rep.prepared.task.initial
    assert all(torch.equal(heads[name][k], initial[name]) for name in HEAD for k in EVERYONE)


def test_fedrep_with_only_a_head_phase_leaves_the_body(tiny, play, differing):
    played = play(tiny("fedrep", {"head_epochs": 2, "body_epochs": 0}))
    for server in played.history:
        assert differing(server, body(played.prepared.task.initial)) == []
    assert played.summary["samples"] == (3 * 3 + 6) * 2 * 20


@pytest.mark.parametrize(("epochs", "of_the_head"), [(5, 4), (2, 1), (1, 1)])
def test_fedrep_trains_the_head_first(epochs, of_the_head, tiny, ready):
    head, body_ = ready(tiny("fedrep", local_epochs=epochs)).algorithm.phases(1)
    assert (tuple(head.rates), head.epochs) == (("fc3",), of_the_head)
    assert (tuple(body_.rates), body_.epochs) == (("conv1", "conv2", "fc1", "fc2"), 1)


@pytest.mark.parametrize("algo", ["fedper", "fedrep"])
def test_a_frozen_last_round_trains_heads_only(algo, tiny, play, differing):
    config = tiny(algo, {"final_round": "frozen"})
    lines = []
    played = play(config, watch=lambda algorithm, line: lines.append(line))
    assert differing(played.history[-1], played.history[-2]) == []
    assert (lines[-1]["bytes_up"], lines[-1]["participants"]) == (0, 6)
    assert lines[-1]["samples"] == 6 * 10 * 20
    standard = play(tiny(algo))
    assert differing(played.history[-2], standard.history[-2]) == []
    assert differing(played.algorithm.server, standard.algorithm.server)


# FedBABU


def test_fedbabus_head_is_common_until_fine_tuning(tiny, play):
    seen = []

    def watch(algorithm, line):
        (member,) = algorithm.members(EVERYONE)
        seen.append({name: member.params[name].clone() for name in HEAD})
        assert not set(HEAD) & set(algorithm.server)

    played = play(tiny("fedbabu"), watch=watch)
    for heads in seen:
        for name in HEAD:
            assert all(torch.equal(head, played.prepared.task.initial[name]) for head in heads[name])
    assert played.algorithm.clients.met == []
    assert played.summary["evaluated"] == "personal"


def test_fedbabu_without_fine_tuning_is_the_body_under_the_first_head(tiny, play):
    played = play(tiny("fedbabu", {"ft_epochs": 0}))
    task = played.prepared.task
    model = {**task.initial, **played.algorithm.server}
    losses = [
        F.cross_entropy(task.network.apply(model, task.data.inputs(k, "test")), task.data.labels(k, "test"))
        for k in EVERYONE
    ]
    assert played.summary["test_loss"] == pytest.approx(float(torch.stack(losses).mean()), rel=1e-4)
    assert played.summary["evaluated"] == "global"


# LG-FedAvg


def test_lg_fedavg_averages_the_upper_layers(tiny, play):
    played = play(tiny("lg-fedavg"))
    assert sorted(played.algorithm.server) == ["fc2.bias", "fc2.weight", "fc3.bias", "fc3.weight"]
    lower = played.algorithm.clients.gather(EVERYONE)
    assert different(lower["conv1.weight"]) == 6


def test_a_warm_start_is_fedavg_first(tiny, play, differing):
    warm = play(tiny("lg-fedavg", {"lg_warm": 2}))
    common = play(tiny("fedavg", rounds=2))
    for number in (0, 1):
        assert differing(warm.history[number], common.history[number]) == []
    # A client that has not taken part since then still has FedAvg's lower layers.
    assert sorted(warm.algorithm.clients.initial) == sorted(
        name for name in common.history[1] if name.split(".")[0] in ("conv1", "conv2", "fc1")
    )
    for name, tensor in warm.algorithm.clients.initial.items():
        assert torch.equal(tensor, common.history[1][name])
    assert warm.algorithm.server.keys() == play(tiny("lg-fedavg")).algorithm.server.keys()


@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_warm_start_can_be_resumed(last, tiny, launch, tmp_path):
    config = tiny("lg-fedavg", {"lg_warm": 2})
    with pytest.raises(KeyboardInterrupt):
        launch(config, tmp_path / "killed", Stop(last))
    resumed = launch(config, tmp_path / "killed")
    assert resumed.content() == launch(config, tmp_path / "whole").content()


def test_the_warm_lower_layers_are_paid_for(tiny, launch, tmp_path):
    run = launch(tiny("lg-fedavg", {"lg_warm": 2}), tmp_path)
    network = NETWORKS["digits"]
    lower, upper = 4 * network.count(["conv1", "conv2", "fc1"]), 4 * network.count(["fc2", "fc3"])
    sent = [line["bytes_broadcast"] for line in run.lines]
    assert sent == [0, 6 * (lower + upper), 0, 6 * upper]
    assert [line["participants"] for line in run.lines] == [3, 6, 3, 6]


# First downloads


@pytest.mark.parametrize(
    ("algo", "hyper", "layers"),
    [
        ("local", {}, ()),
        ("fedavg", {}, ()),
        ("pfedfda", {}, ()),
        ("fedper", {"n_personal": 2}, ("fc2", "fc3")),
        ("fedrep", {}, ("fc3",)),
        ("fedbabu", {}, ("fc3",)),
        ("lg-fedavg", {}, ("conv1", "conv2", "fc1")),
        ("ditto", {}, ("conv1", "conv2", "fc1", "fc2", "fc3")),
    ],
)
def test_what_a_client_receives_once(algo, hyper, layers, tiny, ready, differing):
    """What it begins from and cannot have from the common message, at θ_0."""
    algorithm = ready(tiny(algo, hyper)).algorithm
    first = algorithm.message([0], 1).first
    assert list(first) == algorithm.network.keys(layers)
    assert differing(first, {name: algorithm.task.initial[name] for name in first}) == []


def test_the_first_round_of_each_client_is_charged(tiny, launch, ready, tmp_path):
    config = tiny("fedper", rounds=6)
    run, played = launch(config, tmp_path), ready(config)
    network, met, new = played.prepared.task.network, set(), []
    for number in range(1, 7):
        cohort = set(played.prepared.task.schedule.cohort(number, number == 6))
        new.append(len(cohort - met))
        met |= cohort
    assert sum(new) == 6
    assert 0 in new
    body, head = 4 * network.count(network.names[:-1]), 4 * network.count(["fc3"])
    sizes = [3, 3, 3, 3, 3, 6]
    assert [line["bytes_down"] for line in run.lines] == [
        size * body + count * head for size, count in zip(sizes, new, strict=True)
    ]


def test_ditto_broadcasts_nothing(unbroken):
    assert [line["bytes_broadcast"] for line in unbroken("ditto").lines] == [0] * 4


# The start of personal layers

AVERAGE = {"personal_start": "average"}


@pytest.mark.parametrize(
    ("algo", "hyper"), [("fedper", {"n_personal": 2}), ("fedrep", {"head_epochs": 1}), ("lg-fedavg", {})]
)
def test_new_clients_begin_from_the_mean_of_the_last_round(algo, hyper, tiny, play, differing):
    """Participants keep their own; before the first round and by default all begin at θ_0."""
    config = tiny(algo, {**hyper, **AVERAGE}, rounds=3)
    kept = []

    def watch(algorithm, line):
        store = algorithm.clients
        kept.append((set(store.met), {n: t.clone() for n, t in store.gather(EVERYONE).items()}))

    played = play(config, watch=watch)
    schedule = played.prepared.task.schedule
    for number, (met, own) in enumerate(kept[:2], start=1):
        cohort = schedule.cohort(number, False)
        for tensor in own.values():
            mean = tensor[cohort].double().mean(0).float()
            for client in set(EVERYONE) - met:
                torch.testing.assert_close(tensor[client], mean, rtol=0, atol=1e-7)
    assert any(set(EVERYONE) - met for met, _ in kept[:2])
    plain = play(tiny(algo, hyper, rounds=3))
    names = played.prepared.task.network.shapes()
    assert differing(played.history[0], plain.history[0]) == []
    assert differing(played.models(), plain.models()) == list(names)


@pytest.mark.parametrize("algo", ["fedper", "fedrep", "lg-fedavg"])
def test_personal_layers_that_are_sent_are_charged(algo, tiny, launch, tmp_path):
    plain = launch(tiny(algo), tmp_path)
    average = launch(tiny(algo, AVERAGE), tmp_path)
    personal = ("conv1", "conv2", "fc1") if algo == "lg-fedavg" else ("fc3",)
    size = 4 * NETWORKS["digits"].count(personal)
    participations = sum(line["participants"] for line in plain.lines)
    assert average.summary["bytes_up"] - plain.summary["bytes_up"] == participations * size
    for name in ("bytes_down", "bytes_broadcast"):
        assert average.summary[name] == plain.summary[name]


@pytest.mark.parametrize(
    ("algo", "hyper"), [("fedper", {}), ("fedper", {"final_round": "frozen"}), ("lg-fedavg", {"lg_warm": 2})]
)
def test_an_averaged_start_survives_a_kill(algo, hyper, tiny, launch, tmp_path):
    config = tiny(algo, {**hyper, **AVERAGE})
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            launch(config, tmp_path / "killed", Stop())
    assert launch(config, tmp_path / "killed").content() == launch(config, tmp_path / "whole").content()


@pytest.mark.parametrize("algo", ["fedper", "lg-fedavg"])
def test_an_averaged_start_is_in_the_plan_of_a_byte_budget(algo, tiny, ready, launch, tmp_path):
    config = tiny(algo, AVERAGE, budget="bytes", rounds=8, compute_cap=6.0, eval_every=0)
    run = launch(config, tmp_path)
    spent = sum(run.summary[name] for name in ("bytes_up", "bytes_down", "bytes_broadcast"))
    assert spent == run.summary["budget"]["planned"]


# FedBABU's learning rates


@pytest.mark.parametrize(
    ("rounds", "rates"), [(8, [1] * 4 + [0.1] * 2 + [0.01] * 2), (5, [1, 1, 0.1, 0.01, 0.01])]
)
def test_fedbabus_steps_of_the_learning_rate(rounds, rates, tiny, ready):
    """main_fed.py: × 0.1 once `epochs // 2` and once `epochs * 3 // 4` rounds are done."""
    algorithm = ready(tiny("fedbabu", {"lr_steps": True, "ft_lr": 1e-3}, rounds=rounds)).algorithm
    found = [algorithm.phases(number)[0].rates["conv1"] for number in range(1, rounds + 1)]
    assert found == pytest.approx([0.05 * rate for rate in rates])
    assert set(algorithm.adaptation()[0].rates.values()) == {1e-3}
    constant = ready(tiny("fedbabu", rounds=rounds)).algorithm
    assert {constant.phases(number)[0].rates["conv1"] for number in range(1, rounds + 1)} == {0.05}
    assert constant.shared_rounds() != algorithm.shared_rounds()


# Ditto


@pytest.mark.parametrize("lam", [0.0, 1.0, 7.0])
def test_dittos_global_models_are_fedavgs(lam, tiny, play, differing):
    ditto, fedavg = play(tiny("ditto", {"lam": lam})), play(tiny("fedavg"))
    for ours, theirs in zip(ditto.history, fedavg.history, strict=True):
        assert differing(ours, theirs) == []


def test_ditto_without_pull_is_local(tiny, play, differing, monkeypatch):
    monkeypatch.setattr(ALGORITHMS["ditto"], "personal_stream", "batches-main")
    ditto, local = play(tiny("ditto", {"lam": 0}, momentum=0.9)), play(tiny("local", momentum=0.9))
    # One stream serves both models in turn, so the personal one sees the orders of the second epoch.
    assert differing(ditto.models(), local.models())
    monkeypatch.setattr(ALGORITHMS["ditto"], "phases", lambda self, round: PERSONAL(self, round)[1:])
    ditto = play(tiny("ditto", {"lam": 0}, momentum=0.9))
    assert differing(ditto.models(), local.models()) == []
    assert figures(ditto) == figures(local)


PERSONAL = ALGORITHMS["ditto"].phases


def test_ditto_without_personal_epochs_evaluates_the_start(tiny, play):
    played = play(tiny("ditto", {"personal_epochs": 0}))
    models = played.models()
    for name, start in played.prepared.task.initial.items():
        assert all(torch.equal(models[name][k], start) for k in EVERYONE)
    assert played.summary["samples"] == play(tiny("fedavg")).summary["samples"]


def test_dittos_anchor_is_the_model_as_received(tiny, ready):
    """With λη = 1 and one step from the anchor itself, the pull vanishes: v = a − η g(a)."""
    config = tiny("ditto", {"lam": 20.0}, batch_size=20)  # lr 0.05
    played = ready(config)
    algorithm, task = played.algorithm, played.prepared.task
    outcome = task.executor.train(algorithm.begin([3], algorithm.message([3], 1), 1))
    params = {name: t.clone().requires_grad_() for name, t in task.initial.items()}
    loss = F.cross_entropy(task.network.apply(params, task.data.inputs(3)), task.data.labels(3))
    for (name, start), gradient in zip(
        params.items(), torch.autograd.grad(loss, list(params.values())), strict=True
    ):
        expected = start.detach() - 0.05 * gradient
        torch.testing.assert_close(outcome.models["personal"][name][0], expected, rtol=1e-4, atol=1e-6)


def test_a_large_pull_jumps_to_the_anchor(tiny, play):
    """λη = 1 makes every step start at the anchor: v ends one momentum step away from it."""
    near = play(tiny("ditto", {"lam": 20.0}))
    far = play(tiny("ditto", {"lam": 0.0}))

    def distance(played):
        anchor, models = played.history[-2], played.models()
        return sum(float((models[name] - anchor[name]).square().sum()) for name in anchor)

    assert distance(near) < 0.5 * distance(far)


def test_a_pull_beyond_two_diverges_and_says_where(tiny, play):
    with pytest.raises(
        Diverged,
        match=r"loss of client \d .* in round \d \(stage 1\); it began with parameters up to \S+; "
        r"try a smaller --set lam or a smaller --lr\. ",
    ):
        play(tiny("ditto", {"lam": 2000.0}, local_epochs=5))


def test_dittos_local_work_is_twice_fedavgs(unbroken):
    assert unbroken("ditto").summary["samples"] == 2 * unbroken("fedavg").summary["samples"]
    assert unbroken("ditto").summary["bytes_up"] == unbroken("fedavg").summary["bytes_up"]


# Who is evaluated


@pytest.mark.parametrize(
    ("algo", "hyper", "evaluated"),
    [
        ("local", {}, "personal"),
        ("fedavg", {}, "global"),
        ("fedavg-ft", {}, "personal"),
        ("fedavg-ft", {"ft_epochs": 0}, "global"),
        ("ditto", {}, "personal"),
        ("fedbabu", {}, "personal"),
        ("fedper", {}, "personal"),
        ("fedper", {"n_personal": 0}, "global"),
        ("fedrep", {}, "personal"),
        ("lg-fedavg", {}, "personal"),
        ("lg-fedavg", {"lg_shared": 5}, "global"),
    ],
)
def test_which_model_is_evaluated(algo, hyper, evaluated, tiny, play):
    assert play(tiny(algo, hyper, rounds=1)).summary["evaluated"] == evaluated


# Refusals


@pytest.mark.parametrize(
    ("algo", "hyper", "message"),
    [
        ("fedper", {"n_personal": 6}, "n_personal=6: the network has 5 layers"),
        ("fedrep", {"n_personal": 6}, "n_personal=6"),
        ("lg-fedavg", {"lg_shared": 6}, "lg_shared=6: the network has 5 layers"),
        ("lg-fedavg", {"lg_warm": 4}, "lg_warm=4: expected fewer than --rounds 4"),
        ("fedper", {"n_personal": -1}, "n_personal=-1: expected at least 0"),
        ("ditto", {"lam": -1}, "lam=-1.0: expected at least 0"),
        ("ditto", {"personal_start": "average"}, "unknown hyper-parameter 'personal_start' of 'ditto'"),
        ("local", {"personal_start": "average"}, "unknown hyper-parameter 'personal_start' of 'local'"),
        ("fedrep", {"personal_start": "avg"}, "personal_start=avg: expected one of: initial, average"),
        ("fedper", {"n_personal": 0, **AVERAGE}, "personal_start=average: n_personal=0 leaves no personal"),
        ("fedper", {"n_personal": 5, **AVERAGE}, "personal_start=average: n_personal=5 leaves no server"),
        ("lg-fedavg", {"lg_shared": 5, **AVERAGE}, "personal_start=average: lg_shared=5 leaves no personal"),
        ("fedbabu", {"ft_lr": -1}, "ft_lr=-1.0: expected at least 0"),
        ("fedbabu", {"ft_epochs": 0, "ft_lr": 1e-3}, "ft_lr=0.001: ft_epochs=0 .* nothing is fine-tuned"),
        ("fedavg-ft", {"ft_part": "haed"}, r"did you mean 'head'\?"),
        (
            "local",
            {"total_epochs": "many"},
            "total_epochs=many does not fit 'local': expected a whole number",
        ),
    ],
)
def test_hyper_parameters_that_make_no_sense(algo, hyper, message, tiny, launch, tmp_path):
    with pytest.raises(UserError, match=message):
        launch(tiny(algo, hyper), tmp_path)
    assert list(tmp_path.iterdir()) == []


# Bytes on the paper's networks

# Floats of one client-round and direction on CIFAR-10, CIFAR-100, EMNIST.
FLOATS = {
    "local": (0, 0, 0),
    "fedavg": (307_842, 1_075_044, 245_274),
    "fedavg-ft": (307_842, 1_075_044, 245_274),
    "ditto": (307_842, 1_075_044, 245_274),
    "fedper": (307_192, 1_062_144, 243_584),
    "fedrep": (307_192, 1_062_144, 243_584),
    "fedbabu": (307_192, 1_062_144, 243_584),
    "lg-fedavg": (8_394, 45_796, 9_946),
}
PERSONAL_LAYERS = {2: (299_448, 1_029_248, 235_328), 3: (107_328, 209_792, 104_128)}
GIGABYTES = {  # uploads of a whole run, to three decimals
    "fedavg": (2.081, 7.267, 1.658),
    "fedper": (2.077, 7.180, 1.647),
    "lg-fedavg": (0.057, 0.310, 0.067),
}
SHAPES = {"cifar10": (3, 32, 32), "cifar100": (3, 32, 32), "emnist": (1, 28, 28)}


def on_paper_network(dataset, algo, hyper):
    """A method on the paper's network for `dataset`, with two clients of one made image each."""
    network = NETWORKS[dataset]
    images = Samples(np.zeros((2, *SHAPES[dataset]), np.uint8), np.array([0, 1]))
    classes = network.layer("fc3").outputs
    channels = SHAPES[dataset][0]
    made = Dataset(
        dataset, images, images, classes, ("?",) * classes, (0.5,) * channels, (0.5,) * channels, "made"
    )
    rows = (np.array([0]), np.array([1]))
    config = with_hyper(RunConfig(algo=algo, dataset=dataset, clients=2), hyper)
    data, streams = FederatedData(made, Split(rows, rows), torch.device("cpu")), Streams(0)
    initial = network.init(streams.get("init"))
    schedule, executor = Schedule(data.clients, 1.0, streams), LoopExecutor(config, data, streams)
    task = RunContext(config, network, data, streams, schedule, 160, initial, executor)
    method = ALGORITHMS[algo]
    return method(task, method.Hyper(**config.hyper))


def floats_of(algorithm):
    """Floats really in the messages of a client-round (down, up); nothing needs to be trained for that."""
    message = algorithm.message([0], 1)
    call = algorithm.begin([0], message, 1)
    outcome = LocalResult(
        1, [0], {slot: model.params for slot, model in call.models.items()}, torch.zeros(1), 0, 0
    )
    return message.nbytes(1) // 4, nbytes(algorithm.upload(outcome)) // 4


@pytest.mark.parametrize("column", range(3), ids=list(SHAPES))
@pytest.mark.parametrize(
    ("algo", "hyper", "expected"),
    [
        *((algo, {}, expected) for algo, expected in FLOATS.items()),
        *(("fedper", {"n_personal": n}, expected) for n, expected in PERSONAL_LAYERS.items()),
        ("lg-fedavg", {"lg_shared": 1}, (650, 12_900, 1_690)),
    ],
    ids=str,
)
def test_floats_of_a_client_round(algo, hyper, expected, column):
    algorithm = on_paper_network(list(SHAPES)[column], algo, hyper)
    assert floats_of(algorithm) == (expected[column],) * 2
    traffic = cost_of(algorithm, 1)
    assert (traffic.down, traffic.up) == (4 * expected[column],) * 2


@pytest.mark.parametrize("algo", GIGABYTES)
def test_gigabytes_of_the_papers_runs(algo):
    schedule = Schedule(100, 0.1, Streams(0))
    client_rounds = sum(schedule.size(number == 160) for number in range(1, 161))
    assert client_rounds == 1_690
    uploads = [round(4 * floats * client_rounds / 1e9, 3) for floats in FLOATS[algo]]
    assert uploads == list(GIGABYTES[algo])


# The command line's view


def test_the_record_names_the_split(tiny, tmp_path):
    split = {}
    for algo in ("local", "fedrep"):
        execution = Execution(device="cpu", executor="loop", results_dir=tmp_path)
        record = Path(run_cell(resolve(tiny(algo, rounds=1)), execution, Quiet())["record"])
        split[algo] = json.loads((record / "config.json").read_text())["split"]
    assert split["local"] == split["fedrep"]
    assert split["local"]["classes_per_client"] == [2, 2]
    assert split["local"]["train_samples"] == [20, 20]
