"""``--weights`` and ``pretrain``: which tensors a network takes, what is on record, and what is refused."""

import json
import pickle
import re
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pfl_benchmark.cli import main
from pfl_benchmark.config import weights as places
from pfl_benchmark.config.network import network_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.models import ARCHITECTURES, network_from_module
from pfl_benchmark.models.architectures import resnet8
from pfl_benchmark.models.weights import fit_weights, read_weights
from pfl_benchmark.resolve.run import resolve

RUN = (
    "--algo fedavg --dataset digits --clients 4 --samples-per-client 20 --test-samples-per-client 10 "
    "--rounds 2 --local-epochs 1 --device cpu --executor loop"
)


@pytest.fixture(autouse=True)
def no_files_are_known(monkeypatch):
    monkeypatch.setenv(places.FILES, "")


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    """Weights of two epochs on the digits, and their card."""
    out = tmp_path_factory.mktemp("backbone") / "digits.pt"
    words = f"pretrain --dataset digits --epochs 2 --no-augment --out {out}"
    assert main(words.split()) == 0
    return out


@pytest.fixture
def told(capsys, tmp_path):
    """``told("--weights x")``: exit code and what a run says on standard error."""

    def go(*words):
        capsys.readouterr()
        code = main([*RUN.split(), "--results-dir", str(tmp_path / "runs"), *words])
        return code, capsys.readouterr().err

    return go


def record_in(root):
    (found,) = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return found


# What a network takes


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_a_file_gives_the_tensors_that_were_written(ending, prefix, tmp_path):
    network = ARCHITECTURES["resnet8-bn"].build((1, 8, 8), 10)
    module = resnet8.build(1, 10, resnet8.NORMS["bn"][0], 16)
    file = tmp_path / f"some{ending}"
    tensors = {f"{prefix}{name}": tensor for name, tensor in module.state_dict().items()}
    if ending == ".pt":
        torch.save({"state_dict": tensors}, file)
    else:
        pytest.importorskip("safetensors.torch").save_file(tensors, file)
    fitted = fit_weights(network, read_weights(file), file.name)
    assert {*fitted.tensors} == {*network.shapes()}
    assert fitted.note(file.name) == ""
    x = torch.randn(3, 1, 8, 8)
    torch.testing.assert_close(network.apply(fitted.tensors, x), module.eval()(x), rtol=1e-4, atol=1e-5)


def test_layers_of_other_shapes_start_fresh_and_are_named(tmp_path):
    network = ARCHITECTURES["resnet8-gn"].build((3, 8, 8), 10)
    module = resnet8.build(1, 100, resnet8.NORMS["gn"][0], 16)
    fitted = fit_weights(network, {**module.state_dict(), "more": torch.zeros(2)}, "some.pt")
    assert [*fitted.fresh] == ["stem", "fc"]
    assert {name.partition(".")[0] for name in fitted.tensors} == {"stage1", "stage2", "stage3"}
    note = fitted.note("some.pt")
    assert "fc starts fresh (fc.weight is 100 x 64, expected 10 x 64)" in note
    assert "1 of its tensors are of no use to the network, such as more" in note


def test_names_within_a_layer_are_none_of_a_file():
    """`0.conv1.weight` could be of any stage of the network."""
    network = ARCHITECTURES["resnet18-gn"].build((3, 32, 32), 10)
    start = network.init(np.random.default_rng(0))
    found = {key.replace("layer1.layer1.", ""): tensor for key, tensor in start.items()}
    fitted = fit_weights(network, found, "some.pt")
    assert dict(fitted.fresh) == {"layer1": "layer1.0.conv1.weight is not in the file"}
    assert "0.conv1.weight" in fitted.unused


@pytest.mark.parametrize("classes", [10, 9])
def test_a_network_of_one_layer(classes):
    network = network_from_module(lambda: nn.Sequential(OrderedDict(fc=nn.Linear(64, 10))), ["fc"], (64,))
    found = {"fc.weight": torch.ones(classes, 64), "fc.bias": torch.ones(classes)}
    if classes == 10:
        assert not fit_weights(network, found, "some.pt").fresh
    else:
        with pytest.raises(UserError, match="expected 10 x 64"):
            fit_weights(network, found, "some.pt")


@pytest.mark.parametrize("adapters", ["", "head", "lora:r=2"])
def test_a_run_begins_with_them(adapters, backbone, tiny):
    config = tiny("fedavg", weights=str(backbone), adapters=adapters)
    prepared = prepare(resolve(config.settled()), Execution(device="cpu", executor="loop"))
    prepared.task.executor.close()
    held = dict(prepared.task.initial)
    for layer in prepared.task.network.layers:
        held |= getattr(layer, "constants", {})
    for name, tensor in torch.load(backbone, weights_only=True).items():
        assert torch.equal(held[name], tensor), name


# On record


