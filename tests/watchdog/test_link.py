"""The link, against a server in memory: on every runtime whose asyncio can run a program."""

import asyncio
import time
import unittest

from denwatch.watchdog.link import DeviceLink, LinkSettings, NodeAddress, find_delay

from tests.watchdog.wire import FakeServer

if not hasattr(asyncio, "run"):
    raise unittest.SkipTest("this runtime's asyncio runs in a browser's loop only")


def read_clock():
    return time.time_ns() // 1_000_000


class Case(unittest.TestCase):
    def setUp(self):
        self.server = FakeServer()
        self.messages = []
        self.nodes = []

    def make(self, dial=None, names=("node-a",), **settings):
        settings.setdefault("first_delay", 0)
        settings.setdefault("timeout", 1)
        return DeviceLink(
            self,
            [NodeAddress(name, name, 1883) for name in names],
            read_clock,
            lambda limit: limit // 2,
            LinkSettings(**settings),
            dial or self.server.dial,
        )

    # The link's client is the test itself.
    name = "dog"
    topics = ("t/sv", "t/ack")
    will = ("t/hello", b"")

    def connect(self, node):
        self.nodes.append(node)

    def receive(self, topic, payload, now):  # noqa: ARG002 - the interface
        self.messages.append((topic, payload))

    def run_with(self, link, test):
        """Run a test beside the link."""

        async def main():
            task = asyncio.create_task(link.run())
            try:
                await asyncio.wait_for(test(), 10)
            finally:
                task.cancel()

        asyncio.run(main())

    async def until(self, condition):
        while not condition():
            await asyncio.sleep(0.005)


class Traffic(Case):
    def test_each_packet_is_one_write(self):
        link = self.make()

        async def test():
            await self.until(lambda: link.server)
            self.assertTrue(await link.publish("t/nv", b"hello"))

        self.run_with(link, test)
        kinds = [write[0] >> 4 for write in self.server.wire.writes]
        self.assertEqual(kinds, [1, 8, 3])
        self.assertEqual(self.server.published, [(0x32, 2, "t/nv", b"hello")])
        self.assertEqual(self.nodes, ["node-a"])

    def test_messages_are_handed_on_and_acknowledged(self):
        link = self.make(limit=64)

        async def test():
            await self.until(lambda: link.server)
            self.server.wire.send(b"\x32\x09\x00\x04t/sv\x00\x05x")
            self.server.wire.send(b"\x30\x07\x00\x05t/ack")
            self.server.wire.send(b"\x32\xc8\x01\x00\x04t/sv\x00\x06" + bytes(192))
            self.server.wire.send(b"\x32\x09\x00\x04t/sv\x00\x07y")
            await self.until(lambda: len(self.server.acknowledged) == 3)

        self.run_with(link, test)
        self.assertEqual(self.messages, [("t/sv", b"x"), ("t/ack", b""), ("t/sv", b"y")])
        self.assertEqual(self.server.acknowledged, [5, 6, 7])
        self.assertEqual(link.counts["too_long"], 1)

    def test_what_a_session_kept_comes_after_the_word_of_the_connection(self):
        """A server that kept messages sends them before it answers SUBSCRIBE."""
        link = self.make()
        self.server.connack = b"\x20\x02\x01\x00" + b"\x32\x09\x00\x04t/sv\x00\x05x"
        known = []
        self.receive = lambda *_: known.append(list(self.nodes))

        async def test():
            await self.until(lambda: link.server)

        self.run_with(link, test)
        self.assertEqual(known, [["node-a"]])
        self.assertEqual(self.server.acknowledged, [5])

    def test_the_window_is_bounded(self):
        link = self.make(window=3)
        self.server.pubacks = False

        async def test():
            await self.until(lambda: link.server)
            tasks = [asyncio.create_task(link.publish("t", b"%d" % i)) for i in range(8)]
            await asyncio.sleep(0.05)
            self.assertEqual(len(self.server.published), 3)
            done = 0
            while done < 8:
                await self.until(lambda: len(self.server.published) > done)  # noqa: B023
                number = self.server.published[done][1]
                self.server.wire.send(bytes([0x40, 2, number >> 8, number & 255]))
                done += 1
                await asyncio.sleep(0)
            for task in tasks:
                self.assertTrue(await task)

        self.run_with(link, test)

    def test_packet_ids_wrap_and_pass_those_in_flight(self):
        link = self.make()
        link._last_id = 65533
        link._flights[1] = None
        self.assertEqual([link._take_id() for _ in range(4)], [65534, 65535, 2, 3])

    def test_it_pings_when_it_is_quiet(self):
        link = self.make(keep_alive=1)

        async def test():
            await self.until(lambda: link.server and b"\xc0\x00" in self.server.wire.writes)
            await asyncio.sleep(0.7)

        self.run_with(link, test)
        self.assertEqual(link.counts["lost"], 0)


