"""The network that a configuration asks for."""

from __future__ import annotations

from benchmark.engine.config import RunConfig
from benchmark.models import Network, build_network

__all__ = ["network_of"]


def network_of(config: RunConfig) -> Network:
    """The network of a run; a function of the configuration alone, so that no data are needed for it."""
    return build_network(config.dataset, config.dropout, config.cell, config.embedding)
