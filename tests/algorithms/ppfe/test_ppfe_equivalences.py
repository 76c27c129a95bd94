"""What PPFE must be equal to, and how every stage starts and ends."""

import pytest
import torch

from pfl_benchmark.algorithms.ppfe.hyper import STARTS
from pfl_benchmark.algorithms.ppfe.reduction import product
from pfl_benchmark.engine.clients import ClientStore
from pfl_benchmark.engine.executors import EXECUTORS, LoopExecutor
from pfl_benchmark.engine.params import clone, select

CLIENTS = range(6)


@pytest.fixture
def calls(monkeypatch):
    """All local work that is asked for, in order."""
    seen, train = [], LoopExecutor.train

    def watched(self, call):
        call.sample_weights = call.sample_weights and [w.clone() for w in call.sample_weights]
        seen.append(call)
        return train(self, call)

    monkeypatch.setattr(LoopExecutor, "train", watched)
    return seen


# Other methods as special cases


@pytest.mark.parametrize(
    "hyper", [{}, {"rw_loss": "zero_one"}, {"ens_space": "probability"}, {"ens_space": "vote"}]
)
def test_one_stage_is_fedavg(hyper, tiny, play, differing):
    fedavg, ppfe = play(tiny("fedavg")), play(tiny("ppfe", {"T": 1, **hyper}))
    for theirs, ours in zip(fedavg.history, ppfe.history, strict=True):
        assert differing(theirs, ours) == []
    names = ["accuracy", "test_loss", "bytes_up", "bytes_down", "bytes_broadcast", "evaluated"]
    assert [ppfe.summary[n] for n in names] == [fedavg.summary[n] for n in names]


@pytest.mark.parametrize("personal", [1, 2, 3])
def test_two_stages_are_fedper_started_from_fedavg(personal, tiny, play, ready, advance, differing):
    hyper = {"T": 2, "stage_rounds": (2, 3), "heads": personal, "reweight": False, "ensemble": "last"}
    ppfe = play(tiny("ppfe", hyper, rounds=5))
    theta = ppfe.history[1]

    fedper = ready(tiny("fedper", {"n_personal": personal}, rounds=5))
    method, network = fedper.algorithm, fedper.prepared.task.network
    method.server = clone(select(theta, network.keys(method.shared_layers())))
    method.clients = ClientStore(select(theta, network.keys(method.personal_layers())), len(CLIENTS))
    advance(fedper, range(3, 6), full=[5])
    assert differing(ppfe.models(), fedper.models()) == []
    assert differing(ppfe.algorithm.server, method.server) == []


def test_fixed_head_without_reweighting_is_one_long_stage(staged, ready, advance, differing):
    stages = ready(staged({"body_rate": (1, 1, 1, 1)}, "no-progression-no-reweighting"))
    single = ready(staged({}, "fixed-head-1"))
    assert [s.last for s in single.algorithm.stages] == [2, 8]
    for played in (stages, single):
        advance(played, range(1, 9), full=[2, 8])
    assert differing(stages.algorithm.server, single.algorithm.server) == []
    kept = [played.algorithm.clients.gather(CLIENTS) for played in (stages, single)]
    assert list(kept[0]) == ["fc3.weight", "fc3.bias"]
    assert differing(*kept) == []


def test_no_masked_entry_is_the_dense_method(staged, play, differing):
    dense, sparse = (
        play(staged({"reduction": "none"})),
        play(staged({"reduction": "sparse", "mask_rates": "0,0,0"})),
    )
    for a, b in zip(dense.algorithm.members(CLIENTS), sparse.algorithm.members(CLIENTS), strict=True):
        assert differing(a.params, b.params) == []
        assert torch.equal(a.weights, b.weights)


