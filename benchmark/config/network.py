"""The network that a configuration asks for."""

from __future__ import annotations

from pfl_benchmark.config.adapters import read_adapters
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import (
    NETWORKS,
    Network,
    adapt,
    build_network,
    find_architecture,
    sample_shape,
)
from pfl_benchmark.models.adapters import with_biases, with_bottlenecks, with_head, with_lora
from pfl_benchmark.models.registry import empty_inputs, knows_architecture


def knows_network(config: RunConfig) -> bool:
    """Whether dataset and network are registered; those of old records, or of plugins, may be gone."""
    if config.own_network:
        own = DATASETS[config.dataset].network if config.dataset in DATASETS else ""
        return config.dataset in NETWORKS or knows_architecture(own)
    return config.dataset in DATASETS and knows_architecture(config.network)


def network_of(config: RunConfig) -> Network:
    """The network of a run; a function of the configuration alone, so that no data are needed for it."""
    network = _whole(config)
    if not config.adapters:
        return network
    asked = read_adapters(config.adapters)
    if asked.kind == "lora":
        return with_lora(network, asked.size, asked.scale, asked.layers)
    if asked.kind == "bottleneck":
        info = DATASETS[config.dataset]
        x = empty_inputs(sample_shape(info, config.embedding), info.kind)
        return with_bottlenecks(network, asked.size, x, asked.layers)
    return with_head(network) if asked.kind == "head" else with_biases(network, asked.layers)


def _whole(config: RunConfig) -> Network:
    """The network without adapters."""
    if config.own_network and config.dataset in NETWORKS:
        return build_network(config.dataset, config.dropout, config.cell, config.embedding)
    info = DATASETS[config.dataset]
    name = info.network if config.own_network else config.network
    if not name:
        raise UserError(
            f"the dataset '{config.dataset}' has no network that fits: choose one by --network "
            "(python -m benchmark list networks), write one (docs/site/extend/network.md), or name one as "
            "`network` of a plugin's DatasetInfo"
        )
    shape = sample_shape(info, config.embedding)
    network = find_architecture(name).build(shape, info.classes, info.kind)
    return adapt(network, name, config.dropout, config.cell)
