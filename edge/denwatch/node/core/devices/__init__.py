"""PUB/DENS: the devices of a node. `Devices` is the part; the rest of a node needs no more."""

from denwatch.node.core.devices.contracts import (
    DeviceSettings,
    Keys,
    Vocabularies,
    VocabularySenses,
    list_senses,
)
from denwatch.node.core.devices.part import Devices
from denwatch.node.core.devices.registry import Device

__all__ = [
    "Device",
    "DeviceSettings",
    "Devices",
    "Keys",
    "Vocabularies",
    "VocabularySenses",
    "list_senses",
]
