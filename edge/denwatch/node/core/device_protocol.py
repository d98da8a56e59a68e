"""PUB/DENS: the protocol between a node and its devices: hellos and notifications up, vectors down.

    dens/1/wd/<device>/hello   what a device is and senses; an empty one is its will
    dens/1/wd/<device>/nv      a frame of notifications
    dens/1/wd/<device>/sv      a frame that installs or removes vectors (`devices.py`)
    dens/1/wd/<device>/ack     up to where its notifications are committed; a piece of an image
    dens/1/wd/<device>/want    which piece of an image a device asks for (`updates.py`)

Rules, each with a test that fails without it:

* Nothing of a frame counts before its tag was checked, under a key of that device that is good now.
* A hello or a notification that came before changes nothing; the latter is acknowledged again.
* Notifications are acknowledged in the transaction that writes them: after they are on the disk.
* A frame down has a number above all that went to that device before, also after a start.
* What goes down is sealed with the key of the last hello: a device has one key at a time. Every
  frame has a number of its own, because the number is the nonce.
* A refused hello is not answered, so that the device keeps retrying; but for one whose number is
  old: it is told the last number, so that a device whose memory was erased can begin above it.
* Notifications are bound to the answer to the last hello: what belongs to another one is not
  opened, and what was made long before it came is dated by that (`find_delay`).
* What is refused is counted by its reason and logged, and changes nothing.

WHAT IS NEW. A device sends its oldest notifications first, and the next ones when these are
acknowledged. So everything up to the highest number that was received is here, or with another node
that acknowledged it: one number a device says what is old. Notifications of the run that the last
hello speaks of must be of what that hello announced. Older ones waited through a restart, perhaps
with other sensors: for them the vocabulary is the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from denwatch.node.core.coverage import (
    FOREVER,
    RequestedVector,
    Sensed,
    asks_whole,
    read_score,
)
from denwatch.node.core.devices import (
    Device,
    DeviceRegistry,
    DeviceSettings,
    Number,
    SensorPlacement,
    VectorTable,
    VectorTables,
    list_installed,
)
from denwatch.node.core.events import DEVICES, Acknowledged, Listening, Message, Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    ANNOUNCEMENT,
    NEVER,
    NOTIFICATION,
    SUBSCRIPTION,
    AnnouncementBody,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    decode_body,
    encode_body,
)
from denwatch.node.core.languages import STORY, load_languages
from denwatch.node.core.notifications import Vocabularies, decode_notification
from denwatch.node.core.subscriptions import Subscription
from denwatch.node.core.updates import DeviceUpdates, RunningImage
from denwatch.protocol import frames
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import (
    MESSAGE,
    DeviceBatch,
    Frame,
    HelloAnswer,
    Link,
    decode_message,
    encode_message,
)
from denwatch.protocol.timecode import AGES_PER_SECOND, decode_age
from denwatch.protocol.vectors import NotificationVector


class DeviceKeys(Protocol):
    """Who may speak for a device; `denwatch.node.security.keyring` is the real one."""

    def link_for(self, device: str, key_id: int) -> Link | None:
        """Return the link of a key that is good now, None otherwise."""

    def list_key_ids(self, device: str) -> list[int]:
        """Return the keys of a device that are good now."""


class DeviceRefusal(ValueError):
    """A message that changes nothing: `reason` is a word to count by."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


# Frames up: opening and checking ---------------------------------------------------------------

_MANTISSA = 11  # bits of an age code


