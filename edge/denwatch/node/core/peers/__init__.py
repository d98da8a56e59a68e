"""Node to node. The rest of the node imports from here alone; which file does what:

peer_protocol  a session for each link: the order of the frames, and their seals
item_exchange  what goes to a peer next; which items of a peer are accepted; settings and keys
knowledge      what changed here and when, what each peer acknowledged, what the two compare

The pure half (sets, bytes, clocks, strategies) is `denwatch.node.replication`; its README explains
the theory.
"""

from __future__ import annotations

from denwatch.node.core.peers.item_exchange import PeerKeys, PeerSettings, PendingDeliveries
from denwatch.node.core.peers.peer_protocol import PeerProtocol

__all__ = ["PeerKeys", "PeerProtocol", "PeerSettings", "PendingDeliveries"]
