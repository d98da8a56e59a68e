"""The filter: subscription vectors in one preallocated buffer, and which of them an event meets.

Vectors stand grouped by event and features, those with a significance first in their group
(`plain.py` has the layout). Only this file changes where records stand; nothing is ever left as a
hole. It trusts its frames: `check.check` or `denwatch.protocol.subscription.decode` comes first.

The kernel, `scan`, is machine code where this MicroPython can (`viper.py`), else `plain.py`.
"""

from array import array

from ..protocol.degrees import const

try:
    from .viper import scan as scan

    KERNEL = "viper"
except (ImportError, SyntaxError, ValueError):  # no viper, or another processor's machine code
    from .plain import scan as scan

    KERNEL = "plain"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .rating import Rater

_HEAD = const(6)  # bytes of a group's head


class CapacityError(ValueError):
    """A subscription finds no room on this device."""


def is_significant(buf: bytes | bytearray, at: int) -> bool:
    """Return whether the vector at buf[at:] has a significance section."""
    return bool(buf[at + 1] & 8 and buf[at + 8] & 0x80 and buf[at + 9] & 8)


class Filter:
    """Holds subscription vectors and finds those that an event meets, one after the other."""

    def __init__(self, room: int | bytearray) -> None:
        """Use so many bytes, or a buffer that was made before the heap had holes."""
        self.buffer = bytearray(room) if isinstance(room, int) else room
        self.used = 0
        self.count = 0
        self.all = False  # every degree, not only the first hit of each set of features
        self.degree = 0  # of the record that `step` returned: ~degree of one that misses
        self.rater: Rater | None = None  # once a vector or a reading needs it
        self.join: Callable[[int], bool] | None = None  # whether a record's readings are there
        self._points = array("H")
        self._scan = scan  # for uncertain readings another one, if it can be loaded
        self._is_prepared = False
        self._values = array("H")  # of the event that `begin` named
        self._state = array("i", [0] * 6)

    def begin(
        self,
        event: int,
        present: int,
        values: "array[int]",
        doubt: int = 0,
        points: "array[int] | None" = None,
    ) -> None:
        """Start with an event: features, 16 values; which are uncertain, and their 64 points."""
        state = self._state
        state[0] = state[1] = 0
        state[2] = event << 16
        state[3] = 0xFFFFFF ^ present
        state[4] = doubt
        self._values = values
        if points is not None:
            self._points = points
        if doubt:
            self._prepare(present & ~doubt)

    def _prepare(self, exact: int) -> None:
        """Load the kernel for uncertain readings; give it exact values as trapezoids."""
        if not self._is_prepared:
            self._is_prepared = True  # one that is left out is looked for once
            try:
                from .doubt import scan_doubtful

                self._scan = scan_doubtful
            except (ImportError, SyntaxError, ValueError):  # left out, or as above: the rater
                pass
        if self._scan is not scan:
            for at in range(64):
                if exact >> (at >> 2) & 1:
                    self._points[at] = self._values[at >> 2]

    def step(self) -> int:
        """Return where the next record stands that hits or has a significance; -1 at the end."""
        buf = self.buffer
        state = self._state
        while True:
            at: int
            if state[4] and self._scan is not scan:
                at = self._scan(buf, self.used, self._points, state)
            else:
                at = scan(buf, self.used, self._values, state)
            if at >= self.used:
                return -1
            degree = state[5]
            if degree < 0:
                state[0] = at + self.measure(at)
                if self.join is not None and not self.join(at):
                    continue
                degree = self.rate(at)
                if is_significant(buf, at):
                    self.degree = degree
                    return at
                if degree < 0:
                    continue
            self.degree = degree
            if not self.all:
                state[0] = state[1]  # the paper's rule: now only other features
            elif state[0] == at:
                state[0] = at + buf[at] + (2 if buf[at + 5] else 0)
            return at

    def rate(self, at: int) -> int:
        """Return the degree of a record that the kernel hands over, ~degree if it misses."""
        rater = self.load_rater()
        return rater.rate(self.buffer, at, self._values, self._points, self._state[4])

    def load_rater(self) -> "Rater":
        """Return who rates what the kernel does not: plain vectors alone save 5 KB of heap."""
        if self.rater is None:
            from .rating import Rater

            self.rater = Rater()
        return self.rater

    def measure(self, at: int) -> int:
        """Return the bytes of the record: its vector, its deadline, its state."""
        buf = self.buffer
        size = buf[at] + (2 if buf[at + 5] else 0)
        return size + buf[at + size] if is_significant(buf, at) else size

    def find(self, handle: int) -> int:
        """Return where the record with this handle stands, or -1."""
        at = self.follow(0)
        while at >= 0:
            if self.buffer[at + 3] == handle & 255 and self.buffer[at + 2] == handle >> 8:
                return at
            at = self.follow(at)
        return -1

    def follow(self, at: int) -> int:
        """Return where the record after the one at `at` stands (0: the first), or -1."""
        state = self._state  # no event is under way while records are walked
        if at:
            at += self.measure(at)
        else:
            state[1] = 0
        if at >= self.used:
            return -1
        if at == state[1]:
            state[1] = at + _HEAD + self._read_size(at)
            at += _HEAD
        return at

    def add(self, frame: bytes, tail: bytes, required: int = -1) -> int:
        """Insert a validated vector with what follows it, and return where it stands.

        `required` are the attributes without which no event reaches it, if not all that it names.
        """
        buf = self.buffer
        if required < 0:
            required = frame[6] << 8 | frame[7]
        head = frame[0] & 63, required >> 8, required & 255
        at = 0
        while at < self.used and (buf[at], buf[at + 1], buf[at + 2]) < head:
            at += _HEAD + self._read_size(at)
        is_new = at >= self.used or (buf[at], buf[at + 1], buf[at + 2]) != head
        need = len(frame) + len(tail)
        room = len(buf) - self.used
        if need + (_HEAD if is_new else 0) > room:
            raise CapacityError(f"{need} bytes, {room} are free")
        if frame[1] & 12:
            self.load_rater()  # not while samples are judged
        if is_new:
            self._move(at, _HEAD)
            buf[at : at + _HEAD] = bytes(head) + b"\0\0\0"
        group = at
        size = self._read_size(group)
        at += _HEAD
        if not is_significant(frame, 0):
            at += size
        self._move(at, need)
        self.count += 1
        buf[at : at + need] = bytes([len(frame)]) + frame[1:] + tail
        self._write_size(group, size + need)
        return at

    def remove(self, at: int) -> None:
        """Take the record out, and its group if it was the last."""
        group = self._find_group(at)
        need = self.measure(at)
        size = self._read_size(group) - need
        self._write_size(group, size)
        if not size:
            at = group
            need += _HEAD
        self._move(at + need, -need)
        self.count -= 1

    def _move(self, start: int, by: int) -> None:
        """Move all that stands from a place on, up or down."""
        view = memoryview(self.buffer)
        view[start + by : self.used + by] = view[start : self.used]
        self.used += by

    def read_event(self, at: int) -> int:
        """Return the event of the record at `at`."""
        return self.buffer[self._find_group(at)]

    def _find_group(self, at: int) -> int:
        group = 0
        while at >= group + _HEAD + self._read_size(group):
            group += _HEAD + self._read_size(group)
        return group

    def _read_size(self, group: int) -> int:
        return int.from_bytes(self.buffer[group + 3 : group + _HEAD], "big")

    def _write_size(self, group: int, size: int) -> None:
        self.buffer[group + 3 : group + _HEAD] = size.to_bytes(3, "big")
