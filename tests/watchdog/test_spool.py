"""The spool while the power stays: order, age, acknowledgement, what a full one drops, wear."""

import unittest
from binascii import crc32

from denwatch.protocol.notification import decode
from denwatch.protocol.timecode import decode_age
from denwatch.watchdog.ring import PagedBlocks, Ring, RingError, write_word
from denwatch.watchdog.spool import NODES, Spool

from tests.watchdog.flash import Flash, Random, make_vector, read_all


def reopen(flash, now=0, wall=None, front=1024):
    """Return a spool on a copy of the medium, as after a reset."""
    return Spool(Flash(flash.count, flash.size, flash.take_image()), now, wall, front)


class Order(unittest.TestCase):
    def test_what_is_put_comes_out_in_order_with_its_number(self):
        spool = Spool(Flash(), 0)
        for i in range(20):
            self.assertEqual(spool.put(make_vector(i), 100, 0), i + 1)
        found = read_all(spool, 0)
        self.assertEqual([entry[1] for entry in found], list(range(1, 21)))
        self.assertEqual([entry[3] for entry in found], [make_vector(i) for i in range(20)])

    def test_a_batch_stays_until_it_is_acknowledged(self):
        spool = Spool(Flash(), 0)
        for i in range(5):
            spool.put(make_vector(i), 100, 0)
        first = spool.peek(0, 4000)
        self.assertEqual(first, spool.peek(0, 4000))
        self.assertTrue(spool.acknowledge(first[0], 2, 0))
        self.assertEqual(len(spool.peek(0, 4000)[2]), 3)
        self.assertFalse(spool.acknowledge(first[0], 2, 0), "nothing new")
        self.assertTrue(spool.acknowledge(first[0], 5, 0))
        self.assertFalse(spool.has_waiting())

    def test_a_batch_keeps_to_its_room_and_count(self):
        spool = Spool(Flash(), 0)
        for i in range(12):
            spool.put(make_vector(i), 100, 0)
        self.assertEqual(len(spool.peek(0, 3 * 12)[2]), 3)
        self.assertEqual(len(spool.peek(0, 3 * 12 - 1)[2]), 2)
        self.assertEqual(len(spool.peek(0, 4000, 7)[2]), 7)
        self.assertEqual(spool.peek(0, 11)[2], [])

    def test_what_was_never_sent_cannot_be_acknowledged(self):
        spool = Spool(Flash(), 0)
        spool.put(make_vector(1), 100, 0)
        self.assertFalse(spool.acknowledge(spool.epoch, 2, 0))
        self.assertFalse(spool.acknowledge(spool.epoch + 1, 1, 0))
        self.assertTrue(spool.has_waiting())

    def test_a_batch_has_one_epoch_the_oldest(self):
        flash = Flash()
        spool = Spool(flash, 0)
        spool.put(make_vector(1), 100, 0)
        spool.flush(0)
        spool = reopen(flash)
        spool.put(make_vector(2), 100, 0)
        epoch, last, vectors = spool.peek(0, 4000)
        self.assertEqual((epoch, last, len(vectors)), (1, 1, 1))
        spool.acknowledge(1, 1, 0)
        self.assertEqual(spool.peek(0, 4000)[:2], (2, 1))

    def test_flash_and_memory_come_out_as_one(self):
        spool = Spool(Flash(), 0, None, 200)
        for i in range(30):
            spool.put(make_vector(i), 100, 0)
        self.assertEqual([e[1] for e in read_all(spool, 0)], list(range(1, 31)))

    def test_vectors_that_cannot_be_are_refused(self):
        spool = Spool(Flash(), 0)
        for length in (7, 149):
            with self.assertRaises(ValueError):
                spool.put(bytes(length), 1, 0)


