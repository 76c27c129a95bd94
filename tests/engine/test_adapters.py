"""Adapters: what trains, what is sent, executors, frozen outputs computed once, whole models, bad input."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from small_networks import small_networks  # noqa: F401  # a fixture
from stopping import Stop

from pfl_benchmark import load_model, load_predictions, run
from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.cli import main
from pfl_benchmark.config.network import network_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine import features
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.params import expand
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import ARCHITECTURES, network_from_module
from pfl_benchmark.models.adapters import with_biases, with_bottlenecks, with_head, with_lora
from pfl_benchmark.models.frozen import begin, merged
from pfl_benchmark.models.registry import empty_inputs
from pfl_benchmark.resolve.run import resolve
from tests.helpers.python import TINY

pytestmark = pytest.mark.usefixtures("small_networks")

KINDS = ["lora:r=2", "lora:r=2,layers=fc1", "bottleneck:d=3", "bias", "head"]
METHODS = ["fedavg-ft", "fedper", "ditto", "fedala", "pfedfda", "ifca"]
OF_LORA = sorted(name for name, method in ALGORITHMS.items() if method.needs_adapters)
CLIENTS = [2, 0]
SHORT = {"partition": "dirichlet", "dirichlet": 0.5, "clients": 4, "samples_per_client": 14}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr("pfl_benchmark.engine.executors.threads.available_cores", lambda: 2)


def shares(algo, kind):
    """Whether a method sends anything that trains."""
    return kind != "head" or algo not in ("fedper", "pfedfda")


def changed(network, kind, shape):
    """A network with adapters of a kind."""
    return {
        "lora": lambda: with_lora(network, 2, 1.0),
        "bottleneck": lambda: with_bottlenecks(network, 2, empty_inputs(shape, "images")),
        "bias": lambda: with_biases(network),
        "head": lambda: with_head(network),
    }[kind]()


# What trains


def test_bytes_of_lora_by_hand(tiny, play):
    """Factors of conv1, conv2, fc1 and fc2, and the last layer, four bytes each, both ways."""
    played = play(tiny("fedavg", adapters="lora:r=2", rounds=2, participation=1.0))
    sizes = [(16, 1 * 9), (32, 16 * 9), (64, 32 * 4), (32, 64)]
    count = sum(2 * (outputs + inputs) for outputs, inputs in sizes) + 32 * 10 + 10
    assert played.algorithm.network.count() == count
    assert played.summary["bytes_up"] == played.summary["bytes_down"] == 4 * count * 6 * 2
    only = play(tiny("fedavg", adapters="lora:r=2,layers=fc2", rounds=2, participation=1.0))
    assert only.summary["bytes_up"] == 4 * (2 * (32 + 64) + 330) * 6 * 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_and_kept_is_what_trains(kind, tiny, play):
    played = play(tiny("fedavg", network="small-bn", adapters=kind, rounds=2))
    network, server = played.algorithm.network, played.algorithm.server
    assert {*server} == {*network.shapes()}
    assert not network.buffers, "statistics stay as they are"
    assert {"fc.weight", "fc.bias"} <= {*server}
    moved = [name for name in server if not torch.equal(server[name], played.prepared.task.initial[name])]
    assert moved == [*server], "all of it trains"
    plain = play(tiny("fedavg", network="small-bn", rounds=2))
    assert played.summary["bytes_up"] < plain.summary["bytes_up"]
    assert played.summary["samples"] == plain.summary["samples"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *itertools.product(["small-gn", "small-bn", "cnn-digits"], ["lora", "bottleneck", "bias", "head"]),
        ("vit-tiny", "lora"),
        ("vit-tiny", "bottleneck"),
    ],
)
def test_a_network_with_adapters_begins_as_without(name, kind):
    """The same initial values but for adapters, which change nothing yet; whole models compute the same."""
    shape = (1, 8, 8)
    plain = ARCHITECTURES[name].build(shape, 10)
    network, own = begin(changed(plain, kind, shape), np.random.default_rng(3))
    assert {key: tuple(tensor.shape) for key, tensor in own.items()} == network.shapes()
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    expected = plain.apply(plain.init(np.random.default_rng(3)), x)
    torch.testing.assert_close(network.apply(own, x), expected, rtol=1e-4, atol=1e-5)

    rng = torch.Generator().manual_seed(2)
    stack = {key: t + 0.1 * torch.randn(2, *t.shape, generator=rng) for key, t in own.items()}
    each, common = merged(network, stack)
    outputs = []
    for number in range(2):
        params = {key: tensor[number] for key, tensor in stack.items()}
        outputs.append(network.apply(params, x))
        whole = common | {key: tensor[number] for key, tensor in each.items()}
        assert whole.keys() == network.thawed.shapes().keys()
        torch.testing.assert_close(network.thawed.apply(whole, x), outputs[-1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(outputs[0], expected)
    assert not any(layer.not_stackable for layer in network.layers[:-1])
    stacked = network.apply_stacked(stack, torch.stack([x, x]))
    torch.testing.assert_close(stacked, torch.stack(outputs), rtol=1e-3, atol=1e-4)


def test_lora_is_what_its_equation_says():
    plain = ARCHITECTURES["cnn-digits"].build((1, 8, 8), 10)
    network, own = begin(with_lora(plain, 3, 0.5, ["fc1"]), np.random.default_rng(0))
    assert {*own} == {"fc1.weight.lora_a", "fc1.weight.lora_b", "fc3.weight", "fc3.bias"}
    a, b = own["fc1.weight.lora_a"], own["fc1.weight.lora_b"]
    assert not b.any()
    assert a.abs().max() <= 128**-0.5
    b += torch.randn(b.shape)
    x = torch.randn(4, 128)
    weight, bias = (network.layer("fc1").constants[f"fc1.{kind}"] for kind in ("weight", "bias"))
    expected = torch.relu(x @ weight.T + bias + 0.5 * (x @ a.T) @ b.T)
    torch.testing.assert_close(network.layer("fc1").apply(own, x), expected, rtol=1e-4, atol=1e-5)


# Executors, methods, frozen outputs


def work(algorithm, executor):
    call = algorithm.begin(CLIENTS, algorithm.message(CLIENTS, 1), 1)
    outcome = executor.train(call)
    (member, *_) = algorithm.members(CLIENTS)
    names = {*member.network.shapes()}
    trained = next(params for params in outcome.models.values() if names <= {*params})
    return outcome, executor.forward(member.network, trained, CLIENTS, "test")


@pytest.mark.parametrize(
    ("algo", "kind"),
    [
        *itertools.product(["fedavg"], KINDS),
        *itertools.product(METHODS, ["lora:r=2,layers=fc1", "head"]),
        *itertools.product(OF_LORA, ["lora:r=2", "lora:r=2,layers=fc1"]),
    ],
)
def test_executors_agree_with_outputs_computed_once_or_not(algo, kind, tiny, ready, monkeypatch):
    config = tiny(algo, network="small-bn", adapters=kind, **SHORT)
    if not shares(algo, kind):
        told = "sends nothing of what trains" if algo == "fedper" else "has a phase that trains"
        with pytest.raises(UserError, match=told):
            ready(config)
        return
    expected = None
    for most in (0, features.MOST):
        monkeypatch.setattr(features, "MOST", most)
        algorithm = ready(config).algorithm
        task = algorithm.task
        algorithm.start_round(1)
        done = [layer.name for layer in task.network.layers if layer.done]
        assert len(done) == (features.depth(task.network) if most else 0)
        for name in EXECUTORS:
            if EXECUTORS[name].unable(task.network, algorithm.not_stackable):
                continue
            executor = EXECUTORS[name](task.config, task.data, task.streams)
            try:
                found, outputs = work(algorithm, executor)
            finally:
                executor.close()
            expected = expected or (found, outputs)
            assert (found.samples, found.steps) == (expected[0].samples, expected[0].steps)
            torch.testing.assert_close(found.models, expected[0].models, rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(outputs, expected[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_method_trains_lora_and_sends_less(algo, tiny, play):
    """All that can share it; executors agree."""
    ppfe = {"reduction": "none"} if algo == "ppfe" else {}
    config, whole = tiny(algo, ppfe, adapters="lora:r=2"), tiny(algo, ppfe)
    if algo in ("local", "fedbn"):
        with pytest.raises(UserError, match=r"sends nothing of what trains|keeps batch normalisation"):
            play(config)
        return
    one = play(config)
    assert one.summary["bytes_up"] > 0
    if algo in OF_LORA:
        return
    sent = play(whole).summary["bytes_up"]
    assert one.summary["bytes_up"] < sent or algo == "fedproto"  # which sends prototypes alone
    if not EXECUTORS["stacked"].unable(one.algorithm.task.network, one.algorithm.not_stackable):
        other = play(config, "stacked")
        assert other.summary["bytes_up"] == one.summary["bytes_up"]
        assert other.summary["accuracy"] == pytest.approx(one.summary["accuracy"], abs=0.02)
        torch.testing.assert_close(
            dict(other.algorithm.server), dict(one.algorithm.server), rtol=1e-2, atol=1e-3
        )


def test_outputs_are_computed_once_for_all_that_clients_ever_have(tiny, launch, monkeypatch, tmp_path):
    """With a drift, new clients and validation: the same record as without, to the bit."""
    config = tiny(
        "fedavg-ft",
        adapters="lora:r=2,layers=fc2",
        new_clients=0.3,
        validation=0.2,
        shift="drift=2:feature=corruption:2",
    )
    found = launch(config, tmp_path / "once").content()
    monkeypatch.setattr(features, "MOST", 0)
    assert launch(config, tmp_path / "always").content() == found


def test_augmented_images_have_no_outputs_in_advance(tiny, ready):
    networks = [
        ready(tiny("fedavg", adapters="head", augment=augment)).algorithm.network for augment in (False, True)
    ]
    assert [any(layer.done for layer in network.layers) for network in networks] == [True, False]


@pytest.mark.parametrize(
    ("algo", "kind"),
    [
        *itertools.product(["fedper", "ditto"], ["lora:r=2", "head"]),
        *itertools.product(OF_LORA, ["lora:r=2"]),
    ],
)
def test_an_interrupted_run_goes_on_to_the_bit(algo, kind, tiny, launch, tmp_path):
    if not shares(algo, kind):
        return
    config = tiny(algo, adapters=kind)
    expected = launch(config, tmp_path / "whole").content()
    with pytest.raises(KeyboardInterrupt):
        launch(config, tmp_path / "parts", observer=Stop(2))
    assert launch(config, tmp_path / "parts").content() == expected


def test_ppfe_grows_personal_adapters(tiny, play):
    """Stage by stage a layer's adapters stay with the clients; its low-rank factors are refused."""
    hyper = {"T": 3, "reduction": "none", "stage_rounds": (2, 2, 2)}
    played = play(tiny("ppfe", hyper, adapters="lora:r=2", rounds=6))
    assert played.summary["bytes_up"] > 0
    with pytest.raises(UserError, match="give --set reduction=none"):
        resolve(tiny("ppfe", {"T": 3}, adapters="lora:r=2", rounds=6))


