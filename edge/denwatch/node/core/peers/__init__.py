"""Node to node. The rest of the node imports from here alone; which file does what:

peer_protocol    a session for each link; what the rest of the node calls
session          the order of the frames on one link
channel          sealing and opening frames; settings and keys
send_queue       what goes to a peer next, and which notifications are worth sending
item_validation  which items of a peer are accepted
change_log       what changed here and when, and what each peer acknowledged

The pure half (sets, bytes, clocks, strategies) is `denwatch.node.replication`; its README explains
the theory.
"""

from __future__ import annotations

from denwatch.node.core.peers.channel import PeerKeys, PeerSettings
from denwatch.node.core.peers.peer_protocol import PeerProtocol
from denwatch.node.core.peers.send_queue import PendingDeliveries

__all__ = ["PeerKeys", "PeerProtocol", "PeerSettings", "PendingDeliveries"]