class Persistence(unittest.TestCase):
    def test_an_epoch_is_used_once(self):
        flash = Flash()
        epochs = []
        for _ in range(60):
            epochs.append(Spool(flash, 0).epoch)
        self.assertEqual(epochs, list(range(1, 61)))

    def test_what_was_flushed_survives_a_reset_and_what_was_not_does_not(self):
        flash = Flash()
        spool = Spool(flash, 0)
        spool.put(make_vector(1), 100, 0)
        spool.flush(0)
        spool.put(make_vector(2), 100, 0)
        self.assertEqual([e[1] for e in read_all(reopen(flash), 0)], [1])

    def test_a_saved_acknowledgement_survives(self):
        flash = Flash()
        spool = Spool(flash, 0)
        for i in range(9):
            spool.put(make_vector(i), 100, 0)
        spool.flush(0)
        spool.acknowledge(1, 4, 0)
        spool.save(0)
        self.assertEqual([e[1] for e in read_all(reopen(flash), 0)], [5, 6, 7, 8, 9])

    def test_numbers_of_nodes_survive(self):
        flash = Flash()
        spool = Spool(flash, 0)
        self.assertTrue(spool.note_seen("a", 3, 7, 0))
        self.assertTrue(spool.note_seen("b", 1, 1, 0))
        spool = reopen(flash)
        for epoch, sequence, news in ((3, 7, False), (3, 6, False), (2, 9, False), (3, 8, True)):
            self.assertEqual(spool.is_news("a", epoch, sequence), news)
        self.assertFalse(spool.note_seen("a", 3, 7, 0))
        self.assertTrue(spool.note_seen("a", 4, 0, 0))
        self.assertFalse(spool.is_news("b", 1, 1))

    def test_there_is_room_for_so_many_nodes(self):
        spool = Spool(Flash(), 0)
        for i in range(NODES):
            spool.note_seen(f"node-{i}", 1, 1, 0)
        with self.assertRaises(ValueError):
            spool.is_news("another", 1, 1)
        spool.keep_nodes(["node-1"])
        self.assertTrue(spool.is_news("another", 1, 1))
        self.assertFalse(spool.is_news("node-1", 1, 1))

    def test_a_flash_that_is_too_small_is_refused(self):
        with self.assertRaises(RingError):
            Spool(Flash(2), 0)
        with self.assertRaises(RingError):
            Spool(Flash(8, 256), 0)

    def test_a_flash_full_of_noise_is_taken_over(self):
        random = Random(5)
        noise = bytearray(4096)
        for i in range(len(noise)):  # a list of them would take four times the room on a device
            noise[i] = random.bits(8)
        flash = Flash(image=noise)
        spool = Spool(flash, 0)
        spool.put(make_vector(3), 9, 0)
        spool.flush(0)
        self.assertEqual([e[3] for e in read_all(reopen(flash), 0)], [make_vector(3)])


class Time(unittest.TestCase):
    def age(self, spool, now):
        return decode_age(decode(spool.peek(now, 4000)[2][0]).age)

    def test_the_age_is_that_of_the_moment_of_sending(self):
        spool = Spool(Flash(), 5000)
        spool.put(make_vector(1), 9, 7000)
        self.assertEqual(self.age(spool, 7000), 0)
        self.assertEqual(self.age(spool, 10_000), 48)

    def test_a_sleep_through_which_the_clock_ran_is_part_of_the_age(self):
        flash = Flash()
        spool = Spool(flash, 1000, 500_000)
        spool.put(make_vector(1), 9, 11_000)
        spool.save(12_000)
        spool = reopen(flash, 300, 500_000 + 3600)
        self.assertEqual(spool.undated, 0)
        self.assertEqual(self.age(spool, 300), 16 * 3590)
        self.assertEqual(self.age(spool, 10_300), 16 * 3600)

    def test_without_a_clock_the_age_is_what_is_certain(self):
        for wall in (None, 10):  # none, and one that was set back
            flash = Flash()
            spool = Spool(flash, 0, 500_000)
            spool.put(make_vector(1), 9, 0)
            spool.save(60_000)
            spool = reopen(flash, 0, wall)
            self.assertEqual(spool.undated, 1)
            self.assertEqual(self.age(spool, 2_000), 16 * 62)

    def test_a_clock_that_comes_and_goes(self):
        flash = Flash()
        spool = Spool(flash, 0)
        spool.put(make_vector(1), 9, 0)
        spool.save(0)
        for wall, age in ((None, 0), (9_000_000, 0), (9_000_100, 1600), (None, 1600)):
            flash = Flash(image=flash.take_image())
            spool = Spool(flash, 0, wall)
            self.assertEqual(self.age(spool, 0), age, wall)


