"""The duty cycle: how long a device may sleep deeply, and what it must keep while it does.

Deep sleep clears the memory: subscriptions go to what survives (RTC memory, a file) and come back
through the same checks as from the air.
"""

from binascii import crc32

from ..protocol.degrees import const
from ..protocol.errors import ProtocolError
from .check import check
from .filter import is_significant
from .fuzzy import Fuzzy

_HEAD = const(10)  # checksum, next deadline, number of twins


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
    body = language.soonest.to_bytes(4, "big") + len(language.twins).to_bytes(2, "big")
    for twin in language.twins:
        body += (twin << 16 | language.twins[twin]).to_bytes(4, "big")
    body += filter.buffer[: filter.used]
    return crc32(body).to_bytes(4, "big") + body


def thaw(language: Fuzzy, data: bytes) -> int:
    """Put frozen subscriptions into an empty language; return how many.

    The clock must have gone on meanwhile, for deadlines are its seconds. ProtocolError if the data
    is not what `freeze` returned; the language is then empty.
    """
    if len(data) < _HEAD or crc32(data[4:]) != _read(data, 0, 4):
        raise ProtocolError("damaged", 0)
    stop = at = _HEAD + 4 * _read(data, 8, 2)
    while at < len(data):
        event = data[at]
        end = at + 6 + _read(data, at + 3, 3)
        at += 6
        while at < end:
            frame = bytes([0x40 | event]) + data[at + 1 : at + data[at]]
            check(frame)
            start = at = at + len(frame)
            if frame[5]:
                at += 2
            if is_significant(frame, 0):
                at += data[at]
            language.filter.add(frame, data[start:at])
    for i in range(_HEAD, stop, 4):
        language.twins[_read(data, i, 2)] = _read(data, i + 2, 2)
    language.soonest = _read(data, 4, 4)
    return language.filter.count + len(language.twins)


def _read(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")
