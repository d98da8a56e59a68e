"""The same filter with either kernel, and the random pairs that all engines must agree on.

The oracle is `protocol.evaluator` on each vector by itself, before any buffer, group or kernel.
"""

from array import array

import edge.watchdog.filter as filter_module
from edge.watchdog import kernel, plain
from edge.watchdog.filter import Filter
from protocol.evaluator import NOT_A_CANDIDATE, SCRATCH, evaluate
from protocol.subscription import encode
from tests.protocol.samples import Dice, draw_subscription, draw_values

ENGINES = (("plain", plain.scan), ("chosen", kernel.scan))


def draw_vectors(dice, count, event):
    """Return (handle, frame, subscription): half for the kernel alone, half with everything."""
    vectors = []
    for handle in range(count):
        plain = dice.chance(2)
        s = draw_subscription(dice, plain)
        if plain:  # negations of the first four predicates need no section
            for p in s.predicates[:4]:
                p.negated = dice.chance(3)
        s.event = event if not dice.chance(8) else event ^ 1
        s.handle = handle
        vectors.append((handle, encode(s), s))
    return vectors


def fill(capacity, vectors):
    """Return a filter with these vectors."""
    filter = Filter(capacity)
    refill(filter, vectors)
    return filter


def refill(filter, vectors):
    """Replace a filter's vectors; a memory of no use stands where one is due."""
    filter.used = filter.count = 0
    for _, frame, _ in vectors:
        tail = b"\1\2" if frame[5] else b""
        filter.add(frame, tail + (b"\1" if filter_module.is_significant(frame, 0) else b""))


def collect(filter, scan, event, present, values):
    """Return {handle: degree} of all hits, and ~degree of those with a significance."""
    found = {}
    filter_module.scan = scan
    filter.begin(event, present, values)
    at = filter.step()
    while at >= 0:
        found[filter.buffer[at + 2] << 8 | filter.buffer[at + 3]] = filter.degree
        at = filter.step()
    filter_module.scan = kernel.scan
    return found


def expect(vectors, event, present, values):
    """Return what `collect` must find in `all` mode, by the protocol's evaluator."""
    scratch = bytearray(SCRATCH)
    found = {}
    for handle, frame, s in vectors:
        if s.event != event:
            continue
        answer = evaluate(frame, 0, present, values, scratch)
        if answer != NOT_A_CANDIDATE and (answer >= 0 or s.significance):
            found[handle] = answer
    return found


def compare(pairs, seed, batch=40, events=25):
    """Compare all engines on at least so many pairs; return (pairs, hits)."""
    dice = Dice(seed)
    done = hits = 0
    filter = Filter(100 * batch)
    filter.all = True
    while done < pairs:
        event = dice.below(64)
        vectors = draw_vectors(dice, batch, event)
        refill(filter, vectors)
        for _ in range(events):
            values = [0] * 16
            for _, _, s in (vectors[dice.below(batch)], vectors[dice.below(batch)]):
                near = draw_values(dice, s)
                values = [max(a, b) for a, b in zip(values, near)]
            present = 0xFFFF if dice.chance(2) else 0xFFFF ^ (1 << dice.below(16))
            right = expect(vectors, event, present, values)
            for name, scan in ENGINES:
                found = collect(filter, scan, event, present, array("H", values))
                if found != right:
                    raise AssertionError(f"{name}: {found} is not {right}: {values}")
            done += batch
            hits += len(right)
    return done, hits
