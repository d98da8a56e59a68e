"""Readings of different times joined: what a subscription's restrictors ask for.

"temperature is high in the last 30 seconds and pulse is low": each attribute has its own clock. A
sample keeps the last reading of every attribute (`Sample.remember`); those that are young enough
for somebody are its *old* readings, and go along when it is sent. Ages are duration codes, rounded
up: as restrictors are such codes too, the node decides from the codes what the device decided from
the seconds.

Only a device that has a subscription with restrictors loads this file.
"""

from ..protocol.degrees import const
from ..protocol.timecode import decode_duration, encode_duration
from .rating import locate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .execution import Sample

# Fields of a place: rating.py.
_FEATURES = const(0)
_RESTRICTED = const(15)

_SECONDS = const(0x3FFFFFFF)


def find_required(frame: bytes, place: list[int]) -> int:
    """Return the attributes of a vector that must be read now."""
    required = place[_FEATURES]
    p = place[_RESTRICTED]
    for attribute in range(16):
        if place[_FEATURES] >> attribute & 1:
            if frame[p]:
                required &= ~(1 << attribute)
            p += 1
    return required


def widen(buf: bytearray, at: int, place: list[int], limits: bytearray) -> None:
    """Raise the limits, a duration code for each of 16 attributes, to a vector's restrictors."""
    locate(buf, at, place)
    p = place[_RESTRICTED]
    for attribute in range(16):
        if place[_FEATURES] >> attribute & 1:
            limits[attribute] = max(limits[attribute], buf[p])
            p += 1


def recall(sample: "Sample", limits: bytearray, second: int) -> None:
    """Find the old readings of a sample: those that are not beyond the limits."""
    missing = sample.seen & ~(sample.present | sample.faults)
    for attribute in range(16):
        if missing >> attribute & 1 and limits[attribute]:
            age = max(1, (second - sample.taken[attribute]) & _SECONDS)
            if age <= decode_duration(limits[attribute]):
                sample.olds |= 1 << attribute
                sample.ages[attribute] = encode_duration(age)


def is_joined(buf: bytearray, at: int, place: list[int], sample: "Sample") -> bool:
    """Return whether all readings that a record asks for are young enough, and one is new."""
    locate(buf, at, place)
    features = place[_FEATURES]
    missing = features & ~sample.present
    if missing & ~sample.olds or missing == features:
        return False
    p = place[_RESTRICTED]
    for attribute in range(16):
        if features >> attribute & 1:
            if missing >> attribute & 1 and sample.ages[attribute] > buf[p]:
                return False
            p += 1
    return True