class Trouble(Case):
    def test_a_message_in_flight_is_forgotten_and_the_sender_knows(self):
        link = self.make()
        self.server.pubacks = False

        async def test():
            await self.until(lambda: link.server)
            lost = asyncio.create_task(link.publish("t", b"1 s old"))
            await self.until(lambda: len(self.server.published) == 1)
            self.server.pubacks = True
            self.server.wire.close()
            self.assertFalse(await lost)
            await self.until(lambda: link.server)
            self.assertTrue(await link.publish("t", b"2 s old"))

        self.run_with(link, test)
        self.assertEqual([entry[3] for entry in self.server.published], [b"1 s old", b"2 s old"])
        self.assertEqual(len(self.server.wires), 2)
        self.assertEqual([w[0] >> 4 for w in self.server.wire.writes][:2], [1, 8])

    def test_without_a_connection_it_says_so(self):
        link = self.make()
        self.server.is_down = True

        async def test():
            await asyncio.sleep(0.02)
            self.assertFalse(await link.publish("t", b""))

        self.run_with(link, test)
        self.assertGreater(link.counts["failed"], 0)

    def test_a_silent_server_is_left(self):
        link = self.make(keep_alive=1)
        self.server.pings = False

        async def test():
            await self.until(lambda: len(self.server.wires) > 1)

        self.run_with(link, test)
        self.assertEqual(link.counts["lost"], 1)
        self.assertIn("silent", link.reason)

    def test_a_server_that_takes_nothing_is_left(self):
        link = self.make(timeout=1)
        self.server.is_stuck = True

        async def test():
            await self.until(lambda: link.counts["failed"] > 0)

        self.run_with(link, test)

    def test_refusals_are_told(self):
        for connack, suback, reason in (
            (b"\x20\x02\x00\x05", b"\x01", "refused, 5"),
            (b"\x20\x02\x00\x00", b"\x80", "no subscription"),
            (b"\x20\x02\x07\x00", b"\x01", "byte 2"),
            (b"\x50\x00", b"\x01", "byte 0"),
        ):
            self.server = FakeServer()
            self.server.connack = connack
            self.server.suback = suback
            link = self.make()

            async def test():
                await self.until(lambda: link.counts["failed"] > 0)  # noqa: B023

            self.run_with(link, test)
            self.assertIn(reason, link.reason)

    def test_garbage_ends_the_connection_and_not_the_program(self):
        link = self.make()

        async def test():
            await self.until(lambda: link.server)
            self.server.wire.send(b"\x00\x00garbage")
            await self.until(lambda: len(self.server.wires) > 1 and link.server)
            self.assertTrue(await link.publish("t", b""))

        self.run_with(link, test)


class Preference(Case):
    def test_servers_are_tried_in_order_and_the_first_is_returned_to(self):
        alive = {"b"}
        tried = []

        async def dial(server):
            if len(tried) < 9:
                tried.append(server.name)
            await asyncio.sleep(0.02)
            if server.name not in alive:
                raise OSError(111)
            return await self.server.dial(server)

        link = self.make(dial, ("a", "b", "c"), return_after=1, keep_alive=1)

        async def test():
            await self.until(lambda: link.server and link.server.name == "b")
            alive.add("a")
            await self.until(lambda: link.server and link.server.name == "a")

        self.run_with(link, test)
        self.assertEqual(tried[:2], ["a", "b"])
        self.assertNotIn("c", tried)
        self.assertEqual(self.server.wires[0].writes[-1], b"\xe0\x00")

    def test_back_off_grows_to_a_limit_and_has_jitter(self):
        settings = LinkSettings(first_delay=1, longest_delay=60)
        least = [find_delay(i, settings, lambda _: 0) for i in range(9)]
        most = [find_delay(i, settings, lambda limit: limit - 1) for i in range(9)]
        self.assertEqual(least, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000])
        self.assertEqual(most, [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000])


if __name__ == "__main__":
    unittest.main()
