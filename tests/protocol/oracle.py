"""The same mathematics in plain floats, written from the papers' formulas.

Shares no code with `protocol`: it only reads the fields of its objects. Degrees are 0.0..1.0.
"""

import math


def gamma(code):
    """Return the slope of a gamma code; infinite for the crisp one."""
    return float("inf") if code == 255 else 0.57 * 100 ** (code / 254)


def membership(x, low, high, left, right, last):
    """Return the degree of x by the universal fuzzifier over a domain of 0..last."""
    if low <= x <= high:
        return 1.0
    distance = (low - x if x < low else x - high) / last
    slope = gamma(left if x < low else right)
    return 0.0 if math.isinf(slope) else 1 - min(1.0, slope * distance)


def hedged(degree, code):
    """Return the degree under the hedges of a code, the lower bits first."""
    while code:
        degree = degree ** (2.0, 3.0, 0.5)[(code & 3) - 1]
        code >>= 2
    return degree


def aggregated(kind, degrees, weights):
    """Return the degrees as one: min, max, product, the three means, the weighted mean."""
    count = len(degrees)
    if kind == 0:
        return min(degrees)
    if kind == 1:
        return max(degrees)
    if kind == 2 or kind == 4:
        product = 1.0
        for degree in degrees:
            product *= degree
        return product if kind == 2 else product ** (1 / count)
    if kind == 3:
        return sum(degrees) / count
    if kind == 5:
        return 0.0 if 0 in degrees else count / sum([1 / degree for degree in degrees])
    return sum([w * d for w, d in zip(weights, degrees)]) / sum(weights)


def predicate_degree(p, x):
    """Return the degree of a predicate for an exact value."""
    degree = hedged(
        membership(x, p.low, p.high, p.left, p.right, 65535 if p.wide else 255), p.hedge
    )
    return 1 - degree if p.negated else degree


def possible(x, points):
    """Return the possibility that a trapezoidal reading is x."""
    a, b, c, d = points
    if b <= x <= c:
        return 1.0
    if x <= a or x >= d:
        return 0.0
    return (x - a) / (b - a) if x < b else (d - x) / (d - c)


def pattern_degree(pattern, degrees, kind):
    """Return the degree of a postfix pattern: `and` is the aggregator, `or` is max."""
    stack = []
    for op in pattern:
        if op < 16:
            stack.append(degrees[op])
        elif op == 0x60:
            stack.append(1 - stack.pop())
        else:
            operands = [stack.pop() for _ in range(op & 15)]
            stack.append(aggregated(1 if op & 0xF0 == 0x50 else kind, operands, None))
    return stack[0]


def rules_degree(s, degrees, values):
    """Return the fuzzy mean of the consequents, each weighted by the lesser degree of its pair."""
    rules = list(s.consequents)
    total = weight = 0.0
    for i in range(len(degrees)):
        for j in range(i + 1, len(degrees)):
            rule = rules.pop(0)
            result = rule[0]
            if len(rule) == 3:
                x, y = [values[s.predicates[k].attribute] for k in (i, j)]
                result = max(0, min(255, rule[0] + (rule[1] * x + rule[2] * y) / 64))
            share = min(degrees[i], degrees[j])
            total += share * result / 255
            weight += share
    return total / weight if weight else 0.0


def subscription_degree(s, values):
    """Return the degree of a whole subscription for exact values by attribute."""
    degrees = [predicate_degree(p, values[p.attribute]) for p in s.predicates]
    if s.consequents:
        wides = {p.attribute: p.wide for p in s.predicates}
        narrow = {a: values[a] >> 8 if wides[a] else values[a] for a in wides}
        return rules_degree(s, degrees, narrow)
    if s.pattern:
        return pattern_degree(s.pattern, degrees, s.aggregator)
    return aggregated(s.aggregator, degrees, [p.weight for p in s.predicates])
