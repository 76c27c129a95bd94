"""CIFAR-100 with its 100 fine classes (Krizhevsky, "Learning Multiple Layers of Features...", 2009)."""

from __future__ import annotations

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.download import Download
from pfl_benchmark.datasets.layouts import CifarPickles, ParquetFiles

__all__ = ["INFO"]

_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

INFO = DatasetInfo(
    name="cifar100",
    title="CIFAR-100",
    class_names=tuple(_CLASSES.split()),
    shape=(3, 32, 32),
    sizes=(50_000, 10_000),
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    layouts=(
        ParquetFiles("cifar100", labels=("fine_label", "label")),
        CifarPickles("cifar-100-python", train=("train",), test=("test",), labels="fine_labels"),
    ),
    download=Download("CIFAR100", folder="cifar-100-python", what="cifar-100-python.tar.gz, 169 MB"),
    licence="none stated",
    citation='A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009',
    network="cnn-cifar100",
)