def open_upward(
    keys: DeviceKeys, device: str, payload: bytes, known: Device | None
) -> tuple[Frame, int]:
    """Return an authenticated frame of a device, and the id of its key; DeviceRefusal otherwise."""
    if len(payload) > frames.MAX_LENGTH:
        raise DeviceRefusal("too long", f"{len(payload)} bytes")
    if len(payload) < frames.OVERHEAD:
        raise DeviceRefusal("truncated", f"{len(payload)} bytes are no frame")
    key_id = frames.read_key_id(payload)
    link = keys.link_for(device, key_id)
    if link is None:
        if not keys.list_key_ids(device):
            raise DeviceRefusal("unknown device", "it has no key that is good")
        raise DeviceRefusal("unknown key", f"key {key_id} is not good")
    if frames.is_batch(payload) and (known is None or known.answer == (0, 0)):
        raise DeviceRefusal("hello", "no hello of it was answered")
    answer = None if known is None else HelloAnswer(known.hello[0], *known.answer)
    try:
        return frames.open_frame(link, frames.UP, payload, answer), key_id
    except ProtocolError as error:
        raise DeviceRefusal(_name_fault(link, payload), str(error)) from None


def _name_fault(link: Link, payload: bytes) -> str:
    """Tell a frame of ours that comes back from one that was forged or damaged."""
    try:
        frames.open_frame(link, frames.DOWN, payload)
    except ProtocolError:
        return "tag" if payload[0] & 0xC0 == 0x80 else "version"
    return "direction"


def read_hello(
    name: str,
    frame: Frame,
    key_id: int,
    known: Device | None,
    vocabularies: Vocabularies,
    now: int,
) -> Device:
    """Return the device of an authenticated hello; DeviceRefusal says why it is none."""
    fields = _read_message(frame, "hello")
    if fields["device"] != name:
        raise DeviceRefusal("name", f"a hello of {fields['device']}")
    if fields["epoch"] != frame.epoch:
        raise DeviceRefusal("message", f"a hello of epoch {fields['epoch']} in {frame.epoch}")
    number = (frame.epoch, frame.sequence)
    if not is_fresh(number, known):
        raise DeviceRefusal("replay", f"hello {number} is not after the last one")
    sensed = {event: (masks[0], masks[1]) for event, masks in sorted(fields["senses"].items())}
    possible = vocabularies.find_sensed(fields["vocabulary"])
    if possible is None:
        raise DeviceRefusal("vocabulary", f"{fields['vocabulary'].hex()} is not known here")
    check_sensed(sensed, possible)
    return Device(
        name,
        number,
        key_id,
        fields["vocabulary"],
        sensed,
        fields["capacity"],
        tuple(fields["languages"]),
        fields.get("firmware", ""),
        fields.get("reset", 0),
        fields.get("lowest", 0),
        fields.get("dropped", 0),
        now,
        known is not None and known.is_doubtful,
        (0, 0) if known is None else known.taken,
        frame.epoch,
        fields.get("doubts"),
        image=RunningImage(*fields["image"]) if "image" in fields else None,
        facts=_name_facts(fields),
    )


# What a board says of itself, by its number in a hello (protocol/README.md).
_FACTS = {
    1: "battery_mv",
    2: "wakes",
    3: "radio_s",
    4: "urgent",
    5: "due",
    6: "regular",
    7: "restarts",
    8: "crashes",
    9: "signal_dbm",
    10: "begun_anew",
}


def _name_facts(fields: dict[str, Any]) -> dict[str, int | str]:
    numbers: dict[int, int] = fields.get("facts", {})
    facts: dict[str, int | str] = {_FACTS[key]: numbers[key] for key in _FACTS if key in numbers}
    if "signal_dbm" in facts:
        facts["signal_dbm"] = -numbers[9]
    if fields.get("log"):
        facts["log"] = fields["log"]
    return facts


def is_fresh(number: tuple[int, int], known: Device | None) -> bool:
    """Return whether a hello comes after all that was heard of the device."""
    return known is None or (number > known.hello and number[0] >= known.epoch)


def check_sensed(sensed: Sensed, possible: Sensed) -> None:
    """Refuse what the vocabulary does not have, or has at another resolution."""
    for event, (features, wides) in sensed.items():
        all_features, all_wides = possible.get(event, (0, 0))
        if not features or features & ~all_features:
            raise DeviceRefusal(
                "senses", f"event {event}: features {features:#06x} are not in the vocabulary"
            )
        if wides != all_wides & features:
            raise DeviceRefusal(
                "senses", f"event {event}: the wide ones are {all_wides & features:#06x}"
            )


