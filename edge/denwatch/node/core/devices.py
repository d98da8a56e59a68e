"""The devices of a node: what each said of itself, and the vectors that are installed on it.

  Device       its last hello, and three numbers that outlive everything, because a replay must be
               refused for ever: its last hello (epoch, count), the last notification that was
               received from it (epoch, sequence), and the last frame that it was sent (our epoch,
               count). A device whose memory was erased begins its epochs anew and is refused until
               an operator says so (`DeviceRegistry.forget`)
  VectorTable  one device as this node knows it: handles, what it surely has, and the next frame
  VectorTables all tables, kept in step with coverages and kinds of devices (`coverage.py`)

INVARIANT  one frame is in flight at a time, and only its acknowledgement makes sure what it said;
           without one, what it concerned is sent again in a new frame with a new number. The device
           obeys numbers that rise, so whatever the network does, the last frame acknowledged is
           the last one obeyed.
RESTART    handles are on the disk before the device hears of them: it may have what we have
           forgotten to be sure of. After a start nothing is sure, for nobody knows how much time
           went by, and everything is sent again.
ORDER      new vectors go before removals, so that nothing is missed in between, unless there is no
           room.
EXAMPLE    a, b are selected, the table has nothing: frame 7 installs 1=a, 2=b; acknowledged, both
           are sure. b is dropped: frame 8 removes handle 2; unacknowledged for 20 s: frame 9 does.

Nothing here knows links or seals frames; `device_protocol.py` sends what `VectorTable.plan` says.
Only this file writes the spaces `device`, `device.taken`, `device.down` and `device.table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import cbor2
from denwatch.node.core.coverage import (
    FOREVER,
    Coverage,
    CoverageChange,
    CoverageKey,
    DeviceKind,
    DeviceKindKey,
    DeviceMemory,
    Masks,
    RequestedVector,
    RequestedVectors,
    address_vector,
)
from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.languages import StoredSubscription, load_languages
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.updates import RunningImage
from denwatch.node.covering import Approximate, Policy
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.timecode import LAST_DURATION, decode_duration, encode_duration

# What devices need of the rest of the node -----------------------------------------------------

DAY = 86_400_000


@dataclass(frozen=True)
class DeviceSettings:
    """Times are in ms."""

    policy: Policy = field(default_factory=Approximate)
    batch: int = 20  # vectors in a frame: kind to a small memory
    frame_bytes: int = 900  # of a frame's body; a watchdog takes packets of 2,048 bytes
    patience: int = 20_000  # for the acknowledgement of a frame, doubled up to the longest
    longest_patience: int = 320_000
    pause: int = 1_000  # between acknowledgements of what came before
    keep: int = 7 * DAY  # how long a notification lives
    transit: int = 2_000  # a frame may be so long under way unnoticed
    drift: int = 500  # a device's clock is wrong by at most the 500th part, while it is connected
    placing: int = 1_000  # subscriptions that one tick places in a covering table
    rebuild: int = 2_000  # subscriptions of the largest table that is built anew at times
    burst: int = 200  # devices that one transaction sends a change to
    is_whole: bool = False  # devices send whole readings, not only what subscriptions name
    # Whether `Listening` and `Acknowledged` speak of the devices themselves: true of this node's
    # own server, not of somebody else's broker.
    has_listeners: bool = True


# What is known of a device ---------------------------------------------------------------------

SPACE = "device"
TAKEN = "device.taken"
DOWN = "device.down"
Number = tuple[int, int]  # an epoch, and a count within it


@dataclass
class Device:
    """One device: what its last hello said, the numbers, and whether it is there now."""

    name: str
    hello: Number
    key_id: int  # of its last hello: what goes down is sealed with it
    vocabulary: bytes
    sensed: dict[int, Masks]
    capacity: int
    languages: tuple[int, ...]
    firmware: str = ""
    reset: int = 0
    lowest: int = 0
    dropped: int = 0
    heard: int = 0  # when the hello came, ms
    is_doubtful: bool = False  # it has sent readings with doubt that its hello did not announce
    taken: Number = (0, 0)
    epoch: int = 0  # the highest that it was heard in
    doubts: dict[int, int] | None = None  # by event: attributes with an accuracy; None: any may
    image: RunningImage | None = None  # its code; None: it does not say
    answer: Number = (0, 0)  # of the frame that answered the hello, when it came
    # Not on the disk:
    facts: dict[str, int | str] = field(default_factory=dict, compare=False)  # of the board
    is_present: bool = field(default=False, compare=False)
    repeated: int = field(default=0, compare=False)  # when an acknowledgement was, ms

    def may_doubt(self, event: int) -> bool:
        """Return whether its readings of an event may be uncertain, as far as anybody knows."""
        return self.is_doubtful or self.doubts is None or bool(self.doubts.get(event, 0))

    def encode(self) -> bytes:
        """Return what a hello changes, as bytes."""
        sensed = {event: list(masks) for event, masks in self.sensed.items()}
        facts = [self.firmware, self.reset, self.lowest, self.dropped, self.heard]
        what = [self.vocabulary, sensed, self.capacity, list(self.languages)]
        doubt = [self.is_doubtful, self.epoch, self.doubts]
        image = None if self.image is None else list(self.image)
        return cbor2.dumps([*self.hello, self.key_id, *what, *facts, *doubt, self.answer, image])


def _decode(name: str, data: bytes) -> Device:
    epoch, count, key_id, vocabulary, sensed, capacity, languages, *rest = cbor2.loads(data)
    masks = {event: (pair[0], pair[1]) for event, pair in sensed.items()}
    firmware, reset, lowest, dropped, heard, is_doubtful, seen, *last = rest
    what = vocabulary, masks, capacity, tuple(languages)
    facts = firmware, reset, lowest, dropped, heard, is_doubtful
    doubts = last[0] if last else None  # older versions stored none, and no answer
    answer = (last[1][0], last[1][1]) if last[1:] else (0, 0)
    image = RunningImage(*last[2]) if last[2:] and last[2] else None
    later = {"epoch": seen, "doubts": doubts, "answer": answer, "image": image}
    return Device(name, (epoch, count), key_id, *what, *facts, **later)


def _pack(number: Number) -> bytes:
    return number[0].to_bytes(4, "big") + number[1].to_bytes(4, "big")


def _unpack(data: bytes) -> Number:
    return int.from_bytes(data[:4], "big"), int.from_bytes(data[4:], "big")


class DeviceRegistry:
    """All devices by name."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._down: dict[str, Number] = {}

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run stored."""
        for key, value in reader.scan(SPACE):
            self._devices[key.decode()] = _decode(key.decode(), value)
        for key, value in reader.scan(TAKEN):
            if key.decode() in self._devices:  # else its row was damaged: it says hello again
                self._devices[key.decode()].taken = _unpack(value)
        for key, value in reader.scan(DOWN):
            self._down[key.decode()] = _unpack(value)

    def get(self, name: str) -> Device | None:
        """Return a device that has said hello."""
        return self._devices.get(name)

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices.values())

    def __len__(self) -> int:
        return len(self._devices)

    def save(self, transaction: Transaction, device: Device) -> None:
        """Keep a device and what it said."""
        self._devices[device.name] = device
        transaction.write(SPACE, device.name.encode(), device.encode())

    def note_taken(self, transaction: Transaction, device: Device, number: Number) -> None:
        """Note the last notification that was taken, for good."""
        device.taken = number
        transaction.write(TAKEN, device.name.encode(), _pack(number))

    def take_number(self, transaction: Transaction, device: Device, epoch: int) -> Number:
        """Return the number of the next frame to a device: above all before, also after a start."""
        last = self._down.get(device.name, (0, 0))
        number = (last[0], last[1] + 1) if last[0] >= epoch else (epoch, 1)
        self._down[device.name] = number
        transaction.write(DOWN, device.name.encode(), _pack(number))
        return number

    def forget(self, transaction: Transaction, device: Device) -> None:
        """Let a device begin anew; the numbers of frames down go on, for it may remember them.

        Whoever kept its old frames can play them back then: give it a new key as well.
        """
        del self._devices[device.name]
        for space in (SPACE, TAKEN):
            transaction.write(space, device.name.encode(), None)


# What is installed on it -----------------------------------------------------------------------

TABLE_SPACE = "device.table"
MAX_HANDLE = 65535
_LONGEST = decode_duration(LAST_DURATION) * 1000
_HANDLE_BYTES = 3  # of a handle in a removal, at most


def list_installed(reader: Reader) -> list[bytes]:
    """Return the vectors that any device has or may have, from the disk."""
    return list(dict.fromkeys(body for _, body in reader.scan(TABLE_SPACE)))


class TableRow:
    """One vector under its handle."""

    __slots__ = ("body", "until")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.until = 0  # how long the device surely has it; 0: perhaps it has not


@dataclass
class SentFrame:
    """The frame that waits for its acknowledgement."""

    number: tuple[int, int]
    grants: dict[int, int]  # by handle: until when; empty for a removal
    removals: list[int]
    due: int  # when to give up waiting


@dataclass(frozen=True)
class FramePlan:
    """What the next frame says: vectors to install, or handles to remove."""

    vectors: list[bytes]
    grants: dict[int, int]
    removals: list[int]


class VectorTable:
    """What one device has, and shall have."""

    def __init__(self, device: str, kind: DeviceKind) -> None:
        self.device = device
        self.kind = kind
        self.flight: SentFrame | None = None
        self.patience = 0
        self._rows: dict[int, TableRow] = {}
        self._handles: dict[bytes, int] = {}
        self._top = 0  # the highest handle in use
        self._free: list[int] = []  # those below it that are not
        self._room = DeviceMemory()
        self._wrong: dict[bytes, None] = dict.fromkeys(kind.bodies)  # to be looked at

    def restore(self, reader: Reader) -> None:
        """Load the handles of an earlier run; nothing of it is sure."""
        prefix = self.device.encode() + b"\0"
        for key, body in reader.scan(TABLE_SPACE, prefix):
            self._hold(int.from_bytes(key[len(prefix) :], "big"), body)
            self._wrong[body] = None
        self._free = [handle for handle in range(self._top, 0, -1) if handle not in self._rows]

    def is_right(self) -> bool:
        """Return whether the device surely has what it shall have, and nothing else."""
        return self.flight is None and not any(not self._is_right(body) for body in self._wrong)

    # What changes ----------------------------------------------------------------------------

    def doubt_all(self) -> None:
        """Be sure of nothing: the device started anew, or we did."""
        self.flight = None
        for row in self._rows.values():
            row.until = 0
        self._wrong = dict.fromkeys([*self.kind.bodies, *self._handles])

    def lose_flight(self) -> None:
        """Note that what is under way may never arrive; what it concerned is still wrong."""
        self.flight = None

    def move(self, kind: DeviceKind) -> None:
        """Belong to another kind from now on."""
        self.kind = kind
        self._wrong = dict.fromkeys([*kind.bodies, *self._handles])

    def look_at(self, bodies: list[bytes]) -> None:
        """Note that these may have to be told."""
        self._wrong.update(dict.fromkeys(bodies))

    def erase(self, transaction: Transaction) -> None:
        """Forget all handles."""
        for handle in self._rows:
            transaction.write(TABLE_SPACE, self._key(handle), None)

    # Frames ----------------------------------------------------------------------------------

    def plan(self, transaction: Transaction, settings: DeviceSettings) -> FramePlan | None:
        """Return what to tell the device next, with its handles written; None: nothing, or wait."""
        if self.flight is not None:
            return None
        vectors: list[bytes] = []
        grants: dict[int, int] = {}
        removals: list[int] = []
        size = 0
        for body in list(self._wrong):
            if self._is_right(body):
                del self._wrong[body]
                continue
            if not self.kind.find_lease(body):
                if self.kind.is_settled and len(removals) * _HANDLE_BYTES < settings.frame_bytes:
                    removals.append(self._handles[body])
                continue
            if len(vectors) >= settings.batch or size + len(body) + 1 > settings.frame_bytes:
                break
            handle = self._find_handle(transaction, body)
            if handle:
                validity, until = grant_lease(self.kind.find_lease(body), transaction.now)
                vectors.append(address_vector(body, handle, validity))
                grants[handle] = until
                size += len(body) + 1
        if vectors:
            return FramePlan(vectors, grants, [])
        for handle in removals:
            self._rows[handle].until = 0  # from here on it may be gone
        return FramePlan([], {}, removals) if removals else None

    def send(
        self, plan: FramePlan, number: tuple[int, int], now: int, settings: DeviceSettings
    ) -> None:
        """Note that a plan is under way."""
        self.patience = min(2 * self.patience or settings.patience, settings.longest_patience)
        self.flight = SentFrame(number, plan.grants, plan.removals, now + self.patience)

    def confirm(self, transaction: Transaction) -> None:
        """Note that the device has the frame that was under way, and obeys it."""
        assert self.flight is not None
        for handle, until in self.flight.grants.items():
            self._rows[handle].until = until
        for handle in self.flight.removals:
            body = self._rows.pop(handle).body
            del self._handles[body]
            self._room.remove(body)
            self._free.append(handle)
            transaction.write(TABLE_SPACE, self._key(handle), None)
        self.flight = None
        self.patience = 0

    def _is_right(self, body: bytes) -> bool:
        lease = self.kind.find_lease(body)
        handle = self._handles.get(body)
        if handle is None:
            return not lease
        return 0 < lease <= self._rows[handle].until

    def _find_handle(self, transaction: Transaction, body: bytes) -> int:
        """Return the handle of a vector, a new one if there is room for it; 0 if not yet."""
        if body in self._handles:
            return self._handles[body]
        if self._room.used + self._room.measure(body) > self.kind.capacity:
            return 0
        handle = self._free.pop() if self._free else self._top + 1
        if handle > MAX_HANDLE:
            return 0
        self._hold(handle, body)
        transaction.write(TABLE_SPACE, self._key(handle), body)
        return handle

    def _hold(self, handle: int, body: bytes) -> None:
        self._rows[handle] = TableRow(body)
        self._top = max(self._top, handle)
        self._handles[body] = handle
        self._room.add(body)

    def _key(self, handle: int) -> bytes:
        return self.device.encode() + b"\0" + handle.to_bytes(2, "big")


def grant_lease(lease: int, now: int) -> tuple[int, int]:
    """Return the validity code that lasts until a time, and until when it really does.

    Code 0 is for good: what is wanted for longer than a year is removed when its time comes.
    """
    if lease >= FOREVER or lease - now > _LONGEST:
        return 0, FOREVER
    code = encode_duration(max(1, -(-(lease - now) // 1000)))
    return code, now + decode_duration(code) * 1000


class SensorPlacement(NamedTuple):
    """On how many devices a subscription is active, covered, or still to be decided on."""

    active: int
    passive: int
    waiting: int
    covered_by: list[int]  # subscriptions that together cover it, where it is passive


class VectorTables:
    """All tables, and what they have in common: coverages and kinds of devices."""

    def __init__(self, settings: DeviceSettings, vocabularies: Vocabularies) -> None:
        self.requested = RequestedVectors(self._lower)
        self._vocabularies = vocabularies
        self._settings = settings
        self._coverages: dict[CoverageKey, Coverage] = {}
        self._by_event: dict[int, list[Coverage]] = {}  # by event
        self._users: dict[CoverageKey, list[DeviceKindKey]] = {}
        self._kinds: dict[DeviceKindKey, DeviceKind] = {}
        self._members: dict[DeviceKindKey, dict[str, VectorTable]] = {}
        self._keys: dict[str, DeviceKindKey] = {}
        self._omitted: dict[DeviceKindKey, int] = {}

    def _lower(self, body: StoredSubscription) -> bytes | None:
        return load_languages().lower(body, self._vocabularies.find(body.vocabulary))

    def get(self, device: str) -> VectorTable | None:
        """Return what is known of a device's table."""
        key = self._keys.get(device)
        return None if key is None else self._members[key][device]

    def __iter__(self) -> Iterator[VectorTable]:
        for members in self._members.values():
            yield from members.values()

    def describe(self) -> dict[str, int]:
        """Return counts for the status."""
        active = sum(len(coverage.active) for coverage in self._coverages.values())
        return {
            "vectors": active,
            "passive": sum(len(coverage) for coverage in self._coverages.values()) - active,
            "omitted": sum(kind.count_omitted() for kind in self._kinds.values()),
            "waiting": sum(len(coverage.waiting) for coverage in self._coverages.values()),
        }

    def explain(self, body: StoredSubscription) -> SensorPlacement | None:
        """Return where a subscription is installed, and what covers it; None: never on a sensor."""
        vector = self.requested.find_vector(body)
        if vector is None:
            return None
        counts = dict.fromkeys(("active", "passive", "waiting"), 0)
        covering: dict[int, None] = {}
        for key, coverage in self._coverages.items():
            found = coverage.explain(vector)
            if found is not None:
                devices = sum(len(self._members[kind]) for kind in self._users[key])
                counts[found[0]] += devices
                covering |= dict.fromkeys(found[1])
        return SensorPlacement(**counts, covered_by=list(covering))

    # Devices ---------------------------------------------------------------------------------

    def assign(self, device: Device, preferred: Iterable[bytes] = ()) -> VectorTable:
        """Put a device where its hello says; what is `preferred` is placed before others."""
        key = _make_key(device)
        table = self.get(device.name)
        if table is not None and self._keys[device.name] == key:
            return table
        if key not in self._kinds:
            coverages = [self._find_coverage(coverage, preferred) for coverage in key.coverages]
            self._kinds[key] = DeviceKind(key.capacity, coverages)
            self._members[key] = {}
            for coverage in key.coverages:
                self._users[coverage].append(key)
        if table is None:
            table = VectorTable(device.name, self._kinds[key])
        else:
            self.release(device.name)
            table.move(self._kinds[key])
        self._members[key][device.name] = table
        self._keys[device.name] = key
        return table

    def release(self, device: str) -> None:
        """Forget a device."""
        key = self._keys.pop(device)
        del self._members[key][device]
        if self._members[key]:
            return
        del self._members[key], self._kinds[key]
        self._omitted.pop(key, None)
        for coverage in key.coverages:
            self._users[coverage].remove(key)
            if not self._users[coverage]:
                del self._users[coverage]
                self._by_event[coverage.event].remove(self._coverages.pop(coverage))

    def _find_coverage(self, key: CoverageKey, preferred: Iterable[bytes]) -> Coverage:
        if key in self._coverages:
            return self._coverages[key]
        coverage = Coverage(key, self._settings.policy, self._settings.is_whole)
        self._coverages[key] = coverage
        self._by_event.setdefault(key.event, []).append(coverage)
        self._users[key] = []
        first = frozenset(preferred)
        requested = [
            vector for vector in self.requested.iterate(key.event) if self._is_for(vector, coverage)
        ]
        for vector in sorted(requested, key=lambda vector: vector.body not in first):
            coverage.offer(vector)
        return coverage

    # Vectors ---------------------------------------------------------------------------------

    def add_vector(
        self, transaction: Transaction, vector: RequestedVector, is_new: bool
    ) -> list[VectorTable]:
        """Add a vector, or note that an old one has another subscription."""
        concerned: list[VectorTable] = []
        for coverage in self._by_event.get(vector.event, []):
            if not self._is_for(vector, coverage):
                continue
            backlog = len(coverage.waiting)
            if not is_new or not coverage.offer(vector):
                change = coverage.renew(vector.body, transaction.now)
            else:
                change = coverage.place(
                    0 if backlog else 1, transaction.now
                )  # a backlog is for the ticks
                _log_place(transaction, coverage, vector)
            concerned += self._follow(coverage, change)
        return concerned

    def remove_vector(self, transaction: Transaction, vector: RequestedVector) -> list[VectorTable]:
        """Remove a vector that nobody requests any more."""
        concerned: list[VectorTable] = []
        for coverage in self._by_event.get(vector.event, []):
            change = coverage.withdraw(vector)
            _log_back(transaction, coverage, change.added)
            concerned += self._follow(coverage, change)
        return concerned

    def settle(self, transaction: Transaction, table: VectorTable) -> list[VectorTable]:
        """Place what waits for the coverages of a device that came, unless it is work for ticks."""
        concerned: list[VectorTable] = []
        for coverage in table.kind.coverages:
            if 0 < len(coverage.waiting) <= self._settings.placing:
                change = coverage.place(len(coverage.waiting), transaction.now)
                concerned += self._follow(coverage, change, must_tell=True)
        changed = table.kind.choose()
        return concerned + (self._tell(self._keys[table.device], changed) if changed else [])

    def advance(self, transaction: Transaction) -> list[VectorTable]:
        """Do what can wait for a tick: place, build anew, choose."""
        concerned: list[VectorTable] = []
        for coverage in self._coverages.values():
            if coverage.waiting:
                change = coverage.place(self._settings.placing, transaction.now)
                # The last one placed: now it is known what devices need not have.
                concerned += self._follow(coverage, change, must_tell=not coverage.waiting)
            else:
                change = coverage.rebuild(self._settings.rebuild)
                _log_back(transaction, coverage, change.added)
                concerned += self._follow(coverage, change)
        for key, kind in self._kinds.items():
            changed = kind.choose()
            if changed:
                concerned += self._tell(key, changed)
            self._note_omitted(transaction, key, kind)
        return concerned

    def _is_for(self, vector: RequestedVector, coverage: Coverage) -> bool:
        """Return whether the devices of a coverage can match a vector, and mean the same by it."""
        key = coverage.key
        return vector.fits(key.masks) and self._vocabularies.agree(
            key.vocabulary, vector.vocabulary, key.event, vector.features
        )

    def _follow(
        self, coverage: Coverage, change: CoverageChange, must_tell: bool = False
    ) -> list[VectorTable]:
        concerned: list[VectorTable] = []
        if must_tell or any(change) or coverage.is_renamed:
            coverage.is_renamed = False
            for key in self._users[coverage.key]:
                told = self._kinds[key].follow(coverage, change)
                if told or must_tell:
                    concerned += self._tell(key, told)
        return concerned

    def _tell(self, key: DeviceKindKey, bodies: list[bytes]) -> list[VectorTable]:
        members = list(self._members[key].values())
        for table in members:
            table.look_at(bodies)
        return members

    def _note_omitted(self, transaction: Transaction, key: DeviceKindKey, kind: DeviceKind) -> None:
        """Log how much finds no room, whenever that changes."""
        omitted = kind.count_omitted()
        if omitted == self._omitted.get(key, 0):
            return
        self._omitted[key] = omitted
        devices = self._members[key]
        transaction.count("device_omitted", omitted)
        transaction.log(
            "drop",
            what="vectors",
            why=f"{omitted} have no room on {len(devices)} devices of {kind.capacity} bytes",
            source=next(iter(devices)),
        )


def _make_key(device: Device) -> DeviceKindKey:
    coverages = []
    if FUZZY in device.languages:
        for event, masks in sorted(device.sensed.items()):
            coverages.append(CoverageKey(device.vocabulary, event, masks, device.may_doubt(event)))
    return DeviceKindKey(tuple(coverages), device.capacity)


def _log_place(transaction: Transaction, coverage: Coverage, vector: RequestedVector) -> None:
    if vector.body in coverage.waiting:
        return
    is_active = vector.body in coverage.active
    by = coverage.get_coverer(vector.body)
    transaction.log(
        "cover",
        item=vector.ids[0],
        link=coverage.name,
        is_active=is_active,
        covered_by=None if by is None else [coverage.name_item(by)],
    )


def _log_back(transaction: Transaction, coverage: Coverage, bodies: list[bytes]) -> None:
    for body in bodies:
        transaction.log("cover", item=coverage.name_item(body), link=coverage.name, is_active=True)
