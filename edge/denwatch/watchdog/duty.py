"""The duty cycle: wake, sample, decide, connect, drain, listen, sleep; and what is kept meanwhile.

A wake waits for the sensors that are due, and then decides whether to switch the radio on
(`choose_reason`): for a reading of a high degree, for what has waited long enough, on every Nth
wake, and always while no node was ever heard. A connection lasts until the node has everything and
has sent what it wants to send, and no longer than the radio's budget. After a failure the radio
stays off for 2, 4, 8, ... wakes, whatever waits: a node that is gone must not empty the battery.

Deep sleep clears the memory. What is kept (`Kept`) goes to the memory of the real-time clock;
where that is too small for the subscriptions they go to a file, and where there is none,
everything does. It counts only after a wake from deep sleep, for the same configuration, and if
the spool has not started since (`Spool`): then the epoch goes on, and the node need not send every
subscription again. Otherwise it is forgotten, and the device starts as after a power cut.
"""

import asyncio
from array import array
from binascii import crc32

from ..protocol.degrees import const
from ..protocol.errors import ProtocolError
from .check import check
from .filter import is_significant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .app import Watchdog
    from .execution import Event
    from .fuzzy import Fuzzy

URGENT = const(1)  # why the radio is on
DUE = const(2)
REGULAR = const(3)
_SOON = const(2000)  # ms that are not worth a sleep: waking takes about half of it
_WAKE = const(1000)  # ms that waking takes
_QUIET = const(700)  # ms without a word of the node: it has said everything
_LONGEST_PAUSE = const(6)  # binary logarithm of the wakes between attempts that fail

# Words of what is kept. The first four are the spool's (`note_sleep`), with a clock of 64 bits.
_NOW = const(3)
_WALL = const(5)  # the board's clock at that time, s
_SLEPT = const(6)  # ms that were planned
_CONFIG = const(7)  # CRC of the configuration
_TABLE = const(8)  # CRC of the subscriptions, if they are in the file
_HELLOS = const(9)
_SINCE = const(10)  # second since which something waits, 0: nothing does
_PAUSE = const(11)  # wakes since the last attempt to connect ...
_FAILED = const(12)  # ... and how many failed since the last that did not
_ALARM = const(13)  # the highest degree that is not delivered yet
WAKES = const(14)  # counted since the power came
RADIO = const(15)  # ms
REASONS = const(15)  # + URGENT, DUE, REGULAR: how often each
_BATCHES = const(19)
_WORDS = const(20)
_EVENT = const(10)  # bytes of an event: ms until it is due, faults told, seconds since
_FILE = "kept.bin"


class SleepSettings:
    """What `sleep` of a configuration may say; a number is `longest` alone. Times in ms."""

    longest = 600_000  # a sleep
    every = 10  # wakes, at most, between connections
    urgent = 128  # the degree from which a reading is sent at once
    wait = 900_000  # a reading of a lower degree waits at most so long
    radio = 15_000  # a connection, from switching the radio on

    def __init__(self, sleep: "int | dict[str, int]") -> None:
        changes = {"longest": sleep} if isinstance(sleep, int) else sleep
        for name in changes:
            getattr(self, name)  # an AttributeError names what there is not
            setattr(self, name, changes[name])


def plan_sleep(now: int, due: int, longest: int) -> int:
    """Return for how many ms to sleep until the next sampling; 0: stay awake."""
    left = due - now - _WAKE
    return min(left, longest) if left > _WAKE else 0


def choose_reason(alarm: int, waited: int, pause: int, failed: int, s: SleepSettings) -> int:
    """Return why to connect now, 0: do not. `alarm` is the highest degree that waits, `waited`
    the ms that the oldest notification has, `pause` the wakes since the last attempt,
    `failed` how many attempts failed in a row."""
    if failed and pause < 1 << min(failed, _LONGEST_PAUSE):
        return 0
    if alarm >= s.urgent:
        return URGENT
    if waited >= s.wait:
        return DUE
    return REGULAR if failed or pause >= s.every else 0


# What is kept -----------------------------------------------------------------------------------


def freeze(language: "Fuzzy") -> bytes:
    """Return the subscriptions with their deadlines and memories, to be kept over a sleep."""
    filter = language.filter
    body = language.soonest.to_bytes(4, "big") + len(language.twins).to_bytes(2, "big")
    for twin in language.twins:
        body += (twin << 16 | language.twins[twin]).to_bytes(4, "big")
    body += filter.buffer[: filter.used]
    return crc32(body).to_bytes(4, "big") + body


