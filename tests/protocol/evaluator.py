"""The degree of a subscription vector, read off its bytes: an oracle for devices and nodes.

It walks the bytes by itself and shares only the arithmetic of `protocol.degrees` with what it
checks. The layout is in protocol/README.md. The buffer is trusted: `subscription.decode` refused
whatever could lead this file astray. Readings are exact values. No objects, no allocation: it runs
on every device runtime, within the 9 KB of a micro:bit.
"""

from denwatch.protocol.degrees import MAX, SUGENO, aggregate, const, fuzzify, hedge

# What evaluate() answers when the event lacks an attribute that the subscription asks for.
NOT_A_CANDIDATE = const(-257)

# Scratch memory that a caller allocates once and passes to every call.
SCRATCH = const(48)
_STACK = const(16)
_BLAME = const(32)

# The sections that may stand between features and triples, by their bit in the section bytes.
REPEATS = const(0x01)
NEGATIONS = const(0x02)
HEDGES = const(0x04)
ASYMMETRIC = const(0x08)
WIDE = const(0x10)
PATTERN = const(0x20)
WHY = const(0x40)
MORE = const(0x80)
CERTAIN = const(0x01)
THETAS = const(0x02)
WEIGHTS = const(0x04)
SIGNIFICANCE = const(0x08)
RECENT = const(0x10)
CONSEQUENTS = const(0x20)
RESTRICTORS = const(0x40)

# The operators of a postfix pattern; their lower four bits count operands.
AND = const(0x40)
OR = const(0x50)
NOT = const(0x60)


def count_bits(mask: int) -> int:
    """Return how many bits are set."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


def size_significance(flags: int, attributes: int) -> int:
    """Return the bytes of a significance section, its flags included."""
    return 1 + (attributes if flags & 1 else 0) + count_bits(flags >> 1)


def find_least(kind: int, scratch: bytearray, start: int, stop: int) -> int:
    """Return the position of the degree that decides: the highest for max, else the lowest."""
    best = start
    for i in range(start + 1, stop):
        if scratch[i] > scratch[best] if kind == MAX else scratch[i] < scratch[best]:
            best = i
    return best


def run_postfix(buf: bytes, at: int, stop: int, kind: int, scratch: bytearray) -> int:
    """Return the degree of a postfix pattern over the degrees in scratch."""
    top = _STACK
    while at < stop:
        op = buf[at]
        at += 1
        if op < AND:
            scratch[top] = scratch[op]
            scratch[top + _STACK] = op
            top += 1
        elif op == NOT:
            scratch[top - 1] = 255 - scratch[top - 1]
        else:
            how = kind if op < OR else MAX
            first = top - (op & 15)
            least = find_least(how, scratch, first, top)
            scratch[first] = aggregate(how, scratch, first, top, b"", 0)
            scratch[first + _STACK] = scratch[least + _STACK]
            top = first + 1
    return scratch[_STACK]


def run_groups(code: int, counts: int, kind: int, scratch: bytearray) -> int:
    """Return the degree of one of the DENS paper's patterns: two groups and what joins them."""
    first = counts >> 4
    stop = first + (counts & 15)
    inner = MAX if code & (1 if code & 2 else 4) else kind  # what a group of several means
    outer = kind if inner == MAX else MAX
    left = find_least(inner, scratch, 0, first)
    right = find_least(inner, scratch, first, stop)
    scratch[_STACK] = aggregate(inner, scratch, 0, first, b"", 0)
    scratch[_STACK + 1] = aggregate(inner, scratch, first, stop, b"", 0)
    least = find_least(outer, scratch, _STACK, _STACK + 2)
    scratch[_BLAME] = left if least == _STACK else right
    return aggregate(outer, scratch, _STACK, _STACK + 2, b"", 0)


def signed(value: int, bits: int) -> int:
    """Return an unsigned field as the signed number that it codes."""
    return value - (1 << bits) if value >> (bits - 1) else value


