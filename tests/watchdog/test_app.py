"""The whole watchdog without a network: configuration, clock, tasks' parts, what is reported."""

import os
import time
import unittest

from tests.watchdog.flash import require_heap

require_heap(200_000)  # sources are compiled here; a device has them compiled

from denwatch.watchdog import app  # noqa: E402
from denwatch.watchdog.app import TickClock, Watchdog  # noqa: E402
from denwatch.watchdog.config import ConfigError, make_source, read_nodes, split_url  # noqa: E402
from denwatch.watchdog.ring import SYNC, FileBlocks  # noqa: E402

from tests.watchdog.nodes import Node  # noqa: E402
from tests.watchdog.nodes import make_vector as make_subscription  # noqa: E402

FOLDER = os.getenv("TMPDIR", "/tmp") if hasattr(os, "getenv") else "/tmp"


def make_path(name):
    return f"{FOLDER}/denwatch-{time.time_ns()}-{name}"


def make_config(readings="v\n10\n200\n"):
    path = make_path("readings.csv")
    with open(path, "w") as file:  # noqa: PTH123
        file.write(readings)
    return {
        "device": "dog-1",
        "vocabulary": "00" * 8,
        "nodes": [
            {
                "name": "node-a",
                "url": "mqtt://127.0.0.1:1883",
                "key_id": 7,
                "key": "".join([f"{i:02x}" for i in range(32)]),
            }
        ],
        "spool": {"file": make_path("spool"), "blocks": 4},
        "sources": {"file": {"kind": "csv", "path": path, "columns": ["v"], "scales": [1]}},
        "events": [
            {
                "event": 1,
                "period": 1000,
                "channels": [{"source": "file", "field": 0, "attribute": 0, "low": 0, "high": 255}],
            }
        ],
    }


def clean(config):
    for path in (config["spool"]["file"], config["sources"]["file"]["path"]):
        if path.rpartition("/")[2] in os.listdir(FOLDER):  # noqa: PTH208
            os.remove(path)  # noqa: PTH107


class Still:
    now = 0

    def __call__(self):
        return self.now


class Whole(unittest.TestCase):
    def setUp(self):
        self.config = make_config()

    def tearDown(self):
        clean(self.config)

    def test_a_reading_that_somebody_wants_goes_all_the_way(self):
        clock = Still()
        dog = Watchdog(self.config, None, clock)
        node = Node()
        dog.uplink.connect("node-a")
        node.take(*dog.uplink.next_message(0))
        self.assertEqual(node.hellos[0]["senses"], {1: [1, 0]})
        dog.uplink.receive("dens/1/wd/dog-1/ack", node.answer_hello(), 0)
        dog.uplink.receive("dens/1/wd/dog-1/sv", node.subscribe(make_subscription(1)), 0)
        for second in range(3):
            clock.now = 1000 * second
            dog.execution.step(clock.now)
        node.take(*dog.uplink.next_message(clock.now))
        self.assertEqual([n.readings[0].points[0] for n in node.committed.values()], [200])
        dog.uplink.receive("dens/1/wd/dog-1/ack", node.acknowledge(), clock.now)
        report = dog.report()
        self.assertEqual(report["spool"]["waiting"], 0)
        self.assertEqual((report["rounds"], report["matched"]), (3, 1))
        self.assertIsNone(report["server"])
        dog.close()

    def test_a_restart_goes_on_with_the_next_epoch(self):
        dog = Watchdog(self.config, 100, Still())
        dog.spool.put(bytes([0x81] + [0] * 10), 9, 0)
        dog.close()
        again = Watchdog(self.config, 160, Still())
        self.assertEqual(again.spool.epoch, dog.spool.epoch + 1)
        self.assertEqual(again.report()["spool"], dict(dog.report()["spool"], waiting=1))

    def test_a_spool_that_was_erased_does_not_come_back_to_its_numbers(self):
        epochs = set()
        for _ in range(8):
            config = make_config()
            epochs.add(Watchdog(config, 100, Still()).spool.epoch)
            clean(config)
        self.assertEqual(len(epochs), 8)
        self.assertGreater(max(epochs), 0xFFFF)
        self.assertLess(max(epochs), 1 << 29)

    def test_the_board_is_not_needed(self):
        self.assertIsNone(app.board)


class Config(unittest.TestCase):
    def test_urls(self):
        self.assertEqual(split_url("mqtt://localhost:1883"), (False, "localhost", 1883))
        self.assertEqual(split_url("mqtts://[::1]:8883"), (True, "::1", 8883))
        for url in ("http://a:1", "mqtt://a", "mqtt://a:b", "mqtt://:1", "a"):
            with self.assertRaises(ConfigError):
                split_url(url)

    def test_plain_links_beyond_the_machine_must_be_asked_for(self):
        config = make_config()
        config["nodes"][0]["url"] = "mqtt://10.0.0.1:1883"
        with self.assertRaises(ConfigError):
            read_nodes(config)
        config["nodes"][0]["plain"] = True
        self.assertEqual(read_nodes(config)[0][0].host, "10.0.0.1")
        clean(config)

    def test_what_cannot_be_is_refused(self):
        config = make_config()
        clean(config)
        config["nodes"] = config["nodes"] * 5
        with self.assertRaises(ConfigError):
            read_nodes(config)
        with self.assertRaises(ConfigError) as caught:
            make_source({"kind": "oracle"}, None)
        words = str(caught.exception)  # which says where those that exist are listed
        self.assertTrue("oracle" in words and "denwatch watchdog --check" in words)


class Clocks(unittest.TestCase):
    def test_a_counter_that_wraps(self):
        ticks = [(1 << 30) - 5]
        read = app._read_ticks
        app._read_ticks = lambda: ticks[0]
        try:
            clock = TickClock(100)
            ticks[0] = 3
            self.assertEqual(clock(), 108)
            ticks[0] = 10
            self.assertEqual(clock(), 115)
        finally:
            app._read_ticks = read


class Files(unittest.TestCase):
    def test_a_file_is_a_flash(self):
        path = make_path("blocks")
        blocks = FileBlocks(path, 3, 512)
        blocks.writeblocks(1, b"abc", 7)
        blocks.ioctl(6, 2)
        blocks.close()
        blocks = FileBlocks(path, 3, 512)
        buffer = bytearray(5)
        blocks.readblocks(1, buffer, 6)
        self.assertEqual(bytes(buffer), b"\xffabc\xff")
        blocks.readblocks(2, buffer, 507)
        self.assertEqual(bytes(buffer), b"\xff" * 5)
        blocks.ioctl(SYNC, 0)
        self.assertEqual((blocks.ioctl(4, 0), blocks.ioctl(5, 0)), (3, 512))
        blocks.close()
        os.remove(path)  # noqa: PTH107


if __name__ == "__main__":
    unittest.main()