def _read_message(frame: Frame, wanted: str) -> dict[str, Any]:
    if frame.kind != MESSAGE:
        raise DeviceRefusal("kind", f"kind {frame.kind} is no {wanted}")
    try:
        name, fields = decode_message(frame.body)
    except ProtocolError as error:
        raise DeviceRefusal("message", str(error)) from None
    if name != wanted:
        raise DeviceRefusal("message", f"{name} is no {wanted}")
    return fields


class FrameNotification(NamedTuple):
    """One notification of a frame."""

    sequence: int  # all 32 bits
    vector: bytes
    age: int  # ms
    doubt: int  # ms by which the age may be wrong
    is_doubtful: bool  # a reading has an accuracy that the hello did not announce


def read_batch(frame: Frame) -> DeviceBatch:
    """Return the notifications of an authenticated frame, not looked at yet."""
    if frame.kind not in frames.BATCHES:
        raise DeviceRefusal("kind", f"kind {frame.kind} has no notifications")
    try:
        return frames.unpack_batch(frame)
    except ProtocolError as error:
        raise DeviceRefusal("vector", str(error)) from None


def read_notifications(
    batch: DeviceBatch, device: Device, possible: Sensed
) -> list[FrameNotification]:
    """Return the notifications of a batch in order; DeviceRefusal if any of it cannot be."""
    try:
        decoded = [decode_notification(vector) for vector in batch.vectors]
    except ProtocolError as error:
        raise DeviceRefusal("vector", str(error)) from None
    sensed = device.sensed if batch.epoch == device.hello[0] else possible
    notifications: list[FrameNotification] = []
    for vector, n in zip(batch.vectors, decoded, strict=True):
        _check_sensed(n, sensed)
        sequence = batch.last - ((batch.last - n.sequence) & 0xFFFF)
        if sequence <= (notifications[-1].sequence if notifications else 0):
            raise DeviceRefusal("sequence", f"number {sequence} is out of order")
        is_doubtful = not (device.may_doubt(n.event) or all(r.exact for r in n.readings))
        notifications.append(FrameNotification(sequence, vector, *_find_age(n.age), is_doubtful))
    return notifications


def find_delay(frame: Frame, device: Device, now: int, settings: DeviceSettings) -> tuple[int, int]:
    """Return how long a batch was held back on its way, ms, and by how much that may be wrong.

    It was made when the device had heard the answer to its hello, and so much later as it says: not
    before the one and the other after we gave that answer. What links and clocks explain is none.
    """
    elapsed = frame.elapsed * 1000 // AGES_PER_SECOND
    drift = elapsed // settings.drift
    gone = now - device.heard - elapsed
    return (gone, drift) if gone > settings.transit + drift else (0, 0)


def is_new(number: Number, device: Device) -> bool:
    """Return whether a notification was not received before."""
    return number > device.taken


def _check_sensed(n: NotificationVector, sensed: Sensed) -> None:
    features, wides = sensed.get(n.event, (0, 0))
    strange = (n.features | n.faults) & ~features
    if strange:
        raise DeviceRefusal(
            "senses", f"event {n.event}: features {strange:#06x} were not announced"
        )
    for reading in n.readings:
        if reading.wide != bool(wides >> reading.attribute & 1):
            raise DeviceRefusal(
                "senses", f"event {n.event}: attribute {reading.attribute} has another resolution"
            )


def _find_age(code: int) -> tuple[int, int]:
    """Return an age in ms, and by how much it may be wrong: half a step, and the device's tick."""
    step = 1 << max(0, (code >> _MANTISSA) - 1)
    return decode_age(code) * 1000 // AGES_PER_SECOND, (step + 2) * 500 // AGES_PER_SECOND + 1


# Frames down -----------------------------------------------------------------------------------


def _seal(link: Link, kind: int, number: Number, body: bytes) -> bytes:
    return frames.seal(link, frames.DOWN, Frame(kind, number[0], number[1], body))