class Full(unittest.TestCase):
    def fill(self, spool, count, degree, now=0):
        for i in range(count):
            spool.put(make_vector(i), degree(i), now + 1000 * i)

    def test_what_is_worth_least_goes_first_and_is_counted(self):
        spool = Spool(Flash(), 0, None, 256, 1 << 28)
        random = Random(3)
        degrees = [random.bits(8) for _ in range(400)]
        self.fill(spool, 400, lambda i: degrees[i])
        spool.flush(400_000)
        kept = [entry[1] - 1 for entry in read_all(spool, 400_000)]
        self.assertEqual(len(kept) + spool.dropped, 400)
        self.assertGreater(len(kept), 50)
        gone = [degrees[i] for i in range(400) if i not in kept]
        # Only what came while there was room can have survived something better.
        late = [degrees[i] for i in kept if i < 300]
        self.assertGreaterEqual(min(late), max(gone) - 40)
        self.assertGreater(sum(late) // len(late), 2 * sum(gone) // len(gone))

    def test_of_equals_the_older_one_goes(self):
        spool = Spool(Flash(), 0, None, 256)
        self.fill(spool, 300, lambda _: 77)
        kept = [entry[1] for entry in read_all(spool, 300_000)]
        self.assertEqual(kept, list(range(300 - len(kept) + 1, 301)))

    def test_an_old_certainty_gives_way_to_a_fresh_doubt(self):
        spool = Spool(Flash(), 0, None, 256)
        self.fill(spool, 60, lambda _: 200)
        day = 86_400_000
        self.fill(spool, 200, lambda _: 60, day)
        kept = [entry[1] for entry in read_all(spool, 2 * day)]
        self.assertGreater(min(kept), 60)

    def test_room_is_used_well(self):
        flash = Flash(8, 1024)
        spool = Spool(flash, 0, None, 256)
        self.fill(spool, 2000, lambda i: i * 37 & 255)
        spool.flush(2_000_000)
        # Of eight blocks one is spare; the other seven are mostly full.
        self.assertGreater(len(read_all(spool, 2_000_000)), 7 * (912 // 32) * 4 // 5)

    def test_wear_is_spread(self):
        flash = Flash(8, 1024)
        spool = Spool(flash, 0, None, 256)
        for i in range(3000):
            spool.put(make_vector(i), 100, i)
            if i % 10 == 9:
                spool.flush(i)
                spool.acknowledge(spool.epoch, i, i)
        self.assertLessEqual(max(flash.erases) - min(flash.erases), 2)
        self.assertLess(sum(flash.erases), 3000 * 32 // 700)


class Damage(unittest.TestCase):
    def test_a_block_that_fails_is_gone_around(self):
        flash = Flash(6)
        spool = Spool(flash, 0, None, 256)
        flash.failing.add(2)
        for i in range(60):
            spool.put(make_vector(i), 100, 0)
        spool.flush(0)
        self.assertGreater(spool.report()["errors"], 0)
        self.assertEqual(spool.dropped, 0)
        self.assertEqual(len(read_all(spool, 0)), 60)

    def test_a_flash_that_dies_loses_only_what_it_does_not_hold(self):
        flash = Flash(4)
        spool = Spool(flash, 0, None, 256)
        for i in range(8):
            spool.put(make_vector(i), 100, 0)
        spool.flush(0)
        flash.failing.update(range(4))
        for i in range(40):
            spool.put(make_vector(i), 100, 0)
        self.assertEqual(len(read_all(spool, 0)) + spool.dropped, 48)
        with self.assertRaises(RingError):
            broken = Flash(4)
            broken.failing.update(range(4))
            Spool(broken, 0)

    def test_a_damaged_record_hides_no_other(self):
        flash = Flash()
        spool = Spool(flash, 0)
        for i in range(10):
            spool.put(make_vector(i), 100, 0)
        spool.flush(0)
        image = bytearray(flash.take_image())
        at = image.find(make_vector(4)[6:])
        for i in range(-26, 3):
            image[at + i] ^= 0x55
        spool = Spool(Flash(image=image), 0)
        self.assertEqual([e[1] for e in read_all(spool, 0)], [1, 2, 3, 4, 6, 7, 8, 9, 10])
        self.assertEqual(spool.report()["damaged"], 1)

    def test_the_block_with_the_last_state_is_not_erased(self):
        flash = Flash()
        Spool(flash, 0)
        image = bytearray(flash.take_image())
        holder = image.find(b"DW1") // 1024
        # The next block's head is sound, its state is torn: the power went while it was opened.
        torn = (holder + 1) % 4 * 1024
        image[torn : torn + 16] = image[holder * 1024 : holder * 1024 + 16]
        image[torn + 7] += 1
        write_word(image, torn + 12, crc32(bytes(image[torn + 1 : torn + 12])))
        ring = Ring(Flash(image=image), 19)
        self.assertTrue(ring.mount())
        self.assertEqual(ring.head, torn // 1024)
        self.assertNotIn(holder, ring.list_free())
        self.assertEqual(Spool(Flash(image=image), 0).epoch, 2)

    def test_pages_are_filled_up(self):
        class Pages(Flash):
            def writeblocks(self, block, buf, offset=0):
                assert (len(buf), offset % 256) == (256, 0)
                Flash.writeblocks(self, block, buf, offset)

        flash = Pages(4, 1024)
        spool = Spool(PagedBlocks(flash), 0, None, 256)
        for i in range(50):
            spool.put(make_vector(i), 100, 0)
        spool.flush(0)
        self.assertEqual(len(read_all(reopen(flash), 0)), 50)


if __name__ == "__main__":
    unittest.main()


class Sleep(unittest.TestCase):
    def test_numbers_and_ages_go_on_after_a_planned_sleep(self):
        flash = Flash()
        spool = Spool(flash, 0)
        spool.put(make_vector(1), 9, 1000)
        resume = spool.note_sleep(2000)
        image = flash.take_image()
        spool = Spool(Flash(flash.count, flash.size, image), 62_000, None, resume=resume)
        self.assertTrue(spool.is_resumed)
        self.assertEqual(spool.undated, 0)
        spool.put(make_vector(2), 9, 62_000)
        found = read_all(spool, 62_000)
        self.assertEqual([entry[:2] for entry in found], [(1, 1), (1, 2)])
        self.assertEqual([decode_age(entry[2]) // 16 for entry in found], [61, 0])

    def test_what_an_earlier_sleep_kept_is_refused(self):
        """A board that crashed after its wake: its numbers of that wake may be on their way."""
        flash = Flash()
        resume = Spool(flash, 0).note_sleep(1000)
        image = flash.take_image()
        flash = Flash(flash.count, flash.size, image)
        self.assertTrue(Spool(flash, 2000, None, resume=resume).is_resumed)
        again = Spool(Flash(flash.count, flash.size, flash.take_image()), 3000, resume=resume)
        self.assertFalse(again.is_resumed)
        self.assertEqual(again.epoch, 2)
        erased = Spool(Flash(), 3000, resume=resume)
        self.assertFalse(erased.is_resumed)
