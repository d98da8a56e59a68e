"""Supervision: what fails is started again, then the program ends; crashes are counted."""

import asyncio
import os
import time
import unittest

from denwatch.watchdog.supervisor import Supervisor, forget_crashes, note_crash, read_crashes

if not hasattr(asyncio, "run"):
    raise unittest.SkipTest("this runtime's asyncio runs in a browser's loop only")


class Clock:
    now = 0

    def __call__(self):
        return self.now


def run(coroutine):
    """Run with pauses that take no time."""
    sleep = asyncio.sleep

    async def skip(_):
        await sleep(0)

    asyncio.sleep = skip
    try:
        return asyncio.run(coroutine)
    finally:
        asyncio.sleep = sleep


class SupervisorTest(unittest.TestCase):
    def setUp(self):
        self.clock = Clock()
        self.supervisor = Supervisor(self.clock)
        self.starts = 0

    async def wait(self, is_done):
        for _ in range(1000):
            if is_done():
                return True
            await asyncio.sleep(0)
        return False

    def test_a_task_that_dies_is_started_again_and_noticed(self):
        async def fail_twice():
            self.starts += 1
            if self.starts < 3:
                raise ValueError("too large")
            await asyncio.Event().wait()

        async def main():
            self.supervisor.start("house", fail_twice)
            self.assertTrue(await self.wait(lambda: self.starts == 3))

        run(main())
        self.assertEqual((self.supervisor.restarts, self.supervisor.failed), (2, ""))
        self.assertEqual(self.supervisor.lines, "0 house: ValueError: too large\n" * 2)

    def test_one_that_always_fails_ends_the_program(self):
        async def fail():
            self.starts += 1
            raise OSError(5)

        async def main():
            self.supervisor.start("link", fail)
            self.assertTrue(await self.wait(lambda: self.supervisor.failed))

        run(main())
        self.assertEqual(self.starts, 5)
        self.assertTrue(self.supervisor.failed.startswith("link: OSError"))

    def test_one_that_fails_now_and_then_does_not(self):
        async def work_and_fail():
            self.starts += 1
            self.clock.now += 61_000
            if self.starts == 20:
                await asyncio.Event().wait()

        async def main():
            self.supervisor.start("link", work_and_fail)
            self.assertTrue(await self.wait(lambda: self.starts == 20))

        run(main())
        self.assertEqual(self.supervisor.failed, "")

    def test_a_task_that_is_stopped_stays_so(self):
        async def wait_for_ever():
            self.starts += 1
            await asyncio.Event().wait()

        async def main():
            self.supervisor.start("link", wait_for_ever)
            await self.wait(lambda: self.starts)
            self.supervisor.stop("link")
            self.supervisor.stop("link")
            for _ in range(20):
                await asyncio.sleep(0)

        run(main())
        self.assertEqual((self.starts, self.supervisor.restarts), (1, 0))

    def test_the_log_keeps_its_end(self):
        for i in range(100):
            self.supervisor.log("line " + str(i))
        self.assertEqual(len(self.supervisor.lines), 600)
        self.assertTrue(self.supervisor.lines.endswith("line 99\n"))


class CrashTest(unittest.TestCase):
    def setUp(self):
        self.here = os.getcwd()  # noqa: PTH109 - MicroPython has no pathlib
        self.folder = f"/tmp/denwatch-crash-{time.time_ns()}"
        os.mkdir(self.folder)  # noqa: PTH102
        os.chdir(self.folder)

    def tearDown(self):
        forget_crashes()
        os.chdir(self.here)
        os.rmdir(self.folder)  # noqa: PTH106

    def test_crashes_are_counted_until_it_works(self):
        self.assertEqual(read_crashes(), (0, ""))
        self.assertEqual(note_crash(ValueError("no")), 1)
        self.assertEqual(note_crash(RuntimeError("link: ended")), 2)
        self.assertEqual(read_crashes(), (2, "RuntimeError: link: ended"))
        forget_crashes()
        forget_crashes()
        self.assertEqual(read_crashes(), (0, ""))
