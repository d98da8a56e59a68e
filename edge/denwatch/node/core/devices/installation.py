"""The table of one device as this node knows it: handles, what is sure, and the next frame.

One frame is under way at a time, and only its acknowledgement makes sure what it said; without one,
what it concerned is told again in a new frame with a new number. The device obeys numbers that
rise, so whatever the network does, the last frame acknowledged is the last one obeyed.

Handles are on the disk before the device hears of them: it may have what we have forgotten to be
sure of. After a start nothing is sure, for nobody knows how much time went by, and all is told
again. New wishes go before removals, so that nothing is missed in between, unless there is no room.
"""

from __future__ import annotations

from dataclasses import dataclass

from denwatch.node.core.devices.contracts import DeviceSettings
from denwatch.node.core.devices.groups import Group, Room
from denwatch.node.core.devices.wishes import FOREVER, address_vector
from denwatch.node.core.interface import Reader
from denwatch.node.core.transaction import Transaction
from denwatch.protocol.timecode import LAST_DURATION, decode_duration, encode_duration

SPACE = "device.table"
MAX_HANDLE = 65535
_LONGEST = decode_duration(LAST_DURATION) * 1000
_HANDLE_BYTES = 3  # of a handle in a removal, at most


def list_kept(reader: Reader) -> list[bytes]:
    """Return the wishes that any device has or may have, from the disk."""
    return list(dict.fromkeys(body for _, body in reader.scan(SPACE)))


class Row:
    """One wish under its handle."""

    __slots__ = ("body", "until")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.until = 0  # how long the device surely has it; 0: perhaps it has not


@dataclass
class Flight:
    """The frame that waits for its acknowledgement."""

    number: tuple[int, int]
    grants: dict[int, int]  # by handle: until when; empty for a removal
    removals: list[int]
    due: int  # when to give up waiting


@dataclass(frozen=True)
class Plan:
    """What the next frame says: vectors to install, or handles to remove."""

    vectors: list[bytes]
    grants: dict[int, int]
    removals: list[int]


class Installation:
    """What one device has, and shall have."""

    def __init__(self, device: str, group: Group) -> None:
        self.device = device
        self.group = group
        self.flight: Flight | None = None
        self.patience = 0
        self._rows: dict[int, Row] = {}
        self._handles: dict[bytes, int] = {}
        self._top = 0  # the highest handle in use
        self._free: list[int] = []  # those below it that are not
        self._room = Room()
        self._wrong: dict[bytes, None] = dict.fromkeys(group.selected)  # to be looked at

    def restore(self, reader: Reader) -> None:
        """Take up the handles of an earlier run; nothing of it is sure."""
        prefix = self.device.encode() + b"\0"
        for key, body in reader.scan(SPACE, prefix):
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
        self._wrong = dict.fromkeys([*self.group.selected, *self._handles])

    def lose_flight(self) -> None:
        """Note that what is under way may never arrive; what it concerned is still wrong."""
        self.flight = None

    def move(self, group: Group) -> None:
        """Belong to another group from now on."""
        self.group = group
        self._wrong = dict.fromkeys([*group.selected, *self._handles])

    def look_at(self, bodies: list[bytes]) -> None:
        """Note that these may have to be told."""
        self._wrong.update(dict.fromkeys(bodies))

    def erase(self, transaction: Transaction) -> None:
        """Forget all handles."""
        for handle in self._rows:
            transaction.write(SPACE, self._key(handle), None)

    # Frames ----------------------------------------------------------------------------------

    def plan(self, transaction: Transaction, settings: DeviceSettings) -> Plan | None:
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
            if not self.group.find_lease(body):
                if self.group.is_settled and len(removals) * _HANDLE_BYTES < settings.frame_bytes:
                    removals.append(self._handles[body])
                continue
            if len(vectors) >= settings.batch or size + len(body) + 1 > settings.frame_bytes:
                break
            handle = self._find_handle(transaction, body)
            if handle:
                validity, until = grant_lease(self.group.find_lease(body), transaction.now)
                vectors.append(address_vector(body, handle, validity))
                grants[handle] = until
                size += len(body) + 1
        if vectors:
            return Plan(vectors, grants, [])
        for handle in removals:
            self._rows[handle].until = 0  # from here on it may be gone
        return Plan([], {}, removals) if removals else None

    def send(self, plan: Plan, number: tuple[int, int], now: int, settings: DeviceSettings) -> None:
        """Note that a plan is under way."""
        self.patience = min(2 * self.patience or settings.patience, settings.longest_patience)
        self.flight = Flight(number, plan.grants, plan.removals, now + self.patience)

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
            transaction.write(SPACE, self._key(handle), None)
        self.flight = None
        self.patience = 0

    def _is_right(self, body: bytes) -> bool:
        lease = self.group.find_lease(body)
        handle = self._handles.get(body)
        if handle is None:
            return not lease
        return 0 < lease <= self._rows[handle].until

    def _find_handle(self, transaction: Transaction, body: bytes) -> int:
        """Return the handle of a wish, a new one if there is room for it; 0 if not yet."""
        if body in self._handles:
            return self._handles[body]
        if self._room.used + self._room.measure(body) > self.group.capacity:
            return 0
        handle = self._free.pop() if self._free else self._top + 1
        if handle > MAX_HANDLE:
            return 0
        self._hold(handle, body)
        transaction.write(SPACE, self._key(handle), body)
        return handle

    def _hold(self, handle: int, body: bytes) -> None:
        self._rows[handle] = Row(body)
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
