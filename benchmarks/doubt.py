"""Uncertain readings: whether anything wanted stays behind, how exact degrees are, what it costs.

Every pair of a random set of subscriptions (fuzzy, typed content, and the WHERE of
examples/where_language; on numbers of 8 and 16 bits, texts, dates and times) and a random uncertain
reading goes through the real code: each language's filter part makes the vectors, covering decides
which are installed, the device's filter whether the reading is sent, each language's matcher on a
node whom it is for. Who wants it is judged by floats that share no code with the product; the same
judge has the real degrees, of hedged, negated and wide sets, and of several on one attribute.
Speeds are of the same subscriptions and values, exact and uncertain, in one run: on a node by
processor time, on a device (1,000 subscriptions, unix MicroPython) by the clock, and by
instructions where valgrind counts them. What they take on a Cortex-M3 is in device.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import operator
import os
import re
import shutil
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from random import Random
from typing import Any

import numpy as np
from denwatch.client.vocabulary import Attribute, ValueKind, load_shipped
from denwatch.node.core.languages import CONTENT_LANGUAGE, SubscriptionLanguage
from denwatch.node.core.notifications import Notification, describe_content_values
from denwatch.node.covering import Approximate, Covering, Domains
from denwatch.node.covering.boxes import box_doubtful, box_vector
from denwatch.node.matching import compiling
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.records import pack_subscriptions
from denwatch.node.matching.search import NotificationBatch, pack_notifications
from denwatch.protocol.degrees import slope
from denwatch.protocol.matching import match
from denwatch.protocol.subscription import decode, encode
from denwatch.protocol.vectors import (
    OR,
    NotificationVector,
    Predicate,
    Reading,
    SubscriptionVector,
)
from denwatch.watchdog.execution import Sample, write_notification
from denwatch.watchdog.filter import Filter
from denwatch.watchdog.fuzzy import Fuzzy
from numpy.typing import NDArray

from benchmarks.common import describe_machine, format_table, run, save_text, say
from benchmarks.match_work import FEW_MASKS, draw_masks, draw_notifications, draw_subscriptions
from examples.where_language.denwatch_where import LANGUAGE as WHERE_LANGUAGE
from firmware_tests.runtimes import MissingRuntimeError, find_unix
from firmware_tests.unix import run_code

_VOCABULARY = load_shipped("rescue")
_PATIENT = _VOCABULARY.events["patient"]
# Attributes of 8 bits that are numbers: a device has an accuracy for these.
_NUMBERS = [a for a in _PATIENT.attributes.values() if not a.wide and not a.symbols][:3]
_MEASURED = [*_NUMBERS, *(_PATIENT.attributes[name] for name in ("east", "triage", "bleeding"))]
_MOMENTS = [_PATIENT.attributes[name] for name in ("measured_at", "born")]  # typed content only
_WIDES = {16 * _PATIENT.number + a.bit: (0, 65535) for a in _PATIENT.attributes.values() if a.wide}
_READINGS = 1000  # for each set of subscriptions
_ANSWERED = 10  # of them, by each matcher of typed content, which takes them one by one
_ROUNDS = 25  # of notifications on a node; the fastest counts
_SWEPT = 20  # readings for each fuzzy set
_VALUES, _POINTS = array("H", [0] * 16), array("H", [0] * 64)  # of the device's sample
Points = tuple[int, int, int, int]


# What is wanted is sent ---------------------------------------------------------------------------


def draw_fuzzy(rng: Random, among: Sequence[Attribute]) -> SubscriptionVector:
    """Return a fuzzy subscription: a few attributes, at times certain, hedged or alternative."""
    chosen = sorted(rng.sample(among, rng.choice((1, 1, 2))), key=lambda a: a.bit)
    if rng.random() < 0.15:
        chosen.append(chosen[0])
    predicates = []
    for attribute in chosen:
        low = rng.randrange(20, 236)
        ends = rng.choice(((low, 255), (0, low // 2), (low, min(255, low + rng.randrange(40)))))
        hedge = rng.choice((0,) * 9 + (1, 2, 3))
        slope_code = rng.choice((255, 255, 200, 230, rng.randrange(256)))
        is_negated = rng.random() < 0.1
        if attribute.symbols:
            ends, hedge, slope_code = draw_symbols(rng, attribute), 0, 255
        if attribute.wide:
            ends = (257 * ends[0], 257 * ends[1])
        predicates.append(
            Predicate(
                attribute.bit, *ends, slope_code, negated=is_negated, hedge=hedge,
                wide=attribute.wide,
            )
        )  # fmt: skip
    is_repeated = len({p.attribute for p in predicates}) < len(predicates)
    pattern = b""
    if len(predicates) == 2 and rng.random() < (0.5 if is_repeated else 0.2):
        pattern = bytes([0, 1, OR | 2])
    certain = rng.choice((0,) * 6 + (60, 204))
    threshold = max(certain, rng.choice((128,) * 5 + (179, 102, 243)))
    return SubscriptionVector(
        _PATIENT.number, predicates, threshold=threshold, certain=certain, pattern=pattern
    )


def draw_symbols(rng: Random, attribute: Attribute) -> tuple[int, int]:
    """Return the codes of a symbol, or of a range of them."""
    first, last = sorted(rng.choices(range(len(attribute.symbols)), k=2))
    return (first, last) if attribute.ordered else (first, first)


Test = tuple[Attribute, str, Any]  # an operator of typed content, and a value


@dataclass(frozen=True)
class TypedSubscription:
    """A subscription of another language as its item has it; and what it means, for the judge."""

    language: SubscriptionLanguage
    data: bytes
    tests: list[Test]
    needs_all: bool = True
    is_negated: bool = False


def draw_typed(rng: Random) -> TypedSubscription:
    """Return a subscription of typed content or of WHERE, on one or two attributes."""
    tests = [draw_test(rng, a) for a in rng.choices((*_MEASURED, *_MOMENTS), k=rng.choice((1, 2)))]
    if rng.random() < 0.5:
        source: Any = [["event", "=", _PATIENT.name]]
        source += [[attribute.name, op, value] for attribute, op, value in tests]
        data = CONTENT_LANGUAGE.look_up(source, _VOCABULARY).data
        return TypedSubscription(CONTENT_LANGUAGE, data, tests)
    needs_all, is_negated = rng.random() < 0.5, rng.random() < 0.3
    joined = (" AND " if needs_all else " OR ").join(map(write_test, tests))
    source = f"FROM {_PATIENT.name} WHERE {'NOT ' * is_negated}({joined})"
    data = WHERE_LANGUAGE.look_up(source, _VOCABULARY).data
    return TypedSubscription(WHERE_LANGUAGE, data, tests, needs_all, is_negated)


def draw_test(rng: Random, attribute: Attribute) -> Test:
    """Return a test of a value, between two codes where there are numbers."""
    if attribute.symbols:
        word = rng.choice(attribute.symbols)
        cut = rng.randrange(1, len(word) + 1)
        parts = {"prefix": word[:cut], "suffix": word[-cut:], "substring": word[cut // 2 : cut]}
        op = rng.choice(("=", "!=", "prefix", "suffix", "substring"))
        return attribute, op, parts.get(op, word) or word
    code = rng.randrange(10, 246) * (257 if attribute.wide else 1)
    value = list_values(attribute.name)[code]
    if not isinstance(value, str):
        value = round(float(value) + attribute.step / 2, 6)
    return attribute, rng.choice(("<", ">", "<=", ">=")), value


def write_test(test: Test) -> str:
    """Return a test in the words of WHERE."""
    attribute, op, value = test
    before, after = "%" * (op in ("suffix", "substring")), "%" * (op in ("prefix", "substring"))
    if before or after:
        return f"{attribute.name} LIKE '{before}{value}{after}'"
    return f"{attribute.name} {op} {repr(value) if isinstance(value, str) else value}"


def list_ends(vectors: list[SubscriptionVector]) -> list[int]:
    """Return the ends of all ranges that somebody asks for, of 8 bits."""
    return [end >> 8 * p.wide for v in vectors for p in v.predicates for end in (p.low, p.high)]


def draw_reading(rng: Random, ends: list[int]) -> dict[int, Points]:
    """Return an uncertain reading near an end of somebody's range."""
    reading = {}
    step = rng.choice((3, 9, 30))
    for attribute in (*_MEASURED, *_MOMENTS):
        if attribute.symbols:
            first = rng.randrange(len(attribute.symbols))
            last = min(len(attribute.symbols) - 1, first + rng.choice((0, 0, 0, 1)))
            reading[attribute.bit] = (first, first, last, last)
            continue
        scale, last = (257, 65535) if attribute.wide else (1, 255)
        points = [rng.choice(ends) * scale + rng.randrange(-2 * step, step)]
        for _ in range(3):
            points.append(points[-1] + rng.randrange(step))
        a, b, c, d = (min(last, max(0, point)) for point in points)
        reading[attribute.bit] = (a, b, c, d)
    return reading


