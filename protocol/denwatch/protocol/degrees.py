"""Degrees: the integer arithmetic of fuzzy sets, one byte a degree, no floats, no allocation.

This file and `slopes.py` import nothing else of ours, so that they fit a Cortex-M0
with 9 KB of heap. Every function trusts its arguments: what comes from outside is validated when it
is decoded.

All intermediate results stay below 2**30, MicroPython's small integers on 32-bit machines.
"""

from .slopes import SLOPES as SLOPES

try:
    from micropython import const as const
except ImportError:  # CPython

    def const(value: int) -> int:
        """Return the value: on MicroPython the compiler folds it away."""
        return value


MIN = const(0)
MAX = const(1)
PRODUCT = const(2)
ARITHMETIC = const(3)
GEOMETRIC = const(4)
HARMONIC = const(5)
WEIGHTED = const(6)
SUGENO = const(7)

VERY = const(1)
EXTREMELY = const(2)
MORE_OR_LESS = const(3)
_FINE = const(261120)  # 255 degrees in 1/1024 of a degree

# The gamma code that means an infinite slope; the others are 0.57 * 100 ** (code / 254).
CRISP = const(255)

# 256 * log2(m / 128) for m = 128..255, the fraction of a binary logarithm.
LOGS = (
    b"\x00\x03\x06\x09\x0b\x0e\x11\x14\x16\x19\x1c\x1e\x21\x24\x26\x29\x2c\x2e\x31\x33\x36\x38"
    b"\x3b\x3d\x3f\x42\x44\x47\x49\x4b\x4e\x50\x52\x55\x57\x59\x5c\x5e\x60\x62\x64\x67\x69\x6b"
    b"\x6d\x6f\x71\x74\x76\x78\x7a\x7c\x7e\x80\x82\x84\x86\x88\x8a\x8c\x8e\x90\x92\x94\x96\x98"
    b"\x9a\x9b\x9d\x9f\xa1\xa3\xa5\xa7\xa9\xaa\xac\xae\xb0\xb2\xb3\xb5\xb7\xb9\xba\xbc\xbe\xc0"
    b"\xc1\xc3\xc5\xc6\xc8\xca\xcb\xcd\xcf\xd0\xd2\xd4\xd5\xd7\xd8\xda\xdc\xdd\xdf\xe0\xe2\xe4"
    b"\xe5\xe7\xe8\xea\xeb\xed\xee\xf0\xf1\xf3\xf4\xf6\xf7\xf9\xfa\xfc\xfd\xff"
)


def slope(code: int) -> int:
    """Return gamma * 256 of a gamma code below CRISP."""
    return SLOPES[2 * code] << 8 | SLOPES[2 * code + 1]


def fuzzify(x: int, low: int, high: int, left: int, right: int, wide: int) -> int:
    """Return the degree of x in the set with core [low, high] and the two gamma codes.

    With `wide`, x and the core are 16-bit numbers; a gamma means the same share of the domain.
    """
    if x < low:
        distance = low - x
        code = left
    elif x > high:
        distance = x - high
        code = right
    else:
        return 255
    if code == CRISP:
        return 0
    lost = distance * (SLOPES[2 * code] << 8 | SLOPES[2 * code + 1])
    lost = (lost + 32896) // 65792 if wide else (lost + 128) >> 8
    return 255 - lost if lost < 255 else 0


def reach(code: int, degree: int, wide: int) -> int:
    """Return the largest distance from the core at which the degree is still at least `degree`.

    The inverse of `fuzzify`, for degrees of 1..255.
    """
    if code == CRISP:
        return 0
    unit = 65792 if wide else 256
    return ((256 - degree) * unit - unit // 2 - 1) // slope(code)


def root(square: int) -> int:
    """Return the integer nearest to the square root, for squares up to 255 * 255."""
    low = 0
    high = 255
    while low < high:
        middle = (low + high) >> 1
        if middle * middle + middle >= square:  # (middle + 1/2) ** 2 > square, in integers
            high = middle
        else:
            low = middle + 1
    return low


def hedge(degree: int, code: int) -> int:
    """Return the degree under up to two hedges: the lower two bits of the code act first."""
    while code:
        step = code & 3
        if step == VERY:
            degree = (degree * degree + 127) // 255
        elif step == EXTREMELY:
            degree = (degree * degree * degree + 32512) // 65025
        else:
            degree = root(255 * degree)
        code >>= 2
    return degree


def logarithm(degree: int) -> int:
    """Return 256 * log2 of a degree of 1..255, rounded."""
    whole = 7
    while degree < 128:
        degree <<= 1
        whole -= 1
    return whole << 8 | LOGS[degree - 128]


def power(log: int) -> int:
    """Return the degree whose logarithm is nearest: the inverse of `logarithm`."""
    low = 1
    high = 255
    while low < high:
        middle = (low + high) >> 1
        if logarithm(middle) + logarithm(middle + 1) >= 2 * log:
            high = middle
        else:
            low = middle + 1
    return low


def aggregate(
    kind: int, degrees: bytearray, start: int, stop: int, weights: "bytes | bytearray", at: int
) -> int:
    """Return degrees[start:stop] as one degree; weights[at:] serve the weighted mean only."""
    count = stop - start
    if kind in (MIN, MAX):
        result = degrees[start]
        for i in range(start + 1, stop):
            degree = degrees[i]
            if (degree < result) == (kind == MIN):
                result = degree
        return result
    if kind == PRODUCT:
        result = 255 << 14  # 14 more bits, so that sixteen roundings do not add up
        for i in range(start, stop):
            result = (result * degrees[i] + 127) // 255
        return (result + 8192) >> 14
    total = 0
    if kind == WEIGHTED:
        count = 0
        for i in range(start, stop):
            weight = weights[at + i - start]
            total += weight * degrees[i]
            count += weight
        return (total + count // 2) // count
    if kind == ARITHMETIC:
        for i in range(start, stop):
            total += degrees[i]
        return (total + count // 2) // count
    for i in range(start, stop):
        degree = degrees[i]
        if degree == 0:
            return 0
        if kind == GEOMETRIC:
            total += logarithm(degree)
        else:
            total += 4194304 // degree  # 2 ** 22: sixteen of them stay small integers
    if kind == GEOMETRIC:
        return power((total + count // 2) // count)
    return (count * 4194304 + total // 2) // total


def find_membership(code: int, t: int) -> int:
    """Return the lowest membership, in 1/1024 degree, that a hedge lifts to what rounds to t."""
    level = 1024 * t - 512
    if not code:
        return level
    power = root = 1  # hedges raise to power / root
    while code:
        if code & 3 == MORE_OR_LESS:
            root *= 2
        else:
            power *= 1 + (code & 3)
        code >>= 2
    least = level**root * _FINE**power
    low = 1
    high = _FINE - 1
    while low < high:
        middle = (low + high) >> 1
        if middle**power * _FINE**root >= least:
            high = middle
        else:
            low = middle + 1
    return low
