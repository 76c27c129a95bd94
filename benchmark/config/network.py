"""The network that a configuration asks for."""

from __future__ import annotations

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import (
    ARCHITECTURES,
    NETWORKS,
    Network,
    adapt,
    build_network,
    find_architecture,
    sample_shape,
)


def knows_network(config: RunConfig) -> bool:
    """Whether dataset and network are registered; those of old records, or of plugins, may be gone."""
    if config.own_network:
        return config.dataset in NETWORKS
    return config.dataset in DATASETS and config.network in ARCHITECTURES


def network_of(config: RunConfig) -> Network:
    """The network of a run; a function of the configuration alone, so that no data are needed for it."""
    if config.own_network:
        if config.dataset not in NETWORKS:
            raise UserError(
                f"the dataset '{config.dataset}' has no network: name one in its file of datasets/catalogue, "
                "add one to NETWORKS in its plugin, or choose one by --network"
            )
        return build_network(config.dataset, config.dropout, config.cell, config.embedding)
    info = DATASETS[config.dataset]
    shape = sample_shape(info, config.embedding)
    network = find_architecture(config.network).build(shape, info.classes, info.kind)
    return adapt(network, config.network, config.dropout, config.cell)
