"""Uncertain readings: whether anything wanted stays behind, how exact degrees are, what it costs.

Every pair of a random set of subscriptions (fuzzy, typed content, and the WHERE of
examples/where_language) and a random uncertain reading goes through the real code: each language's
filter part makes the vectors, covering decides which are installed, the device's filter whether the
reading is sent, each language's matcher who wants it. Degrees are compared with the real ones,
which an oracle finds in fractions by halving. Speeds are of the same subscriptions and values,
exact and uncertain, in one run: on a node by processor time, on a device (1,000 subscriptions,
unix MicroPython) by the clock, and by instructions where valgrind counts them.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import time
from array import array
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.languages import CONTENT_LANGUAGE, SubscriptionLanguage
from denwatch.node.core.notifications import Notification, describe_content_values
from denwatch.node.covering import Approximate, Covering, Domains
from denwatch.node.covering.boxes import box_doubtful, box_vector
from denwatch.node.matching import compiling
from denwatch.node.matching.index import FuzzyIndex
from denwatch.node.matching.records import pack_subscriptions
from denwatch.node.matching.search import NotificationBatch, pack_notifications
from denwatch.protocol.cuts import measure
from denwatch.protocol.degrees import slope
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

from benchmarks.common import describe_machine, format_table, run, save_text, say
from benchmarks.match_work import FEW_MASKS, draw_masks, draw_notifications, draw_subscriptions
from examples.where_language.denwatch_where import LANGUAGE as WHERE_LANGUAGE
from firmware_tests.runtimes import MissingRuntimeError, find_unix
from firmware_tests.unix import run_code

_VOCABULARY = load_shipped("rescue")
_PATIENT = _VOCABULARY.events["patient"]
# Attributes of 8 bits that are numbers: a device has an accuracy for these.
_NUMBERS = [a for a in _PATIENT.attributes.values() if not a.wide and not a.symbols][:3]
_READINGS = 250  # for each set of subscriptions
_VALUES, _POINTS = array("H", [0] * 16), array("H", [0] * 64)  # of the device's sample
Points = tuple[int, int, int, int]


# What is wanted is sent ---------------------------------------------------------------------------


def draw_fuzzy(rng: Random) -> SubscriptionVector:
    """Return a fuzzy subscription: a few attributes, at times certain, hedged or alternative."""
    bits = sorted(a.bit for a in rng.sample(_NUMBERS, rng.choice((1, 1, 2))))
    if rng.random() < 0.15:
        bits.append(bits[0])
    predicates = []
    for bit in bits:
        low = rng.randrange(20, 236)
        ends = rng.choice(((low, 255), (0, low // 2), (low, min(255, low + rng.randrange(40)))))
        hedge = rng.choice((0,) * 9 + (1, 2, 3))
        slope_code = rng.choice((255, 255, 200, 230, rng.randrange(256)))
        is_negated = rng.random() < 0.1
        predicates.append(Predicate(bit, *ends, slope_code, negated=is_negated, hedge=hedge))
    pattern = bytes([0, 1, OR | 2]) if len(predicates) == 2 and rng.random() < 0.2 else b""
    certain = rng.choice((0,) * 6 + (60, 204))
    threshold = max(certain, rng.choice((128,) * 5 + (179, 102, 243)))
    return SubscriptionVector(
        _PATIENT.number, predicates, threshold=threshold, certain=certain, pattern=pattern
    )


def draw_typed(rng: Random) -> tuple[SubscriptionLanguage, bytes]:
    """Return a subscription of another language on one or two attributes, as items have it."""
    tests = []
    for attribute in rng.choices(_NUMBERS, k=rng.choice((1, 1, 2))):
        code = rng.randrange(10, 246)
        value = read_values({attribute.bit: (code,) * 4})[attribute.name]
        tests.append([attribute.name, rng.choice(("<", ">", "<=", ">=")), value])
    if rng.random() < 0.5:
        source: Any = [["event", "=", _PATIENT.name], *tests]
        return CONTENT_LANGUAGE, CONTENT_LANGUAGE.look_up(source, _VOCABULARY).data
    joined = rng.choice((" AND ", " OR ")).join(" ".join(map(str, test)) for test in tests)
    negation = rng.choice(("", "", "NOT "))
    source = f"FROM {_PATIENT.name} WHERE {negation}({joined})"
    return WHERE_LANGUAGE, WHERE_LANGUAGE.look_up(source, _VOCABULARY).data


def read_values(reading: dict[int, Points]) -> dict[str, Any]:
    """Return a reading's values as content subscriptions see them."""
    notification = Notification.__new__(Notification)
    notification.vector = NotificationVector(_PATIENT.number, list_readings(reading))
    notification.device, notification.event = "device", _PATIENT
    return describe_content_values(notification)


