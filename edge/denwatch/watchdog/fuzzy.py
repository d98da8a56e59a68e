"""The fuzzy language on a device: installs its subscription vectors, and judges samples by them.

The plug-in of the DENS paper's own language; `manager.py` says what a plug-in is.
"""

from ..protocol.degrees import const
from ..protocol.timecode import decode_duration
from . import significance
from .check import check
from .filter import CapacityError, Filter, is_significant
from .manager import Language

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .execution import Sample

# Fields of a place: rating.py.
_FEATURES = const(0)
_WIDES = const(6)
_SIGNIFICANT = const(11)

_WHY = const(0x40)
_NEVER = const(0x3FFFFFFF)
_STEP = const(14400)  # s; a deadline has 16 bits and is unambiguous for twice as long


class SenseError(ValueError):
    """A subscription asks for what this device does not sense, or not at this resolution."""


class Fuzzy(Language):
    """Fuzzy subscriptions of one device. `senses` maps events to (features, wide features)."""

    number = 0  # FUZZY of protocol.frames, which a device does not load

    def __init__(self, capacity: int, senses: dict[int, tuple[int, int]]) -> None:
        self.filter = Filter(capacity)
        self.capacity = capacity
        self.senses = senses
        self.twins: dict[int, int] = {}  # handle: the handle under which its vector stands
        self.soonest = _NEVER  # no deadline is earlier
        try:
            from .interest import Interest

            self.interest = Interest(self.filter)
        except ImportError:  # left out
            pass

    def accepts(self, frame: bytes) -> bool:
        """Return whether the frame is a subscription of this language, in any version."""
        return len(frame) > 0 and frame[0] >> 6 == 1

    def install(self, frame: bytes, now: int) -> str:
        """Add, replace or renew a subscription; say which: "added", "replaced", "same".

        ProtocolError, SenseError or CapacityError leave everything as it was.
        """
        place = check(frame)
        self._check_senses(frame[0] & 63, place[_FEATURES], place[_WIDES])
        handle = frame[2] << 8 | frame[3]
        tail = self._make_deadline(frame[5], now // 1000)
        if place[_SIGNIFICANT]:
            tail += significance.make_memory(place[_FEATURES])
        same = self._find_body(frame)
        if same >= 0:
            primary = self._read_handle(same)
            if handle != primary and self.twins.get(handle) != primary:
                self.remove([handle])  # its vector was another; `same` may have moved
                same = self._find_body(frame)
                self.twins[handle] = primary
            if frame[5]:
                end = same + len(frame)
                self.filter.buffer[end : end + 2] = tail[:2]
            return "same"
        old = self._take(handle)
        try:
            self.add(frame, tail, place)
        except CapacityError:
            if isinstance(old, int):
                self.twins[handle] = old
            elif old is not None:
                self.add(old[0], old[1], check(old[0]))
            raise
        return "added" if old is None else "replaced"

    def add(self, frame: bytes, tail: bytes, place: list[int]) -> None:
        """Insert a vector that was checked, with its deadline and memory."""
        self.filter.add(frame, tail, self.interest.add(frame, place) if self.interest else -1)

    def remove(self, handles: list[int]) -> int:
        """Drop subscriptions; return how many there were. Unknown handles are passed over."""
        count = 0
        for handle in handles:
            if self._take(handle) is not None:
                count += 1
        return count

    def expire(self, now: int) -> int:
        """Drop what is no longer valid; return how many."""
        second = now // 1000
        count = 0
        while self.soonest <= second:
            count += self._expire_until(min(second, self.soonest + _STEP))
        return count

    def judge(self, sample: "Sample", now: int) -> int:
        """Return the highest degree of the subscriptions that want this sample sent, or -1."""
        filter = self.filter
        best = -1
        asked = -1
        self.why = -1
        doubt = sample.doubt
        if self.interest:
            doubt |= self.interest.begin(sample, now // 1000)
        filter.begin(sample.event, sample.present, sample.values, doubt, sample.points)
        at = filter.step()
        while at >= 0:
            buf = filter.buffer
            degree = filter.degree
            wanted = degree >= 0
            if buf[at + 1] & 8:
                if is_significant(buf, at):
                    wanted = self._is_worth(at, sample, now)
                    degree = ~degree if degree < 0 else degree
                if wanted and buf[at + 8] & _WHY and degree > asked:
                    asked = degree
                    rater = filter.load_rater()
                    self.why = rater.names[rater.decisive] << 8 | rater.degrees[rater.decisive]
            if wanted and degree > best:
                best = degree
            at = filter.step()
        return best

    def _is_worth(self, at: int, sample: "Sample", now: int) -> bool:
        """Ask the record's significance."""
        filter = self.filter
        place = filter.load_rater().place
        buf = filter.buffer
        memory = at + buf[at] + (2 if buf[at + 5] else 0)
        return significance.judge(
            buf,
            place[_SIGNIFICANT],
            memory,
            buf[at + 4],
            filter.degree,
            place[_FEATURES],
            place[_WIDES],
            sample.values,
            now // 1000,
        )

    def _check_senses(self, event: int, features: int, wides: int) -> None:
        sensed, wide = self.senses.get(event, (0, 0))
        if features & ~sensed or wides != wide & features:
            raise SenseError(f"event {event} has 0x{sensed:04x}, wide 0x{wide:04x}")

    def _find_body(self, frame: bytes) -> int:
        """Return where the same subscription stands, whatever its handle, or -1."""
        filter = self.filter
        buf = filter.buffer
        at = filter.follow(0)
        while at >= 0:
            if (
                buf[at] == len(frame)
                and buf[at + 1] == frame[1]
                and filter.read_event(at) == frame[0] & 63
                and buf[at + 4 : at + len(frame)] == frame[4:]
            ):
                return at
            at = filter.follow(at)
        return -1

    def _read_handle(self, at: int) -> int:
        return self.filter.buffer[at + 2] << 8 | self.filter.buffer[at + 3]

    def _take(self, handle: int) -> tuple[bytes, bytes] | int | None:
        """Take a subscription out; return its frame and tail, or the handle of the vector that
        stays for others, or None if there was none."""
        filter = self.filter
        buf = filter.buffer
        if handle in self.twins:
            return self.twins.pop(handle)
        at = filter.find(handle)
        if at < 0:
            return None
        heirs = self._list_twins(handle)
        if heirs:  # the vector stays, under the next one's handle
            heir = heirs[0]
            del self.twins[heir]
            for twin in heirs[1:]:
                self.twins[twin] = heir
            buf[at + 2] = heir >> 8
            buf[at + 3] = heir & 255
            return heir
        length = buf[at]
        frame = bytes([0x40 | filter.read_event(at)]) + bytes(buf[at + 1 : at + length])
        tail = bytes(buf[at + length : at + filter.measure(at)])
        filter.remove(at)
        return frame, tail

    def _list_twins(self, handle: int) -> list[int]:
        return [twin for twin in self.twins if self.twins[twin] == handle]

    def _make_deadline(self, validity: int, second: int) -> bytes:
        """Return the deadline's two bytes, none without a validity."""
        if not validity:
            return b""
        deadline = second + decode_duration(validity)
        self.soonest = min(self.soonest, deadline)
        scale = _scale(validity)
        tick = (deadline + (1 << scale) - 1) >> scale
        return (tick & 0xFFFF).to_bytes(2, "big")

    def _expire_until(self, second: int) -> int:
        """Drop what is not valid after this second, and find the next deadline."""
        filter = self.filter
        buf = filter.buffer
        self.soonest = _NEVER
        count = 0
        at = filter.follow(0)
        gone = []
        while at >= 0:
            validity = buf[at + 5]
            if validity:
                end = at + buf[at]
                scale = _scale(validity)
                left = ((buf[end] << 8 | buf[end + 1]) - (second >> scale)) & 0xFFFF
                if left == 0 or left >= 0x8000:
                    gone.append(at)
                else:
                    self.soonest = min(self.soonest, ((second >> scale) + left) << scale)
            at = filter.follow(at)
        for at in reversed(gone):
            handle = self._read_handle(at)
            for twin in self._list_twins(handle):
                del self.twins[twin]
                count += 1
            filter.remove(at)
            count += 1
        return count


def _scale(validity: int) -> int:
    """Return the binary logarithm of a deadline's unit in seconds: 1/16384 of long validities."""
    return max(0, (validity >> 3) - 11)