def run_consequents(
    buf: bytes, at: int, count: int, values: list[int], attributes: bytes, scratch: bytearray
) -> int:
    """Return the fuzzy mean of Takagi-Sugeno rules, one for each pair of predicates.

    `attributes` names the attribute of each predicate; values are 8-bit here.
    """
    order = buf[at]
    at += 1
    total = 0
    weight = 0
    for i in range(count):
        for j in range(i + 1, count):
            if order:
                result = signed(buf[at] << 8 | buf[at + 1], 16)
                slopes = signed(buf[at + 2], 8) * values[attributes[i]]
                slopes += signed(buf[at + 3], 8) * values[attributes[j]]
                result += (slopes + 32) >> 6
                result = 0 if result < 0 else 255 if result > 255 else result
                at += 4
            else:
                result = buf[at]
                at += 1
            share = scratch[i] if scratch[i] < scratch[j] else scratch[j]
            total += share * result
            weight += share
    return (total + weight // 2) // weight if weight else 0


def combine(buf: bytes, kind: int, count: int, pattern: int, extra: int, scratch: bytearray) -> int:
    """Return the degree of the whole from scratch[:count]; scratch[_BLAME] names who decided.

    `pattern` is where the pattern stands (0: none), `extra` where the weights stand.
    """
    if pattern:
        head = buf[pattern]
        if head & 0x80:
            return run_postfix(buf, pattern + 1, pattern + 1 + (head & 0x7F), kind, scratch)
        return run_groups(head, buf[pattern + 1], kind, scratch)
    scratch[_BLAME] = find_least(kind, scratch, 0, count)
    return aggregate(kind, scratch, 0, count, buf, extra)


def evaluate(buf: bytes, at: int, present: int, values: list[int], scratch: bytearray) -> int:
    """Return the degree of the subscription vector at buf[at:] for the event's values.

    `present` is the event's feature mask, `values` its values by attribute. A match answers its
    degree, 0..255; a miss answers ~degree, below zero. scratch[32] then names the predicate that
    decided, scratch[:16] holds the predicates' degrees.
    """
    features = buf[at + 6] << 8 | buf[at + 7]
    if features & ~present:
        return NOT_A_CANDIDATE
    kind = buf[at + 1] & 7
    negated = buf[at + 1] >> 4
    threshold = buf[at + 4]
    count = count_bits(features)
    sections = more = repeats = hedges = asymmetric = wide = pattern = thetas = extra = 0
    p = at + 8
    if buf[at + 1] & 8:
        sections = buf[p]
        p += 1
        if sections & MORE:
            more = buf[p]
            p += 1
        if sections & REPEATS:
            repeats = p + 1
            count += buf[p]
            p += 1 + buf[p]
        if sections & NEGATIONS:
            negated |= buf[p] << 8 | buf[p + 1]
            p += 2
        if sections & HEDGES:
            hedges = p
            p += (count + 1) >> 1
        if sections & ASYMMETRIC:
            asymmetric = buf[p] << 8 | buf[p + 1]
            p += 2
        if sections & WIDE:
            wide = buf[p] << 8 | buf[p + 1]
            p += 2
        if sections & PATTERN:
            pattern = p
            p += 1 + (buf[p] & 0x7F) if buf[p] & 0x80 else 2
        if more & CERTAIN:
            if buf[p] > threshold:
                threshold = buf[p]
            p += 1
        if more & THETAS:
            thetas = p
            p += 2 * count
        if more & WEIGHTS:
            extra = p
            p += count
        if more & SIGNIFICANCE:
            p += size_significance(buf[p], count_bits(features))
        if more & RECENT:
            p += 2
        if more & CONSEQUENTS:
            extra = p
            p += 1 + count * (count - 1) // 2 * (4 if buf[p] else 1)
        if more & RESTRICTORS:
            p += count_bits(features)
    refused = 0
    attribute = -1
    rest = features
    for i in range(count):
        if rest:
            attribute += 1
            while not features >> attribute & 1:
                attribute += 1
            rest &= rest - 1
        else:
            attribute = buf[repeats]
            repeats += 1
        is_wide = wide >> attribute & 1
        low = buf[p]
        high = buf[p + 1]
        p += 2
        if is_wide:
            low = low << 8 | high
            high = buf[p] << 8 | buf[p + 1]
            p += 2
        left = right = buf[p]
        p += 1
        if asymmetric >> i & 1:
            right = buf[p]
            p += 1
        degree = fuzzify(values[attribute], low, high, left, right, is_wide)
        if hedges:
            degree = hedge(degree, buf[hedges + (i >> 1)] >> (0 if i & 1 else 4) & 15)
        if negated >> i & 1:
            degree = 255 - degree
        scratch[i] = degree
        scratch[_STACK + i] = attribute
        if thetas and (degree < buf[thetas + 2 * i] or degree < buf[thetas + 2 * i + 1]):
            refused = 1
    if kind == SUGENO:
        names = bytes(scratch[_STACK : _STACK + count])
        scratch[_BLAME] = find_least(kind, scratch, 0, count)
        degree = run_consequents(buf, extra, count, narrow(values, wide), names, scratch)
    else:
        degree = combine(buf, kind, count, pattern, extra, scratch)
    return ~degree if refused or degree < threshold else degree


def narrow(values: list[int], wide: int) -> list[int]:
    """Return the values with the 16-bit ones cut to 8 bits, as the consequents take them."""
    if not wide:
        return values
    return [values[i] >> 8 if wide >> i & 1 else values[i] for i in range(len(values))]
