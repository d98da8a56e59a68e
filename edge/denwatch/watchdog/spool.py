"""The spool: notifications that wait for the node's acknowledgement, through sleep and power cuts.

A notification is (epoch, sequence): the epoch grows by one at every start and is on the flash
before anything is sent, so that no number is ever used twice. New ones stand in memory first; those
that are not acknowledged soon go to the flash (`flush`), and from then on a power cut cannot take
them. Only `acknowledge` frees. If everything is full, the lowest degree x freshness goes first.

A wake from a planned sleep goes on with the epoch and its sequence, if what was kept is of the
last sleep: the state counts wakes and is written before a number is used, so that a board which
crashes after its wake cannot use the same numbers twice.

Time is kept as sixteenths of a second on a line that goes on over starts: a sleep or reset through
which the board's clock ran is part of every age. Without such a clock ages are what is certain, not
less, and `undated` counts the notifications that are concerned.
"""

from binascii import crc32

from ..protocol.degrees import const
from ..protocol.timecode import encode_age
from .ring import (
    ACK_EPOCH,
    ACK_SEQUENCE,
    LIVE,
    MAX_BODY,
    NOTE,
    RECORD,
    Ring,
    RingError,
    measure,
    read_word,
    sum_record,
    write_word,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .ring import BlockDevice

# Words of the state; the ring has its own two at 1 and 2.
_EPOCH = const(0)
_TIME = const(3)  # a time that the line has reached
_WALL = const(4)  # second of the board's clock at time 0 of the line, modulo 2**32
_DATED = const(5)  # lowest bit: the word before means something; above it: how often it started
_DROPPED = const(6)
_SEEN = const(7)  # per node: CRC of its name, its epoch, its sequence
NODES = const(4)
_WORDS = const(19)

HALF_LIFE = const(3600 * 16)  # after an hour a notification is worth half
_YEAR = const(366 * 86400 * 16)
_BATCH = const(8)  # how many go at once when all is full
_SAVE = const(64)  # acknowledged notifications, before that is written


class Spool:
    """Holds notifications on a block device, behind a small buffer in memory.

    `now` is in milliseconds on a clock that never goes back; `wall` in seconds on one that runs
    through deep sleep and resets, or None.
    """

    RING = Ring  # the tests put in rings that leave out a rule

    def __init__(
        self,
        device: "BlockDevice",
        now: int,
        wall: "int | None" = None,
        front: int = 1024,
        half_life: int = HALF_LIFE,
        resume: "tuple[int, int, int, int] | None" = None,
        leap: int = 0,
    ) -> None:
        """`resume` is what `note_sleep` returned before a planned sleep.

        `leap` is a random number below 2 ** 28: how far beyond 1 an empty spool begins.
        """
        self._leap = leap
        self._ring = self.RING(device, _WORDS)
        self._front = bytearray(front)
        self._used = 0
        self._sequence = 0
        self._half_life = half_life
        self._unsaved = 0
        self.undated = 0
        self.dropped_here = 0  # since this start
        self.is_resumed = False  # whether the numbers before the sleep go on
        self._start(now, wall, resume)
        self.epoch = self._ring.words[_EPOCH]

    @property
    def dropped(self) -> int:
        """How many notifications a full spool has dropped, ever."""
        return self._ring.words[_DROPPED]

    def report(self) -> dict[str, int]:
        """Return what there is to know: counters, and whether something waits."""
        return {
            "waiting": int(self.has_waiting()),
            "dropped": self.dropped,
            "undated": self.undated,
            "damaged": self._ring.damaged,  # places that held neither a record nor nothing
            "errors": self._ring.medium.errors,  # what the flash refused or got wrong
        }

    def _start(
        self, now: int, wall: "int | None", resume: "tuple[int, int, int, int] | None"
    ) -> None:
        ring = self._ring
        words = ring.words
        ring.mount()
        starts = words[_DATED] >> 1
        if resume is not None and (resume[0], resume[2]) == (words[_EPOCH], starts):
            self.is_resumed = True
            self._sequence = resume[1]
        else:
            words[_EPOCH] = 1 + (words[_EPOCH] or self._leap)
        time = words[_TIME]
        for _, block in ring.list_blocks():
            for _ in ring.scan(block):
                if ring.is_live():
                    time = max(time, read_word(ring.record, 12))
                    self.undated += 1
        if self.is_resumed and resume is not None:
            time = words[_TIME] + max(now - resume[3], 0) * 2 // 125
            self.undated = 0
        elif wall is not None and words[_DATED] & 1:
            gone = ((wall - words[_WALL]) & 0xFFFFFFFF) * 16 - time
            if self._is_plausible(gone):
                time += max(gone, 0)
                self.undated = 0
        self._zero = time - now * 2 // 125
        words[_TIME] = time
        words[_DATED] = (starts + 1 & 0x7FFFFFFF) << 1 | (wall is not None)
        words[_WALL] = ((wall or 0) - time // 16) & 0xFFFFFFFF
        if not self._save(now):
            raise RingError("no block takes the epoch")
        ring.medium.sync()

    def _is_plausible(self, gone: int) -> bool:
        """Return whether a clock can have gone on so far; one without a battery starts anew."""
        return -16 <= gone <= _YEAR

    def _read_time(self, now: int) -> int:
        """Return the sixteenths of a second on the line."""
        return now * 2 // 125 + self._zero

    # In

    def put(self, vector: bytes, degree: int, now: int) -> int:
        """Take a notification vector; return its sequence. Allocates only when memory is full."""
        length = len(vector)
        if not 8 <= length <= MAX_BODY:
            raise ValueError("bytes: " + str(length))
        if self._used + measure(length) > len(self._front):
            self.flush(now)
        self._sequence += 1
        front = self._front
        at = self._used
        front[at] = LIVE
        front[at + 1] = NOTE
        front[at + 2] = length
        front[at + 3] = degree
        write_word(front, at + 4, self.epoch)
        write_word(front, at + 8, self._sequence)
        write_word(front, at + 12, self._read_time(now))
        for i in range(length):
            front[at + RECORD + i] = vector[i]
        self._used = at + measure(length)
        return self._sequence

    def flush(self, now: int) -> None:
        """Write what stands in memory to the flash: when this returns, a cut cannot take it."""
        if not self._used:
            return
        at = 0
        while at < self._used:
            size = measure(self._front[at + 2])
            if self._front[at] == LIVE:
                view = memoryview(self._front)[at : at + size]
                write_word(self._front, at + 16, sum_record(view))
                if not self._ring.append(view):
                    self._make_room(at, now)
                    continue
                self._front[at] = 0
            at += size
        self._used = 0
        self._ring.medium.sync()

    def _make_room(self, at: int, now: int) -> None:
        """Gather free space, or drop what is worth least until the record in memory fits."""
        ring = self._ring
        block = ring.find_sparse()
        enough = max(measure(MAX_BODY), ring.room // 16)
        if block >= 0 and ring.room - ring.live[block] >= enough and ring.move(block):
            return
        if not self._drop_lowest(now):
            self._front[at] = 0  # the flash takes nothing, not even a mark: this one goes
            self._count_dropped(1)

    def _drop_lowest(self, now: int) -> bool:
        """Drop some notifications of the least degree x freshness; False if that failed."""
        ring = self._ring
        time = self._read_time(now)
        worst: list[tuple[int, int, int, int, int]] = []
        for block in range(len(ring.live)):
            if ring.live[block]:
                for at in ring.scan(block):
                    if ring.is_live():
                        self._rate(worst, ring.record, 0, time, block, at)
        at = 0
        while at < self._used:
            if self._front[at] == LIVE:
                self._rate(worst, self._front, at, time, -1, at)
            at += measure(self._front[at + 2])
        count = 0
        for _, _, block, at, size in worst:
            if block < 0:
                self._front[at] = 0
            elif not ring.kill(block, at, size):
                continue
            count += 1
        self._count_dropped(count)
        return count > 0

    def _count_dropped(self, count: int) -> None:
        self.dropped_here += count
        self._ring.words[_DROPPED] += count

    def _rate(
        self,
        worst: list[tuple[int, int, int, int, int]],
        record: bytearray,
        start: int,
        time: int,
        block: int,
        at: int,
    ) -> None:
        """Enter a record among the worst; of equals the older one goes."""
        taken = read_word(record, start + 12)
        value = record[start + 3] * self._half_life // (self._half_life + time - taken)
        if len(worst) < _BATCH or (value, taken) < worst[-1][:2]:
            worst.append((value, taken, block, at, measure(record[start + 2])))
            worst.sort()
            if len(worst) > _BATCH:
                worst.pop()

    # Out

    def peek(self, now: int, room: int, count: int = 16) -> "tuple[int, int, list[bytes]]":
        """Return epoch, last sequence and vectors of the oldest notifications; they stay.

        All are of one epoch, in order, with their sequence and age, each with its length at most
        `room` bytes together. No vectors: nothing waits.
        """
        ring = self._ring
        batch: list[tuple[int, int, int, bytes, int]] = []
        for low, block in ring.list_blocks():
            if len(batch) == count and batch[-1][:2] < low:
                break
            for _ in ring.scan(block):
                if ring.is_live():
                    self._pick(batch, ring.record, 0, count)
        at = 0
        while at < self._used and len(batch) < count:
            if self._front[at] == LIVE:
                self._pick(batch, self._front, at, count)
            at += measure(self._front[at + 2])
        vectors: list[bytes] = []
        epoch = last = 0
        time = self._read_time(now)
        for number, sequence, taken, vector, _ in batch:
            room -= len(vector) + 1
            if (vectors and number != epoch) or room < 0:
                break
            epoch = number
            last = sequence
            vectors.append(_stamp(vector, sequence, time - taken))
        return epoch, last, vectors

    def _pick(
        self,
        batch: list[tuple[int, int, int, bytes, int]],
        record: bytearray,
        at: int,
        count: int,
        after: tuple[int, int] = (0, 0),
        epoch: int = 0,
    ) -> None:
        """Enter a record among the oldest `after` a number, of epochs below `epoch` or of all."""
        number = (read_word(record, at + 4), read_word(record, at + 8))
        if number <= after or (epoch and number[0] >= epoch):
            return
        if len(batch) < count or number < batch[-1][:2]:
            stop = at + RECORD + record[at + 2]
            batch.append(
                (
                    number[0],
                    number[1],
                    read_word(record, at + 12),
                    bytes(record[at + RECORD : stop]),
                    record[at + 3],
                )
            )
            batch.sort()
            if len(batch) > count:
                batch.pop()

    def find_age(self, now: int) -> int:
        """Return for how many ms the oldest notification has stood in memory only; -1: none."""
        if not self._used:
            return -1
        return (self._read_time(now) - read_word(self._front, 12)) * 125 // 2

    def has_waiting(self) -> bool:
        """Return whether something waits for its acknowledgement."""
        return self._used > 0 or any(self._ring.live)

    def acknowledge(self, epoch: int, sequence: int, now: int) -> bool:
        """Free everything up to a number, because the node has committed it.

        False if that says nothing new, or something that cannot be: what was never sent.
        """
        words = self._ring.words
        if (epoch, sequence) <= (words[ACK_EPOCH], words[ACK_SEQUENCE]):
            return False
        if (epoch, sequence) > (self.epoch, self._sequence):
            return False
        words[ACK_EPOCH] = epoch
        words[ACK_SEQUENCE] = sequence
        self._ring.release()
        self._forget(epoch, sequence)
        self._unsaved += 1
        if self._unsaved >= _SAVE:
            self.save(now)
        return True

    def _forget(self, epoch: int, sequence: int) -> None:
        """Take everything up to a number out of the memory."""
        front = self._front
        at = 0
        while at < self._used:
            if (read_word(front, at + 4), read_word(front, at + 8)) > (epoch, sequence):
                break
            at += measure(front[at + 2])
        self._used -= at
        for i in range(self._used):
            front[i] = front[i + at]

    # What else must survive

    def save(self, now: int) -> None:
        """Write acknowledgement, time and counters: before a sleep, so that nothing goes twice."""
        self.flush(now)
        self._save(now)
        self._ring.medium.sync()

    def note_sleep(self, now: int) -> "tuple[int, int, int, int]":
        """Save everything, and return what the start after a planned sleep takes as `resume`."""
        self.save(now)
        return self.epoch, self._sequence, self._ring.words[_DATED] >> 1, now

    def begin(self, epoch: int, now: int) -> None:
        """Begin a higher epoch, or one beyond it: what waits gets numbers of it, in its order.

        The copies are on the flash before the old ones are freed, by one word: a cut leaves both.
        """
        self.flush(now)
        words = self._ring.words
        epoch += self._leap & 0xFFFF
        self.epoch = words[_EPOCH] = epoch
        self._sequence = 0
        self._save(now)
        last = (0, 0)
        while True:
            batch: list[tuple[int, int, int, bytes, int]] = []
            for _, block in self._ring.list_blocks():
                for _ in self._ring.scan(block):
                    if self._ring.is_live():
                        self._pick(batch, self._ring.record, 0, 16, last, epoch)
            for number, sequence, time, vector, degree in batch:
                self.put(vector, degree, (time - self._zero) * 125 // 2)
                last = (number, sequence)
            self.flush(now)
            if not batch:
                break
        words[ACK_EPOCH] = epoch - 1
        words[ACK_SEQUENCE] = 0xFFFFFFFF
        self._ring.release()
        self.save(now)

    def _save(self, now: int) -> bool:
        self._ring.words[_TIME] = self._read_time(now)
        ring = self._ring
        while not ring.save_state():
            block = ring.find_sparse()
            if block < 0:
                return False
            if ring.room - ring.live[block] < measure(MAX_BODY):
                if not self._drop_lowest(now):
                    return False
            elif not ring.move(block):
                return False
        self._unsaved = 0
        return True

    def note_seen(self, node: str, epoch: int, sequence: int, now: int) -> bool:
        """Remember the number of a node's frame for good; False if it is not a new one."""
        if not self.is_news(node, epoch, sequence):
            return False
        words = self._ring.words
        at = self._find_node(node)
        words[at] = crc32(node.encode())
        words[at + 1] = epoch
        words[at + 2] = sequence
        self._save(now)
        self._ring.medium.sync()
        return True

    def is_news(self, node: str, epoch: int, sequence: int) -> bool:
        """Return whether a node's frame comes after all that were noted of that node."""
        words = self._ring.words
        at = self._find_node(node)
        return not words[at] or (epoch, sequence) > (words[at + 1], words[at + 2])

    def _find_node(self, node: str) -> int:
        """Return where a node's words are, or would be."""
        words = self._ring.words
        name = crc32(node.encode())
        free = -1
        for i in range(NODES):
            at = _SEEN + 3 * i
            if words[at] == name:
                return at
            if free < 0 and not words[at]:
                free = at
        if free < 0:
            raise ValueError("too many nodes")
        return free

    def keep_nodes(self, nodes: list[str]) -> None:
        """Forget the numbers of nodes that are not among these."""
        words = self._ring.words
        names = [crc32(node.encode()) for node in nodes]
        for i in range(NODES):
            at = _SEEN + 3 * i
            if words[at] not in names:
                words[at] = words[at + 1] = words[at + 2] = 0


def _stamp(vector: bytes, sequence: int, age: int) -> bytes:
    """Return a vector with its sequence and its age in sixteenths of a second."""
    stamped = bytearray(vector)
    code = encode_age(max(age, 0))
    stamped[2] = sequence >> 8 & 255
    stamped[3] = sequence & 255
    stamped[4] = code >> 8
    stamped[5] = code & 255
    return bytes(stamped)
