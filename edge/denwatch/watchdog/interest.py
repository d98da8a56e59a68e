"""What somebody asks for of a reading: which attributes are sent, and how old they may be.

NAMES      A notification has the attributes that the vectors of its event name, and no others.
RESTRICTED "temperature is high in the last 30 s and pulse is low": each attribute has its own
           time. The last reading of each is kept; those that are young enough for somebody are
           *old* readings, which join the new ones and go along when a sample is sent. Ages are
           duration codes, rounded up: restrictors are such codes too, so the node decides from the
           codes what the device decided from the seconds.
EXAMPLE    Attribute 0 was read at 5 s, attribute 1 is read at 9 s; a vector asks for both, 0 with
           restrictor 8. Age 4 is within 8: the vector is judged, and what is sent says 0 is 4 old.

A part that may be left out of a device: it then sends whole samples, and
whoever has a restrictor gets readings of now only.
"""

from array import array

from ..protocol.degrees import const
from ..protocol.timecode import decode_duration
from .execution import write_notification
from .rating import count_bits, locate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .execution import Sample
    from .filter import Filter

# Fields of a place: rating.py.
_FEATURES = const(0)
_RESTRICTED = const(15)

_SECONDS = const(0x3FFFFFFF)


def is_restricted(buf: bytes | bytearray, at: int) -> bool:
    """Return whether the vector at buf[at:] has restrictors."""
    return bool(buf[at + 1] & 8 and buf[at + 8] & 0x80 and buf[at + 9] & 0x40)


class Memory:
    """What is known of an event: who asks for what, and the last readings."""

    def __init__(self) -> None:
        self.named = 0  # attributes that vectors name
        self.limits = bytearray(16)  # the longest restrictor of each, a duration code
        self.seen = 0  # attributes that were read, and whose sensor works
        self.vague = 0  # those of them in doubt
        self.taken = array("i", [0] * 16)  # in which second each was read
        self.olds = 0  # the old readings of this round ...
        self.ages = bytearray(16)  # ... and how old they are


class Interest:
    """Of all vectors in a filter; a round begins with `begin` and may end with `write`."""

    def __init__(self, filter: "Filter") -> None:
        self._filter = filter
        self._used = 0  # of the filter, when it was read
        self._memories: dict[int, Memory] = {}
        self._memory = Memory()
        self._sample: Sample | None = None
        self._place = [0] * 16
        self._join = self._is_joined  # made once: a round allocates nothing

    def add(self, frame: bytes, place: list[int]) -> int:
        """Note a new vector; return the attributes that it needs now, -1 for all."""
        self._used = -1
        if not place[_RESTRICTED]:
            return -1
        required = place[_FEATURES]
        p = place[_RESTRICTED]
        for attribute in range(16):
            if place[_FEATURES] >> attribute & 1:
                if frame[p]:
                    required &= ~(1 << attribute)
                p += 1
        return required

    def begin(self, sample: "Sample", second: int) -> int:
        """Find the old readings of a sample; return those of them that are uncertain."""
        filter = self._filter
        if self._used != filter.used:  # also when something went
            self._read()
        memory = self._memories.get(sample.event)
        if memory is None:
            memory = self._memories[sample.event] = Memory()
        self._memory = memory
        self._sample = sample
        filter.join = self._join if any(memory.limits) else None
        memory.olds = 0
        missing = memory.seen & ~(sample.present | sample.faults)
        for attribute in range(16):
            if sample.present >> attribute & 1:
                memory.taken[attribute] = second & _SECONDS
            elif missing >> attribute & 1:
                self._recall(memory, attribute, second)
        memory.seen = (memory.seen | sample.present) & ~sample.faults
        memory.vague = (memory.vague & ~sample.present) | sample.doubt
        return memory.vague & memory.olds

    def _recall(self, memory: Memory, attribute: int, second: int) -> None:
        """Take the last reading of an attribute for an old one, if somebody does."""
        age = max(1, (second - memory.taken[attribute]) & _SECONDS)
        for code in range(1, memory.limits[attribute] + 1):
            if decode_duration(code) >= age:
                memory.olds |= 1 << attribute
                memory.ages[attribute] = code
                return

    def write(self, sample: "Sample", why: int) -> bytes:
        """Return the notification of a sample with what somebody names, and the old readings."""
        memory = self._memory
        present = sample.present
        doubt = sample.doubt
        olds = memory.olds & memory.named
        sample.present = (present & memory.named) | olds
        sample.doubt = (doubt | (memory.vague & olds)) & sample.present
        vector = write_notification(sample, why)
        sample.present = present
        sample.doubt = doubt
        if not olds:
            return vector
        at = 8 + 2 * count_bits(vector[1] & 14)  # behind the masks
        end = len(vector) - (2 if why >= 0 else 0)
        ages = bytes([memory.ages[a] for a in range(16) if olds >> a & 1])
        head = bytes([vector[0], vector[1] | 16]) + vector[2:at] + olds.to_bytes(2, "big")
        return head + vector[at:end] + ages + vector[end:]

    def _is_joined(self, at: int) -> bool:
        """Return whether the readings of a record are there: young enough, and one of them new."""
        buf = self._filter.buffer
        if not is_restricted(buf, at):
            return True
        place = self._place
        locate(buf, at, place)
        memory = self._memory
        features = place[_FEATURES]
        missing = features & ~self._sample.present  # type: ignore[union-attr]
        if missing & ~memory.olds or missing == features:
            return False
        p = place[_RESTRICTED]
        for attribute in range(16):
            if features >> attribute & 1:
                if missing >> attribute & 1 and memory.ages[attribute] > buf[p]:
                    return False
                p += 1
        return True

    def _read(self) -> None:
        """Find out anew what the vectors name."""
        filter = self._filter
        buf = filter.buffer
        self._used = filter.used
        for memory in self._memories.values():
            memory.named = 0
            memory.limits = bytearray(16)
        at = group = end = 0
        while at < filter.used:
            if at == end:
                group = at
                at += 6
                end = at + int.from_bytes(buf[group + 3 : at], "big")
                memory = self._memories.get(buf[group]) or Memory()
                self._memories[buf[group]] = memory
                continue
            memory.named |= buf[at + 6] << 8 | buf[at + 7]
            if is_restricted(buf, at):
                self._widen(memory.limits, at)
            at += filter.measure(at)

    def _widen(self, limits: bytearray, at: int) -> None:
        """Raise the limits to a vector's restrictors."""
        buf = self._filter.buffer
        locate(buf, at, self._place)
        p = self._place[_RESTRICTED]
        for attribute in range(16):
            if self._place[_FEATURES] >> attribute & 1:
                limits[attribute] = max(limits[attribute], buf[p])
                p += 1