def list_readings(reading: dict[int, Points]) -> list[Reading]:
    """Return the readings of a notification."""
    return [Reading(bit, points) for bit, points in sorted(reading.items())]


def list_ends(vectors: list[SubscriptionVector]) -> list[int]:
    """Return the ends of all ranges that somebody asks for."""
    return [end for v in vectors for p in v.predicates for end in (p.low, p.high)]


def draw_reading(rng: Random, ends: list[int]) -> dict[int, Points]:
    """Return an uncertain reading near an end of somebody's range."""
    reading = {}
    step = rng.choice((3, 9, 30))
    for attribute in _NUMBERS:
        points = [min(255, max(0, rng.choice(ends) + rng.randrange(-2 * step, step)))]
        for _ in range(3):
            points.append(min(255, points[-1] + rng.randrange(step)))
        reading[attribute.bit] = (points[0], points[1], points[2], points[3])
    return reading


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


def count_lost(rng: Random, pairs: int) -> dict[str, Any]:
    """Return how many readings that somebody wants a device would keep to itself."""
    done = wanted = lost = 0
    while done < pairs:
        vectors = [draw_fuzzy(rng) for _ in range(rng.randrange(2, 7))]
        fuzzy = list(enumerate(vectors))
        matchers = [language.make_matcher() for language in (CONTENT_LANGUAGE, WHERE_LANGUAGE)]
        typed = [draw_typed(rng) for _ in range(rng.randrange(3))]
        for id, (language, data) in enumerate(typed):
            matchers[language is WHERE_LANGUAGE].add(id, language.decode(data))
            lowered = language.lower(data, _VOCABULARY)
            if lowered is not None:  # else no value fits it, and nothing is installed
                vectors.append(decode(lowered))
        compiling.declare_ready()
        table: Covering[int] = Covering(Domains(), Approximate())
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
        index = FuzzyIndex(attributes=1024)
        index.add_batch(pack_subscriptions(fuzzy))
        ends = list_ends(vectors)
        readings = [draw_reading(rng, ends) for _ in range(_READINGS)]
        notes = [NotificationVector(_PATIENT.number, list_readings(r)) for r in readings]
        found = index.match_batch(pack_notifications(notes, [0] * len(notes)))
        for i, reading in enumerate(readings):
            is_wanted = found.starts[i] < found.starts[i + 1]
            if not is_wanted and typed:
                values = read_values(reading)
                is_wanted = any(matcher.match(values, 0) for matcher in matchers)
            if is_wanted:
                wanted += 1
                lost += not is_sent(filter, reading)
        done += len(readings)
    return {"pairs": done, "wanted": wanted, "wanted_lost": lost}


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


def count_installed(rng: Random, sets: int) -> dict[str, float]:
    """Return vectors of a doubtful device over those of an exact one, as subscribed and rebuilt."""
    counts = np.zeros((2, 2), np.int64)
    for size in [42] * sets + [rng.randrange(5, 100) for _ in range(sets)]:
        asked = list_asked(rng, size)
        for column, boxing in enumerate((box_vector, box_doubtful)):
            table: Covering[int] = Covering(Domains(), Approximate())
            for id, vector in enumerate(asked):
                table.subscribe(id, boxing(vector))
            counts[0, column] += len(table.active())
            table.rebuild()
            counts[1, column] += len(table.active())
    return {
        "installed_over_exact": round(float(counts[0, 1] / counts[0, 0]), 2),
        "installed_over_exact_rebuilt": round(float(counts[1, 1] / counts[1, 0]), 2),
    }