# Whole models


@pytest.mark.parametrize("kind", ["lora:r=2", "bottleneck:d=3", "head"])
def test_a_loaded_model_is_whole(kind, tmp_path):
    pytest.importorskip("safetensors")
    record = run(
        "fedavg-ft", adapters=kind, save_models=True, save_predictions=True, results_dir=tmp_path, **TINY
    )
    logits, _, client = load_predictions(record)
    model = load_model(record, client=1)
    assert ("fc1.adapter.down.weight" in model.state_dict()) == (kind == "bottleneck:d=3")
    assert {"conv1.weight", "fc1.weight", "fc3.bias"} <= {*model.state_dict()}
    prepared_data = _inputs(record.config, 1)
    with torch.no_grad():
        found = model(prepared_data).numpy()
    own = logits[client == 1].astype(np.float32)
    np.testing.assert_allclose(found, own, atol=2e-3 * np.abs(own).max())


def _inputs(config, client):
    """A client's test samples as the plain network reads them."""
    from pfl_benchmark.experiment.execution import Execution
    from pfl_benchmark.experiment.prepare import prepare

    prepared = prepare(
        resolve(dataclasses.replace(config, adapters="")), Execution(executor="loop", device="cpu")
    )
    prepared.task.executor.close()
    return prepared.task.data.inputs(client, "test")


