"""The air between devices and nodes: one channel for all that are with a node, as LoRa has it.

The stations are real: `RadioLink` of the watchdog, `RadioGateway` of the bridge. A datagram takes
its time on the air. It is lost where two overlap, and otherwise by chance. `sent` has every
transmission, for the check that no station had more than its share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from denwatch.cli.bridge import RadioGateway
from denwatch.watchdog.link import NodeAddress
from denwatch.watchdog.radio import OVERHEAD, RadioLink

if TYPE_CHECKING:
    from simulator.device import EmulatedDevice
    from simulator.world import World

_GATEWAY = ""  # the name of a node's own station
_LOOK = 100  # ms; how often a gateway looks for what there is to send
_LOOK_DEVICE = 1_000  # and about how often a device does


@dataclass(frozen=True)
class RadioSettings:
    """One kind of radio; shares are of the time, in 1/1000."""

    size: int
    measure: Callable[[int], int]  # ms of so many bytes
    share: int = 10
    gateway_share: int = 100
    loss: float = 0.1
    patience: int = 60_000


@dataclass(frozen=True)
class Transmission:
    """A datagram on the air."""

    node: str
    station: str
    start: int
    end: int
    datagram: bytes


class _StationModem:
    """What a device's link sends and receives by."""

    def __init__(self, air: RadioAir, node: str, name: str) -> None:
        self.size = air.settings.size
        self.share = air.settings.share
        self._air, self._node, self._name = air, node, name
        self.came: list[bytes] = []

    def send(self, datagram: bytes) -> None:
        self._air.transmit(self._node, self._name, datagram)

    def receive(self) -> bytes | None:
        return self.came.pop(0) if self.came else None

    def measure(self, size: int) -> int:
        return self._air.settings.measure(size)


class _Station:
    """A device's link, for one start of it at one node."""

    def __init__(self, air: RadioAir, device: EmulatedDevice, start: int) -> None:
        self.start, self.node = start, device.node
        self._air, self._device = air, device
        self.name = device.name
        self.topics = device.uplink.topics
        self.will = device.uplink.will
        self.modem = _StationModem(air, device.node, device.name)
        self.link = RadioLink(
            self,
            [NodeAddress(device.node, "", 0)],
            lambda: air.world.now,
            air.rng.randrange,
            self.modem,
        )

    def connect(self, node: str) -> None:
        self._device.connect(node, self._air.world.now)

    def connect_anew(self, node: str) -> None:
        self._device.connect(node, self._air.world.now)
        self._device.uplink.connect_anew(node)

    def receive(self, topic: str, payload: bytes, now: int) -> None:  # noqa: ARG002 - of `MqttClient`
        self._air.world.tell_device(self.name, topic, payload)

    def step(self) -> None:
        """Send what there is."""
        now = self._air.world.now
        if not self.link.peer.is_busy:
            message = self._device.next_message(now)
            if message is not None:
                self.link.offer(message[0], message[1], now)
        self.link.step(now)


