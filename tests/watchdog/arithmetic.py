"""What a degree is, to the last bit, from the formulas: shares no code with `protocol` or `edge`.

It reads the fields of a subscription object and nothing else. Tables are computed, not copied: the
slopes from their geometric series, the logarithms from `math.log`. Roundings are those that
protocol/README.md gives. Slow and plain on purpose; runs on MicroPython and CPython.
"""

import math

SLOPES = [int(0.57 * 100 ** (code / 254) * 256 + 0.5) for code in range(255)]
LOGS = [0] + [int(256 * math.log(degree) / math.log(2) + 0.5) for degree in range(1, 256)]
HEDGES = {
    0: list(range(256)),
    1: [(d * d + 127) // 255 for d in range(256)],
    2: [(d**3 + 32512) // 65025 for d in range(256)],
    3: [int(math.sqrt(255 * d) + 0.5) for d in range(256)],
}


def rate_predicate(p, x):
    """Return the degree of a predicate for an exact value."""
    distance = max(p.low - x, x - p.high, 0)
    code = p.left if x < p.low else p.right
    if distance == 0:
        degree = 255
    elif code == 255:
        degree = 0
    else:
        unit = 256 * 257 if p.wide else 256  # a wide step is 1/257 of a narrow one
        degree = max(0, 255 - (2 * distance * SLOPES[code] + unit) // (2 * unit))
    for hedge in (p.hedge & 3, p.hedge >> 2):
        degree = HEDGES[hedge][degree]
    return 255 - degree if p.negated else degree


def find_power(log):
    """Return the degree whose logarithm is nearest, the lower one of two."""
    guess = int(2 ** (log / 256))
    near = range(max(1, guess - 3), min(255, guess + 3) + 1)
    return min(near, key=lambda degree: (abs(LOGS[degree] - log), degree))


def divide(total, count):
    """Return the nearest integer, halves upwards."""
    return (2 * total + count) // (2 * count)


def join(kind, degrees, weights):
    """Return several degrees as one."""
    count = len(degrees)
    if kind == 0:
        return min(degrees)
    if kind == 1:
        return max(degrees)
    if kind == 2:
        product = 255 * 2**14
        for degree in degrees:
            product = (product * degree + 127) // 255
        return (product + 2**13) // 2**14
    if kind == 3:
        return divide(sum(degrees), count)
    if kind == 6:
        return divide(sum([w * d for w, d in zip(weights, degrees)]), sum(weights))
    if 0 in degrees:
        return 0
    if kind == 4:
        return find_power(divide(sum([LOGS[degree] for degree in degrees]), count))
    return divide(count * 2**22, sum([2**22 // degree for degree in degrees]))


def run_pattern(s, degrees):
    """Return the degree of a postfix pattern, by splitting it from its end."""

    def split(stop):
        """Return the degree of what ends before `stop`, and where that begins."""
        op = s.pattern[stop - 1]
        if op < 16:
            return degrees[op], stop - 1
        operands = []
        start = stop - 1
        for _ in range(1 if op == 0x60 else op % 16):
            degree, start = split(start)
            operands.append(degree)
        if op == 0x60:
            return 255 - operands[0], start
        return join(s.aggregator if op < 0x50 else 1, operands, None), start

    return split(len(s.pattern))[0]


def apply_rules(s, degrees, values):
    """Return the mean of the consequents, each weighted with the lesser degree of its pair."""
    pairs = [(i, j) for i in range(len(degrees)) for j in range(i + 1, len(degrees))]
    shares = [min(degrees[i], degrees[j]) for i, j in pairs]
    results = []
    for rule, pair in zip(s.consequents, pairs):
        result = rule[0]
        if len(rule) == 3:
            for k in (0, 1):
                p = s.predicates[pair[k]]
                result += rule[1 + k] * (values[p.attribute] // (256 if p.wide else 1)) / 64
            result = max(0, min(255, math.floor(result + 0.5)))
        results.append(result)
    total = sum([share * result for share, result in zip(shares, results)])
    return divide(total, sum(shares)) if any(shares) else 0


def rate(s, values):
    """Return the degree of a subscription for exact values, ~degree if it does not match."""
    degrees = [rate_predicate(p, values[p.attribute]) for p in s.predicates]
    if s.consequents:
        degree = apply_rules(s, degrees, values)
    elif s.pattern:
        degree = run_pattern(s, degrees)
    else:
        degree = join(s.aggregator, degrees, [p.weight for p in s.predicates])
    holds = degree >= s.threshold and degree >= s.certain
    for p, own in zip(s.predicates, degrees):
        holds = holds and own >= p.possible and own >= p.certain
    return degree if holds else ~degree
