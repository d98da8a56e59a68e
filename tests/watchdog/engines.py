"""The same filter with either kernel, and the random pairs that all must agree on.

Who decides a pair of vector and event, and what they share:

| | vectors without sections under min, max, product, arithmetic mean | all other vectors |
|---|---|---|
| machine code | `viper.py` | `rating.py` |
| fallback | `plain.py` | `rating.py` |
| oracle | `tests/protocol/evaluator.py` | `tests/protocol/evaluator.py` |
| formulas | `arithmetic.py` | `arithmetic.py` |

`viper.py` and `plain.py` share no code with each other or with the rest but the table of slopes.
`rating.py` and the oracle each walk the bytes by themselves, and share the arithmetic of
`protocol.degrees`; `arithmetic.py` reads objects, and shares nothing with anybody. On the left
four, on the right three answers are independent of each other. The two kernels must also agree on
which vectors they hand over.
"""

from array import array

import denwatch.watchdog.filter as filter_module
from denwatch.protocol.subscription import encode
from denwatch.watchdog import plain
from denwatch.watchdog.filter import Filter

from tests.protocol.evaluator import SCRATCH, evaluate
from tests.protocol.samples import Dice, draw_subscription, draw_values
from tests.watchdog import arithmetic

CHOSEN = filter_module.scan
ENGINES = (("plain", plain.scan), ("chosen", CHOSEN))


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
    filter_module.scan = CHOSEN
    return found


def expect(vectors, event, present, values):
    """Return what `collect` must find in `all` mode: by the formulas, which `protocol` confirms."""
    scratch = bytearray(SCRATCH)
    found = {}
    for handle, frame, s in vectors:
        if s.event != event or s.features & ~present:
            continue
        right = arithmetic.rate(s, values)
        answer = evaluate(frame, 0, present, values, scratch)
        if answer != right:
            raise AssertionError(f"protocol: {answer} is not {right}: {s}, {values}")
        if right >= 0 or s.significance:
            found[handle] = right
    return found


class Counted:
    """A kernel that counts the vectors that it hands over."""

    def __init__(self, scan):
        self.scan = scan
        self.handed = 0

    def __call__(self, buf, stop, values, state):
        at = self.scan(buf, stop, values, state)
        if at < stop and state[5] < 0:
            self.handed += 1
        return at


def compare(pairs, seed, batch=40, events=25):
    """Compare all engines on at least so many pairs; return (pairs, hits, by the kernel alone)."""
    dice = Dice(seed)
    done = hits = alone = 0
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
            handed = set()
            for name, scan in ENGINES:
                counted = Counted(scan)
                found = collect(filter, counted, event, present, array("H", values))
                if found != right:
                    raise AssertionError(f"{name}: {found} is not {right}: {values}")
                handed.add(counted.handed)
            if len(handed) > 1:
                raise AssertionError(f"not the same vectors are handed over: {handed}")
            done += batch
            hits += len(right)
            asked = [1 for _, _, s in vectors if s.event == event and not s.features & ~present]
            alone += len(asked) - handed.pop()
    return done, hits, alone
