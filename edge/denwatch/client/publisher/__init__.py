"""A device to play with: publishes readings in words as a registered device, for tests.

`Publisher` is it on a connection, `SimulatedDevice` without one, `parse_reading` makes a
notification of words, `read_key` reads a device's key file. A real device runs `denwatch.watchdog`.
"""

from denwatch.client.publisher.device import SimulatedDevice
from denwatch.client.publisher.errors import PublisherError, UnacknowledgedError
from denwatch.client.publisher.keys import DeviceKey, read_key
from denwatch.client.publisher.publisher import Publisher
from denwatch.client.publisher.readings import parse_reading

__all__ = [
    "DeviceKey",
    "Publisher",
    "PublisherError",
    "SimulatedDevice",
    "UnacknowledgedError",
    "parse_reading",
    "read_key",
]