@pytest.mark.parametrize("reduction", ["svd", "sparse"])
def test_every_executor_trains_the_same_stages(reduction, staged, play):
    """Unequal clients with sample weights, masks, factors and two learning rates."""
    config = staged({"reduction": reduction}, learning=True, rounds=4, local_epochs=6)
    loop = play(config).algorithm
    for executor in sorted({*EXECUTORS} - {"loop"}):
        other = play(config, executor=executor).algorithm
        for a, b in zip(loop.members(CLIENTS), other.members(CLIENTS), strict=True):
            torch.testing.assert_close(a.weights, b.weights, rtol=0, atol=2e-3)
            for name, tensor in a.params.items():
                torch.testing.assert_close(tensor, b.params[name], rtol=0, atol=2e-3)
        for a, b in zip(loop.state()["records"], other.state()["records"], strict=True):
            torch.testing.assert_close(a["largest"], b["largest"], rtol=0, atol=5e-3)
    assert max(float(record["largest"].max()) for record in loop.state()["records"]) > 1.02


# How stages start


FULL_RANK = "64,32,10,64,32,10"


@pytest.mark.parametrize("stage", [2, 3, 4])
@pytest.mark.parametrize(
    ("hyper", "tolerance"),
    [
        ({"reduction": "svd", "ranks": FULL_RANK}, 1e-5),
        ({"reduction": "svd", "ranks": FULL_RANK, "factor_policy": "skip_last"}, 1e-5),
        ({"reduction": "svd", "ranks": "200,200,200,100,100,100", "factor_policy": "literal"}, 1e-5),
        ({"reduction": "sparse", "mask_rates": "0,0,0"}, 0),
        ({"reduction": "width", "width_alpha": 0}, 0),
        ({"reduction": "none"}, 0),
    ],
)
def test_a_stage_starts_with_the_predictions_of_the_one_before(
    hyper, tolerance, stage, staged, ready, advance, outputs
):
    played = ready(staged({**hyper, "fc_init": "prev", "ensemble": "last"}))
    end = 2 * (stage - 1)
    advance(played, range(1, end + 1), full=[2, 4, 6])
    (before,) = outputs(played)
    played.algorithm.start_round(end + 1)
    (after,) = outputs(played)
    assert played.algorithm.current.number == stage
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)
    assert not torch.equal(before[0], before[1]) or stage == 2, "clients differ, so rows cannot be mixed up"


def dense(network, params, name):
    """Weight of a layer of stacked parameters as dense matrices."""
    return product(network.layer(name), params)


def truncated(weight, rank):
    u, s, v = torch.linalg.svd(weight.double(), full_matrices=False)
    return (u[..., :rank] * s[..., None, :rank] @ v[..., :rank, :]).float()


# Where each layer of stages 3 and 4 begins: at the model of the stage before (P, of a client its own), or at
# that of stage 1 (F). Convolutions, fc1, fc2, fc3; fc1 is shared in stage 3.
SOURCES = {
    "prev": {3: "PPPP", 4: "PPPP"},
    "fedavg_heads": {3: "PPFF", 4: "PFFF"},
    "fedavg": {3: "PFFF", 4: "PFFF"},
    "fedavg_chain": {3: "FFFF", 4: "PFFF"},
    "fedavg_all": {3: "FFFF", 4: "FFFF"},
}


@pytest.mark.parametrize("fc_init", STARTS)
@pytest.mark.parametrize("stage", [3, 4])
def test_where_the_start_of_a_reduced_stage_comes_from(fc_init, stage, staged, ready, advance):
    hyper = {"fc_init": fc_init, "ranks": "40,20,8,30,15,6"}
    played = ready(staged(hyper))
    method = played.algorithm
    advance(played, [1, 2], full=[2])
    theta = clone(method.server)
    advance(played, range(3, 2 * stage - 1), full=[4, 6])
    network, before = method.network, clone(method.assemble(CLIENTS, method.server))
    method.start_round(2 * stage - 1)
    after = method.assemble(CLIENTS, method.server)
    assert not torch.equal(before["conv1.weight"][0], theta["conv1.weight"])
    convolutions, *places = SOURCES[fc_init][stage]
    for key in ("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"):
        assert torch.equal(method.server[key], before[key][0] if convolutions == "P" else theta[key])
    ranks = {3: (40, 20, 8), 4: (30, 15, 6)}[stage]
    for name, rank, place in zip(("fc1", "fc2", "fc3"), ranks, places, strict=True):
        if place == "P":
            source, bias = dense(network, before, name), before[f"{name}.bias"]
        else:
            source = theta[f"{name}.weight"].expand(len(CLIENTS), -1, -1)
            bias = theta[f"{name}.bias"].expand(len(CLIENTS), -1)
        made = dense(method.network, after, name)
        torch.testing.assert_close(made, truncated(source, rank), rtol=0, atol=2e-6)
        assert torch.equal(after[f"{name}.bias"], bias)
    assert torch.equal(after["fc3.second"][0], after["fc3.second"][1]) == (places[-1] == "F")


