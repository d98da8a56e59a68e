"""The node's own MQTT 3.1.1 server: packets and sessions without I/O, and a listener for sockets.

server = MqttServer(rules)
listener = Listener(on_input)       # calls on_input(inputs) with all that arrived
outputs = server.take(input, now)   # perform the writes, commit, then listener.perform(outputs)
"""

from __future__ import annotations

from denwatch.node.mqtt.interface import (
    Close,
    Input,
    Limits,
    LinkBlocked,
    LinkLost,
    LinkOpened,
    LinkReceived,
    OpenRules,
    Output,
    Pace,
    Pause,
    Resume,
    Rules,
    Send,
    ServerRefusal,
)
from denwatch.node.mqtt.listener import Listener
from denwatch.node.mqtt.packets import MalformedError
from denwatch.node.mqtt.records import INBOUND, QUEUE, RETAINED, SESSIONS, SUBSCRIPTIONS
from denwatch.node.mqtt.server import MqttServer

# The spaces of the store that belong to the server.
SPACES = (SESSIONS, SUBSCRIPTIONS, QUEUE, INBOUND, RETAINED)

__all__ = [
    "SPACES",
    "Close",
    "Input",
    "Limits",
    "LinkBlocked",
    "LinkLost",
    "LinkOpened",
    "LinkReceived",
    "Listener",
    "MalformedError",
    "MqttServer",
    "OpenRules",
    "Output",
    "Pace",
    "Pause",
    "Resume",
    "Rules",
    "Send",
    "ServerRefusal",
]