class RadioAir:
    """All channels of a world."""

    def __init__(self, world: World, settings: RadioSettings, rng: Random) -> None:
        self.world, self.settings, self.rng = world, settings, rng
        self.sent: list[Transmission] = []
        self.collided = self.missed = 0
        self._on_air: dict[str, list[Transmission]] = {}
        self._stations: dict[str, _Station] = {}
        self._gateways: dict[str, RadioGateway] = {}

    def prepare(self, device: EmulatedDevice) -> None:
        """Tell a device what fits a datagram, before it starts."""
        device.room = self.settings.size - OVERHEAD
        device.patience = self.settings.patience

    def connect(self, name: str, start: int) -> None:
        """Let a device be heard by the gateway of the node that it is with."""
        device = self.world.devices[name]
        if device.node not in self._gateways:
            settings = self.settings
            self._gateways[device.node] = RadioGateway(
                [],
                settings.size,
                settings.measure,
                settings.gateway_share,
                self.rng.randrange,
                self.world.now,
            )
            self._on_air[device.node] = []
            self.world.calendar.wait(_LOOK, self._look, device.node)
        gateway = self._gateways[device.node]
        if not gateway.knows(name):
            gateway.add(name)
        station = self._stations.get(name)
        if station is not None and (station.start, station.node) == (start, device.node):
            gateway.begin(name)  # the node has restarted
            return
        station = self._stations[name] = _Station(self, device, start)
        station.connect(device.node)
        self._look_device(station)

    def send(self, node: str, name: str, topic: str, payload: bytes) -> None:
        """Send what a node says to a device."""
        self._gateways[node].send(name, topic, payload)

    def transmit(self, node: str, station: str, datagram: bytes) -> None:
        """Begin to send."""
        now = self.world.now
        sent = Transmission(
            node, station, now, now + self.settings.measure(len(datagram)), datagram
        )
        self.sent.append(sent)
        self._on_air[node].append(sent)
        self.world.calendar.enter(sent.end, self._arrive, sent)

    def _is_sending(self, node: str, station: str) -> bool:
        now = self.world.now
        return any(each.station == station and each.end > now for each in self._on_air[node])

    def _arrive(self, sent: Transmission) -> None:
        on_air = self._on_air[sent.node]
        at_once = [each for each in on_air if each.start < sent.end and sent.start < each.end]
        self._on_air[sent.node] = [each for each in on_air if each.end > sent.start - 60_000]
        if len(at_once) > 1:
            self.collided += 1
            return
        if sent.station != _GATEWAY:
            self._reach_gateway(sent)
            return
        for station in list(self._stations.values()):
            if self._is_there(station) and station.node == sent.node and not self._is_lost():
                station.modem.came.append(sent.datagram)
                station.link.step(self.world.now)

    def _reach_gateway(self, sent: Transmission) -> None:
        if self._is_lost():
            return
        message = self._gateways[sent.node].receive(sent.datagram, self.world.now)
        if message is not None and self.world.hosts[sent.node].is_up:
            name, topic, payload = message
            device = self.world.devices[name]
            self.world.hear_device(name, sent.node, f"dens/1/wd/{device.name}/{topic}", payload)

    def _is_lost(self) -> bool:
        is_lost = self.rng.random() < self.settings.loss
        self.missed += is_lost
        return is_lost

    def _is_there(self, station: _Station) -> bool:
        device = self.world.devices[station.name]
        is_current = self._stations.get(station.name) is station
        return is_current and device.is_up and device.node == station.node

    def _look_device(self, station: _Station) -> None:
        if not self._is_there(station):
            return
        if not self._is_sending(station.node, station.name):
            station.step()
        delay = _LOOK_DEVICE // 2 + self.rng.randrange(_LOOK_DEVICE)
        self.world.calendar.wait(delay, self._look_device, station)

    def _look(self, node: str) -> None:
        if not self._is_sending(node, _GATEWAY) and self.world.hosts[node].is_up:
            datagram = self._gateways[node].next_datagram(self.world.now)
            if datagram is not None:
                self.transmit(node, _GATEWAY, datagram)
        self.world.calendar.wait(_LOOK, self._look, node)


def find_excess(air: RadioAir) -> list[str]:
    """Return the stations that had more than their share of an hour."""
    found = []
    stations: dict[tuple[str, str], list[Transmission]] = {}
    for each in air.sent:
        stations.setdefault((each.node, each.station), []).append(each)
    for (node, name), sent in stations.items():
        share = air.settings.share if name != _GATEWAY else air.settings.gateway_share
        total = oldest = 0
        for each in sent:
            total += each.end - each.start
            while sent[oldest].start <= each.start - 3_600_000:
                total -= sent[oldest].end - sent[oldest].start
                oldest += 1
            if total * 1000 > 3_600_000 * share and share < 1000:
                found.append(f"{name or 'the gateway'} at {node}: {total} ms of an hour")
                break
    return found
