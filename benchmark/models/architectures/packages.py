"""Any network for images of two packages: ``--network timm:NAME``, ``--network torchvision:NAME``."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pfl_benchmark.datasets.vision import import_torchvision
from pfl_benchmark.errors import UserError, nearest, optional
from pfl_benchmark.models.module import ModuleLinear, network_from_module, split_points
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.registry import PACKAGES, Architecture, Shape

Module = Callable[[Shape, int], nn.Module]  # makes a package's module for a shape and a number of classes


def network(module: Module, shape: Shape, classes: int) -> Network:
    """The network of a package's module, without its dropout.

    Its children are the layers if the module feeds them one after the other, with a lone `nn.Linear` at the
    end; else the layers are two, `features` and the classifier, which has its own name if it is a child of
    the module (`head`), and `fc` if it is further inside.

    Raises:
        UserError: neither can be done, or the package's module cannot be made for these data.
    """
    make = partial(_plain, module, shape, classes)
    whole = make()
    _try_out(whole, shape)
    try:
        return network_from_module(make, split_points(whole), shape)
    except UserError:
        classifier = _classifier(whole, classes)
        layers = ("features", "fc" if "." in classifier else classifier)
        made = network_from_module(partial(_cut, make, classifier, layers), layers, shape)
        last = made.layers[-1]
        assert isinstance(last, ModuleLinear)
        return made.with_layers({last.name: replace(last, inside=classifier)})


def _plain(module: Module, shape: Shape, classes: int) -> nn.Module:
    with warnings.catch_warnings():  # of the package's future
        warnings.simplefilter("ignore", FutureWarning)
        whole = module(shape, classes)
    for part in whole.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
    return whole


def _try_out(whole: nn.Module, shape: Shape) -> None:
    """Refuse (UserError) a module that cannot take such images, or gives more than logits in training."""
    try:
        with torch.no_grad():
            found = whole(torch.zeros(2, *shape))
    except (RuntimeError, ValueError, AssertionError) as error:
        size = " x ".join(map(str, shape))
        reason = " ".join(str(error).split())
        raise UserError(
            f"it cannot take images of {size} ({reason:.120}); take another of its networks"
        ) from error
    if not isinstance(found, Tensor):
        raise UserError(
            f"in training it gives {type(found).__name__}, and not logits alone; take another of its networks"
        )


def _classifier(whole: nn.Module, classes: int) -> str:
    """The name of the last fully connected layer that gives so many outputs; UserError: there is none."""
    linear = (item for item in whole.named_modules() if isinstance(item[1], nn.Linear))
    found = [name for name, part in linear if part.out_features == classes]
    if not found:
        raise UserError("it has no fully connected layer that gives the logits; take another of its networks")
    return found[-1]


def _cut(make: Callable[[], nn.Module], classifier: str, layers: Sequence[str]) -> nn.Module:
    """The module as two children, called as `layers`: all but its classifier, and that."""
    whole = make()
    theirs = whole.get_submodule(classifier)
    assert isinstance(theirs, nn.Linear)  # perhaps of a class of its own
    parent, _, name = classifier.rpartition(".")
    setattr(whole.get_submodule(parent), name, nn.Identity())
    fc = nn.Linear(theirs.in_features, theirs.out_features, theirs.bias is not None, device="meta")
    fc.load_state_dict(theirs.state_dict(), assign=True)
    return nn.Sequential(OrderedDict(zip(layers, (whole, fc), strict=True)))


def _sized(create: Callable[..., nn.Module], size: str, height: int) -> nn.Module:
    """What `create` makes, for images of that height where it can be told one (vision transformers)."""
    try:
        return create(**{size: height})
    except (TypeError, ValueError):
        return create()


def _timm() -> Any:
    import_torchvision("models")  # which timm imports as it is
    return optional("timm", "--network timm:NAME")


def _of_timm(name: str, shape: Shape, classes: int) -> nn.Module:
    create = partial(_timm().create_model, name, num_classes=classes, in_chans=shape[0])
    return _sized(create, "img_size", shape[1])


def _of_torchvision(name: str, shape: Shape, classes: int) -> nn.Module:
    if shape[0] != 3:
        raise UserError(f"torchvision's networks are for images of three channels, and these have {shape[0]}")
    create = partial(import_torchvision("models").get_model, name, weights=None, num_classes=classes)
    return _sized(create, "image_size", shape[1])


def timm(name: str) -> Architecture:
    """A network of timm, without its pretrained weights."""
    return _architecture("timm", name, _timm().list_models(), partial(_of_timm, name))


def torchvision(name: str) -> Architecture:
    """A network of torchvision, without its pretrained weights."""
    models = import_torchvision("models")
    return _architecture("torchvision", name, models.list_models(models), partial(_of_torchvision, name))


def _architecture(package: str, name: str, known: Sequence[str], module: Module) -> Architecture:
    whole = f"{package}:{name}"
    if name not in known:
        raise UserError(
            f"--network {whole}: {package} has no network '{name}'{nearest(name, known)}; expected one of "
            f"its {len(known)} names, such as {package}:resnet18"
        )
    return Architecture(
        whole,
        f"{name} of {package}",
        f"{package}, as it is there, without dropout",
        partial(network, module),
        __name__,
    )


PACKAGES.update(timm=timm, torchvision=torchvision)
