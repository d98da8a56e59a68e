"""The execution environment: samples sources, builds events, filters, makes notification vectors.

Once it is built, a round that sends nothing allocates nothing. Nothing here reads a clock or sends:
`now` is milliseconds on any clock that never goes back, and what is worth sending goes to
`outbox.put(vector, degree, now)`.
"""

from ..protocol.degrees import const
from .manager import Manager
from .notice import write
from .sample import Sample
from .sources.base import Channel, Source

FAULT_PERIOD = const(600_000)  # ms: a sensor that stays broken is reported again after this time


class Event:
    """One event of this device: its channels, sampled every `period` milliseconds."""

    def __init__(self, number: int, channels: list[Channel], period: int) -> None:
        self.sample = Sample(number)
        self.channels = channels
        self.period = period
        self.due = 0
        self.told = 0  # faults that were reported ...
        self.told_at = 0  # ... and when
        self.features = 0
        self.sources: list[Source] = []
        for channel in channels:
            if channel.source not in self.sources:
                self.sources.append(channel.source)
            bit = 1 << channel.attribute
            if self.features & bit:
                raise ValueError(f"attribute {channel.attribute} twice")
            self.features |= bit
            if channel.wide:
                self.sample.wides |= bit


def list_senses(events: list[Event]) -> dict[int, tuple[int, int]]:
    """Return what a device with these events senses, for its languages and its hello."""
    return {event.sample.event: (event.features, event.sample.wides) for event in events}


class Execution:
    """Runs the rounds. `outbox` has `put(vector: bytes, degree: int, now: int) -> None`."""

    def __init__(self, manager: Manager, events: list[Event], outbox: object) -> None:
        self.manager = manager
        self.events = events
        self.outbox = outbox
        self.rounds = 0
        self.sent = 0

    def step(self, now: int) -> None:
        """Sample and judge every event that is due."""
        self.manager.expire(now)
        for event in self.events:
            if now >= event.due:
                self._run(event, now)
                event.due += event.period
                if event.due <= now:  # late, or the first: no rounds to catch up with
                    event.due = now + event.period
                self.rounds += 1

    def find_next(self) -> int:
        """Return when the next event is due."""
        due = self.events[0].due
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
        for language in self.manager.languages:
            found = language.judge(sample, now)
            if found > degree:
                degree = found
                why = language.why
        if not sample.present | sample.faults:
            return
        if self._is_news(event, now):
            degree = 255
        if degree >= 0:
            self.sent += 1
            self.outbox.put(write(sample, why), degree, now)  # type: ignore[attr-defined]

    def _is_news(self, event: Event, now: int) -> bool:
        """Return whether a sensor broke or came back, or has been broken for long."""
        faults = event.sample.faults
        if faults == event.told and not (faults and now - event.told_at >= FAULT_PERIOD):
            return False
        event.told = faults
        event.told_at = now
        return True