def list_readings(reading: dict[int, Points]) -> list[Reading]:
    """Return the readings of a notification."""
    wides = {a.bit for a in (*_MEASURED, *_MOMENTS) if a.wide}
    return [Reading(bit, points, bit in wides) for bit, points in sorted(reading.items())]


def is_sent(filter: Filter, reading: dict[int, Points]) -> bool:
    """Return whether a device with this filter sends the reading."""
    values, points = _VALUES, _POINTS
    present = doubt = 0
    for bit, (a, b, c, d) in reading.items():
        present |= 1 << bit
        values[bit] = (b + c) >> 1
        doubt |= (a < d) << bit
        points[4 * bit : 4 * bit + 4] = array("H", (a, b, c, d))
    filter.begin(_PATIENT.number, present, values, doubt, points)
    return filter.step() >= 0


# Who wants a reading is judged by floats, for all readings of a set at once and with nothing of the
# product: sets are trapezoids, hedges are powers, and degrees are found by halving. A judge that
# rounds otherwise is no proof either way, so a reading is *wanted* if its degree is above what is
# asked by more than integers may be off.

_CLEARLY = 0.012
_POWERS = {0: 1.0, 1: 2.0, 2: 3.0, 3: 0.5}
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Spans = list[tuple[Any, Any]]  # intervals, of numbers or columns


