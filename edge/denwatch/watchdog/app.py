"""The watchdog as a whole: builds it from a configuration, and runs its tasks.

The only file of the watchdog that reads a clock or draws a random number. On a board `main.py` says
`from denwatch.watchdog.boot import main; main()`, which loads this file last; on a PC it is
`denwatch watchdog`.
"""

import gc

_hole = [bytearray(5120)]  # kept free for the largest buffers, while modules fill the memory

import asyncio  # noqa: E402
import json  # noqa: E402
import random  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

from ..protocol.degrees import const  # noqa: E402
from .execution import Execution, list_senses  # noqa: E402
from .fuzzy import Fuzzy  # noqa: E402
from .link import DeviceLink, LinkSettings  # noqa: E402
from .manager import Manager  # noqa: E402
from .spool import Spool  # noqa: E402
from .uplink import Uplink  # noqa: E402

try:
    from . import board
except ImportError:  # a PC
    board = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_HEAD = const(8)  # of what is kept over a sleep: our clock and the board's, in seconds


class TickClock:
    """Milliseconds that never go back, from a counter that does (MicroPython's, after 12 days)."""

    def __init__(self, start: int = 0) -> None:
        self._now = start
        self._last = _read_ticks()

    def __call__(self) -> int:
        """Return the time."""
        ticks = _read_ticks()
        self._now += (ticks - self._last) & 0x1FFFFFFF
        self._last = ticks
        return self._now


def _read_ticks() -> int:
    if hasattr(time, "ticks_ms"):
        return time.ticks_ms()  # type: ignore[no-any-return]
    return time.monotonic_ns() // 1_000_000


read_free = getattr(gc, "mem_free", int)  # free bytes of the heap; CPython does not tell: 0


class TaskGuard:
    """Feeds the hardware watchdog while every task makes progress, and measures free memory.

    A task that hangs must not be hidden by one that runs: the hardware watchdog is fed only if all
    tasks reported progress within their limits. Touches no hardware: `feed` and `read_free` do.
    """

    def __init__(self, feed: "Callable[[], object]", read_free: "Callable[[], int]") -> None:
        self._feed = feed
        self._read_free = read_free
        self.names: list[str] = []
        self._limits: list[int] = []
        self._last: list[int] = []
        self.lowest = -1  # free memory at its lowest, -1: never measured
        self.fed = 0
        self.withheld = 0

    def add_task(self, name: str, limit: int, now: int) -> int:
        """Expect progress of a task at least every `limit` ms; return its number."""
        self.names.append(name)
        self._limits.append(limit)
        self._last.append(now)
        return len(self.names) - 1

    def note_progress(self, task: int, now: int) -> None:
        """Note that a task did what it is there for."""
        self._last[task] = now

    def find_stalled(self, now: int) -> int:
        """Return the number of the first task that is late, or -1."""
        i = 0
        while i < len(self._last):
            if now - self._last[i] > self._limits[i]:
                return i
            i += 1
        return -1

    def check(self, now: int) -> bool:
        """Feed the hardware watchdog unless a task is late; return whether it was fed."""
        if self.find_stalled(now) >= 0:
            self.withheld += 1
            return False
        self._feed()
        self.fed += 1
        return True

    def rest(self) -> None:
        """Collect garbage and see what is left; to be called between rounds, when nothing waits."""
        gc.collect()
        self.note_memory()

    def note_memory(self) -> None:
        """Lower the low-water mark if less is free now."""
        free = self._read_free()
        if self.lowest < 0 or free < self.lowest:
            self.lowest = free


