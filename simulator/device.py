"""An emulated device: the real watchdog's spool, filter, execution and uplink; made-up sensors.

What `watchdog.app` does with tasks happens here when the field says so: sample, save, send.
Readings follow from the device's own generator, so that they do not depend on what else happens.
Every reading is kept as it was taken, whether or not the device told it: for the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from denwatch.protocol import frames
from denwatch.protocol.notification import decode, encode
from denwatch.protocol.timecode import encode_duration
from denwatch.protocol.vectors import NotificationVector, Reading
from denwatch.watchdog.duty import freeze, thaw
from denwatch.watchdog.execution import (
    Event,
    Execution,
    Sample,
    list_senses,
    write_notification,
)
from denwatch.watchdog.fuzzy import Fuzzy
from denwatch.watchdog.manager import Manager
from denwatch.watchdog.seal import FrameKey
from denwatch.watchdog.sources import Callback, Channel, NotReadyError
from denwatch.watchdog.spool import Spool
from denwatch.watchdog.uplink import Uplink

from simulator.flash import Flash, PowerCut
from simulator.keys import KEY_ID, make_device_secret

if TYPE_CHECKING:
    from simulator.updates import Board

_LAST = {False: 255, True: 65_535}  # the largest code of a narrow and of a wide attribute


@dataclass(frozen=True)
class Sense:
    """An event that a device measures: attributes by bit, and which of them are wide.

    `accuracies` has, by attribute, within what the true value is without reservation and at worst,
    in steps of its code; `lasts` has the largest code where that is not the largest there is.
    `graded` has the last symbol's place of texts whose symbols are spread over the codes. A `slow`
    attribute has a new value every other time only.
    """

    event: int
    attributes: tuple[int, ...]
    wides: tuple[int, ...] = ()
    period: int = 10_000  # ms
    accuracies: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    lasts: Mapping[int, int] = field(default_factory=dict)
    graded: Mapping[int, int] = field(default_factory=dict)
    slow: tuple[int, ...] = ()


@dataclass(frozen=True)
class Told:
    """A notification that the device wanted to tell, as it went into its spool."""

    epoch: int
    sequence: int
    vector: bytes
    time: int


@dataclass
class Taken:
    """A reading as the sensors gave it, and where the device was."""

    time: int
    vector: bytes  # as a notification's, with the last reading of every other attribute
    epoch: int
    node: str  # that the device was connected to, "" for none
    since: int  # ms; how long it had been, with both up
    life: int  # how often the device had been erased
    told: Told | None = None


class _WatchedFuzzy(Fuzzy):
    """The device's language, which also shows every sample that it judges."""

    def __init__(self, device: EmulatedDevice, senses: dict[int, tuple[int, int]]) -> None:
        super().__init__(device.capacity, senses)
        self._device = device
        self._last: dict[tuple[int, int], tuple[int, Reading]] = {}  # since the start, with its s

    def _complete(self, vector: bytes, now: int) -> bytes:
        """Return a reading with what was read of other attributes before, whatever its age."""
        if not vector[6] and not vector[7]:
            return vector  # sensors that are broken, or nothing at all
        note = decode(vector)
        olds = []
        for (event, attribute), (at, last) in self._last.items():
            if event == note.event and not note.features >> attribute & 1:
                age = encode_duration(max(1, now // 1000 - at))
                olds.append(Reading(attribute, last.points, last.wide, age))
        for attribute in range(16):
            if note.faults >> attribute & 1:
                self._last.pop((note.event, attribute), None)
        for reading in note.readings:
            self._last[note.event, reading.attribute] = now // 1000, reading
        olds = [reading for reading in olds if not note.faults >> reading.attribute & 1]
        readings = sorted(note.readings + olds, key=lambda reading: reading.attribute)
        return encode(NotificationVector(note.event, readings, faults=note.faults))

    def judge(self, sample: Sample, now: int) -> int:
        device = self._device
        device.taken.append(
            Taken(
                device.field_now,
                self._complete(write_notification(sample), now),
                device.spool.epoch,
                device.node,
                device.connected_at,
                device.life,
            )
        )
        return super().judge(sample, now)


class _Slow(Callback):
    """A sensor that has a new value every other time."""

    is_late = True

    def measure(self, now: int) -> None:  # noqa: ARG002 - as a source has it
        self.is_late = not self.is_late
        if self.is_late:
            raise NotReadyError


class _Outbox:
    """The spool as the execution sees it; remembers what went in."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device

    def put(self, vector: bytes, degree: int, now: int) -> None:
        device = self._device
        sequence = device.spool.put(vector, degree, now)
        told = Told(device.spool.epoch, sequence, vector, device.field_now)
        device.told[told.epoch, told.sequence] = told
        if device.taken:
            device.taken[-1].told = told


class EmulatedDevice:
    """One device; `flash` is what a power cut leaves. Its own clock starts at 0 at every start."""

    def __init__(
        self,
        name: str,
        nodes: Sequence[str],
        vocabulary: bytes,
        senses: Sequence[Sense],
        rng: Random,
        drive: Callable[[Random, int, int, int], int] | None = None,
        capacity: int = 1024,
        *,
        keeps_readings: bool = False,
    ) -> None:
        self.name = name
        self.node = ""  # where it is connected
        self.connected_at = 0  # ms
        self.has_will = True  # whether a server announces its end; an app's may not
        self.told: dict[tuple[int, int], Told] = {}
        self.told_before: list[Told] = []  # in lives that it does not remember
        self.taken: list[Taken] = []  # all readings, if they are kept
        self.freed: set[tuple[int, int]] = set()  # told, and gone from the spool on a node's word
        self.broken: set[tuple[int, int]] = set()  # event and attribute: sensors that fail
        self.life = 0  # how often its memory was erased
        self.unsure: set[tuple[int, int]] = (
            set()
        )  # perhaps told: the power went while they were saved
        self.board: Board | None = None  # whose code can be updated
        self.field_now = 0
        self.is_up = False
        self.flash = Flash()
        self._nodes = list(nodes)
        self.vocabulary = vocabulary
        self._keeps_readings = keeps_readings
        self.senses = list(senses)
        self._rng = rng
        self._drive = drive or _walk
        self._levels: dict[tuple[int, int], int] = {}
        self.capacity = capacity
        self.room, self.patience = 900, 5_000  # bytes of a frame's body; ms for the node's answer
        self._started = 0
        self._resume = (0, 0, 0, 0)  # of the last sleep
        self._hellos = self._batches = self._leap = 0

    def start(self, now: int, wall: int | None = None, kept: bytes = b"") -> None:
        """Start, or start again from the flash; `wall` is what a clock that goes on shows, in s.

        `kept` is what a deep sleep left of the subscriptions.
        """
        # Over a deep sleep the watchdog's clock goes on, for deadlines are its seconds.
        self.field_now, self._started = now, self._started if kept else now
        self.flash = Flash(image=bytes(self.flash.image))
        resume = self._resume if kept else None
        time = now - self._started
        self.spool = Spool(self.flash, time, wall, resume=resume, leap=self._leap)
        self.spool.keep_nodes(self._nodes[:4])
        events = [self._build_event(sense) for sense in self.senses]
        senses = list_senses(events)
        self.language = Fuzzy(self.capacity, senses)
        if self._keeps_readings:
            self.language = _WatchedFuzzy(self, senses)
        if self.spool.is_resumed:
            thaw(self.language, kept)
        self.manager = Manager([self.language], senses)
        secret = make_device_secret(self.name)
        self.uplink = Uplink(
            self.name,
            {node: FrameKey(self.name, node, KEY_ID, secret) for node in self._nodes},
            self.spool,
            self.manager,
            self.vocabulary,
            lambda: self._describe(events),
            room=self.room,
            patience=self.patience,
        )
        if self.board is not None:
            self.board.start()
        if self.spool.is_resumed:
            self.uplink.hello_count = self._hellos
            self.uplink.batch_count = self._batches
        self.execution = Execution(self.manager, events, _Outbox(self))
        self.is_up = True

    def _describe(self, events: list[Event]) -> dict[int, object]:
        """Return what a hello says beyond what the manager knows."""
        fields: dict[int, object] = {7: "field"}
        fields[24] = {event.sample.event: event.doubts for event in events}
        if self.board is not None:
            fields[30] = self.board.describe()
        return fields

    def _build_event(self, sense: Sense) -> Event:
        def make_source(attribute: int, last: int) -> Callback:
            kind = _Slow if attribute in sense.slow else Callback
            return kind(lambda _: self._read(sense.event, attribute, last))

        channels = []
        for attribute in sense.attributes:
            is_wide = attribute in sense.wides
            last = sense.graded.get(attribute, _LAST[is_wide])
            source = make_source(attribute, sense.lasts.get(attribute, last))
            typical, worst = sense.accuracies.get(attribute, (0, 0))
            channels.append(
                Channel(source, 0, attribute, 0, last, is_wide, typical=typical, worst=worst)
            )
        return Event(sense.event, channels, sense.period)

    def _read(self, event: int, attribute: int, last: int) -> int:
        if (event, attribute) in self.broken:
            raise OSError("the sensor does not answer")
        level = self._levels.get((event, attribute), last // 2)
        level = self._drive(self._rng, event, level, last)
        self._levels[event, attribute] = level
        return level

    def _clock(self, now: int) -> int:
        self.field_now = now
        return now - self._started

    def connect(self, node: str, now: int) -> None:
        """Begin with a node."""
        self.node = node
        self.connected_at = now
        self.uplink.connect(node)

    def sleep(self, now: int) -> bytes:
        """Sleep deeply, as `watchdog.duty` does; return what is kept of the subscriptions.

        The spool is on the flash; after the sleep its numbers go on.
        """
        self._resume = self.spool.note_sleep(self._clock(now))
        self._hellos = self.uplink.hello_count
        self._batches = self.uplink.batch_count
        self.is_up = False
        return freeze(self.language)

    def erase(self, leap: int = 0) -> None:
        """Lose the flash, as by a new firmware: a new life begins, with the old numbers.

        `leap` is random, as on a board: a life begins above or below the ones before, hardly ever
        with the epoch of one.
        """
        self._leap = leap
        self.life += 1
        self.flash = Flash()
        self.told_before += self.told.values()
        self.told = {}
        self.freed = set()
        self.unsure = set()

    def sample(self, now: int) -> int:
        """Measure what is due and save it; return when to come again."""
        time = self._clock(now)
        before = set(self.told)
        try:
            self.execution.step(time)
            self.spool.flush(time)
        except PowerCut:
            self.unsure |= set(self.told) - before
            raise
        return self._started + self.execution.find_next()

    def next_message(self, now: int) -> tuple[str, bytes] | None:
        """Return what to publish now."""
        return self.uplink.next_message(self._clock(now))

    def receive(self, topic: str, payload: bytes, now: int) -> None:
        """Take what the node says."""
        before, epoch = self.list_waiting(), self.spool.epoch
        self.uplink.receive(topic, payload, self._clock(now))
        if self.board is not None:
            self.board.look(self._clock(now))
        if self.spool.epoch != epoch:  # it was erased, and begins above its old numbers
            for place, number in enumerate(sorted(before), 1):
                told = self.told.pop(number)
                told = Told(self.spool.epoch, place, told.vector, told.time)
                self.told[told.epoch, told.sequence] = told
        elif topic.endswith("/ack"):
            self.freed |= before - self.list_waiting()

    def list_waiting(self) -> set[tuple[int, int]]:
        """Return the numbers that the device still has to tell."""
        found: set[tuple[int, int]] = set()
        epoch, _, vectors = self.spool.peek(self.field_now - self._started, 1 << 20, 10_000)
        if not vectors:
            return found
        first = vectors[0][2] << 8 | vectors[0][3]
        # A vector has 16 bits of its number, and only one epoch is peeked at a time.
        for told in self.told:
            if told[0] > epoch or (told[0] == epoch and told[1] & 0xFFFF >= first):
                found.add(told)
        return found

    def die(self) -> None:
        """Lose the power."""
        self.is_up = False


def seal_as_device(
    link: frames.Link, answer: frames.HelloAnswer, kind: int, number: tuple[int, int], body: bytes
) -> bytes:
    """Return a frame with a good tag, whatever is in it; batches belong to the answer.

    `number` is that of the frame, or of the last notification in a batch.
    """
    epoch, sequence = number
    if kind != frames.NOTIFICATIONS:
        return frames.seal(link, frames.UP, frames.Frame(kind, epoch, sequence, body))
    if epoch != answer.device_epoch:
        kind, body = frames.EARLIER, epoch.to_bytes(4, "big") + bytes(2) + body
    elif sequence >> 16:
        kind, body = frames.LATER, (sequence >> 16).to_bytes(2, "big") + body
    body = body[: frames.MAX_LENGTH - frames.OVERHEAD]
    frame = frames.Frame(kind, answer.device_epoch, sequence, body)
    return frames.seal(link, frames.UP, frame, answer)


def _walk(rng: Random, event: int, level: int, last: int) -> int:  # noqa: ARG001
    """Return the next reading: near the last one, sometimes far."""
    if rng.random() < 0.1:
        return rng.randrange(last + 1)
    return min(last, max(0, level + rng.randrange(-last // 16, last // 16 + 1)))


__all__ = ["EmulatedDevice", "PowerCut", "Sense", "Taken", "Told", "seal_as_device"]
