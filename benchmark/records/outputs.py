"""Predictions and models of the final evaluation, kept beside a record where that is asked for.

``predictions.npz``: ``logits`` float16 [N, C], ``labels`` [N] and ``client`` [N] of the N test samples of all
clients, client by client, in the order of the split. ``models.safetensors``: the models that clients are
evaluated with. Of member j of a method's ensemble (0 for methods with one model), ``j.common.TENSOR`` is the
same for all clients, ``j.clients.TENSOR`` [K, ...] has one entry a client; ``j.weights`` [K] are the member's
weights, if it has some. Neither file is sealed: their SHA-256 stands in summary.json, and a record is whole
without them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from pfl_benchmark.errors import optional
from pfl_benchmark.records.files import save_safetensors, write_file

PREDICTIONS, MODELS = "predictions.npz", "models.safetensors"


class Model(Protocol):
    """A model of each of some clients, as methods are evaluated with it (`engine.ensemble.StackedModel`)."""

    def merged(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Tensors stacked over clients, and those common to all."""

    @property
    def weights(self) -> Tensor | None:
        """In the ensemble, one per client."""


class SavedOutputs:
    """What is kept of the final evaluation; UserError where models are, and safetensors is not installed."""

    def __init__(self, predictions: bool = False, models: bool = False) -> None:
        if models:
            optional("safetensors.torch", "--save-models")
        self._models, self._predictions = models, predictions
        self._parts: dict[str, list[np.ndarray]] = {"logits": [], "labels": [], "client": []}
        self._members: list[list[tuple[dict[str, Tensor], Tensor | None]]] = []
        self._common: list[Mapping[str, Tensor]] = []  # of each member

    def take(
        self,
        clients: Sequence[int],
        members: Sequence[Model],
        scores: Sequence[Tensor],
        labels: Sequence[Tensor],
    ) -> None:
        """Some clients' models, their scores [n, C] and labels [n] of the test samples."""
        if self._predictions:
            largest = torch.finfo(torch.float16).max
            halves = [own.float().clamp(-largest, largest).half().cpu().numpy() for own in scores]
            self._parts["logits"] += halves
            self._parts["labels"] += [own.cpu().numpy() for own in labels]
            self._parts["client"] += [np.full(len(own), k) for k, own in zip(clients, halves, strict=True)]
        if self._models:
            whole = [each.merged() for each in members]
            params = [{name: _copy(tensor) for name, tensor in own.items()} for own, _ in whole]
            self._common = [common for _, common in whole]
            weights = [None if each.weights is None else _copy(each.weights) for each in members]
            self._members.append(list(zip(params, weights, strict=True)))

    def write(self, folder: Path, about: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Write the files; `about` is what the header of the models says of the run.

        Returns SHA-256 and bytes by name of the file, for the summary.
        """
        if self._predictions:
            arrays = {name: np.concatenate(parts) for name, parts in self._parts.items()}
            write_file(folder / PREDICTIONS, lambda path: _save_arrays(path, arrays))
        if self._models:
            save_safetensors(folder / MODELS, self._tensors(), about)
        names = [PREDICTIONS] * self._predictions + [MODELS] * self._models
        return {name: described(folder / name) for name in names}

    def _tensors(self) -> dict[str, Tensor]:
        """The models by name; what is the same for all clients once."""
        tensors: dict[str, Tensor] = {}
        for number, common in enumerate(self._common):
            tensors |= {f"{number}.common.{name}": _copy(t).contiguous() for name, t in common.items()}
        for number, parts in enumerate(zip(*self._members, strict=True)):
            for name in parts[0][0]:
                stacked = torch.cat([params[name] for params, _ in parts])
                if bool((stacked == stacked[:1]).all()):
                    tensors[f"{number}.common.{name}"] = stacked[0].clone()
                else:
                    tensors[f"{number}.clients.{name}"] = stacked.contiguous()
            weights = [own for _, own in parts if own is not None]
            if weights:
                tensors[f"{number}.weights"] = torch.cat(weights)
        return tensors


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()


def _save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with path.open("wb") as file:  # to a name of another ending NumPy would add its own
        np.savez_compressed(file, allow_pickle=False, **arrays)


def described(path: Path) -> dict[str, Any]:
    """SHA-256 and bytes of a file, as the summary has them."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"sha256": digest, "bytes": path.stat().st_size}
