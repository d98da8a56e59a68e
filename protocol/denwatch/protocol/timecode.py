"""Durations in one byte and ages in two: small floating-point numbers, monotonic and exact to read.

A duration keeps 3 bits of mantissa (12.5 %), from 1 s to a year: how long a subscription is valid.
An age keeps 11 (0.05 %), from 1/16 s to a year: a reading carried for three days is dated
within two minutes.
"""

from .degrees import const
from .errors import ProtocolError

_DURATION_BITS = const(3)
_AGE_BITS = const(11)
LAST_DURATION = const(0xB7)  # 15 << 21 s, 364 days
LAST_AGE = const(0x97FF)  # 4095 << 17 sixteenths of a second, more than a year
AGES_PER_SECOND = const(16)


def _unpack(code: int, bits: int) -> int:
    exponent = code >> bits
    mantissa = code & ((1 << bits) - 1)
    return (mantissa + (1 << bits)) << (exponent - 1) if exponent else mantissa


def _find_code(value: int, bits: int, last: int) -> int:
    """Return the lowest code that stands for at least the value, or `last`."""
    low = 0
    high = last
    while low < high:
        middle = (low + high) >> 1
        if _unpack(middle, bits) >= value:
            high = middle
        else:
            low = middle + 1
    return low


def encode_duration(seconds: int) -> int:
    """Return the code of the shortest duration that is not shorter; 0 stands for no limit."""
    if seconds < 0:
        raise ProtocolError(f"a duration is not negative: {seconds} s")
    if seconds > decode_duration(LAST_DURATION):
        raise ProtocolError(f"a duration is at most 364 days: {seconds} s")
    return _find_code(seconds, _DURATION_BITS, LAST_DURATION)


def decode_duration(code: int) -> int:
    """Return the seconds of a duration code."""
    return _unpack(code, _DURATION_BITS)


def encode_age(sixteenths: int) -> int:
    """Return the code of the nearest age in sixteenths of a second; the oldest is the limit."""
    code = _find_code(sixteenths, _AGE_BITS, LAST_AGE)
    if code and 2 * sixteenths < _unpack(code, _AGE_BITS) + _unpack(code - 1, _AGE_BITS):
        code -= 1
    return code


def decode_age(code: int) -> int:
    """Return the sixteenths of a second of an age code."""
    return _unpack(code, _AGE_BITS)