class Downlink:
    """Sends to the devices that listen. `epoch` is that of this node."""

    def __init__(
        self,
        epoch: int,
        keys: DeviceKeys,
        registry: DeviceRegistry,
        tables: VectorTables,
        settings: DeviceSettings,
    ) -> None:
        self._epoch = epoch
        self._keys = keys
        self._registry = registry
        self._tables = tables
        self._settings = settings
        self._reachable: dict[str, bool] = {}
        self._due: dict[str, None] = {}  # devices that may have to be told something

    def set_reachable(self, name: str, is_up: bool) -> None:
        """Note whether a device listens."""
        self._reachable[name] = is_up

    def reconnect(self, name: str, is_up: bool) -> None:
        """Note that a connection came or went: what was under way is lost either way."""
        self._reachable[name] = is_up
        table = self._tables.get(name)
        if table is not None:
            table.lose_flight()
            table.patience = 0

    def announce(self, transaction: Transaction, tables: Iterable[VectorTable]) -> None:
        """Tell devices what changed, the first of them now."""
        self._due.update(dict.fromkeys(one.device for one in tables))
        for name in list(self._due)[: self._settings.burst]:
            del self._due[name]
            self.send(transaction, name)

    def send(self, transaction: Transaction, name: str) -> None:
        """Send a device its next frame, if it listens and there is one."""
        table = self._tables.get(name)
        device = self._registry.get(name)
        if table is None or device is None or not self._reachable.get(name):
            return
        link = self._find_link(device)
        plan = table.plan(transaction, self._settings) if link is not None else None
        if link is None or plan is None:
            return
        number = self._registry.take_number(transaction, device, self._epoch)
        if plan.vectors:
            payload = _seal(link, frames.SUBSCRIPTIONS, number, frames.join_vectors(plan.vectors))
            transaction.count("device_vectors", len(plan.vectors))
        else:
            removal = encode_message("remove", {"handles": plan.removals})
            payload = _seal(link, MESSAGE, number, removal)
            transaction.count("device_removals", len(plan.removals))
        table.send(plan, number, transaction.now, self._settings)
        transaction.count("device_frames_down")
        transaction.publish(f"{DEVICES}{name}/sv", payload, token=_make_token(number))

    def confirm(self, transaction: Transaction, name: str, token: int) -> None:
        """Note that a frame arrived, and send the next."""
        table = self._tables.get(name)
        if table is None or table.flight is None:
            return
        if token == _make_token(table.flight.number):
            table.confirm(transaction)
            self.send(transaction, name)

    def resend(self, transaction: Transaction) -> None:
        """Send again what was not acknowledged in time, in new frames."""
        for table in self._tables:
            if table.flight is not None and table.flight.due <= transaction.now:
                table.lose_flight()
                transaction.count("device_frames_late")
                self.send(transaction, table.device)

    def answer(self, transaction: Transaction, device: Device) -> None:
        """Answer a hello; the notifications that follow are bound to the number of this frame."""
        device.answer = self.acknowledge(transaction, device, hello=list(device.hello))

    def acknowledge(self, transaction: Transaction, device: Device, **fields: object) -> Number:
        """Say which notifications are committed: this transaction's writes are, when it leaves."""
        number = self._registry.take_number(transaction, device, self._epoch)
        link = self._find_link(device)
        if link is not None:
            epoch, sequence = device.taken
            taken = encode_message("acknowledge", {"epoch": epoch, "sequence": sequence, **fields})
            payload = _seal(link, MESSAGE, number, taken)
            transaction.publish(f"{DEVICES}{device.name}/ack", payload)
        return number

    def tell_heard(self, transaction: Transaction, device: Device, key_id: int) -> None:
        """Tell a device, under the key that it uses, the number of the last hello it is known by.

        Whoever plays an old hello back learns nothing, and the device knows that it said this one.
        """
        link = self._keys.link_for(device.name, key_id)
        if link is not None:
            last = max(device.hello, (device.epoch, 0))
            heard = encode_message("heard", {"epoch": last[0], "count": last[1]})
            number = self._registry.take_number(transaction, device, self._epoch)
            payload = _seal(link, MESSAGE, number, heard)
            transaction.publish(f"{DEVICES}{device.name}/ack", payload)

    def offer(self, transaction: Transaction, device: Device, fields: dict[str, object]) -> None:
        """Offer an image, under a number like that of a vector: nobody can play it back."""
        link = self._find_link(device)
        if link is not None and self._reachable.get(device.name):
            number = self._registry.take_number(transaction, device, self._epoch)
            payload = _seal(link, MESSAGE, number, encode_message("offer", fields))
            transaction.publish(f"{DEVICES}{device.name}/sv", payload)

    def send_piece(
        self, transaction: Transaction, device: Device, fields: dict[str, object]
    ) -> None:
        """Send a piece of an image, which the device compares with what it was offered."""
        link = self._find_link(device)
        if link is not None:
            number = self._registry.take_number(transaction, device, self._epoch)
            payload = _seal(link, MESSAGE, number, encode_message("piece", fields))
            transaction.publish(f"{DEVICES}{device.name}/ack", payload)

    def _find_link(self, device: Device) -> Link | None:
        """Return the key of its last hello: a device has one key at a time."""
        return self._keys.link_for(device.name, device.key_id)


