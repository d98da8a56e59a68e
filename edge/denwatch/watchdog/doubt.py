"""The kernel for uncertain readings, in machine code: possibility, by the crossing of two lines.

THEORY     As `viper.scan`, which has the walk over the buffer and what viper asks for; but a value
           is a trapezoid (a, b, c, d), an exact one with four equal points. Vectors without
           sections ask for possibility only: the side of the set and the side of the reading that
           face each other are two lines, and the degree is where they cross. `protocol.cuts`
           defines it by cuts in 1/256 of a code; the crossing is never below that, and rarely more
           than a step above, so it is stepped down until the cuts meet.
REJECTION  Under min a record is given up before any division if the best membership over the
           support is below its threshold.
NEGATED    The set's opposite begins outside: on either side, where it rises and the reading falls.
LIMITS     255 * 14,592 * 255 is below 2**30.
EXAMPLE    Set 145..255, slope 2,469 / 256; reading (130, 135, 138, 142): 7 codes from core to core,
           a run of 4. 7 * 2469 * 255 // (65280 + 4 * 2469) = 58, so 197, at 138 + 4 * 58 / 255.

A part that may be left out of a device: `rating.py`, in bytecode, gives the same answers.
"""

# viper's pointer types exist only inside MicroPython's compiler:
# mypy: ignore-errors
# ruff: noqa: F821

import micropython

from ..protocol.slopes import SLOPES


@micropython.viper
def scan_doubtful(buf: ptr8, stop: int, points: ptr16, state: ptr32) -> int:
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
        if flags & 12:
            state[5] = -1
            break
        bits = buf[at + 6] << 8 | buf[at + 7]
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
                low = buf[p]
                high = buf[p + 1]
                gamma = buf[p + 2] << 1
                slope = 0
                if gamma < 510:
                    slope = slopes[gamma] << 8 | slopes[gamma + 1]
                first = points[i]
                last = points[i + 3]
                if flags & 16:
                    degree = 0
                    gap = low - first
                    run = points[i + 1] - first
                    side = 2
                    while side:
                        if gap > 0:
                            t = 255
                            if slope:
                                t = gap * slope * 255 // (65280 + run * slope) + 1
                            elif run:
                                t = (510 * (gap - 1) // run + 1) >> 1
                            if t > 255:
                                t = 255
                            if slope:
                                while t > 0:
                                    x = (65536 * t - 32769) // slope
                                    x += ((2 * t - 1) * 256 * run + 509) // 510
                                    if x < gap << 8:
                                        break
                                    t -= 1
                            if t > degree:
                                degree = t
                        gap = last - high
                        run = last - points[i + 2]
                        side -= 1
                else:
                    degree = 255
                    run = points[i + 1] - first
                    gap = first - high
                    if gap + run <= 0:
                        run = last - points[i + 2]
                        gap = low - last
                    if gap + run > 0:
                        if slope == 0:
                            degree = 0
                            if gap < 0:
                                degree = (510 * (0 - gap) // run + 1) >> 1
                        elif gap > 0 and kind == 0 and gap * slope > (256 - least) << 8:
                            degree = 0
                        else:
                            degree -= (gap + run) * slope * 255 // (65280 + run * slope)
                            if kind or degree >= least:
                                while degree > 0:
                                    x = ((2 * degree - 1) * 256 * run + 509) // 510
                                    x += gap * 256
                                    if x <= (16744447 - 65536 * degree) // slope:
                                        break
                                    degree -= 1
                            if degree < 0:
                                degree = 0
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
            i += 4
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
