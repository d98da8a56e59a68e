"""Updates over the air on a littlefs whose power is cut in every operation of the flash.

Runs where MicroPython has its littlefs. The three rules without which a board would be lost are
each left out once, to see that the check finds it.
"""

import unittest

try:
    import vfs
    from vfs import VfsLfs2
except ImportError:
    raise unittest.SkipTest("there is no littlefs in this runtime") from None

import os

from denwatch.watchdog import slots
from denwatch.watchdog.update import ImageUpdate

from tests.watchdog.flash import Flash, PowerCut, require_heap
from tests.watchdog.updates import (
    Board,
    Bricked,
    Image,
    Journal,
    check,
    check_resumed,
    live,
    make_code,
    write,
)

require_heap(900_000)
COUNT = 80
SIZE = 1024


class DyingFlash(Flash):
    """A flash that is gone for good after a cut: closing a file does not hide the cut either."""

    def readblocks(self, block, buf, offset=0):
        if self.is_dead:
            raise GONE
        super().readblocks(block, buf, offset)

    def writeblocks(self, block, buf, offset=0):
        if self.is_dead:
            raise GONE
        super().writeblocks(block, buf, offset)

    def ioctl(self, operation, argument):
        if self.is_dead:
            raise GONE
        return super().ioctl(operation, argument)


GONE = PowerCut()  # made before: collecting garbage closes files, too, and must not allocate


class Cutter:
    """Starts a copy of what a cut in every `every`th operation would leave; the life goes on."""

    def __init__(self, every=1, resume=11, seed=1):
        self.every = every
        self.seed = seed
        self.resume = resume
        self.journal = Journal()
        self.operations = self.cuts = self.resumed = self.second_cuts = 0

    def run(self):
        """Live one life with cuts; return how many there were."""
        flash = Flash(COUNT, SIZE, seed=self.seed)
        VfsLfs2.mkfs(flash)
        mount(flash)
        try:
            life = live(Board(), self.journal)
            next(life)
            flash.on_change = self.cut
            for _ in life:
                pass
        finally:
            unmount()
        return self.cuts

    def cut(self, torn):
        self.operations += 1
        if self.operations % self.every:
            return
        self.cuts += 1
        kept = slots.slot, slots.is_trial, slots.path
        flash = DyingFlash(COUNT, SIZE, torn, seed=self.cuts, own=True)
        board = Board()
        with Copy(flash):
            if self.cuts % self.resume == 0 and self.journal.image is not None:
                self.resumed += 1
                flash.cut_at = 1 + self.cuts % 97  # a second cut on the way
                try:
                    check_resumed(board, self.journal.image)
                    flash.cut_at = 0
                except PowerCut:
                    self.second_cuts += 1
        if flash.is_dead:
            flash.image = b""  # files of the dead one may hold it for long
            flash = Flash(COUNT, SIZE, torn, own=True)
        with Copy(flash):
            if self.cuts % self.resume == 0 and self.journal.image is not None:
                check_resumed(board, self.journal.image)
                self.end_trial(board)
            else:
                check(board, self.journal)
        slots.slot, slots.is_trial, slots.path = kept

    def end_trial(self, board):
        for _ in range(slots.TRIES + 1):
            board.start()
        if slots.is_trial:
            raise Bricked("a trial never ends")


class Copy:
    """Another flash in the place of the one that lives."""

    def __init__(self, flash):
        self.flash = flash

    def __enter__(self):
        vfs.mount(VfsLfs2(self.flash), "/copy")
        os.chdir("/copy")

    def __exit__(self, *_):
        os.chdir("/flash")
        try:  # noqa: SIM105 - nothing would suppress it on a device
            vfs.umount("/copy")
        except PowerCut:
            pass


def mount(flash):
    vfs.mount(VfsLfs2(flash), "/flash")
    os.chdir("/flash")


def unmount():
    os.chdir("/")
    vfs.umount("/flash")


class CutsTest(unittest.TestCase):
    def test_no_cut_leaves_a_board_that_does_not_start(self):
        cutter = Cutter()
        self.assertTrue(cutter.run() > 300)
        self.assertTrue(cutter.resumed > 10)
        self.assertTrue(cutter.second_cuts > 3)

    def find_broken(self, name, value, every=5):
        """Leave out a rule; return what the check says."""
        rule = getattr(slots, name)
        setattr(slots, name, value)
        try:
            Cutter(every).run()
        except Bricked as error:
            return str(error)
        finally:
            setattr(slots, name, rule)
        return ""

    def test_an_update_into_the_slot_that_runs_would_be_found(self):
        self.assertTrue(self.find_broken("find_other", lambda: "a"))

    def test_trials_that_are_not_counted_would_be_found(self):
        real = slots.write

        def write_uncounted(current, trial, _, image):
            real(current, trial, slots.TRIES if trial != slots.NONE else 0, image)

        self.assertTrue(self.find_broken("write", write_uncounted))

    def test_a_file_that_rots_before_the_trial_is_fetched_again(self):
        flash = Flash(COUNT, SIZE)
        VfsLfs2.mkfs(flash)
        mount(flash)
        try:
            board = Board()
            board.install(Image("1", make_code("1")))
            board.start()
            image = Image("2", make_code("2"))
            rotten = []

            class Rotting(ImageUpdate):
                def _complete(self):
                    if not rotten:
                        rotten.append(1)
                        write("a/denwatch/watchdog/part1.mpy", b"x" * 2400)
                    super()._complete()

            board.make = Rotting
            board.start()
            self.assertTrue(board.offer(image))
            self.assertEqual(board.start(), "2")
            with open("a/denwatch/watchdog/part1.mpy", "rb") as file:  # noqa: PTH123
                self.assertEqual(file.read(), image.paths["denwatch/watchdog/part1.mpy"])
        finally:
            unmount()
