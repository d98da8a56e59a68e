"""One file configures a node: `node.toml`."""

from __future__ import annotations

from denwatch.node.config.loading import load_config, parse_config
from denwatch.node.config.model import (
    Broker,
    NodeConfig,
    NodeConfigError,
    PeerAddress,
    Replication,
    ServerAddress,
    Tls,
)

__all__ = [
    "Broker",
    "NodeConfig",
    "NodeConfigError",
    "PeerAddress",
    "Replication",
    "ServerAddress",
    "Tls",
    "load_config",
    "parse_config",
]