@pytest.mark.parametrize("reduction", ["none", "sparse"])
def test_without_new_shapes_every_layer_goes_on(reduction, staged):
    assert staged({"reduction": reduction}).hyper["fc_init"] == "prev"
    assert staged({"reduction": reduction, "fc_init": "prev"}) == staged({"reduction": reduction})
    assert staged({"reduction": "width"}).hyper["fc_init"] == staged().hyper["fc_init"] == "fedavg"


def test_the_second_stage_starts_everything_from_fedavg(staged, ready, advance, differing):
    played = ready(staged())
    advance(played, [1, 2], full=[2])
    theta = clone(played.algorithm.server)
    played.algorithm.start_round(3)
    models = played.models()
    for client in CLIENTS:
        assert differing({name: tensor[client] for name, tensor in models.items()}, theta) == []


# Training inside a stage


def test_every_client_trains_with_the_weights_of_its_own_errors(staged, ready, advance, calls, boosted):
    played = ready(staged(learning=True))
    method, data = played.algorithm, played.prepared.task.data
    assert len(set(data.train_sizes)) > 1
    weights = {k: [1.0] * data.train_sizes[k] for k in CLIENTS}
    for stage in (1, 2, 3, 4):
        calls.clear()
        advance(played, [2 * stage - 1, 2 * stage], full=[2, 4, 6, 8])
        for call in calls:
            if stage == 1:
                assert call.sample_weights is None
                continue
            for client, used in zip(call.clients, call.sample_weights, strict=True):
                torch.testing.assert_close(used, torch.tensor(weights[client]), rtol=1e-4, atol=1e-5)
                assert float(used.mean()) == pytest.approx(1, abs=1e-5)
        assert sorted(calls[-1].clients) == list(CLIENTS)
        models = method.assemble(CLIENTS, method.server)
        for k in CLIENTS:
            own = {name: tensor[k] for name, tensor in models.items()}
            logits = method.network.apply(own, data.inputs(k))
            weights[k] = boosted(logits, data.labels(k), weights[k])[2]
    assert max(max(w) for w in weights.values()) > 1.5


def test_without_reweighting_nobody_is_weighted(staged, ready, advance, calls):
    advance(ready(staged({"reweight": False})), range(1, 9), full=[2, 4, 6, 8])
    assert len(calls) == 8
    assert all(call.sample_weights is None for call in calls)


