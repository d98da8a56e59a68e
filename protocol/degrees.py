"""Degrees: the integer arithmetic of fuzzy sets, one byte a degree, no floats, no allocation.

This file and `evaluator.py` import nothing else of ours, so that they fit a Cortex-M0 with 9 KB of
heap. Every function trusts its arguments: what comes from outside is validated when it is decoded.

All intermediate results stay below 2**30, MicroPython's small integers on 32-bit machines.
"""

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

# The gamma code that means an infinite slope; the others are 0.57 * 100 ** (code / 254).
CRISP = const(255)

# Slopes of the gamma codes 0..254 as big-endian 16-bit numbers: gamma * 256, in degrees a step.
SLOPES = (
    b"\x00\x92\x00\x95\x00\x97\x00\x9a\x00\x9d\x00\xa0\x00\xa3\x00\xa6\x00\xa9\x00\xac\x00\xaf"
    b"\x00\xb2\x00\xb5\x00\xb9\x00\xbc\x00\xc0\x00\xc3\x00\xc7\x00\xca\x00\xce\x00\xd2\x00\xd6"
    b"\x00\xd9\x00\xdd\x00\xe1\x00\xe6\x00\xea\x00\xee\x00\xf2\x00\xf7\x00\xfb\x01\x00\x01\x05"
    b"\x01\x09\x01\x0e\x01\x13\x01\x18\x01\x1d\x01\x23\x01\x28\x01\x2d\x01\x33\x01\x38\x01\x3e"
    b"\x01\x44\x01\x4a\x01\x50\x01\x56\x01\x5c\x01\x63\x01\x69\x01\x70\x01\x77\x01\x7d\x01\x84"
    b"\x01\x8c\x01\x93\x01\x9a\x01\xa2\x01\xa9\x01\xb1\x01\xb9\x01\xc1\x01\xc9\x01\xd2\x01\xda"
    b"\x01\xe3\x01\xec\x01\xf5\x01\xfe\x02\x07\x02\x11\x02\x1a\x02\x24\x02\x2e\x02\x38\x02\x43"
    b"\x02\x4d\x02\x58\x02\x63\x02\x6e\x02\x7a\x02\x85\x02\x91\x02\x9d\x02\xa9\x02\xb6\x02\xc3"
    b"\x02\xcf\x02\xdd\x02\xea\x02\xf8\x03\x06\x03\x14\x03\x22\x03\x31\x03\x40\x03\x4f\x03\x5f"
    b"\x03\x6e\x03\x7e\x03\x8f\x03\x9f\x03\xb0\x03\xc2\x03\xd3\x03\xe5\x03\xf7\x04\x0a\x04\x1d"
    b"\x04\x30\x04\x44\x04\x58\x04\x6c\x04\x81\x04\x96\x04\xab\x04\xc1\x04\xd8\x04\xee\x05\x05"
    b"\x05\x1d\x05\x35\x05\x4d\x05\x66\x05\x7f\x05\x99\x05\xb3\x05\xce\x05\xe9\x06\x05\x06\x21"
    b"\x06\x3e\x06\x5b\x06\x79\x06\x97\x06\xb6\x06\xd5\x06\xf5\x07\x16\x07\x37\x07\x59\x07\x7b"
    b"\x07\x9e\x07\xc2\x07\xe6\x08\x0b\x08\x31\x08\x57\x08\x7e\x08\xa6\x08\xcf\x08\xf8\x09\x22"
    b"\x09\x4d\x09\x78\x09\xa5\x09\xd2\x0a\x00\x0a\x2f\x0a\x5e\x0a\x8f\x0a\xc0\x0a\xf3\x0b\x26"
    b"\x0b\x5a\x0b\x8f\x0b\xc6\x0b\xfd\x0c\x35\x0c\x6e\x0c\xa8\x0c\xe3\x0d\x20\x0d\x5d\x0d\x9c"
    b"\x0d\xdc\x0e\x1d\x0e\x5f\x0e\xa2\x0e\xe7\x0f\x2c\x0f\x73\x0f\xbc\x10\x05\x10\x50\x10\x9d"
    b"\x10\xeb\x11\x3a\x11\x8b\x11\xdd\x12\x30\x12\x86\x12\xdc\x13\x35\x13\x8f\x13\xea\x14\x48"
    b"\x14\xa7\x15\x07\x15\x6a\x15\xce\x16\x34\x16\x9c\x17\x06\x17\x72\x17\xe0\x18\x50\x18\xc1"
    b"\x19\x35\x19\xab\x1a\x24\x1a\x9e\x1b\x1b\x1b\x9a\x1c\x1b\x1c\x9f\x1d\x25\x1d\xad\x1e\x38"
    b"\x1e\xc6\x1f\x56\x1f\xe9\x20\x7e\x21\x16\x21\xb1\x22\x4f\x22\xf0\x23\x93\x24\x3a\x24\xe4"
    b"\x25\x90\x26\x40\x26\xf3\x27\xaa\x28\x64\x29\x21\x29\xe2\x2a\xa6\x2b\x6d\x2c\x39\x2d\x08"
    b"\x2d\xdb\x2e\xb2\x2f\x8c\x30\x6b\x31\x4e\x32\x35\x33\x20\x34\x0f\x35\x03\x35\xfc\x36\xf8"
    b"\x37\xfa\x39\x00"
)

# 256 * log2(m / 128) for m = 128..255, the fraction of a binary logarithm.
_LOGS = (
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
    return whole << 8 | _LOGS[degree - 128]


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


def aggregate(kind: int, degrees: bytearray, start: int, stop: int, weights: bytes, at: int) -> int:
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