class Watchdog:
    """All parts of one device, and the tasks that run them."""

    def __init__(
        self, config: "dict[str, Any]", wall: "int | None", clock: "TickClock | None" = None
    ) -> None:
        from .config import open_spool, read_events, read_nodes

        self.config = config
        self.clock = clock or TickClock()
        now = self.clock()
        servers, keys = read_nodes(config)
        events = read_events(config, board)
        device = open_spool(config["spool"])
        senses = list_senses(events)
        _hole.clear()
        gc.collect()
        self.language = Fuzzy(config.get("capacity", 4096), senses)
        self.manager = Manager([self.language], senses)
        self.spool = Spool(device, now, wall)
        self.spool.keep_nodes(list(keys))
        limit = config.get("watchdog", 0)
        feed = board.start_watchdog(limit) if board and limit else int  # which does nothing
        self.guard = TaskGuard(feed, read_free)
        self.uplink = Uplink(
            config["device"],
            keys,
            self.spool,
            self.manager,
            bytes.fromhex(config["vocabulary"]),
            self._describe,
            patience=config.get("patience", 5000),
        )
        self.execution = Execution(self.manager, events, self.spool)
        self.link = DeviceLink(
            self.uplink,
            servers,
            self.clock,
            random.randrange,
            LinkSettings(**config.get("link", {})),
        )

    def _describe(self) -> dict[int, object]:
        """Return what a hello says beyond what the manager knows."""
        version = sys.implementation.version
        name = sys.implementation.name
        fields: dict[int, object] = {7: f"{name} {version[0]}.{version[1]}.{version[2]}"}
        fields[24] = {event.sample.event: event.doubts for event in self.execution.events}
        if board is not None:
            fields[8] = board.read_reset_reason()
        if self.guard.lowest > 0:
            fields[9] = self.guard.lowest
        return fields

    def report(self) -> dict[str, object]:
        """Return every counter."""
        server = self.link.server
        return {
            "epoch": self.spool.epoch,
            "spool": self.spool.report(),
            "rounds": self.execution.rounds,
            "matched": self.execution.sent,
            "subscriptions": self.manager.counts,
            "uplink": self.uplink.counts,
            "refused": self.uplink.refused,
            "link": self.link.counts,
            "server": server.name if server else None,
            "reason": self.link.reason,
            "lowest": self.guard.lowest,
        }

    async def run(self) -> None:
        """Run all tasks for ever."""
        asyncio.create_task(self.link.run())  # noqa: RUF006 - they end with the program
        asyncio.create_task(self.send())  # noqa: RUF006
        asyncio.create_task(self._keep_house())  # noqa: RUF006
        task = self.guard.add_task("sample", 60_000, self.clock())
        while True:
            now = self.clock()
            self.execution.step(now)
            self.guard.note_progress(task, now)
            wait = self.execution.find_next() - self.clock()
            await asyncio.sleep(min(max(wait, 0), 5000) / 1000)

    async def send(self) -> None:
        """Send what waits, while there is a connection."""
        task = self.guard.add_task("send", 120_000, self.clock())
        while True:
            message = self.uplink.next_message(self.clock()) if self.link.server else None
            if message is None:
                await asyncio.sleep(0.1)
            else:
                await self.link.publish(message[0], message[1])
            self.guard.note_progress(task, self.clock())

    async def _keep_house(self) -> None:
        """Save what waits too long in memory, feed the dog, collect garbage, sleep."""
        hold = self.config.get("hold", 5000)
        while True:
            now = self.clock()
            if self.spool.find_age(now) >= (hold if self.link.server else 0):
                self.spool.flush(now)
            self.guard.check(now)
            self.guard.rest()
            if board and self.config.get("sleep"):
                self._sleep_deeply(now)
            await asyncio.sleep(1)

    def _sleep_deeply(self, now: int) -> None:
        from .duty import freeze, plan_sleep

        waiting = self.spool.has_waiting() and self.link.server is not None
        due = self.execution.find_next()
        duration = plan_sleep(now, due, int(waiting), 1000, self.config["sleep"])
        if duration:
            self.close()
            clocks = now // 1000 << 32 | int(time.time())
            board.keep(clocks.to_bytes(_HEAD, "big") + freeze(self.language))
            board.sleep_deeply(duration)

    def close(self) -> None:
        """Save everything."""
        self.spool.save(self.clock())


def unload(name: str) -> None:
    """Forget a module of this package that is not needed any more, to have its memory."""
    package = __name__[: -len(".app")]
    del sys.modules[package + "." + name]
    delattr(sys.modules[package], name)
    gc.collect()


def wake(config: "dict[str, Any]", wall: "int | None") -> Watchdog:
    """Return a watchdog that knows what was kept over a deep sleep."""
    kept = board.read_kept() if board and wall is not None else b""
    if len(kept) <= _HEAD or wall is None:
        return Watchdog(config, wall)
    from .duty import thaw

    clocks = int.from_bytes(kept[:_HEAD], "big")
    start = (clocks >> 32) + max(0, wall - (clocks & 0xFFFFFFFF))
    watchdog = Watchdog(config, wall, TickClock(1000 * start))
    try:
        thaw(watchdog.language, kept[_HEAD:])
    except ValueError as error:  # the node sends them again
        print("kept subscriptions:", error)
    return watchdog


async def _run(watchdog: Watchdog, period: float) -> None:
    task = asyncio.create_task(watchdog.run())
    while not task.done():
        await asyncio.sleep(period or 60)
        if period:
            print(json.dumps(watchdog.report()))
    await task


def main(path: str = "watchdog.json", period: float = 0) -> None:
    """Run the watchdog of a configuration file; every `period` seconds it prints its counters."""
    with open(path) as file:  # noqa: PTH123 - no pathlib on a device
        config = json.load(file)
    if board and "wifi" in config:
        board.start_wifi(config["wifi"]["name"], config["wifi"]["password"])
    watchdog = wake(config, int(time.time()) if config.get("clock", True) else None)
    for name in ("nodes", "events", "sources", "spool"):
        del config[name]
    unload("config")
    try:
        asyncio.run(_run(watchdog, period))
    finally:
        watchdog.close()
