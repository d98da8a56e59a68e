"""What goes down to devices: frames with subscriptions, one at a time each, and acknowledgements.

The only file that publishes to devices. A change that concerns many devices is told to a bounded
number of them in one transaction, and to the others in the turns that follow: what comes meanwhile
goes into the same frames.
"""

from __future__ import annotations

from collections.abc import Iterable

from denwatch.node.core.devices import gate
from denwatch.node.core.devices.contracts import DeviceSettings, Keys
from denwatch.node.core.devices.fleet import Fleet
from denwatch.node.core.devices.installation import Installation
from denwatch.node.core.devices.registry import Device, Number, Registry
from denwatch.node.core.interface import DEVICES
from denwatch.node.core.transaction import Transaction
from denwatch.protocol.frames import Link


class Downlink:
    """Sends to the devices that listen. `epoch` is that of this node."""

    def __init__(
        self, epoch: int, keys: Keys, registry: Registry, fleet: Fleet, settings: DeviceSettings
    ) -> None:
        self._epoch = epoch
        self._keys = keys
        self._registry = registry
        self._fleet = fleet
        self._settings = settings
        self._reachable: dict[str, bool] = {}
        self._due: dict[str, None] = {}  # devices that may have to be told something

    def set_reachable(self, name: str, is_up: bool) -> None:
        """Note whether a device listens."""
        self._reachable[name] = is_up

    def reconnect(self, name: str, is_up: bool) -> None:
        """Note that a connection came or went: what was under way is lost either way."""
        self._reachable[name] = is_up
        installation = self._fleet.get(name)
        if installation is not None:
            installation.lose_flight()
            installation.patience = 0

    def announce(self, transaction: Transaction, installations: Iterable[Installation]) -> None:
        """Tell devices what changed, the first of them now."""
        self._due.update(dict.fromkeys(one.device for one in installations))
        for name in list(self._due)[: self._settings.burst]:
            del self._due[name]
            self.send(transaction, name)

    def send(self, transaction: Transaction, name: str) -> None:
        """Send a device its next frame, if it listens and there is one."""
        installation = self._fleet.get(name)
        device = self._registry.get(name)
        if installation is None or device is None or not self._reachable.get(name):
            return
        link = self._find_link(device)
        plan = installation.plan(transaction, self._settings) if link is not None else None
        if link is None or plan is None:
            return
        number = self._registry.take_number(transaction, device, self._epoch)
        if plan.vectors:
            payload = gate.seal_vectors(link, number, plan.vectors)
            transaction.count("device_vectors", len(plan.vectors))
        else:
            payload = gate.seal_removal(link, number, plan.removals)
            transaction.count("device_removals", len(plan.removals))
        installation.send(plan, number, transaction.now, self._settings)
        transaction.count("device_frames_down")
        transaction.publish(f"{DEVICES}{name}/sv", payload, token=_make_token(number))

    def confirm(self, transaction: Transaction, name: str, token: int) -> None:
        """Note that a frame arrived, and send the next."""
        installation = self._fleet.get(name)
        if installation is None or installation.flight is None:
            return
        if token == _make_token(installation.flight.number):
            installation.confirm(transaction)
            self.send(transaction, name)

    def resend(self, transaction: Transaction) -> None:
        """Send again what was not acknowledged in time, in new frames."""
        for installation in self._fleet:
            if installation.flight is not None and installation.flight.due <= transaction.now:
                installation.lose_flight()
                transaction.count("device_frames_late")
                self.send(transaction, installation.device)

    def acknowledge(self, transaction: Transaction, device: Device) -> None:
        """Say which notifications are committed: this transaction's writes are, when it leaves."""
        link = self._find_link(device)
        if link is not None:
            payload = gate.seal_acknowledgement(link, (self._epoch, 0), device.taken)
            transaction.publish(f"{DEVICES}{device.name}/ack", payload)

    def _find_link(self, device: Device) -> Link | None:
        """Return the key of its last hello: a device has one key at a time."""
        return self._keys.link_for(device.name, device.key_id)


def _make_token(number: Number) -> int:
    """Return a token that was never used for another frame, not by an earlier run either."""
    return number[0] << 32 | number[1]
