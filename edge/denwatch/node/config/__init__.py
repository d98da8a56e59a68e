"""One file configures a node: `node.toml`."""

from __future__ import annotations

from denwatch.node.config.loading import load_config, parse_config
from denwatch.node.config.model import (
    Address,
    Broker,
    ConfigError,
    NodeConfig,
    Peer,
    Replication,
    Tls,
)

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
