"""One real node in a storm, somebody who starts it again, and the medic by whom it is judged.

A `Stand` is a node that listens with and without TLS, a device whose readings it acknowledges, and
a medic with the subscriber library. Readings are patients with a number; the stand knows which ones
were acknowledged and which ones reached the medic. After a storm `judge` returns the promises that
are broken, by name.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from denwatch.cli.publish import find_coverage
from denwatch.client.publisher import Publisher, PublisherError, parse_reading, read_key
from denwatch.client.subscriber import (
    BackOff,
    ConnectionState,
    HandlerTransaction,
    ReceivedNotification,
    Subscriber,
    SubscriberOptions,
)
from denwatch.client.vocabulary import load_shipped

from simulator.site import Site, SiteError, find_free_port, wait_for
from simulator.storms.faults import Faults

MEDIC, DEVICE = "medic7", "bed-1"
WORDS = "east between 1 and 60000 m, event patient"
_ROUND = 60.0  # s that a reading may take to the medic, on a busy machine
_TRIES = 3  # starts in a row that may fail before the node counts as dead
MEMORY = 128 << 20  # bytes that a storm may add to a node


class Stand:
    """A node, its supervisor, a device and a medic. `files` is how many files it may have open."""

    def __init__(self, folder: Path, *, files: int = 1_024, with_faults: bool = False) -> None:
        self.folder = folder
        self.site = Site(folder)
        plain = f"mqtt://127.0.0.1:{find_free_port()}"
        self.node = self.site.add_node("north", "--listen", plain, url="mqtts://127.0.0.1")
        self.node.configure(("\nshared = []", '\nshared = ["storm/#"]'))
        self.plain_port = int(plain.rpartition(":")[2])
        self.tls_port = self.node.port
        self.plain_url = plain
        self.password = self.site.add_subscriber(MEDIC)
        self.stranger_password = self.site.add_subscriber("medic8")
        self._key = self.site.add_device(DEVICE)
        self.data = self.node.folder / "data"
        self.faults = Faults(folder, self.data) if with_faults else None
        self.limit_files(files)
        self.endings = 0  # how often the process ended by itself
        self.kills = 0
        self.is_dead = False  # it cannot be started any more
        self.acknowledged: set[int] = set()
        self.received: dict[int, int] = {}  # patients, and how often
        self.altered: set[int] = set()  # received and never sent
        self.sent: set[int] = set()
        self.peak = 0
        self._before = self._disk_before = 0
        self._next = 1
        self._ended_with = ""
        self._medic: Subscriber | None = None

    def limit_files(self, files: int) -> None:
        """Start the node with so many files from now on."""
        shell = ("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh")
        self.node.prefix = (*shell, *(self.faults.prefix if self.faults else ()))

    # Life -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.node.start()
        try:
            self._medic = Subscriber(
                MEDIC,
                self.password,
                [self.plain_url],
                store=self.folder / "medic.db",
                on_notification=self._receive,
                settings=SubscriberOptions(BackOff(200, 1_000), patience=2_000, report_delay=200),
            ).start()
            self._medic.subscribe(WORDS, name="patients", timeout=_ROUND)
            if not (self.publish(1, _ROUND) and self.wait_for_all()):
                raise SiteError(f"a reading did not reach the medic: {self.node.journal}")
        except BaseException:
            self.__exit__()
            raise
        self._before = self.peak = self.measure_memory()
        self._disk_before = self.measure_disk()
        return self

    def __exit__(self, *_: object) -> None:
        if self._medic is not None:
            self._medic.close()
        with suppress(SiteError):
            self.node.end(signal.SIGKILL)

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        with suppress(SiteError):
            self.node.check_running()
            return True
        return False

    def supervise(self) -> None:
        """Start the node again if it ended, as an operator's service manager does."""
        if self.is_running or self.is_dead:
            return
        self.endings += 1
        self._ended_with = self.last_words
        for _ in range(_TRIES):
            with suppress(SiteError):
                self.node.start()
                return
        self.is_dead = True

    def kill(self) -> None:
        """Kill the node as a power cut does, and start it again."""
        if self.is_running:
            self.node.kill()
            self.kills += 1
        for _ in range(_TRIES):
            with suppress(SiteError):
                self.node.start()
                return
        self.is_dead = True

    # Readings -------------------------------------------------------------------------------

    def publish(self, count: int, timeout: float = 20.0) -> bool:
        """Let the device send readings; return whether all were acknowledged."""
        vocabulary = load_shipped("rescue")
        numbers = list(range(self._next, self._next + count))
        self._next += count
        self.sent.update(numbers)
        readings = [parse_reading(f"patient east={number} m", vocabulary) for number in numbers]
        coverage = find_coverage(readings, vocabulary)
        publisher = Publisher(
            read_key(self._key), vocabulary, coverage, server=self.plain_url, timeout=timeout
        )
        try:
            publisher.connect()
            for number, reading in zip(numbers, readings, strict=True):
                publisher.publish([reading])
                self.acknowledged.add(number)
        except PublisherError:
            return False
        finally:
            publisher.close()
        return True

    def recover(self, patience: float = _ROUND) -> bool:
        """Try until a reading is acknowledged again; return whether one was."""
        end = time.monotonic() + patience
        while not self.is_dead:
            self.supervise()
            if self.publish(1, max(5.0, end - time.monotonic())):
                return True
            if time.monotonic() > end:
                break
            time.sleep(0.5)
        return False

    def _receive(self, note: ReceivedNotification, transaction: HandlerTransaction) -> None:  # noqa: ARG002
        number = round(note.values["east"]["value"])
        self.received[number] = self.received.get(number, 0) + 1
        if number not in self.sent:
            self.altered.add(number)

    def wait_for_all(self, patience: float = _ROUND) -> bool:
        """Wait until the medic has everything that was acknowledged; return whether it came."""
        with suppress(SiteError):
            wait_for("the medic", lambda: self.acknowledged <= set(self.received), patience)
            return True
        return False

    @contextmanager
    def medic_away(self) -> Iterator[None]:
        """Disconnect the medic for a while: what is for them waits at the node."""
        assert self._medic is not None
        self._medic.use_servers([f"mqtt://127.0.0.1:{find_free_port()}"])
        is_up = ConnectionState.ONLINE
        wait_for("the medic to leave", lambda: self._medic and self._medic.status.state != is_up)
        try:
            yield
        finally:
            self._medic.use_servers([self.plain_url])

    # Measures -------------------------------------------------------------------------------

    def measure_memory(self) -> int:
        """Return the bytes of memory that the node has."""
        with suppress(OSError, SiteError):
            self.node.check_running()
            for line in Path(f"/proc/{self.node.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    size = int(line.split()[1]) << 10
                    self.peak = max(getattr(self, "peak", 0), size)
                    return size
        return 0

    def measure_disk(self) -> int:
        """Return the bytes of the node's data."""
        return sum(path.stat().st_size for path in self.data.rglob("*") if path.is_file())

    def settle_disk(self) -> None:
        """Stop the node in order and start it again: the write-ahead log begins anew."""
        self.node.stop()
        self.node.start()

    # Judgement ------------------------------------------------------------------------------

    def judge(self, *, may_end: bool = False) -> dict[str, str]:
        """Return what is broken after a storm, by name, with what was seen."""
        if not self.recover():
            return {"round trip": f"no reading is acknowledged any more: {self.last_words}"}
        broken: dict[str, str] = {}
        if self.endings and not may_end:
            broken["ended"] = f"the process ended {self.endings} times: {self._ended_with}"
        if not self.wait_for_all():
            lost = sorted(self.acknowledged - set(self.received))
            broken["lost"] = f"{len(lost)} acknowledged readings did not arrive: {lost[:5]}"
        twice = sorted(number for number, times in self.received.items() if times > 1)
        if twice:
            broken["twice"] = f"{len(twice)} readings arrived twice: {twice[:5]}"
        if self.altered:
            broken["altered"] = f"readings arrived that nobody sent: {sorted(self.altered)[:5]}"
        if self.peak - self._before > MEMORY:
            grown = (self.peak - self._before) >> 20
            broken["memory"] = f"{grown} MiB more than the {self._before >> 20} MiB before"
        return broken

    @property
    def last_words(self) -> str:
        """The last line that the process printed."""
        lines = [line for line in self.node.journal.splitlines() if line.strip()]
        return lines[-1][:200] if lines else "nothing"

    def describe(self) -> dict[str, Any]:
        """Return the figures of a storm."""
        return {
            "acknowledged": len(self.acknowledged),
            "received": len(self.received),
            "endings": self.endings,
            "kills": self.kills,
            "memory_before": self._before,
            "memory_peak": self.peak,
            "disk_grown": self.measure_disk() - self._disk_before,
        }
