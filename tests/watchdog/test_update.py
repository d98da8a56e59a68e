"""An update over the air, piece by piece, into the slot that does not run."""

import json
import os
import unittest

from denwatch.watchdog import slots
from denwatch.watchdog.seal import unpack
from denwatch.watchdog.update import ImageUpdate

from tests.watchdog.updates import Board, Image, Restart, check_sound, make_code

FOLDER = "update-test.tmp"


def remove(path):
    """Remove a folder with all that is in it."""
    for name in os.listdir(path):  # noqa: PTH208
        inner = path + "/" + name
        if os.stat(inner)[0] & 0x4000:  # noqa: PTH116
            remove(inner)
        else:
            os.remove(inner)  # noqa: PTH107
    os.rmdir(path)  # noqa: PTH106


def load(path):
    with open(path) as file:  # noqa: PTH123
        return json.load(file)


class UpdateTest(unittest.TestCase):
    def setUp(self):
        self.home = os.getcwd()  # noqa: PTH109
        try:  # noqa: SIM105
            remove(FOLDER)
        except OSError:
            pass
        os.mkdir(FOLDER)  # noqa: PTH102
        os.chdir(FOLDER)
        self.board = Board()
        self.board.install(Image("1", make_code("1")))
        self.board.start()
        self.image = Image("2", make_code("2"))

    def tearDown(self):
        if self.board.update._part is not None:
            self.board.update._part.close()
        os.chdir(self.home)
        remove(FOLDER)

    def count_wants(self, image, most=1 << 30):
        """Offer an image; return which files were asked for, and whether the board restarted."""
        asked = []
        real = image.answer

        def answer(want):
            asked.append(unpack(want)[2])
            return real(want)

        image.answer = answer
        is_done = self.board.offer(image, most)
        image.answer = real
        return asked, is_done

    def test_the_manifest_and_what_differs_is_fetched_the_rest_is_copied(self):
        asked, is_done = self.count_wants(self.image)
        self.assertTrue(is_done)
        self.assertEqual(sorted(set(asked)), [0, 2, 3, 4])  # the first file is the same in all
        self.assertEqual(self.board.start(), "2")
        self.assertTrue(slots.is_trial)
        self.assertEqual(check_sound()["capacity"], 512)
        slots.confirm()
        self.assertEqual(self.board.start(), "2")
        self.assertFalse(slots.is_trial)

    def test_a_restart_goes_on_with_the_piece_that_is_missing(self):
        whole = len(self.count_wants(self.image)[0])
        self.board.start()
        slots.confirm()
        self.board.start()
        image = Image("3", make_code("3"))
        asked, is_done = self.count_wants(image, 8)
        self.assertFalse(is_done)
        self.board.update._part.close()  # as a reset in order does; a cut: test_update_cuts.py
        self.board.start()
        rest, is_done = self.count_wants(image)
        self.assertTrue(is_done)
        self.assertEqual(len(asked) + len(rest), whole)

    def test_without_an_answer_of_a_node_the_code_of_before_comes_back(self):
        self.board.offer(self.image)
        self.assertEqual([self.board.start() for _ in range(5)], ["2", "2", "2", "1", "1"])
        self.assertEqual(slots.describe()[2], "".join(f"{byte:02x}" for byte in self.image.id))
        self.assertEqual(self.count_wants(self.image), ([], False))  # it is not tried again
        again = Image("2.1", make_code("2"))  # but the same files may be, as another image
        self.assertEqual(self.count_wants(again), ([0], True))

    def test_a_configuration_is_changed_with_the_code_and_goes_back_with_it(self):
        changes = {"capacity": 900, "sleep": 60_000}
        code = make_code("2")
        code["changes.json"] = json.dumps(changes).encode()
        self.board.offer(Image("2", code))
        self.board.start()
        config = load(slots.path)
        self.assertEqual((config["capacity"], config["sleep"]), (900, 60_000))
        self.assertEqual(config["nodes"], ["secret"])
        slots.confirm()
        code["changes.json"] = b'{"sleep": null}'
        self.board.start()
        self.board.offer(Image("3", code))
        self.board.start()
        self.assertEqual(slots.path, "b/watchdog.json")
        self.assertFalse("sleep" in load(slots.path))
        self.assertEqual(load(slots.path)["capacity"], 900)
        for _ in range(slots.TRIES):
            self.board.start()
        self.assertEqual(slots.path, "a/watchdog.json")
        self.assertEqual(load(slots.path)["sleep"], 60_000)

    def test_files_of_the_version_before_the_last_are_gone(self):
        for version, count in (("2", 4), ("3", 3), ("4", 2)):
            self.board.offer(Image(version, make_code(version, count)))
            self.assertEqual(self.board.start(), version)
            slots.confirm()
            self.board.start()
        self.assertEqual(slots.slot, "a")
        self.assertEqual(len(os.listdir("a/denwatch/watchdog")), 2)  # noqa: PTH208

    def test_wrong_bytes_are_not_kept_and_an_image_that_stays_wrong_is_dropped(self):
        update = self.board.update
        update.offer(self.image.id, len(self.image.files[0]))
        for _ in range(200):
            want = update.next_want(1 << 40)
            if want is not None:
                piece = self.image.answer(want)
                piece[4] = bytes(len(piece[4]))
                update.take(piece)
        self.assertEqual(update.image, b"")
        self.assertFalse("manifest" in os.listdir("a"))  # noqa: PTH208
        self.assertTrue("update: wrong: manifest" in self.board.log)
        self.assertEqual(self.count_wants(self.image), ([], False))  # not before the next start
        self.board.start()
        self.assertTrue(self.count_wants(self.image)[1])

    def test_a_file_system_without_room_ends_the_update_and_nothing_else(self):
        class FullUpdate(ImageUpdate):
            is_full = False

            def _store(self, data):
                if self.is_full:
                    raise OSError(28)
                super()._store(data)

        self.board.make = FullUpdate
        self.board.start()
        self.assertFalse(self.board.offer(self.image, 6))
        self.board.update.is_full = True
        self.assertFalse(self.board.offer(self.image))
        self.assertEqual(self.board.update.image, b"")
        self.assertTrue("28" in self.board.log[-1])
        self.board.start()
        self.assertTrue(self.board.offer(self.image))

    def test_a_piece_that_was_not_asked_for_changes_nothing(self):
        update = self.board.update
        update.take({1: self.image.id, 2: 0, 3: 0, 4: b"x"})
        update.offer(self.image.id, len(self.image.files[0]))
        want = update.next_want(0)
        self.assertEqual(update.next_want(4999), None)  # the node has five seconds
        for piece in (
            {1: bytes(16), 2: 0, 3: 0, 4: b"x"},
            {1: self.image.id, 2: 0, 3: 1, 4: b"x"},
            {1: self.image.id, 2: 1, 3: 0, 4: b"x"},
            {1: self.image.id, 2: 0, 3: 0, 4: b""},
            {1: self.image.id, 2: 0, 3: 0},
        ):
            update.take(piece)
        self.assertEqual(update.next_want(5000), want)

    def test_code_on_trial_takes_no_other_image(self):
        self.board.offer(self.image)
        self.board.start()
        self.assertEqual(self.count_wants(Image("3", make_code("3"))), ([], False))

    def test_a_record_that_is_damaged_is_not_read(self):
        self.board.offer(self.image)
        self.board.start()
        number = slots.read()[0]
        for text in (b"", b"x", b"00000000" + b"99 b - 0 -", b"\xff" * 40):
            with open("slot." + str((number + 1) & 1), "wb") as file:  # noqa: PTH123
                file.write(text)
            self.assertEqual(slots.read()[0], number)

    def test_a_restart_that_the_board_does_not_obey_at_once_does_no_harm(self):
        self.board.update._restart = int
        self.board.offer(self.image)
        self.assertEqual(self.board.update.next_want(1 << 40), None)
        self.assertRaises(Restart, self.board.restart)
