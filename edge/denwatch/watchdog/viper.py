"""The kernel in machine code: `scan` of `plain.py`, which has the theory, with the same meaning.

Only this file uses viper: MicroPython compiles the function below to machine code, some 30 times as
fast as bytecode. What is different there:

TYPES      Every local is a machine word; `buf`, `slopes` are pointers to bytes, `values` to 16-bit,
           `state` to 32-bit words. No object is made, so nothing is allocated. `x = values[i]` is
           read once into a local because a pointer is loaded anew each time.
TRUST      Pointers are not checked, and a division by zero ends the process. What makes it safe:
           `check.py` refused whatever could lead the walk astray (a record's length is that of its
           vector, a vector has at least one predicate, so `count` > 0), and only `filter.py` writes
           the buffer.
LIMITS     All numbers stay below 2**31 and positions are never negative, so 32 and 64 bit agree.
           Negative intermediate results (`degree` before it is cut to 0) are signed words.
NO const   State is addressed by number (0 AT, 1 END, 2 EVENT, 3 ABSENT, 4 DOUBT, 5 DEGREE).

The tests compare it with `plain.py`, `rating.py`, `tests/protocol/evaluator.py` and plain formulas.
"""

# viper's pointer types exist only inside MicroPython's compiler:
# mypy: ignore-errors
# ruff: noqa: F821

import micropython

from ..protocol.slopes import SLOPES


@micropython.viper
def scan(buf: ptr8, stop: int, values: ptr16, state: ptr32) -> int:
    """Return where the next record that matters stands, or at least `stop`."""
    slopes = ptr8(SLOPES)
    at = state[0]
    end = state[1]
    while at < stop:
        if at >= end:
            end = at + 6 + (buf[at + 3] << 16 | buf[at + 4] << 8 | buf[at + 5])
            if (buf[at] << 16 | buf[at + 1] << 8 | buf[at + 2]) & state[3] != state[2]:
                at = end
            else:
                at += 6
            continue
        flags = buf[at + 1]
        bits = buf[at + 6] << 8 | buf[at + 7]
        if flags & 12 or bits & state[4]:
            state[5] = -1
            break
        p = at + 8
        kind = flags & 3
        total = 255
        if kind == 2:
            total = 255 << 14
        elif kind:
            total = 0
        least = buf[at + 4]
        i = count = 0
        while bits:
            if bits & 1:
                x = values[i]
                degree = buf[p] - x
                if degree < 0:
                    degree = x - buf[p + 1]
                if degree > 0:
                    gamma = buf[p + 2] << 1
                    if gamma == 510:
                        degree = 0
                    else:
                        degree *= slopes[gamma] << 8 | slopes[gamma + 1]
                        degree = 255 - ((degree + 128) >> 8)
                        if degree < 0:
                            degree = 0
                else:
                    degree = 255
                if flags & 16:
                    degree = 255 - degree
                flags >>= 1
                p += 3
                count += 1
                if kind == 0:
                    if degree < total:
                        total = degree
                        if degree < least:
                            break
                elif kind == 1:
                    if degree > total:
                        total = degree
                elif kind == 2:
                    total = (total * degree + 127) // 255
                else:
                    total += degree
            bits >>= 1
            i += 1
        if kind == 3:
            total = (total + (count >> 1)) // count
        elif kind == 2:
            total = (total + 8192) >> 14
        if total >= least:
            state[5] = total
            break
        p = at + buf[at]
        if buf[at + 5]:
            p += 2
        at = p
    state[0] = at
    state[1] = end
    return at