# Configurations


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("lora:r=04", "lora:r=4"),
        (" lora : r=4 , alpha=4 ", "lora:r=4"),
        ("lora:alpha=8,r=4,layers=fc2+fc1", "lora:r=4,alpha=8,layers=fc1+fc2"),
        ("lora:r=4,alpha=1000000", "lora:r=4,alpha=1000000"),
        ("lora:r=4,alpha=0.0000001", "lora:r=4,alpha=0.0000001"),
        ("lora:r=3,alpha=2.99999999", "lora:r=3,alpha=2.99999999"),
        ("bottleneck:d=16", "bottleneck:d=16"),
        ("head", "head"),
        ("bias", "bias"),
    ],
)
def test_equal_adapters_are_the_same_run(given, text):
    config = RunConfig(adapters=given)
    config.validate()
    assert config.adapters == text
    assert config.hash == RunConfig(adapters=text).hash != RunConfig().hash


def test_without_them_nothing_of_a_record_changes():
    assert not {"weights", "adapters"} & {*RunConfig().identifying, *RunConfig().to_record()}
    assert RunConfig().hash == "ff294e5a24"
    config = RunConfig(dataset="digits")
    assert network_of(config).plain == network_of(config)


@pytest.mark.parametrize(
    ("adapters", "told"),
    [
        ("lorra:r=4", "did you mean 'lora'"),
        ("lora", "r is not given"),
        ("lora:r=0", "r is '0'"),
        ("lora:r=4,r=5", "'r=5' is no option"),
        ("lora:rank=4", "'rank=4' is no option of lora; expected r=…, alpha=…, layers=…"),
        ("lora:r=4,alpha=-1", "alpha is '-1'"),
        ("lora:r=4,layers=+", "layers is '+'; expected names with + between them"),
        ("bottleneck:d=x", "d is 'x'"),
        ("head:r=4", "'r=4' is no option of head; expected none"),
        ("lora:r=17", "16 x 9; expected a rank of at most 9, or other layers (layers=fc1+fc2)"),
        ("lora:r=999", "expected a rank of at most 9, or other layers (the network has none)"),
        ("lora:r=2,layers=fc9", "no layer of the network"),
        ("lora:r=2,layers=fc3", "trains whole anyway"),
        ("bottleneck:d=17", "outputs of width 16"),
    ],
)
@pytest.mark.parametrize("command_name", ["run", "tune"])
def test_bad_adapters_have_one_line(adapters, told, command_name, capsys, tmp_path):
    words = ["--algo", "fedavg", "--dataset", "digits", "--adapters", adapters]
    assert main([command_name, *words, "--results-dir", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"algo": "local", "adapters": "lora:r=2"}, "'local' sends nothing of what trains"),
        ({"algo": "fedpac", "adapters": "head"}, "'fedpac' has a phase that trains conv1, conv2, fc1, fc2"),
        ({"algo": "fedbabu", "adapters": "head"}, "'fedbabu' sends nothing of what trains"),
        (
            {"algo": "fedbn", "adapters": "lora:r=2"},
            "'fedbn' keeps batch normalisation, and under --adapters",
        ),
        ({"algo": "fedbn", "adapters": "bias"}, "'fedbn' keeps batch normalisation, and under --adapters"),
    ],
)
def test_methods_that_share_nothing_of_them_are_refused(fields, told, tiny, ready):
    with pytest.raises(UserError, match=told):
        ready(tiny(**fields))