def _make_token(number: Number) -> int:
    """Return a token that was never used for another frame, not by an earlier run either."""
    return number[0] << 32 | number[1]


# The protocol ----------------------------------------------------------------------------------


class DeviceProtocol:
    """Everything between this node and its devices."""

    def __init__(
        self,
        item_store: ItemStore,
        keys: DeviceKeys,
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
        self.updates = DeviceUpdates()  # a node that has images replaces it
        self._registry = DeviceRegistry()
        self._tables = VectorTables(self._settings, vocabularies)
        self._downlink = Downlink(
            item_store.epoch, keys, self._registry, self._tables, self._settings
        )
        self._announced: dict[str, Dot] = {}  # our items that say what a device senses

    def restore(self, reader: Reader, subscriptions: Iterable[Subscription] | None = None) -> None:
        """Load devices, handles and subscriptions; whatever a device has is sent again.

        `subscriptions` are those in force, if somebody has read them already.
        """
        if subscriptions is None:
            for item in self._item_store.iterate(reader, SUBSCRIPTION):
                with suppress(ProtocolError):  # stored by a version that checked less
                    self._request(item)
        else:
            for each in subscriptions:
                if each.language == STORY:
                    story = self._item_store.get(reader, SUBSCRIPTION, each.dot)
                    if story is not None:
                        self._request(story)
                    continue
                masks = (each.features, each.wides) if each.event >= 0 else None
                ends = self._find_end(each.dot, each.expires)
                self._tables.requested.add(
                    each.id, each, ends, each.score, masks, is_whole=each.is_whole
                )
        for item in self._item_store.iterate(reader, ANNOUNCEMENT):
            if item.dot.origin == self._item_store.name:
                self._announced[decode_body(AnnouncementBody, item.body).device] = item.dot
        self._registry.restore(reader)
        kept = list_installed(reader)  # placed first, so that devices can keep what they have
        for device in self._registry:
            self._tables.assign(device, kept).restore(reader)
            self._downlink.set_reachable(device.name, not self._settings.has_listeners)

    # Looking ---------------------------------------------------------------------------------

    def list_devices(self) -> list[Device]:
        """Return all devices that ever said hello, by name."""
        return sorted(self._registry, key=lambda device: device.name)

    def find_running(self, name: str) -> RunningImage | None:
        """Return what a device said of its code; None if it has not said hello."""
        device = self._registry.get(name)
        if device is None:
            return None
        return device.image or RunningImage(0, 0, "", b"", b"")

    def describe_fleet(self) -> list[dict[str, object]]:
        """Return what is known of every device and its update, for people."""
        return [
            {
                "device": device.name,
                "present": device.is_present,
                "heard": device.heard,
                "firmware": device.firmware,
                "kind": device.image.kind if device.image else None,
                "code": device.image.state if device.image else 0,
                "version": device.image.version if device.image else "",
                "image": device.image.image.hex() if device.image else "",
                "update": self.updates.describe(device.name, self.find_running),
            }
            for device in self.list_devices()
        ]

    def is_installed(self, device: str) -> bool:
        """Return whether a device surely has the vectors that it shall have."""
        table = self._tables.get(device)
        return table is not None and table.is_right()

    def explain(self, body: SubscriptionBody) -> SensorPlacement | None:
        """Return where a subscription is installed, and what covers it; None: never on a sensor."""
        return self._tables.explain(body)

    def describe(self) -> dict[str, int]:
        """Return counts for the status."""
        present = sum(device.is_present for device in self._registry)
        counts = {"devices": len(self._registry), "present": present}
        return counts | self._tables.describe()

    # Messages --------------------------------------------------------------------------------

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Handle a hello, or frames of notifications: each is received or refused by itself."""
        name, _, what = message.topic.removeprefix(DEVICES).rpartition("/")
        bodies: list[NotificationBody] = []
        is_answered = False
        for payload in (message.payload, *message.others):
            try:
                if message.sender not in ("", name):
                    raise DeviceRefusal("sender", f"{message.sender} is not {name}")
                if what == "hello":
                    self._receive_hello(transaction, name, payload)
                elif what == "want":
                    self._receive_want(transaction, name, payload)
                elif what == "nv":
                    is_answered |= self._receive_notifications(
                        transaction, name, payload, bodies, is_heard=not message.sender
                    )
                else:
                    raise DeviceRefusal("topic", message.topic)
            except DeviceRefusal as error:
                transaction.count("device_refused", label=error.reason)
                transaction.log(
                    "refuse",
                    what=what or "message",
                    why=f"{error.reason}: {error}",
                    who=name or message.sender,
                    bytes=len(payload),
                )
        if is_answered:
            self._store(transaction, name, bodies)

    def _receive_hello(self, transaction: Transaction, name: str, payload: bytes) -> None:
        known = self._registry.get(name)
        if not payload:
            self._note_gone(transaction, name, known)
            return
        frame, key_id = open_upward(self._keys, name, payload, known)
        try:
            device = read_hello(name, frame, key_id, known, self._vocabularies, transaction.now)
        except DeviceRefusal as error:
            if error.reason == "replay" and known is not None:
                self._remind(transaction, known, key_id)
            raise
        device.is_present = True
        self._downlink.answer(transaction, device)
        self._registry.save(transaction, device)
        table = self._tables.assign(device)
        # A hello that does not follow the last one here was preceded by one at another node, whose
        # vectors may stand under our handles now.
        last = (0, 0) if known is None else known.hello
        if device.hello != (last[0], last[1] + 1) or not self._settings.has_listeners:
            table.doubt_all()
        self._downlink.set_reachable(name, True)
        self._announce(transaction, device)
        transaction.count("device_hellos")
        self._log_hello(transaction, device)
        self._downlink.announce(transaction, self._tables.settle(transaction, table))
        self._downlink.send(transaction, name)
        self.updates.forget_offer(name)
        self._offer_image(transaction, device)

    def _offer_image(self, transaction: Transaction, device: Device) -> None:
        image = self.updates.find_due(device.name, self.find_running, transaction.now)
        if image is not None and device.is_present:
            fields: dict[str, object] = {"image": image.id, "size": len(image.files[0])}
            self._downlink.offer(transaction, device, fields)
            transaction.count("device_offers")

    def _receive_want(self, transaction: Transaction, name: str, payload: bytes) -> None:
        """Send a device the piece of its image that it asks for."""
        device = self._registry.get(name)
        frame, _ = open_upward(self._keys, name, payload, device)
        if device is None:
            raise DeviceRefusal("hello", "no hello of it is accepted: none has come")
        piece = self.updates.answer(name, _read_message(frame, "want"), transaction.now)
        if piece is None:
            raise DeviceRefusal("image", "it asks for an image that is not for it")
        transaction.count("device_pieces")
        self._downlink.send_piece(transaction, device, piece)

    def _remind(self, transaction: Transaction, known: Device, key_id: int) -> None:
        """Tell a device whose hello is old its last one, but not again and again."""
        if transaction.now - known.repeated >= self._settings.pause:
            known.repeated = transaction.now
            self._downlink.tell_heard(transaction, known, key_id)

    def _announce(self, transaction: Transaction, device: Device) -> None:
        """Tell all nodes what a device senses, if that is new or their knowledge ends soon."""
        senses = [[event, masks[0]] for event, masks in sorted(device.sensed.items())]
        body = encode_body(AnnouncementBody(device.name, device.vocabulary, senses))
        old = self._announced.get(device.name)
        known = None if old is None else self._item_store.get(transaction, ANNOUNCEMENT, old)
        if known is not None:
            if known.body == body and known.expires > transaction.now + self._settings.keep // 2:
                return
            self._item_store.remove(transaction, ANNOUNCEMENT, known.dot, "replaced")
        expires = transaction.now + self._settings.keep
        made = self._item_store.originate(transaction, ANNOUNCEMENT, expires, body)
        self._announced[device.name] = made.dot

    def _note_gone(self, transaction: Transaction, name: str, device: Device | None) -> None:
        """Note that a device's connection ended: its will says so, or that it listens no more."""
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
                for event, (features, wides) in device.sensed.items()
            ],
            capacity=device.capacity,
            vocabulary=device.vocabulary,
            firmware=device.firmware or None,
            settings=dict(device.facts) or None,
        )
        transaction.log("source", device=device.name, dropped=device.dropped)

    def _receive_notifications(
        self,
        transaction: Transaction,
        name: str,
        payload: bytes,
        bodies: list[NotificationBody],
        *,
        is_heard: bool,
    ) -> bool:
        """Add what is new in a frame to `bodies`; return whether the device gets an answer.

        `is_heard`: a broker does not say who listens; who speaks, does.
        """
        device = self._registry.get(name)
        frame, _ = open_upward(self._keys, name, payload, device)
        batch = read_batch(frame)
        assert device is not None  # or it could not be opened
        possible = self._vocabularies.find_sensed(device.vocabulary)
        if possible is None:
            raise DeviceRefusal("vocabulary", f"{device.vocabulary.hex()} is not known any more")
        notifications = read_notifications(batch, device, possible)
        transaction.count("device_frames")
        fresh = [
            notification
            for notification in notifications
            if is_new((batch.epoch, notification.sequence), device)
        ]
        if fresh and not self._has_room():
            transaction.count("device_held")  # it stays in the device's spool, and comes again
            return False
        if len(fresh) < len(notifications):
            self._log_repeated(transaction, device, batch, len(notifications) - len(fresh))
        if not fresh:
            # A device that cannot use the answer would ask at once, and for ever.
            if transaction.now - device.repeated < self._settings.pause:
                return False
            device.repeated = transaction.now
            return True
        device.is_present = True
        if is_heard:
            self._downlink.set_reachable(name, True)
        delay = find_delay(frame, device, transaction.now, self._settings)
        if delay[0]:
            transaction.count("device_delayed", len(fresh))
        bodies += [
            NotificationBody(
                device.name,
                batch.epoch,
                notification.sequence,
                transaction.now - delay[0] - notification.age,
                notification.doubt + self._settings.transit + delay[1],
                device.vocabulary,
                notification.vector,
            )
            for notification in fresh
        ]
        self._registry.note_taken(transaction, device, (batch.epoch, fresh[-1].sequence))
        if not device.is_doubtful and any(one.is_doubtful for one in fresh):
            device.is_doubtful = True
            self._registry.save(transaction, device)
            self._tables.assign(device)
        return True

    def _store(
        self, transaction: Transaction, name: str, bodies: Sequence[NotificationBody]
    ) -> None:
        """Store what came together, and acknowledge all of it at once."""
        device = self._registry.get(name)
        assert device is not None  # its frames were opened
        if bodies:
            self._item_store.originate_many(
                transaction, NOTIFICATION, transaction.now + self._settings.keep, bodies
            )
            transaction.count("device_notes", len(bodies))
        self._downlink.acknowledge(transaction, device)
        self._downlink.send(transaction, name)

    def _log_repeated(
        self, transaction: Transaction, device: Device, batch: DeviceBatch, count: int
    ) -> None:
        transaction.count("device_again", count)
        transaction.log(
            "duplicate",
            what="notification",
            source=device.name,
            device_epoch=batch.epoch,
            device_sequence=batch.last,
        )

    # What goes down --------------------------------------------------------------------------

    def listen(self, transaction: Transaction, event: Listening) -> None:
        """Send what is outstanding to a device that listens now; who stopped listening is gone."""
        name, _, what = event.topic.removeprefix(DEVICES).rpartition("/")
        if what == "sv":
            device = self._registry.get(name)
            if event.is_up or not self._settings.has_listeners:
                self._downlink.reconnect(name, event.is_up)
                if device is not None and self._settings.has_listeners:
                    device.is_present = True  # also for a core that is built again meanwhile
            else:
                self._note_gone(transaction, name, device)
            self._downlink.send(transaction, name)

    def acknowledge(self, transaction: Transaction, event: Acknowledged) -> None:
        """Note that a frame arrived."""
        name, _, what = event.topic.removeprefix(DEVICES).rpartition("/")
        if what == "sv":
            for token in (event.token, *event.others):
                self._downlink.confirm(transaction, name, token)

    def tick(self, transaction: Transaction) -> None:
        """Place what waits, and send again what was not acknowledged."""
        self._downlink.announce(transaction, self._tables.advance(transaction))
        self._downlink.resend(transaction)
        for name in self.updates.rollout.targets:
            device = self._registry.get(name)
            if device is not None and device.is_present:
                self._offer_image(transaction, device)

    def forget_device(self, transaction: Transaction, name: str) -> bool:
        """Let a device begin anew, whose memory was erased; return whether it was known."""
        device = self._registry.get(name)
        table = self._tables.get(name)
        if device is None or table is None:
            return False
        self._registry.forget(transaction, device)
        table.erase(transaction)
        self._tables.release(name)
        announced = self._announced.pop(name, None)
        if announced is not None:
            self._item_store.remove(transaction, ANNOUNCEMENT, announced, "replaced")
        return True

    # Subscriptions ---------------------------------------------------------------------------

    def add_subscriptions(self, transaction: Transaction, items: Iterable[Item]) -> None:
        """Request from devices what new subscriptions ask for."""
        for item in items:
            for added in self._request(item):
                self._downlink.announce(transaction, self._tables.add_vector(transaction, *added))

    def remove_subscription(self, transaction: Transaction, item: Item) -> None:
        """Ask for it no longer."""
        try:
            bodies = load_languages().split(decode_body(SubscriptionBody, item.body))
        except ProtocolError:  # as in `restore`
            return
        for body in bodies:
            removed = self._tables.requested.remove(item.id, body)
            if removed is None:
                continue
            vector, is_unrequested = removed
            if is_unrequested:
                concerned = self._tables.remove_vector(transaction, vector)
            else:
                concerned = self._tables.add_vector(transaction, vector, False)
            self._downlink.announce(transaction, concerned)

    def _request(self, item: Item) -> list[tuple[RequestedVector, bool]]:
        """Request the vectors of a subscription, of a story those of its parts.

        Return each that devices have, and whether it is new; ProtocolError for what is none.
        """
        body = decode_body(SubscriptionBody, item.body)
        ends, score = self._find_end(item.dot, item.expires), read_score(body)
        requested, whole = self._tables.requested, asks_whole(body)
        found = [
            requested.add(item.id, part, ends, score, is_whole=whole)
            for part in load_languages().split(body)
        ]
        return [each for each in found if each is not None]

    def _find_end(self, dot: Dot, expires: int) -> int:
        """Return when a subscription ends in our timeline."""
        return FOREVER if expires == NEVER else self._localise(dot, expires)