def thaw(language: "Fuzzy", data: bytes) -> int:
    """Put frozen subscriptions into an empty language; return how many.

    The clock must have gone on meanwhile, for deadlines are its seconds. ProtocolError if the data
    is not what `freeze` returned; the language is then empty.
    """
    if len(data) < 10 or crc32(data[4:]) != _read(data, 0, 4):
        raise ProtocolError("damaged", 0)
    stop = at = 10 + 4 * _read(data, 8, 2)  # behind checksum, next deadline, twins
    while at < len(data):
        event = data[at]
        end = at + 6 + _read(data, at + 3, 3)
        at += 6
        while at < end:
            frame = bytes([0x40 | event]) + data[at + 1 : at + data[at]]
            place = check(frame)
            start = at = at + len(frame)
            if frame[5]:
                at += 2
            if is_significant(frame, 0):
                at += data[at]
            language.add(frame, data[start:at], place)
    for i in range(10, stop, 4):
        language.twins[_read(data, i, 2)] = _read(data, i + 2, 2)
    language.soonest = _read(data, 4, 4)
    return language.filter.count + len(language.twins)


def _read(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


class Kept:
    """What a device remembers over a deep sleep: numbers, when events are due, subscriptions."""

    def __init__(self, config: int) -> None:
        self.words = array("I", [0] * _WORDS)
        self.words[_CONFIG] = config
        self._events = self._table = b""
        self.is_awake = False  # whether this start is a wake

    def load(self, board: "Any") -> bool:
        """Take what the last sleep kept; False if there is none, or of another configuration."""
        if board.read_reset_reason() not in (3, 4):  # an RP2040 wakes by its watchdog
            return False
        data = board.read_kept() or _read_file()
        size = 4 * _WORDS
        if len(data) < 8 + size or crc32(data[4:]) != _read(data, 0, 4):
            return False
        words = array("I", [_read(data, 4 + i, 4) for i in range(0, size, 4)])
        size += 5 + data[4 + size] * _EVENT
        table = _read_file() if words[_TABLE] else data[size:]
        if words[_CONFIG] != self.words[_CONFIG] or words[_TABLE] not in (0, crc32(table)):
            return False
        self.words = words
        self._events = data[5 + 4 * _WORDS : size]
        self._table = table
        self.is_awake = True
        return True

    def save(self, board: "Any", language: "Fuzzy", events: "list[Event]") -> None:
        """Write everything where it outlasts a deep sleep, to the least place that has room."""
        now = self._read_now()
        body = bytes([len(events)])
        for event in events:
            body += max(event.due - now, 0).to_bytes(4, "big") + event.told.to_bytes(2, "big")
            body += (max(now - event.told_at, 0) // 1000).to_bytes(4, "big")
        table = freeze(language)
        last = self.words[_TABLE]
        self.words[_TABLE] = 0
        if board.keep(self._seal(body + table)):
            return
        self.words[_TABLE] = crc32(table)
        if board.keep(self._seal(body)):
            if last != self.words[_TABLE] or _read_file() != table:  # flash wears
                _write_file(table)
        else:
            self.words[_TABLE] = 0
            _write_file(self._seal(body + table))

    def _seal(self, body: bytes) -> bytes:
        data = b"".join([word.to_bytes(4, "big") for word in self.words]) + body
        return crc32(data).to_bytes(4, "big") + data

    def find_clock(self, wall: "int | None") -> int:
        """Return the ms of the clock now: what the board's clock says, or the sleep as planned."""
        words = self.words
        gone = -1 if wall is None else wall - words[_WALL]
        gone = words[_SLEPT] if gone < words[_SLEPT] // 2000 else gone * 1000
        return self._read_now() + gone

    def read_resume(self) -> "tuple[int, int, int, int] | None":
        """Return what the spool needs to go on; None: this is no wake."""
        words = self.words
        return (words[0], words[1], words[2], self._read_now()) if self.is_awake else None

    def _read_now(self) -> int:
        return self.words[_NOW] << 32 | self.words[_NOW + 1]

    def restore(self, dog: "Watchdog") -> None:
        """Put subscriptions, events and hellos into a watchdog whose spool goes on."""
        if not self.is_awake:
            return
        try:
            if not dog.spool.is_resumed:
                raise ValueError("started since")
            thaw(dog.language, self._table)
            dog.uplink.hello_count = self.words[_HELLOS]
            dog.uplink.batch_count = self.words[_BATCHES]
            now = self._read_now()
            at = 0
            for event in dog.execution.events:
                event.due = now + _read(self._events, at, 4)
                event.told = _read(self._events, at + 4, 2)
                event.told_at = now - 1000 * _read(self._events, at + 6, 4)
                at += _EVENT
        except ValueError as error:  # the node sends them again, for the epoch is another one
            dog.log("kept: " + str(error))
            self.words[_PAUSE] = 0xFFFF
            if dog.spool.is_resumed:
                dog.spool.begin(dog.spool.epoch + 1, dog.clock())
        self._events = self._table = b""


def _read_file() -> bytes:
    try:
        with open(_FILE, "rb") as file:  # noqa: PTH123 - no pathlib on a device
            return file.read()
    except OSError:
        return b""


def _write_file(data: bytes) -> None:
    with open(_FILE, "wb") as file:  # noqa: PTH123 - littlefs replaces it as a whole
        file.write(data)


# The cycle --------------------------------------------------------------------------------------


class DutyCycle:
    """Runs one watchdog between two sleeps. `radio` is its Wi-Fi, None where there is none."""

    def __init__(self, dog: "Watchdog", kept: Kept, board: "Any", wall: "Any") -> None:
        self._dog = dog
        self._board = board
        self._wall = wall  # returns the second of the board's clock, or None
        self._settings = SleepSettings(dog.config["sleep"])
        self.words = kept.words
        self._kept = kept
        if not kept.is_awake:
            kept.words[_PAUSE] = self._settings.every

    async def run(self) -> None:
        """Sample, connect if there is a reason, sleep; again, where a sleep is not worth it."""
        dog = self._dog
        words = self.words
        while True:
            words[WAKES] += 1
            words[_PAUSE] = min(words[_PAUSE] + 1, 0xFFFF)
            await self._sample()
            now = dog.clock()
            self._note_waiting(now)
            waited = now - 1000 * words[_SINCE] if words[_SINCE] else -1
            reason = choose_reason(
                words[_ALARM], waited, words[_PAUSE], words[_FAILED], self._settings
            )
            if reason:
                words[REASONS + reason] += 1
                await self._connect()
            self._sleep()
            await asyncio.sleep(0)

    async def _sample(self) -> None:
        """Take all readings that are due now or soon."""
        dog = self._dog
        while True:
            now = dog.clock()
            dog.execution.step(now)
            dog.guard.check(now)
            wait = dog.execution.find_next() - dog.clock()
            if wait > _SOON:
                return
            if wait > 0:
                self._board.doze(min(wait, 1000))
            await asyncio.sleep(0)

    def _note_waiting(self, now: int) -> None:
        words = self.words
        if not self._dog.spool.has_waiting():
            words[_SINCE] = words[_ALARM] = 0
        else:
            words[_SINCE] = words[_SINCE] or now // 1000 or 1
            words[_ALARM] = max(words[_ALARM], self._dog.execution.highest)
        self._dog.execution.highest = 0

    async def _connect(self) -> None:
        """Switch the radio on, until the node and this device have nothing more to say."""
        dog = self._dog
        words = self.words
        start = dog.clock()
        dog.spool.flush(start)  # a battery may give way when the radio starts
        dog.start_radio()
        words[_PAUSE] = 0
        words[_FAILED] = min(words[_FAILED] + 1, 255)
        now = start
        while now - start < self._settings.radio:
            await asyncio.sleep(0.02)
            now = dog.clock()
            dog.guard.check(now)
            dog.execution.step(now)
            if dog.uplink.is_answered:
                words[_FAILED] = 0
                if dog.crashes:
                    dog.forget_crashes()
                if dog.uplink.is_settled(now, _QUIET):
                    break
        await dog.stop_radio()
        words[RADIO] += dog.clock() - start
        self._note_waiting(now)

    def _sleep(self) -> None:
        dog = self._dog
        now = dog.clock()
        duration = plan_sleep(now, dog.execution.find_next(), self._settings.longest)
        if not duration:
            return
        words = self.words
        words[0], words[1], words[2], now = dog.spool.note_sleep(now)
        words[_NOW], words[_NOW + 1] = now >> 32, now & 0xFFFFFFFF
        words[_WALL] = self._wall() or 0
        words[_SLEPT] = duration
        words[_HELLOS] = dog.uplink.hello_count
        words[_BATCHES] = dog.uplink.batch_count
        self._kept.save(self._board, dog.language, dog.execution.events)
        self._board.sleep_deeply(duration)

    def describe(self) -> dict[int, int]:
        """Return wakes, seconds of radio, and how often for which reason, as a hello says them."""
        words = self.words
        facts = {2: words[WAKES], 3: words[RADIO] // 1000}
        for reason in (URGENT, DUE, REGULAR):
            facts[3 + reason] = words[REASONS + reason]
        return facts
