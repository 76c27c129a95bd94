"""``pretrain``: central training on one dataset, for weights that runs begin with."""

from __future__ import annotations

import argparse
import json

from pfl_benchmark.config.flags import add_config_flags, add_data_dir, add_flag, config_from, count, file_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError

HELP = "train a network on one whole dataset, for weights that runs begin with (--weights)"
USAGE = "--dataset NAME --epochs N --out FILE [--network NAME] [flags]"
EXAMPLES = """\
  python -m benchmark pretrain --dataset cifar100 --network resnet8-gn --epochs 30 --out backbone.safetensors
  python -m benchmark pretrain --dataset digits --network cnn-digits --epochs 5 --out digits.pt
  python -m benchmark --algo fedavg --network resnet8-gn --weights backbone.safetensors --adapters head

All training data are pooled. SGD with momentum and weight decay, whose learning rate falls to 0 along a
cosine; images are cropped and mirrored. A card, FILE with the ending .json, tells data, epochs, test
accuracy, seed and checksum. The last epoch counts: nothing is chosen on the test data."""

_USUAL = {"lr": 0.05, "batch_size": 64, "momentum": 0.9, "weight_decay": 5e-4, "augment": True}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_config_flags(parser, ("dataset", "network", "seed"))
    add_flag(parser, "--epochs N", "required: passes over the training data", count)
    endings = (".safetensors", ".pt", ".pth")
    text = "required: the weights to write; safetensors, or by torch.save where it ends in .pt"
    add_flag(parser, "--out FILE", text, file_of(*endings))
    add_flag(parser, "--half", "round the weights to float16: a file of half the size")
    training = parser.add_argument_group("training")
    add_config_flags(training, (*_USUAL, "embedding"), _USUAL)
    add_data_dir(parser)
    add_flag(
        parser, "--device NAME", "cpu, cuda, cuda:N or mps (default: auto, an NVIDIA GPU if there is one)"
    )
    add_flag(parser, "--json", "print the card as one JSON object instead of a line")


def execute(arguments: argparse.Namespace) -> None:
    """Train, write weights and card, say what came out.

    Raises:
        UserError: a flag is missing, the data are not here, or the file is there already.
    """
    for name in ("dataset", "epochs", "out"):
        if getattr(arguments, name) is None:
            raise UserError(f"--{name} is required; as in pretrain {USAGE.split(' [')[0]}")

    from pfl_benchmark.console.terminal import percent, say, shown_path
    from pfl_benchmark.datasets.registry import DATASETS
    from pfl_benchmark.experiment.execution import Execution
    from pfl_benchmark.experiment.pretrain import pretrain
    from pfl_benchmark.resolve.run import check_data

    names = ("network", "seed", *_USUAL, "embedding")
    given = {name: value for name in names if (value := getattr(arguments, name, None)) is not None}
    _, plain = config_from({"dataset": arguments.dataset})
    images = DATASETS[plain.dataset].kind == "images"
    usual = {**_USUAL, "augment": images, "crop_padding": RunConfig.crop_padding}
    if not {**usual, **given}["augment"]:
        usual.pop("crop_padding")
    if given.get("network", "dataset") != "dataset":
        usual["dropout"] = 0.0  # a setting's is for the dataset's own network
    _, config = config_from({"dataset": arguments.dataset, **usual, **given})
    check_data(config)
    device = Execution(device=arguments.device or "auto").pick_device()

    def told(epoch: int, loss: float, accuracy: float) -> None:
        say(f"epoch {epoch}/{arguments.epochs}  loss {loss:.4f}  test accuracy {percent(accuracy)}")

    card = pretrain(config, arguments.epochs, arguments.out, device, arguments.data_dir, told, arguments.half)
    if arguments.json:
        print(json.dumps(card))
        return
    print(
        f"{shown_path(arguments.out)}: {card['network']} after {card['epochs']} epochs on {card['dataset']}, "
        f"test accuracy {percent(card['test_accuracy'])}, SHA-256 {card['sha256']}"
    )
