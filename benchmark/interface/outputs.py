"""`load_model` and `load_predictions`: what a run has kept of its final evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pfl_benchmark.datasets.loading import load
from pfl_benchmark.datasets.standardise import moments
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.errors import UserError, optional
from pfl_benchmark.experiment.prepare import dealt
from pfl_benchmark.models.layers import Dense, LowRank
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.standalone import ClientModel
from pfl_benchmark.records.outputs import MODELS, PREDICTIONS, described
from pfl_benchmark.records.record import Record
from pfl_benchmark.records.same_data import data_for
from pfl_benchmark.records.store import named_record
from pfl_benchmark.resolve.plugins import load_plugins
from pfl_benchmark.resolve.run import method_of


class Predictions(NamedTuple):
    """Of the test samples of all clients, client by client.

    Attributes:
        logits: float16 [N, C].
        labels: int64 [N], numbers of ``record.classes``.
        client: int64 [N], whose sample it is.
    """

    logits: np.ndarray
    labels: np.ndarray
    client: np.ndarray


def load_model(record: Record | str | Path, client: int, data_dir: str | Path | None = None) -> ClientModel:
    """The model that a client was evaluated with, as a `torch.nn.Module` on the CPU.

    Of a run with ``adapters`` it is whole: what was frozen is in it, and updates by LoRA are added to it.

    ```python
    record = run("fedper", dataset="digits", rounds=10, save_models=True)
    model = load_model(record, client=3)
    logits = model(model.preprocess(images))  # uint8 [B, 1, 8, 8]
    ```

    Outputs are in the order of ``record.classes``.

    Args:
        record: of a run with ``save_models=True`` (``--save-models``), or its folder.
        client: its number in ``record.accuracies``; new clients come after the others.
        data_dir: folder that holds the datasets, as in `run`. Series and rows are read, since their training
            samples say how to normalise.

    Raises:
        UserError: the run has kept no models or they have changed since, there is no such client, or the
            method predicts with more than one network (an ensemble, neighbours, prototypes, two heads).
    """
    record = _record(record)
    path = _file(record, MODELS, "save_models=True")
    if not isinstance(client, int | np.integer) or not 0 <= client < record.config.clients:
        raise UserError(f"client is {client!r}; expected a number from 0 to {record.config.clients - 1}")
    info = record.dataset
    method, _, adapted = method_of(record.config)
    network = adapted.thawed
    tensors: dict[str, Tensor] = {}
    with optional("safetensors", "load_model").safe_open(path, framework="pt") as file:
        names = set(file.keys())
        single = not any(name.startswith("1.") or name.endswith(".weights") for name in names)
        if not single or method.scores is not Algorithm.scores:
            raise UserError(
                f"'{method.name}' predicts with more than one network of a client; its tensors are in {path}"
            )
        for name in names:
            _, kind, tensor = name.split(".", 2)
            found = file.get_slice(name)
            tensors[tensor] = found[:] if kind == "common" else found[client]
    network = _factorised(network, tensors)
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != network.shapes():
        raise UserError(
            f"the models of '{method.name}' have other tensors than its network, so they cannot be loaded as "
            f"one; they are in {path}"
        )
    return ClientModel(network, tensors, info.shape, *_normalisation(record, client, data_dir))


def _normalisation(
    record: Record, client: int, data_dir: str | Path | None
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Mean and deviation by which a client's samples were normalised."""
    config, info = record.config, record.dataset
    if info.kind == "images":
        mean, std = (255 * np.array(values)[:, None, None] for values in (info.mean, info.std))
    elif info.kind in ("series", "rows"):
        whole = load(config.dataset, data_dir, embedding=config.embedding)
        if (here := data_for(config, whole)).differs(record.data):
            raise UserError(
                f"{record.folder} was made on another copy of '{config.dataset}': {record.data}; here are "
                f"{here}; name its folder by data_dir"
            )
        _, found = dealt(config, whole)
        whose = client if config.standardise == "client" else None
        mean, std = moments(found.dataset, found.split, info.numeric, whose)
    else:
        return None, None
    return torch.from_numpy(mean), torch.from_numpy(std)


def load_predictions(record: Record | str | Path) -> Predictions:
    """Logits, labels and clients of all test samples after the last round.

    ```python
    record = run("fedper", dataset="digits", rounds=10, save_predictions=True)
    logits, labels, client = load_predictions(record)
    ```

    Args:
        record: of a run with ``save_predictions=True`` (``--save-predictions``), or its folder.

    Raises:
        UserError: the run has kept none, or they have changed since.
    """
    path = _file(_record(record), PREDICTIONS, "save_predictions=True")
    with np.load(path, allow_pickle=False) as found:
        return Predictions(found["logits"], found["labels"], found["client"])


def _record(record: Record | str | Path) -> Record:
    load_plugins()
    if not isinstance(record, Record | str | Path):
        raise UserError(f"record is {record!r:.60}; expected one record, or its folder")
    return record if isinstance(record, Record) else named_record(Path(record).expanduser())


def _file(record: Record, name: str, keyword: str) -> Path:
    """A file beside a record, whose content is as the summary says."""
    path = record.folder / name
    saved = record.summary.get("saved", {}).get(name)
    if saved is None:
        raise UserError(
            f"the run {record.folder.name} has kept no {name}; run it again with {keyword}, again=True"
        )
    if not path.is_file():
        raise UserError(f"{path} is missing; bring it back, or run again with {keyword}, again=True")
    if described(path) != saved:
        raise UserError(
            f"{path} has changed since the run; bring it back, or run again with {keyword}, again=True"
        )
    return path


def _factorised(network: Network, tensors: dict[str, Tensor]) -> Network:
    """The network with a pair of factors where the tensors have one in place of a layer."""
    changed = {
        layer.name: LowRank.of(layer, len(tensors[f"{layer.name}.first"]))
        for layer in network.layers
        if isinstance(layer, Dense) and f"{layer.name}.first" in tensors
    }
    return network.with_layers(changed)
