"""``--weights FILE``: a run is told by the file's SHA-256, and finds the file by that.

The environment's PFL_WEIGHTS has the files that were given, one a line, also for the processes begun by this
one. ``pretrained:NAME`` is a file of this package (`PRETRAINED`), which records find by themselves;
``torchvision:NAME`` is a file that torchvision downloads once and keeps in PyTorch's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from functools import cache
from pathlib import Path
from urllib.parse import urlparse

from pfl_benchmark.datasets.vision import import_torchvision
from pfl_benchmark.errors import UserError, unknown, why

FILES = "PFL_WEIGHTS"
PRETRAINED = Path(__file__).parent.parent / "models" / "pretrained"
_MARK = "sha256:"
_OWN = "pretrained:"
_TORCHVISION = "torchvision:"


def is_checksum(text: str) -> bool:
    """Whether a text is no file's name, but what stands for it in a record."""
    return re.fullmatch(f"{_MARK}[0-9a-f]{{64}}", text) is not None


def checksum_of(text: str, network: str = "") -> str:
    """What stands for a file of weights, which is found by it from now on; UserError: it cannot be read.

    Args:
        network: of the run; of torchvision's it tells whose weights ``torchvision:IMAGENET1K_V1`` are.
    """
    if not text or is_checksum(text):
        return text
    if text.startswith(_OWN):
        return _checksum(_pretrained(text))
    path = Path(text).expanduser().absolute()
    if text.startswith(_TORCHVISION):
        path = _downloaded(text, network)
    found = _checksum(path)
    known = os.environ.get(FILES, "").splitlines()
    if str(path) not in known:
        os.environ[FILES] = "\n".join([*known, str(path)])
    return found


def file_of_weights(checksum: str) -> Path:
    """The file that a checksum stands for; UserError: none that was given is it."""
    known = os.environ.get(FILES, "").splitlines()
    for path in (*map(Path, known), *sorted(PRETRAINED.glob("*.pt"))):
        if path.is_file() and _checksum(path) == checksum:
            return path
    names = ", ".join(Path(line).name for line in known)
    given = f"those given are others ({names})" if known else "none that is given is it"
    raise UserError(
        f"the run begins with the weights of the file whose SHA-256 is {checksum.removeprefix(_MARK)}, and "
        f"{given}; give that file: --weights FILE"
    )


def seen(file: Path, dataset: str) -> str:
    """A line if weights were trained on a dataset, as the card beside their file says; else empty."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if json.loads(file.with_suffix(".json").read_text(encoding="utf-8")).get("dataset") == dataset:
            return (
                f"warning: {file.name} was trained on the training samples of {dataset}: clients train on "
                "them and, with --validation or where a client's own samples are divided, are tested on "
                "them; to compare methods take a backbone of other data"
            )
    return ""


def _pretrained(text: str) -> Path:
    """The file of this package that ``pretrained:NAME`` means."""
    files = {path.stem: path for path in sorted(PRETRAINED.glob("*.pt"))}
    name = text.removeprefix(_OWN)
    if name not in files:
        raise UserError(f"--weights {text}: {unknown('file of weights', name, files)}")
    return files[name]


def _downloaded(text: str, network: str) -> Path:
    """The file of ``torchvision:NAME``; UserError: there is none of that name, or it cannot be downloaded."""
    import torch

    name = text.removeprefix(_TORCHVISION)
    models = import_torchvision("models")
    try:
        if "." not in name and network.startswith(_TORCHVISION):
            weights = models.get_model_weights(network.removeprefix(_TORCHVISION))[name]
        else:
            weights = models.get_weight(name)
    except (ValueError, AttributeError, KeyError) as error:
        raise UserError(
            f"--weights {text}: torchvision has no such weights; expected a name such as "
            f"{_TORCHVISION}ResNet18_Weights.IMAGENET1K_V1, or {_TORCHVISION}IMAGENET1K_V1 with --network "
            f"{_TORCHVISION}resnet18"
        ) from error
    path = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(weights.url).path).name
    if not path.exists():
        try:
            weights.get_state_dict(check_hash=True, map_location="cpu")
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"--weights {text}: {weights.url} cannot be downloaded ({error}); download it elsewhere, and "
                f"give that file: --weights {path.name}"
            ) from error
    return path


def _checksum(path: Path) -> str:
    try:
        about = path.stat()
        return _digest(path, about.st_mtime_ns, about.st_size)
    except OSError as error:
        raise UserError(
            f"--weights {path}: {why(error)}; expected a file of weights (safetensors, or a state dict that "
            "torch.save has written)"
        ) from error


@cache
def _digest(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return _MARK + hashlib.file_digest(file, "sha256").hexdigest()
