"""Wi-Fi: several networks in order, again when one is lost, longer pauses when none answers."""

import asyncio
import unittest

from denwatch.watchdog.link import WifiTask

if not hasattr(asyncio, "run"):
    raise unittest.SkipTest("this runtime's asyncio runs in a browser's loop only")

NETWORKS = [{"name": "tent", "password": "a"}, {"name": "truck", "password": "b"}]


class Air:
    """A radio: joins what is `there`; its clock goes on with every look at it."""

    def __init__(self):
        self.there = ["truck"]
        self.tried = []
        self.now = 0
        self.joined = None
        self.ends = 0  # calls after which the test ends

    def join_wifi(self, name, password):
        self.tried.append((self.now // 1000, name + password))
        self.joined = name if name in self.there else None

    def is_joined(self):
        self.now += 1000
        if self.joined not in self.there:
            self.joined = None
        self.ends -= 1
        if not self.ends:
            raise KeyboardInterrupt
        return self.joined is not None


def watch(air, networks, calls):
    """Let the task look at the radio so often; pauses take no time, but the clock goes on."""
    lines = []
    sleep = asyncio.sleep

    async def skip(seconds):
        air.now += int(seconds * 1000)
        await sleep(0)

    air.ends = calls
    asyncio.sleep = skip
    try:
        task = WifiTask(air, networks, lambda: air.now, lambda limit: limit - 1, lines.append)
        asyncio.run(task.run())
    except KeyboardInterrupt:
        pass
    finally:
        asyncio.sleep = sleep
    return lines


class WifiTest(unittest.TestCase):
    def test_the_next_network_is_tried_if_one_does_not_answer(self):
        air = Air()
        lines = watch(air, NETWORKS, 60)
        self.assertEqual([name for _, name in air.tried], ["tenta", "truckb"])
        self.assertEqual(lines, ["no Wi-Fi: tent"])

    def test_a_network_that_is_lost_is_joined_again(self):
        air = Air()
        watch(air, NETWORKS[1], 20)
        air.there = []
        watch(air, NETWORKS[1], 5)
        air.there = ["truck"]
        watch(air, NETWORKS[1], 60)
        self.assertEqual(air.joined, "truck")
        self.assertTrue(len(air.tried) > 2)

    def test_pauses_grow_while_none_answers(self):
        air = Air()
        air.there = []
        watch(air, NETWORKS[:1], 100)
        times = [at for at, _ in air.tried]
        pauses = [times[i + 1] - times[i] for i in range(len(times) - 1)]
        self.assertEqual(pauses, sorted(pauses))
        self.assertTrue(pauses[-1] > 40 > 20 > pauses[0])