def find_spans(p: Predicate, t: Floats, is_inside: bool) -> Spans:
    """Return where the degree of a predicate is at least t, or at most 1 - t."""
    power, last = 1 / _POWERS[p.hedge], 65535 if p.wide else 255
    lost = 1 - (t if is_inside else 1 - t) ** power
    ends = []
    for code in (p.left, p.right):
        width = 65280 / slope(code) * (257 if p.wide else 1) if code != 255 else 0.0
        crisp = np.where(lost < 1, 0.0, np.inf) if is_inside else np.full_like(t, 1.0)
        ends.append(crisp if code == 255 else lost * width)
    low, high = p.low - ends[0], p.high + ends[1]
    if is_inside:
        return [(low, high)]
    return [(np.full_like(t, -1.0), np.minimum(low, p.low)), (high, np.full_like(t, last + 1.0))]


def find_highest(
    points: Floats,
    predicates: list[Predicate],
    needs_all: bool = True,
    is_negated: bool = False,
    halvings: int = 14,
) -> Floats:
    """Return how possible it is that a reading fits all predicates or one, or fits them not.

    The predicates are on one attribute; points are four columns. By halving: the highest t at which
    a value that is possible to t fits to t.
    """
    a, b, c, d = points
    found, top = np.zeros_like(a), np.ones_like(a)
    for _ in range(halvings):
        t = (found + top) / 2
        first, last = a + (b - a) * t, d - (d - c) * t
        choices = [find_spans(p, t, p.negated == is_negated) for p in predicates]
        fits = np.zeros(len(a), np.bool_)
        for spans in itertools.product(*choices) if needs_all else zip(itertools.chain(*choices)):
            low = np.maximum.reduce([first, *(span[0] for span in spans)])
            high = np.minimum.reduce([last, *(span[1] for span in spans)])
            fits |= low <= high
        found, top = np.where(fits, t, found), np.where(fits, top, t)
    return found


