"""When a match is worth sending again: the rules of a subscription's significance section.

One function a rule, and `judge`, which asks them in order. The memory of a subscription stands
behind its vector in the filter's buffer, so that nothing is allocated:

    size, flags, matches of the last samples (2), second of the last sending (4),
    the value of each attribute when it was sent last (2 each)
"""

from array import array

from ..protocol.degrees import const
from ..protocol.timecode import decode_duration
from .rating import count_bits

_ACTIVE = const(1)  # the last sample matched
_TOLD = const(2)  # this episode was sent
_EVER = const(4)  # something was sent, so the last second means something
_MEMORY = const(8)  # bytes before the values


def make_memory(features: int) -> bytes:
    """Return the empty memory of a subscription."""
    size = _MEMORY + 2 * count_bits(features)
    return bytes([size]) + bytes(size - 1)


def lasts(is_active: int, degree: int, threshold: int, hysteresis: int) -> bool:
    """Return whether a sample belongs to a match: one that began ends `hysteresis` lower."""
    if degree >= 0:
        return True
    return bool(is_active and hysteresis) and ~degree + hysteresis >= threshold


def is_frequent(history: int, hits: int) -> bool:
    """Return whether enough of the last samples matched."""
    return count_bits(history) >= hits


def is_quiet(since: int, quiet: int) -> bool:
    """Return whether so many seconds after the last sending it is too early."""
    return since < quiet


def is_due(since: int, heartbeat: int) -> bool:
    """Return whether so many seconds after the last sending it is time for a sign of life."""
    return since >= heartbeat


def has_moved(value: int, last: int, band: int, relative: int) -> bool:
    """Return whether the value moved by the dead band, the wider of the absolute and the relative.

    `relative` counts 1/255 of the last value. A band of zero lets every change through.
    """
    moved = value - last if value > last else last - value
    return moved > 0 and moved >= band and moved * 255 >= relative * last


def judge(
    buf: bytearray,
    section: int,
    memory: int,
    threshold: int,
    degree: int,
    features: int,
    wides: int,
    values: "array[int]",
    second: int,
) -> bool:
    """Return whether this sample is to be sent, and remember it.

    `section` and `memory` are places in the buffer; `degree` is ~degree of a miss.
    """
    rules = buf[section]
    bands = section + 1 if rules & 1 else 0
    p = section + 1 + (count_bits(features) if bands else 0)
    relative = hysteresis = window = heartbeat = quiet = 0
    if rules & 2:
        relative = buf[p]
        p += 1
    if rules & 4:
        hysteresis = buf[p]
        p += 1
    if rules & 8:
        window = buf[p]
        p += 1
    if rules & 16:
        heartbeat = decode_duration(buf[p])
        p += 1
    if rules & 32:
        quiet = decode_duration(buf[p])
    flags = buf[memory + 1]
    matches = lasts(flags & _ACTIVE, degree, threshold, hysteresis)
    goes_on = matches
    if window:
        history = buf[memory + 2] << 8 | buf[memory + 3]
        history = (history << 1 | matches) & ((1 << (window & 15)) - 1)
        buf[memory + 2] = history >> 8
        buf[memory + 3] = history & 255
        goes_on = is_frequent(history, window >> 4)
    flags = flags & ~_ACTIVE | matches
    if not goes_on:
        flags &= ~_TOLD
    buf[memory + 1] = flags
    if not (matches and goes_on):
        return False
    since = (second - _read_second(buf, memory)) & 0x3FFFFFFF
    if flags & _EVER and quiet and is_quiet(since, quiet):
        return False
    if flags & _TOLD and (bands or relative):
        left = _left_band(buf, bands, relative, memory + _MEMORY, features, wides, values)
        if not left and not (heartbeat and is_due(since, heartbeat)):
            return False
    buf[memory + 1] = flags | _TOLD | _EVER
    _remember(buf, memory, features, values, second)
    return True


def _read_second(buf: bytearray, memory: int) -> int:
    high = buf[memory + 4] << 24 | buf[memory + 5] << 16
    return high | buf[memory + 6] << 8 | buf[memory + 7]


def _left_band(
    buf: bytearray,
    bands: int,
    relative: int,
    last: int,
    features: int,
    wides: int,
    values: "array[int]",
) -> bool:
    """Return whether some attribute has moved since the last sending."""
    attribute = 0
    while features:
        if features & 1:
            band = buf[bands] if bands else 0
            if wides >> attribute & 1:
                band *= 257
            if has_moved(values[attribute], buf[last] << 8 | buf[last + 1], band, relative):
                return True
            last += 2
            bands += 1 if bands else 0
        features >>= 1
        attribute += 1
    return False


def _remember(
    buf: bytearray, memory: int, features: int, values: "array[int]", second: int
) -> None:
    second &= 0x3FFFFFFF
    buf[memory + 4] = second >> 24
    buf[memory + 5] = second >> 16 & 255
    buf[memory + 6] = second >> 8 & 255
    buf[memory + 7] = second & 255
    p = memory + _MEMORY
    attribute = 0
    while features:
        if features & 1:
            buf[p] = values[attribute] >> 8
            buf[p + 1] = values[attribute] & 255
            p += 2
        features >>= 1
        attribute += 1
