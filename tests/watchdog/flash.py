"""A flash chip that can lose its power in any operation, and the models that the tests hold it to.

NOR flash: programming clears bits, only an erase sets them. A cut leaves an operation done in part.
With `cached`, as a file system does, what was not synced may be lost in any order. What a cut left
is always looked at through a new Flash.
"""

import gc
import unittest

from denwatch.watchdog.ring import COUNT, ERASE, SIZE, SYNC


def require_heap(size):
    """Skip a file whose simulated flash finds no room beside the program that it tests."""
    if hasattr(gc, "mem_free") and gc.mem_free() + gc.mem_alloc() < size:
        raise unittest.SkipTest(f"a flash is simulated in memory: needs a heap of {size} bytes")


class PowerCut(BaseException):
    """The power is gone: nothing of the program runs on."""


class Random:
    """A small generator, the same on every runtime."""

    def __init__(self, seed):
        self.state = seed * 2 + 1

    def bits(self, count):
        self.state = (self.state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self.state >> 8) & ((1 << count) - 1)

    def below(self, limit):
        return self.bits(20) % limit


class Flash:
    """`on_change(torn)` is called before each change with what a cut in the middle would leave.

    With `own`, the flash changes the very image that it is given, a bytearray, and copies nothing.
    """

    def __init__(self, count=4, size=1024, image=None, cut_at=0, seed=1, cached=False, own=False):
        self.count = count
        self.size = size
        self.image = image if own else bytearray(image or b"\xff" * (count * size))
        self.cut_at = cut_at
        self.on_change = None
        self.operations = 0
        self.random = Random(seed)
        self.cached = cached
        self.pending = []  # what stood in places that were changed since the last sync
        self.erases = [0] * count
        self.failing = set()  # blocks that refuse
        self.is_dead = False

    def readblocks(self, block, buf, offset=0):
        start = block * self.size + offset
        assert offset + len(buf) <= self.size
        buf[:] = self.image[start : start + len(buf)]

    def writeblocks(self, block, buf, offset=0):
        assert offset + len(buf) <= self.size
        if block in self.failing:
            raise OSError(5)
        self._change(block * self.size + offset, bytes(buf), False)

    def ioctl(self, operation, argument):
        if operation == COUNT:
            return self.count
        if operation == SIZE:
            return self.size
        if operation == ERASE:
            if argument in self.failing:
                raise OSError(5)
            self.erases[argument] += 1
            self._change(argument * self.size, b"\xff" * self.size, True)
        elif operation == SYNC:
            self.pending = []
        return 0

    def take_image(self):
        return bytes(self.image)

    def _change(self, start, data, is_erase):
        assert not self.is_dead, "the program ran on without power"
        self.operations += 1
        if self.on_change is not None:
            self.on_change(self._tear(bytearray(self.image), start, data, is_erase))
        if self.operations == self.cut_at:
            self._tear(self.image, start, data, is_erase)
            self.is_dead = True
            raise PowerCut
        if self.cached:
            self.pending.append((start, bytes(self.image[start : start + len(data)])))
        self.image[start : start + len(data)] = self._merge(self.image, start, data, is_erase)

    def _merge(self, image, start, data, is_erase):
        if is_erase:
            return data
        return bytes([image[start + i] & data[i] for i in range(len(data))])

    def _tear(self, image, start, data, is_erase):
        """Do a part of a change to the image: a stretch wholly, then some bits of a byte."""
        done = (0, len(data), self.random.below(len(data) + 1))[self.random.below(3)]
        before = bytes(image[start : start + len(data)])
        image[start : start + done] = self._merge(image, start, data[:done], is_erase)
        if done < len(data):
            old = image[start + done]
            noise = self.random.bits(8)
            image[start + done] = old | noise if is_erase else old & (data[done] | noise)
        if self.cached:  # which of the writes since the last sync survive is the disk's choice
            pending = self.pending + [(start, before)]
            while pending:
                start, before = pending.pop()
                if self.random.below(2):
                    image[start : start + len(before)] = before
        return image


def make_vector(number, length=11):
    """Return a notification vector whose body tells which one it is."""
    vector = bytearray([0x81, 0, 0, 0, 0, 0, 0, 7]) + bytes(length - 8)
    vector[8] = number >> 8 & 255
    vector[9] = number & 255
    vector[10] = number * 7 & 255
    return bytes(vector)


def read_all(spool, now):
    """Return (epoch, sequence, age code, vector without both) of all that waits, in order.

    Reads by acknowledging in memory only: the spool is of no use afterwards.
    """
    found = []
    while True:
        epoch, last, vectors = spool.peek(now, 4000)
        if not vectors:
            return found
        for vector in vectors:
            sequence = vector[2] << 8 | vector[3]
            age = vector[4] << 8 | vector[5]
            found.append((epoch, sequence, age, vector[:2] + bytes(4) + vector[6:]))
        spool.acknowledge(epoch, last, now)
