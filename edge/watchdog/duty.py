"""The duty cycle: how long a device may sleep deeply, and what it must keep while it does.

Deep sleep clears the memory: subscriptions go to what survives (RTC memory, a file) and come back
through the same checks as from the air.
"""

from protocol.errors import ProtocolError

from .check import check
from .filter import is_significant
from .fuzzy import Fuzzy

_MAGIC = b"dw1"
_HEAD = 13  # magic, checksum, next deadline, number of twins


def plan_sleep(now: int, due: int, waiting: int, wake_cost: int, limit: int) -> int:
    """Return for how many ms to sleep; 0: stay awake.

    `due` is the next sampling, `waiting` how many notifications are still to be sent, `wake_cost`
    the ms that waking takes, `limit` the longest sleep (the node must be heard at times).
    """
    if waiting:
        return 0
    left = due - now - wake_cost
    return min(left, limit) if left > wake_cost else 0


def freeze(language: Fuzzy) -> bytes:
    """Return the subscriptions with their deadlines and memories, to be kept over a sleep."""
    filter = language.filter
    body = bytearray(_pack(language.soonest, 4))
    body += _pack(len(language.twins), 2)
    for twin in language.twins:
        body += _pack(twin, 2) + _pack(language.twins[twin], 2)
    body += filter.buffer[: filter.used]
    return _MAGIC + _sum(body) + bytes(body)


def thaw(language: Fuzzy, data: bytes) -> int:
    """Put frozen subscriptions into an empty language; return how many.

    The clock must have gone on meanwhile, for deadlines are its seconds. ProtocolError if the data
    is not what `freeze` returned; the language is then empty.
    """
    if data[:3] != _MAGIC or len(data) < _HEAD or _sum(data[7:]) != data[3:7]:
        raise ProtocolError("frozen subscriptions are damaged", 0)
    at = _HEAD + 4 * _unpack(data, 11, 2)
    while at < len(data):
        event = data[at]
        end = at + 6 + _unpack(data, at + 3, 3)
        at += 6
        while at < end:
            frame = bytes([0x40 | event]) + data[at + 1 : at + data[at]]
            check(frame)
            at = _thaw_record(language, frame, data, at)
    for i in range(_HEAD, _HEAD + 4 * _unpack(data, 11, 2), 4):
        language.twins[_unpack(data, i, 2)] = _unpack(data, i + 2, 2)
    language.soonest = _unpack(data, 7, 4)
    return language.filter.count + len(language.twins)


def _thaw_record(language: Fuzzy, frame: bytes, data: bytes, at: int) -> int:
    """Add one record with what follows it; return where the next one stands."""
    start = at + len(frame)
    stop = start + (2 if frame[5] else 0)
    if is_significant(frame, 0):
        stop += data[stop]
    language.filter.add(frame, data[start:stop])
    return stop


def _pack(number: int, size: int) -> bytes:
    return bytes([number >> 8 * i & 255 for i in range(size - 1, -1, -1)])


def _unpack(data: bytes, at: int, size: int) -> int:
    number = 0
    for i in range(at, at + size):
        number = number << 8 | data[i]
    return number


def _sum(data: bytes | bytearray) -> bytes:
    """Return Adler's checksum."""
    low = 1
    high = 0
    for byte in data:
        low = (low + byte) % 65521
        high = (high + low) % 65521
    return _pack(high, 2) + _pack(low, 2)
