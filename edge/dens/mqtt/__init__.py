"""The node's own MQTT 3.1.1 server: packets and sessions without I/O, and a listener for sockets.

server = Server(rules)
listener = Listener(on_input)       # calls on_input(inputs) with all that arrived
outputs = server.take(input, now)   # writes first, commit, then listener.perform(outputs)
"""

from __future__ import annotations

from edge.dens.mqtt.interface import (
    Blocked,
    Close,
    Input,
    Lost,
    Opened,
    OpenRules,
    Output,
    Pace,
    Pause,
    Received,
    Refused,
    Resume,
    Rules,
    Send,
    TokenBucket,
)
from edge.dens.mqtt.limits import Limits
from edge.dens.mqtt.listener import Listener
from edge.dens.mqtt.packets import MalformedError
from edge.dens.mqtt.records import INBOUND, QUEUE, RETAINED, SESSIONS, SUBSCRIPTIONS
from edge.dens.mqtt.server import Server

SPACES = (SESSIONS, SUBSCRIPTIONS, QUEUE, INBOUND, RETAINED)  # of the store, and only the server's

__all__ = [
    "SPACES",
    "Blocked",
    "Close",
    "Input",
    "Limits",
    "Listener",
    "Lost",
    "MalformedError",
    "OpenRules",
    "Opened",
    "Output",
    "Pace",
    "Pause",
    "Received",
    "Refused",
    "Resume",
    "Rules",
    "Send",
    "Server",
    "TokenBucket",
]