def test_learning_rates_of_shared_and_personal_layers(staged, ready, advance, calls):
    advance(ready(staged()), range(1, 9), full=[2, 4, 6, 8])
    lr = 0.05
    expected = {
        1: (lr, lr, lr, lr, lr),
        2: (lr, lr, lr, lr, lr),
        3: (lr / 10, lr / 10, lr / 10, lr, lr),
        4: (lr / 10, lr / 10, lr, lr, lr),
    }
    for call in calls:
        (phase,) = call.phases
        assert phase.epochs == 1
        assert tuple(phase.rates.values()) == pytest.approx(expected[(call.round + 1) // 2])
        assert list(phase.rates) == ["conv1", "conv2", "fc1", "fc2", "fc3"]


# Finished stages


@pytest.mark.parametrize("ablation", [None, "no-reduction", "sparse", "width", "no-progression"])
def test_finished_stages_never_change(ablation, staged, play, differing):
    closed, theta = [], []

    def watch(algorithm, line):
        found = algorithm.state()["finished"]
        if len(found) > len(closed):
            shared = found[-1]["server"]
            closed.append({**clone(algorithm.assemble(CLIENTS, shared))})
        if line["round"] == 2:
            theta.append(clone(algorithm.server))

    played = play(staged({}, ablation), watch=watch)
    members = played.algorithm.members(CLIENTS)
    assert len(members) == len(closed) == 4
    for member, then in zip(members, closed, strict=True):
        assert differing(dict(member.params), then) == []
        assert set(member.params) == set(member.network.shapes())
    assert differing(played.algorithm.state()["fedavg"], theta[0]) == []


def test_the_last_stage_shares_convolutions_and_nothing_else(staged, play):
    played = play(staged())
    last = played.algorithm.members(CLIENTS)[-1]
    for name, tensor in last.params.items():
        pairs = [(a, b) for a in CLIENTS for b in CLIENTS if a < b]
        if name.startswith("conv"):
            assert all(torch.equal(tensor[a], tensor[b]) for a, b in pairs)
            assert torch.equal(tensor[0], played.algorithm.server[name])
        else:
            assert not any(torch.equal(tensor[a], tensor[b]) for a, b in pairs), name


def test_the_stage_in_training_is_evaluated_on_the_way_and_the_ensemble_at_the_end(staged, play, outputs):
    found = {}

    def watch(algorithm, line):
        if "accuracy" in line:
            everyone, data = range(6), algorithm.task.data
            members = algorithm.members(everyone)
            correct = total = 0
            for k in everyone:
                scores = sum(
                    m.network.apply({n: t[k] for n, t in m.params.items()}, data.inputs(k, "test"))
                    * (1 if m.weights is None else m.weights[k])
                    for m in members
                )
                correct += int((scores.argmax(1) == data.labels(k, "test")).sum())
                total += len(scores)
            found[line["round"]] = (len(members), line["evaluated"], line["accuracy"], correct / total)

    play(staged(), watch=watch)
    assert {round: (members, kind) for round, (members, kind, _, _) in found.items()} == {
        3: (1, "personal"),
        6: (1, "personal"),
        8: (4, "personal"),
    }
    for _, _, told, recomputed in found.values():
        assert told == pytest.approx(recomputed, abs=1e-6)


def test_resampling_draws_by_the_weights_instead_of_weighing_losses(staged, ready, advance, calls):
    played = ready(staged({"rw_apply": "resample"}, learning=True))
    method = played.algorithm
    advance(played, [1, 2, 3, 4], full=[2, 4])
    assert calls[0].chances is None
    calls.clear()
    advance(played, [5], full=[5])
    (call,) = calls
    assert call.sample_weights is None
    for client in CLIENTS:
        assert torch.equal(call.chances[client], method.weights.of(client))
    assert max(float(own.max()) for own in call.chances) > 1.02


@pytest.mark.parametrize("fc_init", STARTS)
def test_new_clients_of_a_stage_begin_from_the_mean_of_those_met(fc_init, staged, ready, advance):
    """Where a stage begins for everybody from one model; else all have their own from the one before."""
    played = ready(staged({"fc_init": fc_init, "personal_start": "average"}))
    method, schedule = played.algorithm, played.prepared.task.schedule
    advance(played, [1, 2, 3, 4], full=[2, 4])
    method.start_round(5)
    before = clone(method.clients.gather(CLIENTS))
    advance(played, [5], full=[])
    met = schedule.cohort(5, False)
    own = method.clients.gather(met)
    after = method.clients.gather(CLIENTS)
    for client in set(CLIENTS) - set(met):
        for key, tensor in after.items():
            expected = before[key][client] if fc_init == "prev" else own[key].double().mean(0).float()
            torch.testing.assert_close(tensor[client], expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("start", ["initial", "average"])
def test_the_notes_count_shared_layers_alone(start, staged, ready):
    lines = ready(staged({"personal_start": start})).algorithm.notes
    assert ["15,466 shared" in lines[0], "15,136 shared" in lines[1]] == [True, True]


def test_held_out_samples_alone_are_no_reason_to_draw(staged, ready, advance, calls):
    """Stage 1 weighs nothing but what is held out: its epochs stay permutations."""
    advance(ready(staged({"rw_apply": "resample", "beta_data": "holdout20"})), [1], full=[1])
    (call,) = calls
    assert call.chances is None
    assert all((weights == 0).any() for weights in call.sample_weights)