def judge_fuzzy(vector: SubscriptionVector, columns: dict[int, Floats]) -> Bools:
    """Return which readings a subscription clearly wants."""
    parts = [[p] for p in vector.predicates]
    if not vector.pattern:  # of one attribute: together
        names = sorted({p.attribute for p in vector.predicates})
        parts = [[p for p in vector.predicates if p.attribute == name] for name in names]
    join = np.maximum if vector.pattern else np.minimum  # certain of "or": at least so much
    possible, certain = [], []
    for part in parts:
        points = columns[part[0].attribute]
        possible.append(find_highest(points, part))
        certain.append(1 - find_highest(points, part, needs_all=False, is_negated=True))
    is_possible = join.reduce(possible) >= vector.threshold / 255 + _CLEARLY
    is_certain = join.reduce(certain) >= vector.certain / 255 + _CLEARLY
    return is_possible & (is_certain if vector.certain else True)


@cache
def list_values(name: str) -> list[Any]:
    """Return the value of every code of an attribute as people read it."""
    attribute = _PATIENT.attributes[name]
    last = 65535 if attribute.wide else 255
    if attribute.symbols:
        return [*attribute.symbols, *map(str, range(len(attribute.symbols), last + 1))]
    numbers = [attribute.low + code * (attribute.high - attribute.low) / last
               for code in range(last + 1)]  # fmt: skip
    if attribute.kind is ValueKind.DATE:
        return [date.fromordinal(round(number)).isoformat() for number in numbers]
    if attribute.kind is ValueKind.TIME:
        return [write_time(round(number)) for number in numbers]
    return numbers


def write_time(second: int) -> str:
    """Return a time of day; without seconds if it is a whole minute."""
    minutes = f"{second // 3600:02}:{second // 60 % 60:02}"
    return f"{minutes}:{second % 60:02}" if second % 60 else minutes


_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
    "=": operator.eq, "!=": operator.ne, "prefix": str.startswith, "suffix": str.endswith,
    "substring": operator.contains,
}  # fmt: skip


def judge_typed(s: TypedSubscription, columns: dict[int, Floats]) -> Bools:
    """Return which readings clearly may have values that a subscription asks for."""
    level = 128 / 255 + _CLEARLY
    classes = []  # by attribute: which of the tests hold, and for which readings that is possible
    places = {a.bit: [n for n, test in enumerate(s.tests) if test[0] is a] for a, _, _ in s.tests}
    for bit, numbers in places.items():
        a, b, c, d = columns[bit]
        first = np.ceil(a + (b - a) * level).astype(np.int64)
        last = np.floor(d - (d - c) * level).astype(np.int64)
        values = list_values(s.tests[numbers[0]][0].name)
        held = np.zeros(len(values), np.int64)
        for n in numbers:
            _, op, wanted = s.tests[n]
            held |= np.array([_TESTS[op](value, wanted) for value in values], np.int64) << n
        found = []
        for truth in np.unique(held).tolist():
            before = np.concatenate([[0], np.cumsum(held == truth)])
            found.append((truth, (before[np.maximum(last + 1, first)] > before[first])))
        classes.append(found)
    wanted_by = np.zeros(len(a), np.bool_)
    for choice in itertools.product(*classes):
        truth = sum(held for held, _ in choice)
        bits = [truth >> n & 1 for n in range(len(s.tests))]
        if (all(bits) if s.needs_all else any(bits)) != s.is_negated:
            wanted_by |= np.logical_and.reduce([possible for _, possible in choice])
    return wanted_by