def test_the_checksum_is_the_identity_wherever_the_file_lies(backbone, tmp_path):
    copy = tmp_path / "other-name.bin"
    copy.write_bytes(backbone.read_bytes())
    config, other = (RunConfig(weights=str(path)).settled() for path in (backbone, copy))
    assert config == other
    assert config.hash != RunConfig().hash
    card = json.loads(backbone.with_suffix(".json").read_text())
    assert config.weights == f"sha256:{card['sha256']}"
    assert card["test_accuracy"] > 0.2
    assert (card["dataset"], card["network"], card["epochs"], card["seed"]) == ("digits", "cnn-digits", 2, 0)


def test_the_same_seed_gives_the_same_weights(backbone, tmp_path):
    again = tmp_path / "again.pt"
    assert main(f"pretrain --dataset digits --epochs 2 --no-augment --out {again}".split()) == 0
    other = tmp_path / "other.pt"
    assert main(f"pretrain --dataset digits --epochs 2 --no-augment --seed 1 --out {other}".split()) == 0
    first, same, different = (torch.load(path, weights_only=True) for path in (backbone, again, other))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not any(torch.equal(first[name], different[name]) for name in first)


def test_what_is_for_testing_is_not_trained_on(tmp_path, capsys):
    """Of data that say it; of others a tenth is held out."""
    words = "data --dataset digits --clients 5 --samples-per-client 60 --test-samples-per-client 20"
    assert main(f"{words} --export pfllib {tmp_path / 'made'} --out {tmp_path / 'x.png'}".split()) == 0
    for dataset, sizes in ((f"pfllib:{tmp_path / 'made'}", [300, 100]), ("synth-tweets", [1133, 125])):
        out = tmp_path / f"{sizes[0]}.pt"
        assert main(f"pretrain --dataset {dataset} --epochs 1 --no-augment --out {out}".split()) == 0
        card = json.loads(out.with_suffix(".json").read_text())
        assert [card["training_samples"], card["test_samples"]] == sizes
        assert card["network"] in ("cnn-digits", "rnn-tweets")
    capsys.readouterr()


def test_verify_works_with_the_checksum_and_refuses_other_weights(
    backbone, told, tmp_path, capsys, monkeypatch
):
    code, notes = told("--weights", str(backbone), "--adapters", "lora:r=2")
    assert code == 0
    assert "warning: digits.pt was trained on the training samples of digits" in notes
    folder = record_in(tmp_path / "runs")
    content = json.loads((folder / "config.json").read_text())
    assert content["weights"]["fresh_layers"] == []
    assert content["config"]["weights"] == f"sha256:{content['weights']['sha256']}"
    words = ["verify", str(folder), "--all"]
    assert main(words) == 0, "in the same process the file is known"
    assert "bit-equal" in capsys.readouterr().out
    monkeypatch.setenv(places.FILES, "")
    assert main([*words, "--weights", str(backbone)]) == 0
    other = tmp_path / "other.pt"
    torch.save({name: t + 1 for name, t in torch.load(backbone, weights_only=True).items()}, other)
    for more in ([], ["--weights", str(other)]):
        monkeypatch.setenv(places.FILES, "")
        capsys.readouterr()
        assert main([*words, *more]) == 2
        error = capsys.readouterr().err
        assert f"SHA-256 is {content['weights']['sha256']}" in error
        assert ("other.pt" in error) == bool(more)
    assert main([*RUN.split(), "--results-dir", str(tmp_path / "runs")]) == 0
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "runs")]) == 0, "the run without weights"
    found = capsys.readouterr()
    assert "left out: 1 that begin with weights of files not given; give --weights FILE" in found.err
    assert found.out.count("bit-equal") == 1


def test_weights_of_the_package_are_found_by_name_and_by_records(tiny):
    """Their cards tell of these files."""
    files = sorted(places.PRETRAINED.glob("*.pt"))
    assert files
    for file in files:
        card = json.loads(file.with_suffix(".json").read_text())
        config = tiny("fedavg", weights=f"pretrained:{file.stem}", network=card["network"]).settled()
        assert config.weights == f"sha256:{card['sha256']}"
        assert places.file_of_weights(config.weights) == file
        fitted = fit_weights(network_of(config), read_weights(file), file.name)
        assert fitted.tensors
    with pytest.raises(UserError, match=f"known: .*{files[0].stem}"):
        tiny("fedavg", weights="pretrained:resnet9").settled()


@pytest.mark.parametrize("ending", [".pt", ".safetensors"])
def test_weights_or_a_card_that_cannot_be_written_are_one_line(ending, tmp_path, monkeypatch, capsys):
    if ending == ".safetensors":
        package = pytest.importorskip("safetensors.torch")
        monkeypatch.setattr(package, "save_file", lambda *_: _full())
    else:
        monkeypatch.setattr(torch, "save", lambda *_: _full())
    out = tmp_path / f"x{ending}"
    words = f"pretrain --dataset digits --epochs 1 --no-augment --out {out}".split()
    assert main(words) == 2
    assert "No space left" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr("pfl_benchmark.experiment.pretrain.write_json", lambda *_: refuse())
    assert main(words) == 2
    assert not [*tmp_path.iterdir()], "the next try finds no name taken"


