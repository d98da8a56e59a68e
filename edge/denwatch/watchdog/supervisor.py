"""Supervision: tasks that are started again, the last lines of the log, crashes that are counted.

A task that ends or fails is started again after a pause. If it fails five times without a minute
of work in between, the program ends: `boot.py` notes the crash in a file, starts the program again,
after two crashes the board, and after five the safe mode, in which the device touches no sensor,
but connects and can be asked for its log. Ten minutes of work, or a node that answers, and the
crashes are forgotten. A task that hangs is the hardware watchdog's, which `TaskGuard` feeds. The
only file that writes the crash file.
"""

import asyncio
import gc
import os

from ..protocol.degrees import const

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SAFE_AFTER = 5  # crashes, from which the safe mode begins
_FAILURES = const(5)
_WORKED = const(60_000)  # ms after which a failure is a new one
_LOG = const(600)  # characters of the log that are kept
_FILE = "crash.txt"


def read_crashes() -> "tuple[int, str]":
    """Return how many crashes there were since the last long run, and what the last one was."""
    try:
        with open(_FILE) as file:  # noqa: PTH123 - no pathlib on a device
            return int(file.readline()), file.readline()
    except (OSError, ValueError):
        return 0, ""


def note_crash(error: Exception) -> int:
    """Count a crash, on the flash; return how many there are."""
    count = read_crashes()[0] + 1
    with open(_FILE, "w") as file:  # noqa: PTH123
        file.write(str(count) + "\n" + _describe(error)[:120])
    return count


def _describe(error: Exception) -> str:
    return type(error).__name__ + ": " + str(error)


def forget_crashes() -> None:
    """Note that the program works."""
    if _FILE in os.listdir():  # noqa: PTH208
        os.remove(_FILE)  # noqa: PTH107


class Supervisor:
    """Keeps tasks running. `clock` returns ms; `failed` names the task that could not be kept."""

    def __init__(self, clock: "Callable[[], int]") -> None:
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.lines = ""  # the end of the log
        self.restarts = 0
        self.failed = ""

    def log(self, text: str) -> None:
        """Print a line, and keep it for who asks."""
        line = str(self._clock() // 1000) + " " + text
        print(line)
        self.lines = (self.lines + line + "\n")[-_LOG:]

    def start(self, name: str, make: "Callable[[], Awaitable[None]]") -> None:
        """Run what `make()` returns, and again when it ends."""
        self._tasks[name] = asyncio.create_task(self._keep(name, make))

    def stop(self, name: str) -> None:
        """End a task for good."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()

    async def _keep(self, name: str, make: "Callable[[], Awaitable[None]]") -> None:
        failures = 0
        while True:
            since = self._clock()
            try:
                await make()
                error = "ended"
            except Exception as failure:  # noqa: BLE001 - a task must not die unnoticed
                error = _describe(failure)
            self.restarts += 1
            self.log(name + ": " + error)
            failures = 1 if self._clock() - since > _WORKED else failures + 1
            if failures >= _FAILURES:
                self.failed = name + ": " + error
                return
            await asyncio.sleep(1 << failures - 1)


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
        if name in self.names:  # it was started again
            self._last[self.names.index(name)] = now
            return self.names.index(name)
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