def count_lost(rng: Random, pairs: int) -> dict[str, Any]:
    """Return how many wanted readings a device would keep to itself, and a node would not match."""
    counts = dict.fromkeys(("pairs", "wanted", "wanted_lost", "wanted_unmatched"), 0)
    while counts["pairs"] < pairs:
        vectors = [draw_fuzzy(rng, _MEASURED) for _ in range(rng.randrange(2, 7))]
        fuzzy = list(enumerate(vectors))
        typed = [draw_typed(rng) for _ in range(rng.randrange(3))]
        for one in typed:
            lowered = one.language.lower(one.data, _VOCABULARY)
            if lowered is not None:  # else no value fits it, and nothing is installed
                vectors.append(decode(lowered))
        compiling.declare_ready(rng.random() < 0.5)  # covering has a way without kernels, too
        table: Covering[int] = Covering(Domains(special=_WIDES), Approximate())
        for id, vector in enumerate(vectors):
            table.subscribe(id, box_doubtful(vector))
        if rng.random() < 0.3:
            table.unsubscribe(0)
            fuzzy.pop(0)
        if rng.random() < 0.3:
            table.rebuild()
        filter = Filter(2000)
        for id in table.active():
            filter.add(encode(vectors[id]), b"")
        ends = list_ends(vectors)
        readings = [draw_reading(rng, ends) for _ in range(_READINGS)]
        columns = {
            bit: np.array([reading[bit] for reading in readings], np.float64).T
            for bit in readings[0]
        }
        wanted = np.zeros(len(readings), np.bool_)
        asked = {id: judge_fuzzy(vector, columns) for id, vector in fuzzy}
        counts["wanted_unmatched"] += count_unmatched(fuzzy, readings, asked)
        wanted = np.logical_or.reduce([*asked.values(), wanted])
        for one in typed:
            is_wanted = judge_typed(one, columns)
            wanted |= is_wanted
            counts["wanted_unmatched"] += count_unanswered(rng, one, readings, is_wanted)
        lost = [n for n in np.flatnonzero(wanted).tolist() if not is_sent(filter, readings[n])]
        counts["pairs"] += len(readings)
        counts["wanted"] += int(wanted.sum())
        counts["wanted_lost"] += len(lost)
    return counts


def count_unmatched(
    fuzzy: list[tuple[int, SubscriptionVector]],
    readings: list[dict[int, Points]],
    wanted: dict[int, Bools],
) -> int:
    """Return how many wanted readings a node's index does not match with who wants them."""
    index = FuzzyIndex(attributes=1024)
    index.add_batch(pack_subscriptions(fuzzy))
    notes = [NotificationVector(_PATIENT.number, list_readings(reading)) for reading in readings]
    found = index.match_batch(pack_notifications(notes, [0] * len(notes)))
    owners = np.repeat(np.arange(len(notes)), np.diff(found.starts))
    missed = 0
    for id, is_wanted in wanted.items():
        matched = np.zeros(len(notes), np.bool_)
        matched[owners[found.ids == id]] = True
        missed += int((is_wanted & ~matched).sum())
    return missed


def count_unanswered(
    rng: Random, one: TypedSubscription, readings: list[dict[int, Points]], is_wanted: Bools
) -> int:
    """Return how many of some wanted readings a node's matcher of typed content does not match."""
    wanted = np.flatnonzero(is_wanted).tolist()
    matcher = one.language.make_matcher()
    matcher.add(0, one.language.decode(one.data))
    chosen = rng.sample(wanted, min(len(wanted), _ANSWERED))
    return sum(not matcher.match(read_values(readings[n]), 0) for n in chosen)


def read_values(reading: dict[int, Points]) -> dict[str, Any]:
    """Return a reading's values as content subscriptions see them."""
    notification = Notification.__new__(Notification)
    notification.vector = NotificationVector(_PATIENT.number, list_readings(reading))
    notification.device, notification.event = "device", _PATIENT
    return describe_content_values(notification)


