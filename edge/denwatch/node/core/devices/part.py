"""PUB/DENS: the protocol between a node and its devices, as a part of the node's core.

Rules, each with a test that fails without it:

* Nothing of a frame counts before its tag was checked, under a key of that device that is good now.
* A hello and a notification that came before change nothing; the latter is acknowledged again.
* Notifications are acknowledged in the transaction that writes them: after they are on the disk.
* A frame down has a number above all that went to that device before, also after a start.
* What goes down is sealed with the key of the last hello: a device has one key at a time.
* After a hello that was refused, a device gets no answer: an answer would end its hellos.
* What is refused is counted by its reason and logged, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from denwatch.node.core.devices import gate
from denwatch.node.core.devices.contracts import DeviceSettings, Keys, RefusedError, Vocabularies
from denwatch.node.core.devices.downlink import Downlink
from denwatch.node.core.devices.fleet import Fleet
from denwatch.node.core.devices.greeting import read_hello
from denwatch.node.core.devices.installation import list_kept
from denwatch.node.core.devices.intake import Note, is_new, read_notes
from denwatch.node.core.devices.registry import Device, Registry
from denwatch.node.core.devices.wishes import FOREVER
from denwatch.node.core.interface import DEVICES, Acknowledged, Listening, Message, Reader
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import (
    NEVER,
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    decode_body,
)
from denwatch.node.core.transaction import Transaction
from denwatch.protocol.frames import Frame


class Devices:
    """Everything between this node and its devices."""

    def __init__(
        self,
        item_store: ItemStore,
        keys: Keys,
        vocabularies: Vocabularies,
        localise: Callable[[Dot, int], int],
        settings: DeviceSettings | None = None,
        *,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """`has_room`: whether notifications can be taken; `localise`: when others' items end."""
        self._item_store = item_store
        self._keys = keys
        self._vocabularies = vocabularies
        self._localise = localise
        self._settings = settings or DeviceSettings()
        self._has_room = has_room
        self._registry = Registry()
        self._fleet = Fleet(self._settings, vocabularies)
        self._downlink = Downlink(
            item_store.epoch, keys, self._registry, self._fleet, self._settings
        )
        self._silenced: dict[str, str] = {}  # devices whose last hello was refused, and why

    def restore(self, reader: Reader) -> None:
        """Take up devices, handles and subscriptions; whatever a device has is told again."""
        for item in self._item_store.iterate(reader, SUBSCRIPTION):
            self._fleet.book.add(item.id, *self._read_subscription(item))
        self._registry.restore(reader)
        kept = list_kept(reader)  # placed first, so that devices can keep what they have
        for device in self._registry:
            self._fleet.assign(device, kept).restore(reader)
            self._downlink.set_reachable(device.name, not self._settings.has_listeners)

    # Looking ---------------------------------------------------------------------------------

    def find_publishers(
        self, event: int, features: int, vocabulary: bytes | None = None
    ) -> list[str]:
        """Return the devices that sense all these features of an event, by name."""
        return sorted(
            device.name
            for device in self._registry
            if not features & ~device.senses.get(event, (0, 0))[0]
            and event in device.senses
            and vocabulary in (None, device.vocabulary)
        )

    def list_devices(self) -> list[Device]:
        """Return all devices that ever said hello, by name."""
        return sorted(self._registry, key=lambda device: device.name)

    def is_installed(self, device: str) -> bool:
        """Return whether a device surely has the vectors that it shall have."""
        installation = self._fleet.get(device)
        return installation is not None and installation.is_right()

    def describe(self) -> dict[str, int]:
        """Return counts for the status."""
        present = sum(device.is_present for device in self._registry)
        counts = {"devices": len(self._registry), "present": present}
        return counts | self._fleet.describe()

    # Messages --------------------------------------------------------------------------------

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Take a hello, or notifications."""
        name, _, what = message.topic.removeprefix(DEVICES).rpartition("/")
        try:
            if message.sender not in ("", name):
                raise RefusedError("sender", f"{message.sender} is not {name}")
            if what == "hello":
                self._take_hello(transaction, name, message.payload)
            elif what == "nv":
                self._take_notes(transaction, name, message)
            else:
                raise RefusedError("topic", message.topic)
        except RefusedError as error:
            transaction.count("device_refused", label=error.reason)
            transaction.log(
                "refuse",
                what=what or "message",
                why=f"{error.reason}: {error}",
                who=name or message.sender,
                bytes=len(message.payload),
            )

    def _take_hello(self, transaction: Transaction, name: str, payload: bytes) -> None:
        known = self._registry.get(name)
        if not payload:
            self._note_gone(transaction, name, known)
            return
        frame, key_id = gate.open_upward(self._keys, name, payload)
        try:
            device = read_hello(name, frame, key_id, known, self._vocabularies, transaction.now)
        except RefusedError as error:
            if error.reason != "replay":
                self._silenced[name] = error.reason
            raise
        self._silenced.pop(name, None)
        device.is_present = True
        self._registry.save(transaction, device)
        installation = self._fleet.assign(device)
        # A hello that does not follow the last one here was preceded by one at another node, whose
        # vectors may stand under our handles now.
        last = (0, 0) if known is None else known.hello
        if device.hello != (last[0], last[1] + 1) or not self._settings.has_listeners:
            installation.doubt_all()
        self._downlink.set_reachable(name, True)
        transaction.count("device_hellos")
        self._log_hello(transaction, device)
        self._downlink.acknowledge(transaction, device)
        self._downlink.announce(transaction, self._fleet.settle(transaction, installation))
        self._downlink.send(transaction, name)

    def _note_gone(self, transaction: Transaction, name: str, device: Device | None) -> None:
        """Take a will: the device's connection ended without a word."""
        self._downlink.reconnect(name, False)
        if device is not None and device.is_present:
            device.is_present = False
            transaction.log("device", device=name, is_up=False, device_epoch=device.epoch)

    def _log_hello(self, transaction: Transaction, device: Device) -> None:
        transaction.log(
            "device",
            device=device.name,
            is_up=True,
            device_epoch=device.epoch,
            senses=[
                event << 32 | wides << 16 | features
                for event, (features, wides) in device.senses.items()
            ],
            capacity=device.capacity,
            vocabulary=device.vocabulary,
            firmware=device.firmware or None,
        )
        transaction.log("source", device=device.name, dropped=device.dropped)

    def _take_notes(self, transaction: Transaction, name: str, message: Message) -> None:
        frame, _ = gate.open_upward(self._keys, name, message.payload)
        device = self._registry.get(name)
        if device is None or name in self._silenced:
            reason = self._silenced.get(name, "none has come")
            raise RefusedError("hello", f"no hello of it is accepted: {reason}")
        possible = self._vocabularies.find_senses(device.vocabulary)
        if possible is None:
            raise RefusedError("vocabulary", f"{device.vocabulary.hex()} is not known any more")
        notes = read_notes(frame, device, possible)
        transaction.count("device_frames")
        fresh = [note for note in notes if is_new((frame.epoch, note.sequence), device)]
        if fresh and not self._has_room():
            transaction.count("device_held")  # it stays in the device's spool, and comes again
            return
        if len(fresh) < len(notes):
            self._note_again(transaction, device, frame, len(notes) - len(fresh))
        if not fresh:
            # A device that cannot use the answer would ask at once, and for ever.
            if transaction.now - device.repeated < self._settings.pause:
                return
            device.repeated = transaction.now
        else:
            device.is_present = True
            if not message.sender:  # a broker does not say who listens; who speaks, does
                self._downlink.set_reachable(name, True)
            self._take_fresh(transaction, device, frame, fresh)
        self._downlink.acknowledge(transaction, device)
        self._downlink.send(transaction, name)

    def _take_fresh(
        self, transaction: Transaction, device: Device, frame: Frame, fresh: list[Note]
    ) -> None:
        bodies = [
            NotificationBody(
                device.name,
                frame.epoch,
                note.sequence,
                transaction.now - note.age,
                note.doubt + self._settings.transit,
                device.vocabulary,
                note.vector,
            )
            for note in fresh
        ]
        self._item_store.originate_many(
            transaction, NOTIFICATION, transaction.now + self._settings.keep, bodies
        )
        transaction.count("device_notes", len(fresh))
        self._registry.note_taken(transaction, device, (frame.epoch, fresh[-1].sequence))
        is_doubtful = any(note.is_doubtful for note in fresh)
        is_restarted = frame.epoch > device.epoch
        if is_restarted or is_doubtful > device.is_doubtful:
            device.epoch = max(device.epoch, frame.epoch)
            device.is_doubtful |= is_doubtful
            self._registry.save(transaction, device)
            installation = self._fleet.assign(device)
            if is_restarted:  # it has started, and its hello was lost
                installation.doubt_all()

    def _note_again(
        self, transaction: Transaction, device: Device, frame: Frame, count: int
    ) -> None:
        transaction.count("device_again", count)
        transaction.log(
            "duplicate",
            what="notification",
            source=device.name,
            device_epoch=frame.epoch,
            device_sequence=frame.sequence,
        )

    # What goes down --------------------------------------------------------------------------

    def listen(self, transaction: Transaction, event: Listening) -> None:
        """Send what is outstanding to a device that listens now."""
        name, _, what = event.topic.removeprefix(DEVICES).rpartition("/")
        if what == "sv":
            self._downlink.reconnect(name, event.is_up)
            self._downlink.send(transaction, name)

    def acknowledge(self, transaction: Transaction, event: Acknowledged) -> None:
        """Note that a frame arrived."""
        name, _, what = event.topic.removeprefix(DEVICES).rpartition("/")
        if what == "sv":
            self._downlink.confirm(transaction, name, event.token)

    def tick(self, transaction: Transaction) -> None:
        """Place what waits, and send again what was not acknowledged."""
        self._downlink.announce(transaction, self._fleet.advance(transaction))
        self._downlink.resend(transaction)

    def forget_device(self, transaction: Transaction, name: str) -> bool:
        """Let a device begin anew, whose memory was erased; return whether it was known."""
        device = self._registry.get(name)
        installation = self._fleet.get(name)
        if device is None or installation is None:
            return False
        self._registry.forget(transaction, device)
        installation.erase(transaction)
        self._fleet.release(name)
        return True

    # Subscriptions ---------------------------------------------------------------------------

    def add_subscriptions(self, transaction: Transaction, items: Iterable[Item]) -> None:
        """Ask devices for what new subscriptions want."""
        for item in items:
            added = self._fleet.book.add(item.id, *self._read_subscription(item))
            if added is not None:
                self._downlink.announce(transaction, self._fleet.add_wish(transaction, *added))

    def remove_subscription(self, transaction: Transaction, item: Item) -> None:
        """Ask for it no longer."""
        body, _ = self._read_subscription(item)
        removed = self._fleet.book.remove(item.id, body)
        if removed is not None and removed[1]:
            self._downlink.announce(transaction, self._fleet.remove_wish(transaction, removed[0]))

    def _read_subscription(self, item: Item) -> tuple[SubscriptionBody, int]:
        """Return the body of a subscription, and when it ends in our timeline."""
        expires = FOREVER
        if item.expires != NEVER:
            expires = self._localise(item.dot, item.expires)
        return decode_body(SubscriptionBody, item.body), expires
