"""The execution environment: samples sources, builds events, filters, makes notification vectors.

Once it is built, a round that sends nothing allocates nothing. Nothing here reads a clock or sends:
`now` is milliseconds on any clock that never goes back, and what is worth sending goes to the
outbox.
"""

from array import array

from ..protocol.degrees import const
from .manager import Manager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from .sources import Channel, Source

    class Outbox(Protocol):
        """Who receives notification vectors: a `Spool`."""

        def put(self, vector: bytes, degree: int, now: int) -> object:
            """Queue a vector; `degree` says how long a full outbox keeps it."""


_NEVER = const(1 << 62)  # for a device in safe mode, which has no events
FAULT_PERIOD = const(600_000)  # ms: a sensor that stays broken is reported again after this time


class Sample:
    """What the sources said about an event just now; the same object for every round."""

    def __init__(self, event: int) -> None:
        self.event = event
        self.present = 0  # attributes with a value
        self.wides = 0  # attributes of 16 bits
        self.doubt = 0  # attributes whose value is uncertain
        self.faults = 0  # attributes whose sensor is broken
        self.values = array("H", [0] * 16)
        self.points = array("H", [0] * 64)  # four of each uncertain attribute

    def clear(self) -> None:
        """Forget the last round."""
        self.present = self.doubt = self.faults = 0

    def set(self, attribute: int, value: int) -> None:
        """Note an exact value."""
        self.present |= 1 << attribute
        self.values[attribute] = value

    def set_doubtful(self, attribute: int, a: int, b: int, c: int, d: int) -> None:
        """Note a trapezoid; where its points are one, the value is exact after all."""
        self.set(attribute, (b + c) >> 1)
        if a == d:
            return
        self.doubt |= 1 << attribute
        at = 4 * attribute
        points = self.points
        points[at] = a
        points[at + 1] = b
        points[at + 2] = c
        points[at + 3] = d

    def fail(self, attribute: int) -> None:
        """Note that the attribute's sensor is broken: it has no value."""
        self.faults |= 1 << attribute


def write_notification(sample: Sample, why: int = -1) -> bytes:
    """Return the sample as the bytes of `protocol.notification.encode`, without objects.

    `why` is attribute << 8 | degree, or -1. Sequence and age are zero: whoever sends the vector
    writes them into bytes 2 to 5.
    """
    present = sample.present
    flags = (why >= 0) | (sample.doubt > 0) << 1 | (sample.faults > 0) << 3
    wides = sample.wides & present
    flags |= (wides > 0) << 2
    out = bytearray([0x80 | sample.event, flags, 0, 0, 0, 0, present >> 8, present & 255])
    for mask in (sample.doubt, wides, sample.faults):
        if mask:
            out.append(mask >> 8)
            out.append(mask & 255)
    for attribute in range(16):
        if present >> attribute & 1:
            doubtful = sample.doubt >> attribute & 1
            for i in range(4 if doubtful else 1):
                value = sample.points[4 * attribute + i] if doubtful else sample.values[attribute]
                if wides >> attribute & 1:
                    out.append(value >> 8)
                out.append(value & 255)
    if why >= 0:
        out.append(why >> 8)
        out.append(why & 255)
    return bytes(out)


class Event:
    """One event of this device: its channels, sampled every `period` milliseconds."""

    def __init__(self, number: int, channels: "list[Channel]", period: int) -> None:
        self.sample = Sample(number)
        self.channels = channels
        self.period = period
        self.due = 0
        self.late = 0  # ms by which a sensor that takes time has moved it
        self.told = 0  # faults that were reported ...
        self.told_at = 0  # ... and when
        self.features = 0
        self.doubts = 0  # of them, those with an accuracy
        self.sources: list[Source] = []
        for channel in channels:
            if channel.source not in self.sources:
                self.sources.append(channel.source)
            bit = 1 << channel.attribute
            if self.features & bit:
                raise ValueError(f"attribute {channel.attribute} twice")
            self.features |= bit
            if channel.worst:
                self.doubts |= bit
            if channel.wide:
                self.sample.wides |= bit


def list_senses(events: list[Event]) -> dict[int, tuple[int, int]]:
    """Return what a device with these events senses, for its languages and its hello."""
    return {event.sample.event: (event.features, event.sample.wides) for event in events}


class Execution:
    """Runs the rounds; what is worth sending goes to the outbox (on a device: the spool)."""

    def __init__(self, manager: Manager, events: list[Event], outbox: "Outbox") -> None:
        self.manager = manager
        self.events = events
        self.outbox = outbox
        self.rounds = 0
        self.sent = 0
        self.highest = 0  # degree that was sent since the start

    def step(self, now: int) -> None:
        """Sample and judge every event that is due."""
        self.manager.expire(now)
        for event in self.events:
            if now >= event.due and not self._is_early(event, now):
                self._run(event, now)
                event.due += event.period - event.late
                event.late = 0
                if event.due <= now:  # late, or the first: no rounds to catch up with
                    event.due = now + event.period
                self.rounds += 1

    def _is_early(self, event: Event, now: int) -> bool:
        """Return whether a sensor needs more time first; the event is due when it is ready."""
        wait = 0
        for source in event.sources:
            try:
                wait = max(wait, source.prepare(now))
            except Exception:  # noqa: BLE001 - a broken sensor; `start_round` notes it
                continue
        if wait:
            event.late += now + wait - event.due
            event.due = now + wait
        return wait > 0

    def find_next(self) -> int:
        """Return when the next event is due."""
        due = self.events[0].due if self.events else _NEVER
        for event in self.events:
            if event.due < due:
                due = event.due
        return due

    def _run(self, event: Event, now: int) -> None:
        sample = event.sample
        sample.clear()
        for source in event.sources:
            source.start_round(now)
        for channel in event.channels:
            channel.read_into(sample)
        degree = why = -1
        languages = self.manager.languages
        for language in languages:
            found = language.judge(sample, now)
            if found > degree:
                degree = found
                why = language.why
        if not sample.present | sample.faults:
            return
        is_news = self._is_news(event, now)
        if is_news:
            degree = 255
        if degree >= 0:
            write: Callable[[Sample, int], bytes] = write_notification
            if not is_news and len(languages) == 1 and languages[0].interest:
                write = languages[0].interest.write  # of several languages none speaks for all
            self.sent += 1
            self.highest = max(self.highest, degree)
            self.outbox.put(write(sample, why), degree, now)

    def _is_news(self, event: Event, now: int) -> bool:
        """Return whether a sensor broke or came back, or has been broken for long."""
        faults = event.sample.faults
        if faults == event.told and not (faults and now - event.told_at >= FAULT_PERIOD):
            return False
        event.told = faults
        event.told_at = now
        return True