def test_a_network_without_such_layers_is_refused():
    plain = ARCHITECTURES["mlp"].build((13,), 2, "rows")
    only = dataclasses.replace(plain, layers=plain.layers[-1:])
    for make in (lambda: with_lora(only, 2, 1.0), lambda: with_biases(only)):
        with pytest.raises(UserError, match="before its last one"):
            make()


class Convolutions(torch.nn.Sequential):
    """[B, 3, 20] to logits; c1 gives 6 channels of 18 places."""

    def __init__(self):
        super().__init__()
        self.c1, self.c2 = torch.nn.Conv1d(3, 6, 3), torch.nn.Conv1d(6, 8, 2)
        self.flat, self.fc = torch.nn.Flatten(), torch.nn.Linear(136, 5)


def test_bottlenecks_stand_on_channels_not_on_places():
    network = network_from_module(Convolutions, ("c1", "c2", "fc"), (3, 20))
    found = with_bottlenecks(network, 2, torch.empty(2, 3, 20, device="meta")).shapes()
    assert found["c1.adapter.down.weight"] == (2, 6)
    assert found["c2.adapter.down.weight"] == (2, 136)  # flattened within the layer


def test_the_layers_that_have_adapters_count_in_memory_and_size():
    network = with_lora(ARCHITECTURES["cnn-digits"].build((1, 8, 8), 10), 2, 1.0)
    assert network.count() == sum(math.prod(shape) for shape in network.shapes().values())
    assert network.size == network.thawed.count() == network.plain.count()
    assert with_head(network.plain).size == 330
    drawn = network.init(np.random.default_rng(0))
    assert [*drawn] == network.keys()
    assert expand(drawn, 2)["fc1.weight.lora_b"].shape == (2, 64, 2)
