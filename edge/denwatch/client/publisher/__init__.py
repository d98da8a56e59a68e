"""A simulated device that publishes readings in words, for tests and `denwatch publish`.

`Publisher` is the device on a connection, `SimulatedDevice` its protocol without I/O, `read_key`
reads a device's key file, and `parse_reading` compiles a reading in words. `send_reports` is for
people.
"""

from denwatch.client.language.reports import parse_reading
from denwatch.client.publisher.publisher import (
    DeviceKeyFile,
    Publisher,
    PublisherError,
    SimulatedDevice,
    UnacknowledgedError,
    read_key,
    send_reports,
)

__all__ = [
    "DeviceKeyFile",
    "Publisher",
    "PublisherError",
    "SimulatedDevice",
    "UnacknowledgedError",
    "parse_reading",
    "read_key",
    "send_reports",
]
