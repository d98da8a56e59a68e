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
from binascii import crc32  # noqa: E402

from ..protocol.degrees import const  # noqa: E402
from .execution import Execution, list_senses  # noqa: E402
from .fuzzy import Fuzzy  # noqa: E402
from .link import DeviceLink, LinkSettings, WifiTask  # noqa: E402
from .manager import Manager  # noqa: E402
from .spool import Spool  # noqa: E402
from .supervisor import Supervisor, TaskGuard, forget_crashes, read_crashes  # noqa: E402
from .uplink import Uplink  # noqa: E402

try:
    from . import board
except ImportError:  # a PC
    board = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .duty import DutyCycle, Kept
    from .trial import CodeTrial

_HEALTHY = const(600_000)  # ms of work after which crashes are forgotten


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


class Watchdog:
    """All parts of one device, and the tasks that run them."""

    duty: "DutyCycle | None" = None  # of a device that sleeps
    trial: "CodeTrial | None" = None  # of a device whose code can be updated

    def __init__(
        self,
        config: "dict[str, Any]",
        wall: "int | None",
        clock: "TickClock | None" = None,
        feed: "Callable[[], object]" = int,  # which does nothing
        kept: "Kept | None" = None,
    ) -> None:
        from .config import open_spool, read_events, read_nodes

        self.config = config
        self.clock = clock or TickClock()
        now = self.clock()
        servers, keys = read_nodes(config)
        modem = None
        if "radio" in config:
            from .radio import OVERHEAD, RadioLink, open_modem

            modem = open_modem(config["radio"], board)
        self._is_slow = modem is not None and modem.share < 1000
        events = read_events(config, board)
        device = open_spool(config["spool"])
        senses = list_senses(events)
        _hole.clear()
        gc.collect()
        self.language = Fuzzy(config.get("capacity", 4096), senses)
        self.manager = Manager([self.language], senses)
        self.spool = Spool(
            device,
            now,
            wall,
            resume=kept.read_resume() if kept else None,
            leap=random.getrandbits(28),
        )
        self.spool.keep_nodes(list(keys))
        self.guard = TaskGuard(feed, read_free)
        self.supervisor = Supervisor(self.clock)
        self.log = self.supervisor.log
        self.crashes, last = read_crashes() if board else (0, "")
        self.uplink = Uplink(
            config["device"],
            keys,
            self.spool,
            self.manager,
            bytes.fromhex(config["vocabulary"]),
            self._describe,
            room=modem.size - OVERHEAD if modem else 900,
            patience=config.get("patience", 60_000 if modem and modem.share < 1000 else 5000),
        )
        self.execution = Execution(self.manager, events, self.spool)
        self.link: DeviceLink | RadioLink
        if modem:
            self.link = RadioLink(self.uplink, servers, self.clock, random.randrange, modem)
        else:
            self.link = DeviceLink(
                self.uplink,
                servers,
                self.clock,
                random.randrange,
                LinkSettings(**config.get("link", {})),
            )
        if board and "slots" in sys.modules:  # where `main.py` came from: code can be updated
            from .trial import CodeTrial

            self.trial = CodeTrial(self, sys.modules["slots"], board)
            self.uplink.open_update = self.trial.open_update
        if self.crashes:
            self.log("crashed, " + str(self.crashes) + ": " + last)

    def _describe(self) -> dict[int, object]:
        """Return what a hello says beyond what the manager knows."""
        version = sys.implementation.version
        name = sys.implementation.name
        fields: dict[int, object] = {7: f"{name} {version[0]}.{version[1]}.{version[2]}"}
        fields[24] = {event.sample.event: event.doubts for event in self.execution.events}
        facts = {7: self.supervisor.restarts, 8: self.crashes, 10: self.uplink.counts["begun_anew"]}
        if board is not None:
            fields[8] = board.read_reset_reason()
            if "wifi" in self.config:
                facts[9] = board.read_signal()
            if "battery" in self.config:
                battery = self.config["battery"]
                facts[1] = board.make_adc(battery["pin"]).read_u16() * battery["full"] // 65535
        if self.duty is not None:
            facts.update(self.duty.describe())
        fields[25] = facts
        number = getattr(sys.implementation, "_mpy", 0)
        fields[30] = [number] + (self.trial.describe() if self.trial else [0, "", b"", b""])
        if self.supervisor.lines and not self._is_slow:
            fields[26] = self.supervisor.lines
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
            "restarts": self.supervisor.restarts,
        }

    async def run(self) -> None:
        """Run all tasks until one of them fails again and again."""
        supervisor = self.supervisor
        if self.duty is None:
            self.start_radio()
            supervisor.start("sample", self._sample)
            supervisor.start("house", self._keep_house)
        else:
            supervisor.start("duty", self.duty.run)
        while not supervisor.failed:
            await asyncio.sleep(1)
        raise RuntimeError(supervisor.failed)

    def start_radio(self) -> None:
        """Connect, and send what waits."""
        if board and "wifi" in self.config:
            networks = self.config["wifi"]
            wifi = WifiTask(board, networks, self.clock, random.randrange, self.log)
            self.supervisor.start("wifi", wifi.run)
        self.supervisor.start("link", self._connect)
        self.supervisor.start("send", self.send)

    async def _connect(self) -> None:
        while board and "wifi" in self.config and not board.is_joined():
            await asyncio.sleep(0.1)
        await self.link.run()

    async def stop_radio(self) -> None:
        """Close the connection, and switch the radio off."""
        for name in ("send", "link", "wifi"):
            self.supervisor.stop(name)
        await asyncio.sleep(0.05)  # in which they end
        if board and "wifi" in self.config:
            board.stop_wifi()

    async def _sample(self) -> None:
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
        """Save what waits too long in memory, feed the dog, collect garbage."""
        hold = self.config.get("hold", 5000)
        while True:
            now = self.clock()
            if self.spool.find_age(now) >= (hold if self.link.server else 0):
                self.spool.flush(now)
            self.guard.check(now)
            self.guard.rest()
            if self.trial:
                self.trial.check(now)
            if self.crashes and now > _HEALTHY:
                self.forget_crashes()
            await asyncio.sleep(1)

    def forget_crashes(self) -> None:
        """Note that this start works; from the safe mode, try again."""
        self.crashes = 0
        forget_crashes()
        if not self.execution.events:
            board.restart(True)

    def close(self) -> None:
        """Save everything."""
        self.spool.save(self.clock())


