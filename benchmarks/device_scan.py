"""The filter timed on MicroPython itself: machine code, bytecode, and objects with floats.

Runs on unix MicroPython, started by `benchmarks.device`; prints lines of numbers. Times are the
best of many short rounds, because the machine does other things too.
"""

import gc
import time
from array import array

from denwatch.protocol.degrees import SLOPES
from denwatch.watchdog import plain, viper
from denwatch.watchdog.filter import Filter

EVENTS = 20
WIDTH = 12  # of a predicate's core, in 1/255 of the domain


class Dice:
    """A linear congruential generator: MicroPython's `random` gives other numbers."""

    def __init__(self, seed):
        self.state = seed & 0x7FFFFFFF

    def below(self, limit):
        """Return a number of 0..limit-1."""
        self.state = (self.state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self.state >> 8) % limit


def draw_frame(dice, handle, validity):
    """Return a subscription of three attributes, as its 17 bytes."""
    frame = bytearray([0x41, 0, handle >> 8, handle & 255, 160, validity, 0, 7])
    for _ in range(3):
        low = dice.below(256 - WIDTH)
        frame += bytes([low, low + WIDTH, 100 + dice.below(155)])
    return bytes(frame)


class FloatSubscription:
    """Three predicates under min as an object with floats: what a first version would be.

    It gives up at the first predicate that is too low, as the kernels do.
    """

    def __init__(self, frame):
        self.threshold = frame[4] / 255
        self.predicates = []
        for attribute in range(3):
            low, high, code = frame[8 + 3 * attribute : 11 + 3 * attribute]
            gamma = 60.0 if code == 255 else (SLOPES[2 * code] << 8 | SLOPES[2 * code + 1]) / 256
            self.predicates.append((attribute, low / 255, high / 255, gamma))

    def rate(self, values):
        """Return the degree, or None."""
        degree = 1.0
        threshold = self.threshold
        for attribute, low, high, gamma in self.predicates:
            x = values[attribute]
            rated = 1.0
            if x < low:
                rated = 1.0 - gamma * (low - x)
            elif x > high:
                rated = 1.0 - gamma * (x - high)
            if rated < degree:
                if rated < threshold:
                    return None
                degree = rated
        return degree


def run_floats(subscriptions, values):
    """Return the hits of one event."""
    hits = 0
    for subscription in subscriptions:
        if subscription.rate(values) is not None:
            hits += 1
    return hits


def time_kernel(scan, filter, events, rounds, times):
    """Return the microseconds of all events: of each, the best of so many rounds."""
    buf = filter.buffer
    used = filter.used
    state = make_state()
    total = 0.0
    for values in events:
        best = 1 << 29
        for _ in range(rounds):
            start = time.ticks_us()
            for _ in range(times):
                state[0] = state[1] = 0
                scan(buf, used, values, state)
            best = min(best, time.ticks_diff(time.ticks_us(), start))
        total += best / times
    return total


def time_floats(subscriptions, events, rounds):
    """Return the same of the objects."""
    total = 0.0
    for values in events:
        best = 1 << 29
        gc.collect()
        for _ in range(rounds):
            start = time.ticks_us()
            run_floats(subscriptions, values)
            best = min(best, time.ticks_diff(time.ticks_us(), start))
        total += best
    return total


def make_state():
    """Return the kernel's state for event 1 with attributes 0, 1 and 2."""
    return array("i", [0, 0, 1 << 16, 0xFFFFF8, 0, 0])


def draw_events(dice, filter):
    """Return events that nobody asked for: the common case, and what a filter is for."""
    events = []
    while len(events) < EVENTS:
        values = array("H", [dice.below(256) for _ in range(16)])
        if viper.scan(filter.buffer, filter.used, values, make_state()) >= filter.used:
            events.append(values)
    return events


def fill(count, seed):
    """Return (frames, filter, heap bytes of the filter, dice)."""
    dice = Dice(seed)
    frames = [draw_frame(dice, handle, 72) for handle in range(count)]
    gc.collect()
    before = gc.mem_alloc()
    filter = Filter(6 + 19 * count)
    for frame in frames:
        filter.add(frame, b"\0\0")
    gc.collect()
    return frames, filter, gc.mem_alloc() - before, dice


def count_calls(engine, count, calls, seed):
    """Run an engine so many times and nothing else, for a counter of instructions."""
    frames, filter, _, dice = fill(count, seed)
    values = draw_events(dice, filter)[0]
    floats = [value / 255 for value in values]
    subscriptions = [FloatSubscription(frame) for frame in frames]
    state = make_state()
    scan = viper.scan if engine == "viper" else plain.scan
    gc.collect()
    gc.disable()
    for _ in range(calls):
        state[0] = state[1] = 0
        if engine == "floats":
            run_floats(subscriptions, floats)
        else:
            scan(filter.buffer, filter.used, values, state)


def main(count, rounds, seed):
    """Print nanoseconds a subscription (viper, bytecode, floats), then bytes of heap."""
    frames, filter, heap, dice = fill(count, seed)
    events = draw_events(dice, filter)
    floats = [[value / 255 for value in values] for values in events]
    gc.collect()
    before = gc.mem_alloc()
    subscriptions = [FloatSubscription(frame) for frame in frames]
    gc.collect()
    object_heap = gc.mem_alloc() - before
    for values in events:
        if plain.scan(filter.buffer, filter.used, values, make_state()) < filter.used:
            raise ValueError("the kernels disagree")
    times = (
        time_kernel(viper.scan, filter, events, rounds, max(1, 2000 // count)),
        time_kernel(plain.scan, filter, events, rounds, max(1, 200 // count)),
        time_floats(subscriptions, floats, rounds),
    )
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    for values in events:
        filter.begin(1, 7, values)
        filter.step()
    allocated = gc.mem_alloc() - before
    before = gc.mem_alloc()
    run_floats(subscriptions, floats[0])
    float_allocated = gc.mem_alloc() - before
    print(*[1000 * t / count / EVENTS for t in times])
    print(heap / count, object_heap / count, allocated, float_allocated)
