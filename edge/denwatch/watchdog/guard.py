"""The guard: feeds the hardware watchdog while every task makes progress, and watches memory.

A task that hangs must not be hidden by one that runs: the dog is fed only if all have reported
within their limits. Nothing here touches hardware; `board.py` brings `feed` and `read_free`.
"""

import gc


class Guard:
    """Keeps the time of each task's last progress, in one list made at the start."""

    def __init__(self, feed: object, read_free: object) -> None:
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
        self._feed()  # type: ignore[operator]
        self.fed += 1
        return True

    def rest(self) -> None:
        """Collect garbage and see what is left; to be called between rounds, when nothing waits."""
        gc.collect()
        self.note_memory()

    def note_memory(self) -> None:
        """Lower the low-water mark if less is free now."""
        free = self._read_free()  # type: ignore[operator]
        if self.lowest < 0 or free < self.lowest:
            self.lowest = free
