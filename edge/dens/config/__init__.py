"""One file configures a node: `node.toml`."""

from __future__ import annotations

from edge.dens.config.errors import ConfigError
from edge.dens.config.loading import load_config, parse_config
from edge.dens.config.model import Address, Broker, NodeConfig, Peer, Replication, Tls

__all__ = [
    "Address",
    "Broker",
    "ConfigError",
    "NodeConfig",
    "Peer",
    "Replication",
    "Tls",
    "load_config",
    "parse_config",
]