# What is installed --------------------------------------------------------------------------------


def list_asked(rng: Random, count: int) -> list[SubscriptionVector]:
    """Return subscriptions as people make them: some with thresholds, some for certain."""
    asked = []
    for _ in range(count):
        predicates = []
        for attribute in sorted(rng.sample(range(3), rng.choice((1, 1, 1, 2, 2, 3)))):
            low = rng.randrange(20, 236)
            ends = rng.choice(((low, 255), (0, low // 2), (low, min(255, low + 40))))
            predicates.append(Predicate(attribute, *ends, rng.choice((255, 255, 200, 230))))
        certain = rng.choice((0,) * 7 + (204,))
        threshold = max(certain, rng.choice((128,) * 6 + (179, 102)))
        asked.append(SubscriptionVector(1, predicates, threshold=threshold, certain=certain))
    return asked


def count_installed(rng: Random, sizes: list[int]) -> NDArray[np.int64]:
    """Return how many vectors an exact and a doubtful device have, as subscribed and rebuilt."""
    counts = np.zeros((2, 2), np.int64)
    for size in sizes:
        asked = list_asked(rng, size)
        for column, boxing in enumerate((box_vector, box_doubtful)):
            table: Covering[int] = Covering(Domains(), Approximate())
            for id, vector in enumerate(asked):
                table.subscribe(id, boxing(vector))
            counts[0, column] += len(table.active())
            table.rebuild()
            counts[1, column] += len(table.active())
    return counts


def compare_installed(rng: Random, sets: int) -> dict[str, Any]:
    """Return the counts of 42 subscriptions, and how many times as many doubt takes."""
    case = count_installed(Random(42), [42])[0]
    found: dict[str, Any] = {"installed_of_42": f"{case[1]}, exact {case[0]}"}
    all_sizes = {"of_42": [42] * sets, "": [rng.randrange(5, 100) for _ in range(sets)]}
    for name, sizes in all_sizes.items():
        counts = count_installed(rng, sizes)
        for row, kind in ((0, ""), (1, "rebuilt")):
            key = "_".join(filter(None, ("installed_over_exact", name, kind)))
            found[key] = round(float(counts[row, 1] / counts[row, 0]), 2)
    return found


# How exact degrees are ----------------------------------------------------------------------------


def draw_set(rng: Random, wide: bool) -> Predicate:
    """Return a fuzzy set, at times hedged or negated."""
    scale = 257 if wide else 1
    low = rng.randrange(256)
    high = min(255, low + rng.choice((0, 2, 30)))
    code = rng.choice((255, 254, rng.randrange(256)))
    hedge = rng.choice((0, 0, 1, 2, 3))
    is_negated = rng.random() < 0.25
    return Predicate(0, low * scale, high * scale, code, negated=is_negated, hedge=hedge, wide=wide)


def draw_points(rng: Random, p: Predicate) -> Points:
    """Return an uncertain reading near a set's ends: of a few codes, or many."""
    scale, last = (257, 65535) if p.wide else (1, 255)
    step = rng.choice((2, 4, 40)) * rng.choice((1, scale))
    first = min(last - 1, max(0, rng.choice((p.low, p.high)) + rng.randint(-3 * step, step)))
    points = [first]
    for _ in range(3):
        points.append(min(last, points[-1] + rng.randrange(step)))
    points[3] = max(points[3], first + 1)
    return points[0], points[1], points[2], points[3]


def sweep_errors(rng: Random, count: int) -> dict[str, float]:
    """Return the largest errors of possible and certain, over readings of a few codes and more.

    A third are two sets on one attribute, joined by "and" or "or". The right ones are the judge's.
    """
    worst = [0.0, 0.0]
    for _ in range(count):
        is_wide = rng.random() < 0.3
        predicates = [draw_set(rng, is_wide) for _ in range(rng.choice((1, 1, 2)))]
        needs_all = rng.random() < 0.5
        pattern = bytes([0, 1, OR | 2]) if len(predicates) == 2 and not needs_all else b""
        vector = SubscriptionVector(1, predicates, threshold=1, pattern=pattern)
        readings = [draw_points(rng, rng.choice(predicates)) for _ in range(_SWEPT)]
        columns = np.array(readings, np.float64).T
        possible = find_highest(columns, predicates, needs_all, halvings=20)
        outside = find_highest(columns, predicates, not needs_all, is_negated=True, halvings=20)
        for n, points in enumerate(readings):
            found = match(vector, NotificationVector(1, [Reading(0, points, is_wide)]))
            assert found is not None
            errors = found.possible / 255 - possible[n], found.certain / 255 - 1 + outside[n]
            worst = [max(w, abs(float(error))) for w, error in zip(worst, errors, strict=True)]
    names = ("possibility_error_max", "necessity_error_max")
    return {name: round(w, 4) for name, w in zip(names, worst, strict=True)}


# What it costs ------------------------------------------------------------------------------------

_DEVICE = """
import random, time
from denwatch.watchdog.filter import Filter
from denwatch.watchdog.execution import Sample
random.seed({seed})
filter = Filter(6 + 17 * 1000)
for handle in range(1000):
    body = b""
    for _ in range(3):
        low = random.getrandbits(8) * 200 // 256
        body += bytes([low, low + 12, 100 + handle % 150])
    filter.add(bytes([0x41, 0, handle >> 8, handle & 255, 160, 0, 0, 7]) + body, b"")
filter.all = True
best = [10 ** 9, 10 ** 9]
for turn in range({turns}):
    values = [20 + random.getrandbits(8) * 200 // 256 for _ in range(3)]
    for doubt in {kinds}:
        sample = Sample(1)
        for attribute in range(3):
            x = values[attribute]
            if doubt:
                sample.set_doubtful(attribute, x - 4, x - 2, x + 2, x + 4)
            else:
                sample.set(attribute, x)
        took = 10 ** 9
        for _ in range(5):
            start = time.ticks_us()
            filter.begin(1, 7, sample.values, sample.doubt, sample.points)
            while filter.step() >= 0:
                pass
            took = min(took, time.ticks_diff(time.ticks_us(), start))
        best[doubt] = took if turn == 0 else best[doubt] + took
print(best[0], best[1])
"""


def time_device(seed: int, turns: int) -> dict[str, float]:
    """Return the time of uncertain over exact readings at 1,000 subscriptions; instructions too."""
    for bits in (32, 64):
        try:
            find_unix(bits)
        except MissingRuntimeError as error:
            say(error)
            continue
        code = _DEVICE.format(seed=seed, turns=turns, kinds=(0, 1))
        output, status = run_code(code, bits, heap="4M")
        if status:
            raise RuntimeError(output)
        exact, doubtful = map(int, output.split())
        found = {"device_bits": bits, "device_uncertain_over_exact": round(doubtful / exact, 2)}
        if shutil.which("valgrind") is None:
            return found
        counts = [
            count_instructions(_DEVICE.format(seed=seed, turns=2, kinds=kinds))
            for kinds in ((), (0,), (1,))
        ]
        ratio = (counts[2] - counts[0]) / (counts[1] - counts[0])
        return found | {"device_instructions_over_exact": round(ratio, 2)}
    return {}


def count_instructions(code: str) -> int:
    """Return how many instructions a program takes on MicroPython, which is of 64 bits here."""
    counter = ("valgrind", "--tool=callgrind", "--trace-children=yes")
    counter += ("--callgrind-out-file=/dev/null",)  # what is printed is enough
    output, status = run_code(code, 64, heap="4M", prefix=counter)
    counted = re.findall(r"Collected : (\d+)", output)
    if status or not counted:
        raise RuntimeError(output)
    return int(counted[-1])


def time_node(seed: int, subscriptions: int, notes: int) -> dict[str, float]:
    """Return the time of uncertain over exact notifications on a node's index."""
    rng = np.random.default_rng(seed)
    masks = draw_masks(rng, FEW_MASKS)
    index = FuzzyIndex(attributes=FEW_MASKS.attributes)
    index.add_batch(draw_subscriptions(rng, FEW_MASKS, masks, subscriptions))
    exact = draw_notifications(rng, FEW_MASKS, notes, 8, 12)
    doubtful = []
    for note in exact:
        x = note.points.astype(np.int32)
        points = np.clip(x + np.array([-4, -2, 2, 4], np.int32), 0, 255)
        doubtful.append(
            NotificationBatch(note.starts, note.attributes, points, note.wides, note.ages)
        )
    took = [math.inf, math.inf]
    for _ in range(_ROUNDS):  # by turns, so that both meet the same other work of the machine
        for kind, batch in enumerate((exact, doubtful)):
            start = time.thread_time()
            for note in batch:
                index.match_batch(note)
            took[kind] = min(took[kind], time.thread_time() - start)
    return {"node_uncertain_over_exact": round(took[1] / took[0], 2)}


# What is sent of a reading ------------------------------------------------------------------------

_SENSED = [a for a in _PATIENT.attributes.values() if not a.wide][:8]


def measure_tailoring(rng: Random, sets: int) -> dict[str, Any]:
    """Return the bytes of notifications with what somebody names, over those of whole readings.

    A device with eight attributes, three of them with an accuracy, and 1 to 6 subscriptions:
    vectors behind their length, as they stand in a frame.
    """
    senses = {_PATIENT.number: (sum(1 << a.bit for a in _SENSED), 0)}
    tailored = whole = sent = 0
    for _ in range(sets):
        language = Fuzzy(1024, senses)
        vectors = [draw_fuzzy(rng, _NUMBERS) for _ in range(rng.randrange(1, 7))]
        for handle, vector in enumerate(vectors):
            vector.handle = handle
            language.install(encode(vector), 0)
        sample = Sample(_PATIENT.number)
        ends = list_ends(vectors)
        for _ in range(50):
            sample.clear()
            reading = draw_reading(rng, ends)
            for a in _SENSED:
                if a.bit in reading:
                    sample.set_doubtful(a.bit, *reading[a.bit])
                else:
                    sample.set(a.bit, rng.randrange(a.last + 1))
            if language.judge(sample, 0) >= 0:
                interest = language.interest
                assert interest is not None
                sent += 1
                tailored += 1 + len(interest.write(sample, -1))
                whole += 1 + len(write_notification(sample))
    return {"tailored_sent": sent, "air_bytes_tailored_over_whole": round(tailored / whole, 3)}


def measure_doubt(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything; print and save the page."""
    rng = Random(options.seed)
    is_quick = options.quick
    result: dict[str, Any] = {}
    for _ in range(1 if is_quick else 20):  # it takes long, so it says how far it is
        for name, count in count_lost(rng, 10_000 if is_quick else 50_000).items():
            result[name] = result.get(name, 0) + count
        say(result)
    result |= compare_installed(rng, 3 if is_quick else 20)
    result |= sweep_errors(rng, 100 if is_quick else 2500)
    result |= measure_tailoring(rng, 20 if is_quick else 400)
    result |= time_device(options.seed, 5 if is_quick else 40)
    result |= time_node(options.seed, 20_000 if is_quick else 100_000, 50 if is_quick else 200)
    table = format_table(("figure", "value"), list(result.items()))
    print(table)
    if options.save:
        load = f"the machine's load was {os.getloadavg()[0]:.0f}"
        text = f"# Uncertain readings\n\n{__doc__}\n{table}\n\n{describe_machine()}; {load}."
        save_text("doubt.md", text)
    return result


if __name__ == "__main__":
    run(measure_doubt, __doc__)
