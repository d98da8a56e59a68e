"""Possibility and necessity over real values, from their definition: a slow, obvious judge.

Shares no code with `protocol`. Memberships and trapezoids are real functions of a real value; the
highest min of two functions, one rising and one falling, is found by halving. A crisp side has no
values between its end and the next code. Degrees are 0.0..1.0.
"""

from tests.protocol.oracle import gamma, hedged, possible

HALVINGS = 50


def member(p, x):
    """Return to which degree a real value is in the set, and to which it is not.

    Between a crisp end and the next code there are no values: neither.
    """
    edge = p.low if x < p.low else p.high
    code = p.left if x < p.low else p.right
    distance = 0 if p.low <= x <= p.high else abs(x - edge)
    if code == 255 and 0 < distance < 1:
        return 0.0, 0.0
    if code == 255:
        degree = 1.0 if not distance else 0.0
    else:
        last = 65535 if p.wide else 255
        degree = hedged(1 - min(1.0, gamma(code) * distance / last), p.hedge) if distance else 1.0
    return (1 - degree, degree) if p.negated else (degree, 1 - degree)


def judge_pattern(sets, program, x):
    """Return to which degrees a value fits a postfix pattern of min, max, not, and its opposite."""
    stack = []
    for op in program:
        if op < 16:
            stack.append(member(sets[op], x))
        elif op == 0x60:
            fits, fails = stack.pop()
            stack.append((fails, fits))
        else:
            operands = [stack.pop() for _ in range(op & 15)]
            fit, fail = [o[0] for o in operands], [o[1] for o in operands]
            is_or = op & 0xF0 == 0x50
            stack.append((max(fit), min(fail)) if is_or else (min(fit), max(fail)))
    return stack[0]


def list_breaks(sets, points):
    """Return the values between which every function here is monotone."""
    a, b, c, d = points
    breaks = {a, b, c, d}
    for p in sets:
        last = 65535 if p.wide else 255
        for edge, code, sign in ((p.low, p.left, -1), (p.high, p.right, 1)):
            foot = 1 if code == 255 else last / gamma(code)
            breaks |= {edge, edge + sign * foot, edge + sign * 1e-9}
            if code == 255:
                breaks.add(edge + sign * (1 - 1e-9))
    return sorted(x for x in breaks if a <= x <= d)


def find_highest(function, other, start, stop):
    """Return the highest min of two functions that are monotone between two values."""
    best = max(min(function(x), other(x)) for x in (start, stop))
    for _ in range(HALVINGS):
        middle = (start + stop) / 2
        here = function(middle) - other(middle)
        best = max(best, min(function(middle), other(middle)))
        if (here > 0) == (function(start) - other(start) > 0):
            start = middle
        else:
            stop = middle
    return best


def measure_pattern(sets, program, points, pieces=1):
    """Return (possible, certain); a pattern of several sets needs more pieces between breaks."""
    found = []
    for side in (0, 1):

        def fits(x, side=side):
            return judge_pattern(sets, program, x)[side]

        def may(x):
            return possible(x, points)

        breaks = list_breaks(sets, points)
        best = max(min(fits(x), may(x)) for x in breaks)
        for i in range(len(breaks) - 1):
            start, stop = breaks[i], breaks[i + 1]
            for piece in range(pieces):
                from_ = start + (stop - start) * piece / pieces
                to = start + (stop - start) * (piece + 1) / pieces
                best = max(best, find_highest(fits, may, from_, to))
        found.append(best)
    return found[0], 1 - found[1]
