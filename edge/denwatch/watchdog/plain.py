"""The kernel in plain Python: what `viper.py` must mean, and what runs where there is no viper.

THEORY     One pass over the buffer finds the next record that matters. The buffer holds groups of
           subscriptions with the same event and features:

             group     event, features (2), size of the records (3), records
             record    length of the vector, the vector from its second byte on,
                       deadline (2) if it has a validity, state if it has a significance

           The place of a vector's first byte, which the group's head makes needless, holds its
           length, so a record reads like a vector as it stands. A group whose event differs, or
           that asks for a feature that the event lacks, is passed over by its size.
STATE      Six numbers that the caller keeps between calls, so that `scan` goes on where it stopped:

             0 AT      where to go on           3 ABSENT  features that the event lacks, | 0xFF0000
             1 END     where the group ends     4 DOUBT   attributes whose reading is uncertain
             2 EVENT   event << 16              5 DEGREE  what was found; -1: ask `rating.Rater`

           (event << 16 | features) & ABSENT == EVENT is one comparison for both conditions.
DECIDED    Here: vectors without sections under min, max, product and arithmetic mean. All others
           (flags & 12), and those that meet an uncertain reading, are handed over with DEGREE -1.
LIMITS     No intermediate number reaches 2**30, MicroPython's small integers on 32 bit: a product
           keeps 14 more bits (255 << 14), times 255 is below 2**30; a distance of at most 255 times
           a slope of at most 14,592 is below 2**22. Nothing is allocated.
EXAMPLE    One triple: low 145, high 255, gamma code 156 (slope 2,469 / 256); the value is 139. The
           distance is 6; 6 * 2469 + 128 >> 8 = 58; the degree is 255 - 58 = 197. Under min with a
           threshold of 128 it is a match: DEGREE 197, and AT stays on the record.

This file imports the table of slopes and nothing else: it is also what a micro:bit holds.
"""

from array import array

from ..protocol.degrees import const
from ..protocol.slopes import SLOPES

AT = const(0)
END = const(1)
EVENT = const(2)
ABSENT = const(3)
DOUBT = const(4)
DEGREE = const(5)


def scan(buf: bytearray, stop: int, values: "array[int]", state: "array[int]") -> int:
    """Return where the next record that matters stands, or at least `stop`.

    Plain vectors under min, max, product or arithmetic mean are decided here: state[DEGREE] is the
    degree of a match. Others are handed over with -1: sections, other aggregators, doubt.
    """
    at = state[AT]
    end = state[END]
    while at < stop:
        if at >= end:  # the head of a group: first the features
            end = at + 6 + (buf[at + 3] << 16 | buf[at + 4] << 8 | buf[at + 5])
            head = buf[at] << 16 | buf[at + 1] << 8 | buf[at + 2]
            at = at + 6 if head & state[ABSENT] == state[EVENT] else end
            continue
        flags = buf[at + 1]
        bits = buf[at + 6] << 8 | buf[at + 7]
        if flags & 12 or bits & state[DOUBT]:
            state[DEGREE] = -1
            break
        p = at + 8
        kind = flags & 3
        total = 255 if kind == 0 else 255 << 14 if kind == 2 else 0
        least = buf[at + 4]
        i = count = 0
        while bits:
            if bits & 1:
                degree = buf[p] - values[i]
                if degree < 0:
                    degree = values[i] - buf[p + 1]
                if degree > 0:
                    gamma = buf[p + 2] << 1
                    if gamma < 510:
                        degree *= SLOPES[gamma] << 8 | SLOPES[gamma + 1]
                        degree = 255 - ((degree + 128) >> 8)
                    if degree < 0 or gamma == 510:
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
            state[DEGREE] = total
            break
        at += buf[at] + 2 if buf[at + 5] else buf[at]
    state[AT] = at
    state[END] = end
    return at
