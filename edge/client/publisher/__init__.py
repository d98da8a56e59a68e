"""A device to play with: publishes readings in words as a registered device, for tests.

`Publisher` is it on a connection, `SimulatedDevice` without one, `parse_reading` makes a
notification of words, `read_key` reads a device's key file. A real device runs `edge.watchdog`.
"""

from edge.client.publisher.device import SimulatedDevice
from edge.client.publisher.errors import PublisherError, UnacknowledgedError
from edge.client.publisher.keys import DeviceKey, read_key
from edge.client.publisher.publisher import Publisher
from edge.client.publisher.readings import parse_reading

__all__ = [
    "DeviceKey",
    "Publisher",
    "PublisherError",
    "SimulatedDevice",
    "UnacknowledgedError",
    "parse_reading",
    "read_key",
]
