"""A spool in blocks of a littlefs: as little wear as the raw ring, and the file system stays whole.

Runs where MicroPython has its littlefs, on a counting block device.
"""

import unittest

try:
    import vfs
    from vfs import VfsLfs2
except ImportError:
    raise unittest.SkipTest("there is no littlefs in this runtime") from None

import os

from denwatch.watchdog.ring import CarvedBlocks, FileBlocks
from denwatch.watchdog.spool import Spool

from tests.watchdog.flash import Flash, make_vector, read_all, require_heap

require_heap(900_000)
COUNT = 28
BLOCKS = 6


class LittleFs:
    """A board's flash with its file system; `reset` is a start with what the flash has."""

    def __init__(self):
        self.flash = Flash(COUNT, 4096)
        VfsLfs2.mkfs(self.flash)
        self.mount()

    def mount(self):
        vfs.mount(VfsLfs2(self.flash), "/flash")

    def unmount(self):
        vfs.umount("/flash")

    def reset(self):
        self.unmount()
        self.flash = Flash(COUNT, 4096, self.flash.take_image())
        self.mount()

    def open_spool(self, now=0):
        return Spool(CarvedBlocks("/flash/spool", BLOCKS, self.flash), now)


def fill(spool, first, count):
    for i in range(first, first + count):
        spool.put(make_vector(i), 100, i)
        spool.flush(i)  # each must last


class CarvedTest(unittest.TestCase):
    def setUp(self):
        self.board = LittleFs()

    def tearDown(self):
        self.board.unmount()

    def test_a_notification_costs_less_than_a_tenth_of_an_erase(self):
        spool = self.board.open_spool()
        before = sum(self.board.flash.erases)
        fill(spool, 0, 300)
        self.assertTrue((sum(self.board.flash.erases) - before) / 300 <= 0.1)

    def test_what_a_file_of_the_file_system_costs(self):
        """The way of before: ten times more than an erase a notification."""
        spool = Spool(FileBlocks("/flash/spool.bin", BLOCKS), 0)
        before = sum(self.board.flash.erases)
        fill(spool, 0, 5)
        self.assertTrue((sum(self.board.flash.erases) - before) / 5 > 1)

    def test_the_spool_is_there_after_a_start_and_so_are_all_files(self):
        with open("/flash/config", "w") as file:  # noqa: PTH123
            file.write("kept" * 2000)
        spool = self.board.open_spool()
        erases = sum(self.board.flash.erases)
        fill(spool, 0, 40)
        self.board.reset()
        spool = self.board.open_spool()
        self.assertEqual(sum(self.board.flash.erases), 0, "nothing is carved twice")
        self.assertTrue(erases > BLOCKS)
        for i in range(60):  # the file system works on beside it
            with open("/flash/other" + str(i % 3), "w") as file:  # noqa: PTH123
                file.write(str(i) * 3000)
            fill(spool, 40 + i, 1)
        self.board.reset()
        found = read_all(self.board.open_spool(1000), 1000)
        self.assertEqual([entry[3] for entry in found], [make_vector(i) for i in range(100)])
        with open("/flash/config") as file:  # noqa: PTH123
            self.assertEqual(file.read(), "kept" * 2000)
        for i in range(3):
            with open("/flash/other" + str(i)) as file:  # noqa: PTH123
                self.assertEqual(file.read(), str(57 + i) * 3000)

    def test_a_file_that_was_removed_is_carved_anew(self):
        spool = self.board.open_spool()
        fill(spool, 0, 3)
        os.remove("/flash/spool.5")  # noqa: PTH107
        with open("/flash/other", "w") as file:  # noqa: PTH123 - takes its block
            file.write("x" * 4096)
        self.board.reset()
        spool = self.board.open_spool()
        fill(spool, 3, 600)
        with open("/flash/other") as file:  # noqa: PTH123
            self.assertEqual(file.read(), "x" * 4096)
        self.assertEqual(len(os.listdir("/flash")), BLOCKS + 2)  # noqa: PTH208

    def test_a_power_cut_while_it_is_carved(self):
        """Every 23rd operation leaves an image in the middle of it, which then starts."""
        image = self.board.flash.take_image()
        self.board.open_spool()
        for cut in range(1, self.board.flash.operations, 23):
            self.start(image)
            left = []
            changes = [0]

            def keep(torn, left=left, changes=changes, cut=cut):
                changes[0] += 1
                if changes[0] == cut:
                    left.append(bytes(torn))

            self.board.flash.on_change = keep
            self.board.open_spool()
            self.start(left[0] if left else self.board.flash.take_image())
            fill(self.board.open_spool(), 0, 4)
            self.board.reset()
            self.assertEqual(len(read_all(self.board.open_spool(9), 9)), 4, cut)

    def start(self, image):
        self.board.unmount()
        self.board.flash = Flash(COUNT, 4096, image)
        self.board.mount()
