"""``--network timm:NAME`` and ``torchvision:NAME``, and ``--weights torchvision:NAME``."""

import numpy as np
import pytest
import torch

from pfl_benchmark.cli import main
from pfl_benchmark.config.weights import checksum_of, file_of_weights
from pfl_benchmark.datasets.vision import import_torchvision
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import find_architecture
from pfl_benchmark.models.weights import fit_weights
from tests.helpers.answers import refused

# Fed child after child, or cut in two; the second classifier is of a class of timm's own.
NAMES = {
    "torchvision:resnet18": ("conv1", "layer1", "layer2", "layer3", "layer4", "fc"),
    "torchvision:mobilenet_v3_small": ("features", "fc"),
    "timm:test_resnet": ("conv1", "layer1", "layer2", "layer3", "layer4", "fc"),
    "timm:test_vit": ("features", "head"),
    "timm:mobilenetv3_small_050": ("features", "classifier"),
}
IMAGE = (3, 32, 32)


def theirs(name, classes=10):
    """The package's own module."""
    package, _, inner = name.partition(":")
    models = import_torchvision("models")
    if package == "torchvision":
        return models.get_model(inner, weights=None, num_classes=classes)
    timm = pytest.importorskip("timm", reason="the package timm is not installed")
    size = {"img_size": 32} if "vit" in inner else {}
    return timm.create_model(inner, num_classes=classes, **size)


@pytest.mark.parametrize("name", NAMES)
def test_it_computes_what_the_package_does(name):
    """With the weights of a file that the package's users would save."""
    module = theirs(name).eval()
    network = find_architecture(name).build(IMAGE, 10)
    assert network.names == NAMES[name]
    found = fit_weights(network, module.state_dict(), "theirs.pt")
    assert not found.fresh
    assert not found.unused
    x = torch.randn(3, *IMAGE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(network.apply(found.tensors, x), module(x))


@pytest.mark.parametrize("name", NAMES)
def test_initial_values_follow_the_seed(name):
    theirs(name)
    network = find_architecture(name).build(IMAGE, 10)
    one, same, other = (network.init(np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert all(torch.equal(tensor, same[key]) for key, tensor in one.items())
    weight = f"{network.names[-1]}.weight"
    assert not torch.equal(one[weight], other[weight])


@pytest.mark.parametrize("adapters", ["", "lora:r=2"])
def test_a_run_trains_one(adapters, tmp_path):
    theirs("timm:test_efficientnet_gn")
    words = (
        "--algo fedper --dataset digits --network timm:test_efficientnet_gn --clients 4 "
        f"--samples-per-client 20 --test-samples-per-client 10 --rounds 1 --local-epochs 1 "
        f"--results-dir {tmp_path}"
    )
    assert main([*words.split(), *(["--adapters", adapters] if adapters else [])]) == 0


def test_weights_are_torchvisions_own_file(monkeypatch, tmp_path):
    """As it lies in PyTorch's cache after a download."""
    name = "ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1"
    weights = import_torchvision("models").get_weight(name)
    monkeypatch.setenv("PFL_WEIGHTS", "")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    file = tmp_path / "checkpoints" / weights.url.rsplit("/")[-1]
    file.parent.mkdir()
    torch.save(theirs("torchvision:shufflenet_v2_x0_5", 1000).state_dict(), file)
    assert file_of_weights(checksum_of(f"torchvision:{name}")) == file
    short = name.partition(".")[2]
    assert file_of_weights(checksum_of(f"torchvision:{short}", "torchvision:shufflenet_v2_x0_5")) == file
    with pytest.raises(UserError, match=f"torchvision:{short} with --network torchvision:resnet18"):
        checksum_of(f"torchvision:{short}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--network torchvision:resnt18", "torchvision has no network 'resnt18' (did you mean 'resnet18'?)"),
        ("--network torchvision:resnet18", "for images of three channels, and these have 1"),
        ("--network torchvison:resnet18", "unknown network 'torchvison:resnet18'"),
        ("--weights torchvision:IMAGENET1K_V1", "expected a name such as torchvision:ResNet18_Weights."),
    ],
)
def test_what_does_not_fit_is_one_line(words, message, capsys, tmp_path):
    code = main(f"--algo fedavg --dataset digits {words} --results-dir {tmp_path}".split())
    refused((code, *capsys.readouterr()), message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("squeezenet1_0", "no fully connected layer that gives the logits"),
        ("alexnet", r"cannot take images of 3 x 32 x 32 \(.*\); take another of its networks"),
        ("googlenet", "gives GoogLeNetOutputs, and not logits alone"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_network_that_cannot_be_cut_or_fed_is_one_line(name, message):
    with pytest.raises(UserError, match=message):
        find_architecture(f"torchvision:{name}").build(IMAGE, 10)


def test_no_download_is_one_line(monkeypatch, tmp_path):
    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", offline)
    weights = import_torchvision("models").get_weight("ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1")
    monkeypatch.setattr(type(weights), "get_state_dict", offline)
    with pytest.raises(UserError, match=r"cannot be downloaded \(no network\); download it elsewhere"):
        checksum_of("torchvision:ShuffleNet_V2_X0_5_Weights.IMAGENET1K_V1")