def _full():
    raise RuntimeError("No space left on device")


def refuse():
    raise UserError("the card cannot be written")


def test_half_precision_halves_the_file(backbone, tmp_path):
    out = tmp_path / "half.pt"
    assert main(f"pretrain --dataset digits --epochs 2 --no-augment --half --out {out}".split()) == 0
    whole = torch.load(backbone, weights_only=True)
    assert all(
        torch.equal(tensor, whole[name].half()) for name, tensor in torch.load(out, weights_only=True).items()
    )
    card, other = (json.loads(file.with_suffix(".json").read_text()) for file in (out, backbone))
    assert (card["precision"], other["precision"]) == ("float16", "float32")
    assert card["test_accuracy"] == pytest.approx(other["test_accuracy"], abs=0.01)


# Bad input


class Harmful:
    def __reduce__(self):
        return print, ("code has run",)


def _code(path):
    torch.save({"fc1.weight": Harmful()}, path)


def _other_network(path):
    torch.save(nn.Linear(3, 4).state_dict(), path)


def _not_finite(path):
    network = ARCHITECTURES["cnn-digits"].build((1, 8, 8), 10)
    torch.save({name: torch.full(shape, torch.nan) for name, shape in network.shapes().items()}, path)


def _stored(change):
    """Writes the tensors of a network, changed."""

    def write(path):
        network = ARCHITECTURES["cnn-digits"].build((1, 8, 8), 10)
        torch.save({name: change(torch.zeros(shape)) for name, shape in network.shapes().items()}, path)

    return write


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_text("hello"), "holds more than tensors|cannot be read as weights"),
        (lambda path: path.write_bytes(b"\x08" + bytes(7) + b"{}garbage"), "is damaged"),
        (lambda path: torch.save([1, 2], path), "holds no tensors by name"),
        (lambda path: torch.save({}, path), "holds no tensors by name"),
        (_code, "could run code"),
        (_other_network, r"of another network: it has weight 4 x 3, bias 4"),
        (_not_finite, "holds values that are not finite"),
        (_stored(Tensor.to_sparse), "conv1.weight is stored as sparse_coo"),
        (_stored(lambda tensor: tensor.to("meta")), "conv1.weight is without values"),
        (_stored(lambda tensor: tensor.to(torch.int8)), "of int8, not of floating-point numbers"),
        (_stored(lambda tensor: tensor.to(torch.complex64)), "of complex64, not of floating-point numbers"),
        (lambda path: path.write_bytes(pickle.dumps({"fc1.weight": Harmful()}, 4)), "could run code"),
    ],
)
def test_bad_files_have_one_line(write, words, tmp_path, told, capsys):
    file = tmp_path / "some.pt"
    write(file)
    code, error = told("--weights", str(file))
    assert code == 2
    assert len(error.strip().splitlines()) == 1, error
    assert re.search(words, error), error
    assert "code has run" not in error
    assert not (tmp_path / "runs").exists() or not [*(tmp_path / "runs").iterdir()]


@pytest.mark.parametrize("algo", ["ifca", "fedem", "phn"])
def test_methods_that_draw_their_models_refuse_weights(algo, backbone, told):
    code, error = told("--weights", str(backbone), "--algo", algo)
    assert code == 2
    assert f"this is not for '{algo}'" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--epochs 1 --out a.pt", "--dataset is required"),
        ("--dataset digits --out a.pt", "--epochs is required"),
        ("--dataset digits --epochs 1", "--out is required"),
        ("--dataset digits --epochs 0 --out a.pt", "--epochs is '0'"),
        ("--dataset digits --epochs 1 --out a.txt", "expected a name that ends in"),
        ("--dataset digits --epochs 1 --out nowhere/a.pt", "there is no folder nowhere"),
        ("--dataset digitz --epochs 1 --out a.pt", "did you mean 'digits'"),
        ("--dataset digits --network resnet8 --epochs 1 --out a.pt", "unknown network"),
        ("--dataset digits --epochs 1 --lr 1e9 --out a.pt", "training diverged"),
        ("--dataset digits --epochs 1 --out taken.pt", "is there already"),
    ],
)
def test_bad_pretraining_has_one_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.json").write_text("{}")
    assert main(["pretrain", *words.split()]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken.json"]


def test_none_is_the_default_also_in_a_grid(capsys):
    assert RunConfig(weights="none", adapters="none") == RunConfig()
    words = "grid --algo fedavg --setting digits-s2 --vary adapters=none,head --dry-run"
    assert main(words.split()) == 0
    assert "2 runs, 0 done" in capsys.readouterr().out