def unload(name: str) -> None:
    """Forget a module of this package that is not needed any more, to have its memory."""
    package = __name__[: -len(".app")]
    del sys.modules[package + "." + name]
    delattr(sys.modules[package], name)
    gc.collect()


def wake(config: "dict[str, Any]", check: int, feed: "Callable[[], object]" = int) -> Watchdog:
    """Return a watchdog that knows what was kept over a deep sleep; `check` is its file's CRC."""
    wall = read_wall(config)
    if board is None or not config.get("sleep"):
        return Watchdog(config, wall, None, feed)
    from .duty import DutyCycle, Kept

    kept = Kept(check)
    clock = TickClock(kept.find_clock(wall)) if kept.load(board) else None
    watchdog = Watchdog(config, wall, clock, feed, kept)
    kept.restore(watchdog)
    watchdog.duty = DutyCycle(watchdog, kept, board, lambda: read_wall(config))
    return watchdog


def read_wall(config: "dict[str, Any]") -> "int | None":
    """Return the second of the board's clock, None if it has none that goes on."""
    return int(time.time()) if config.get("clock", True) else None


async def _run(watchdog: Watchdog, period: float) -> None:
    task = asyncio.create_task(watchdog.run())
    while not task.done():
        await asyncio.sleep(period or 1)
        if period:
            print(json.dumps(watchdog.report()))
    await task


def main(
    path: str = "watchdog.json",
    period: float = 0,
    feed: "Callable[[], object]" = int,
    is_safe: bool = False,
) -> None:
    """Run the watchdog of a configuration file; every `period` seconds it prints its counters.

    In safe mode it touches no sensor and does not sleep.
    """
    with open(path) as file:  # noqa: PTH123 - no pathlib on a device
        text = file.read()
    config = json.loads(text)
    if is_safe:
        config["sources"] = {}
        config["events"] = []
        config["sleep"] = 0
    if getattr(sys.modules.get("slots"), "is_trial", False):  # it sleeps once it is confirmed
        config["sleep"] = 0
    watchdog = wake(config, crc32(text.encode()), feed)
    del text
    for name in ("nodes", "events", "sources", "spool"):
        del config[name]
    unload("config")
    try:
        asyncio.run(_run(watchdog, period))
    finally:
        watchdog.close()
