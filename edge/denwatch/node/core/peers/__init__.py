"""DENS to DENS. The rest of the node imports from here alone."""

from __future__ import annotations

from denwatch.node.core.peers.part import PeerPart
from denwatch.node.core.peers.settings import Keys, PeerSettings, Wanting

__all__ = ["Keys", "PeerPart", "PeerSettings", "Wanting"]