# How exact degrees are ----------------------------------------------------------------------------


def find_member(p: Predicate, x: Fraction) -> tuple[Fraction, Fraction]:
    """Return to which degree a value is in a set without hedge, and to which not."""
    distance = max(p.low - x, x - p.high, Fraction(0))
    code = p.left if x < p.low else p.right
    if code == 255:
        between = 0 < distance < 1  # there are no values between a crisp end and the next code
        return Fraction(not distance), Fraction(not between and distance > 0)
    degree = max(Fraction(0), 1 - distance * slope(code) / (256 * 255))
    return degree, 1 - degree


def find_possibility(x: Fraction, points: Points) -> Fraction:
    """Return the possibility that a reading is x."""
    a, b, c, d = points
    if b <= x <= c:
        return Fraction(1)
    if x <= a or x >= d:
        return Fraction(0)
    return (x - a) / (b - a) if x < b else (d - x) / (d - c)


def find_best(p: Predicate, points: Points, side: int) -> Fraction:
    """Return the highest degree to which a value may be in the set (0), or outside of it (1)."""
    breaks = {Fraction(x) for x in points}
    for edge, code, sign in ((p.low, p.left, -1), (p.high, p.right, 1)):
        breaks.add(Fraction(edge))
        breaks.add(edge + sign * (Fraction(1) if code == 255 else Fraction(65280, slope(code))))
    places = sorted(x for x in breaks if points[0] <= x <= points[3])

    def lower(x: Fraction) -> Fraction:
        return min(find_member(p, x)[side], find_possibility(x, points))

    def differ(x: Fraction) -> bool:
        return find_member(p, x)[side] > find_possibility(x, points)

    best = max(lower(x) for x in places)
    for start, stop in itertools.pairwise(places):
        for _ in range(14):
            middle = (start + stop) / 2
            best = max(best, lower(middle))
            if differ(middle) == differ(start):
                start = middle
            else:
                stop = middle
    return best


def sweep_errors(rng: Random, count: int) -> dict[str, float]:
    """Return the largest errors of possible and certain, over readings of a few codes and more."""
    worst = [Fraction(0), Fraction(0)]
    for _ in range(count):
        low = rng.randrange(256)
        high = min(255, low + rng.choice((0, 2, 30)))
        p = Predicate(0, low, high, rng.choice((255, 254, rng.randrange(256))))
        step = rng.choice((2, 4, 40))
        first = min(254, max(0, rng.choice((low, high)) + rng.randint(-3 * step, step)))
        points = [first]
        for _ in range(3):
            points.append(min(255, points[-1] + rng.randrange(step)))
        points[3] = max(points[3], first + 1)
        reading = (points[0], points[1], points[2], points[3])
        possible, certain = measure(p, reading)
        right = find_best(p, reading, 0), 1 - find_best(p, reading, 1)
        for side, degree in enumerate((possible, certain)):
            worst[side] = max(worst[side], abs(Fraction(degree, 255) - right[side]))
    names = ("possibility_error_max", "necessity_error_max")
    return {name: round(float(w), 4) for name, w in zip(names, worst, strict=True)}


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
    took = []
    for batch in (exact, doubtful):
        index.match_batch(batch[0])
        rounds = []
        for _ in range(5):
            start = time.thread_time()
            for note in batch:
                index.match_batch(note)
            rounds.append(time.thread_time() - start)
        took.append(min(rounds))
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
        vectors = [draw_fuzzy(rng) for _ in range(rng.randrange(1, 7))]
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
    result |= count_installed(rng, 3 if is_quick else 20)
    result |= sweep_errors(rng, 300 if is_quick else 5000)
    result |= measure_tailoring(rng, 20 if is_quick else 400)
    result |= time_device(options.seed, 5 if is_quick else 40)
    result |= time_node(options.seed, 20_000 if is_quick else 100_000, 50 if is_quick else 200)
    table = format_table(("figure", "value"), list(result.items()))
    print(table)
    if options.save:
        save_text(
            "doubt.md", f"# Uncertain readings\n\n{__doc__}\n{table}\n\n{describe_machine()}."
        )
    return result


if __name__ == "__main__":
    run(measure_doubt, __doc__)
