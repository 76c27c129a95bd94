"""Central training on one dataset, for weights that federations begin with (``--weights``)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pfl_benchmark import __version__
from pfl_benchmark.config.lr_schedule import lr_schedule
from pfl_benchmark.config.network import network_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.weights import checksum_of
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.datasets.standardise import standardise
from pfl_benchmark.datasets.validation import divided
from pfl_benchmark.engine.batches import check_batches
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.executors import LoopExecutor
from pfl_benchmark.engine.local import LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import expand, row
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.errors import UserError, optional
from pfl_benchmark.models import Params
from pfl_benchmark.records.files import save_safetensors, save_tensors, write_json

_READ = ("lr", "batch_size", "momentum", "weight_decay", "augment", "crop_padding")  # of a configuration
Told = Callable[[int, float, float], None]  # is given the epoch, its loss and the test accuracy after it


def pretrain(
    config: RunConfig,
    epochs: int,
    out: Path,
    device: torch.device,
    data_dir: Path | None,
    told: Told,
    half: bool = False,
) -> dict[str, Any]:
    """Train the configuration's network on all training data of its dataset, and write its weights.

    Of data that do not say which samples are for testing a tenth is, drawn at random or the last in time.

    Mini-batch steps are those of local training; the momentum begins anew with every epoch, and the learning
    rate falls to 0 along a cosine. The same seed gives the same weights on the same machine.

    Args:
        config: of it count dataset, network, seed, and what local training reads.
        out: ``.safetensors``, else what ``torch.save`` writes; a card is written beside it (``.json``).
        half: round the weights to float16 after the last epoch; the test accuracy is that of rounded weights.

    Returns:
        The card: data, network, training, test accuracy, checksum.

    Raises:
        UserError: the data are not here, training diverges, or the file cannot be written.
    """
    card_file = out.with_suffix(".json")
    if taken := next((path for path in (out, card_file) if path.exists()), None):
        raise UserError(f"--out {out}: {taken} is there already; give another name, or remove it")
    if not out.parent.is_dir():
        raise UserError(f"--out {out}: there is no folder {out.parent}; create it, or give another name")
    if not os.access(out.parent, os.W_OK):
        raise UserError(f"--out {out}: {out.parent} cannot be written to; choose another folder")
    if out.suffix == ".safetensors":
        optional("safetensors.torch", "--out with a name in .safetensors", "; or give a name in .pt")
    streams, network = Streams(config.seed), network_of(config)
    dataset = datasets.load(config.dataset, data_dir, embedding=config.embedding)
    checksum, halves = dataset.checksum, dataset.halves
    if halves is None:  # each run divides every client's samples anew
        rows = np.arange(len(dataset.train))
        halves = divided(dataset, rows, len(rows) // 10, streams.get("partition"))
    split = datasets.Split((halves[0],), (halves[1],))
    if dataset.kind == "rows":
        dataset, split = standardise(dataset, split, datasets.DATASETS[config.dataset].numeric, each=False)
    data = FederatedData(dataset, split, device)
    executor = LoopExecutor(config, data, streams)
    params, accuracy, loss = network.init(streams.get("init"), device), 0.0, 0.0
    phase = Phase.of(network.names, config.lr, 1)
    if network.normalisation:
        sample = data.encode(data.stored()[0][:1])[0]
        check_batches(network, config.batch_size, data.train_sizes, [phase], sample)
    for epoch in range(1, epochs + 1):
        factor = lr_schedule("cosine").factor(epoch, epochs)
        model = StackedModel(network, expand(params, 1))
        outcome = executor.train(LocalCall(epoch, [0], {"model": model}, [phase], factor=factor))
        params, loss = row(outcome.models["model"], 0), float(outcome.loss)
        if not (math.isfinite(loss) and all(bool(t.isfinite().all()) for t in params.values())):
            raise UserError(f"training diverged in epoch {epoch}; try a smaller --lr than {config.lr:g}")
        if half and epoch == epochs:
            params = {name: tensor.half().float() for name, tensor in params.items()}
        (scores,) = executor.forward(network, expand(params, 1), [0], "test")
        accuracy = float((scores.argmax(1) == data.labels(0, "test")).double().mean())
        told(epoch, loss, accuracy)
    _write(out, {name: tensor.half() for name, tensor in params.items()} if half else params)
    own = datasets.DATASETS[config.dataset].network or config.network
    card = {
        "dataset": config.dataset,
        "data_checksum": checksum,
        "training_samples": len(halves[0]),
        "test_samples": len(halves[1]),
        "network": own if config.own_network else config.network,
        "epochs": epochs,
        "test_accuracy": round(accuracy, 6),
        "training_loss": round(loss, 6),
        "seed": config.seed,
        "training": {name: config[name] for name in _READ if name != "crop_padding" or config.augment},
        "precision": "float16" if half else "float32",
        "sha256": checksum_of(str(out)).partition(":")[2],
        "versions": {"pfl_benchmark": __version__, "torch": str(torch.__version__)},
    }
    try:
        write_json(card_file, card)
    except UserError:
        out.unlink(missing_ok=True)  # else the next try would find a name taken
        raise
    return card


def _write(out: Path, params: Params) -> None:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in params.items()}
    if out.suffix == ".safetensors":
        save_safetensors(out, tensors, {})
    else:
        save_tensors(out, tensors)
