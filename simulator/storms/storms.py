"""The storms: what is done to a node, bounded in count and time, on the loopback alone.

Each is a function of a stand and a scale, listed in `STORMS` with what it needs. It does its worst,
notes on the way how much memory the node has, and leaves the judgement to the stand; what it finds
out besides, it returns as broken promises of its own. With `has_kill`, the node is killed in the
middle of it.
"""

from __future__ import annotations

import errno
import resource
import select
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random

from denwatch.client.publisher import parse_reading
from denwatch.client.vocabulary import load_shipped
from denwatch.node.log import read_segment
from denwatch.node.log.segments import CLOSED
from denwatch.protocol import notification

from simulator.client_packets import DISCONNECT, write_connect, write_publish, write_subscribe
from simulator.site import SiteError, wait_for
from simulator.storms.faults import FAILING, HONEST, LYING, NEVER, Number, flip_bit
from simulator.storms.stand import Stand

_YEARS = (2107 - 1970) * 31_556_952  # s from 1970 to 2107
_PATIENCE = 300.0  # s until a storm must have had its effect
_FULL = "nothing is acknowledged until there is room"  # as a node says it
_REFUSAL = 256  # bytes of the disk that a refused connect may take
_PAUSE = 0.04  # s between two guesses, so that each is a commit of its own
_PIECE = 48 << 10  # bytes of a large message


@dataclass(frozen=True)
class Scale:
    """How much of it: the long form, or the short one of tests."""

    links: int = 2_000
    memory_links: int = 2_300
    loops: int = 2_000
    refusals: int = 3_600
    readers: int = 20
    messages: int = 400  # large ones
    disk: int = 6 << 20  # bytes of the whole disk
    repeats: int = 12  # of faults at different places
    has_kill: bool = True


SHORT = Scale(300, 300, 40, 150, 3, 60, 1 << 20, 2, has_kill=False)
Broken = dict[str, str]


@dataclass(frozen=True)
class Storm:
    """One storm. `files`: the limit of open files, in the long form and in the short one."""

    name: str
    what: str
    run: Callable[[Stand, Scale], Broken | None]
    files: tuple[int, int] = (4_096, 1_024)
    has_faults: bool = False
    may_end: bool = False  # the process may end, if it then starts again


# Connections ------------------------------------------------------------------------------------


def allow_files(count: int) -> None:
    """Let this process have so many sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


@contextmanager
def open_links(stand: Stand, port: int, count: int) -> Iterator[list[socket.socket]]:
    """Open connections that say nothing; those that the node refuses are left out."""
    allow_files(count + 512)
    links: list[socket.socket] = []
    try:
        for number in range(count):
            link = connect(port)
            if link is not None:
                links.append(link)
            elif not stand.is_running:
                break
            if number % 100 == 0:
                stand.measure_memory()
        yield links
    finally:
        for link in links:
            link.close()


def connect(port: int) -> socket.socket | None:
    """Return a connection to a port of the loopback; None if nobody accepts it."""
    link = socket.socket()
    link.settimeout(10)
    try:
        link.connect(("127.0.0.1", port))
    except OSError:
        link.close()
        return None
    return link


def refuses(port: int) -> bool:
    """Return whether nobody listens on a port; a server that is merely busy does."""
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def watch(stand: Stand, is_enough: Callable[[], bool]) -> None:
    """Measure the node until it is enough, or until it ends."""

    def look() -> bool:
        stand.measure_memory()
        return not stand.is_running or is_enough()

    wait_for("the storm's effect", look, _PATIENCE)


def hold_half_open(stand: Stand, scale: Scale, port: int, count: int) -> None:
    """Open connections and keep them silent until the node closes one of them, or ends.

    It has until then reported its status several times, for which it opens a file.
    """
    with open_links(stand, port, count) as links:
        watch(stand, lambda: not links or bool(select.select(links[:1], [], [], 0)[0]))
        if refuses(port):  # it closes all links before it ends, which takes a while
            wait_for("the end of the process", lambda: not stand.is_running, _PATIENCE)
        if scale.has_kill and stand.is_running:
            stand.kill()
    stand.supervise()


def flood_tls(stand: Stand, scale: Scale) -> None:
    """Open connections to the TLS port that never begin the handshake."""
    hold_half_open(stand, scale, stand.tls_port, scale.links)


def flood_plain(stand: Stand, scale: Scale) -> None:
    """Open connections to the plain port that never send CONNECT."""
    hold_half_open(stand, scale, stand.plain_port, scale.links)


def fill_memory(stand: Stand, scale: Scale) -> None:
    """Open as many connections to the TLS port as there is room for."""
    hold_half_open(stand, scale, stand.tls_port, scale.memory_links)


def exchange(link: socket.socket, data: bytes, expected: int) -> bytes:
    """Send, and return the answer, of so many bytes at most; b"" if the link is gone."""
    got = b""
    with suppress(OSError):
        link.sendall(data)
        while len(got) < expected:
            more = link.recv(expected - len(got))
            if not more:
                break
            got += more
    return got


def reconnect_often(stand: Stand, scale: Scale) -> None:
    """Connect, subscribe, and go away without a word, with sessions that stay."""
    for number in range(scale.loops):
        link = connect(stand.plain_port)
        if link is None:
            stand.supervise()
            continue
        client = f"app-{number % 40}"
        hello = write_connect(client, "medic8", stand.stranger_password, is_clean=number % 3 == 0)
        exchange(link, hello, 4)
        with suppress(OSError):
            link.sendall(write_subscribe(1, "storm/#", "dens/1/note/medic8"))
            if number % 5 == 0:
                link.sendall(DISCONNECT)
        link.close()
        if number % 50 == 0:
            stand.measure_memory()
        if scale.has_kill and number == scale.loops // 2:
            stand.kill()


def refuse_strangers(stand: Stand, scale: Scale) -> Broken | None:
    """Try to log in with guesses, not all at once; the disk must not grow much faster by it."""
    started = time.monotonic()
    grown = _measure_growth(stand, lambda: _guess_passwords(stand, scale.refusals))
    seconds = time.monotonic() - started
    idle = _measure_growth(stand, lambda: time.sleep(seconds))
    if scale.has_kill:
        stand.kill()
    if grown - idle > _REFUSAL * scale.refusals:
        seen = f"{grown >> 10} KiB, and {idle >> 10} KiB without them"
        return {"disk": f"{scale.refusals} refused connects took {seen}"}
    return None


def _guess_passwords(stand: Stand, count: int) -> None:
    for number in range(count):
        link = connect(stand.plain_port)
        if link is not None:
            exchange(link, write_connect(f"stranger-{number}", f"nobody-{number}", "guess"), 4)
            link.close()
        time.sleep(_PAUSE)


def _measure_growth(stand: Stand, act: Callable[[], None]) -> int:
    """Return by how much the disk grows meanwhile, with the database's write-ahead log."""
    stand.settle_disk()
    before = stand.measure_disk()
    act()
    return stand.measure_disk() - before


def stall_readers(stand: Stand, scale: Scale) -> None:
    """Subscribe to a flood and read none of it."""
    readers = [link for _ in range(scale.readers) if (link := connect(stand.plain_port))]
    try:
        for number, link in enumerate(readers):
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            hello = write_connect(
                f"slow-{number}", "medic8", stand.stranger_password, is_clean=number % 2 == 0
            )
            exchange(link, hello + write_subscribe(1, "storm/#", qos=number % 2), 4)
        flood(stand, scale.messages, is_retained=False)
        if scale.has_kill:
            stand.kill()
            flood(stand, scale.messages // 4, is_retained=False)
    finally:
        for link in readers:
            link.close()


def flood(stand: Stand, count: int, *, is_retained: bool) -> int:
    """Publish large messages; return how many were acknowledged."""
    done = 0
    link = connect(stand.plain_port)
    if link is None:
        return 0
    exchange(link, write_connect("flood", "medic8", stand.stranger_password), 4)
    for number in range(count):
        topic = f"storm/{number % 100}"
        packet = write_publish(topic, bytes(_PIECE), 1, 1 + number % 60_000, retain=is_retained)
        if len(exchange(link, packet, 4)) < 4:
            break
        done += 1
        if number % 10 == 0:
            stand.measure_memory()
    link.close()
    return done


# The disk ---------------------------------------------------------------------------------------


def fill_disk(stand: Stand, scale: Scale) -> None:
    """Let messages fill a small disk, and make room after a while."""
    assert stand.faults is not None
    stand.faults.set(Number.ROOM, max(0, scale.disk - stand.measure_disk()))
    flood(stand, scale.messages, is_retained=True)
    # Others write there, too: what was left is gone, and here one needs room to write over, too.
    stand.faults.set(Number.WRITES, 0)
    watch(stand, lambda: stand.node.journal.count(_FULL) > 2)  # it opened its store twice since
    if scale.has_kill and stand.is_running:
        stand.node.kill()
        stand.kills += 1
        with suppress(SiteError):
            stand.node.start()
    has_ended = not stand.is_running
    stand.faults.calm()
    if has_ended:
        stand.supervise()


def fail_writes(stand: Stand, scale: Scale) -> None:
    """Let writes fail for lack of room after so many, and a moment later succeed again."""
    assert stand.faults is not None
    for number in range(scale.repeats):
        stand.faults.set(Number.WRITES, (0, 1, 2, 3, 5, 8, 13, 21)[number % 8])
        stand.publish(3, timeout=3)
        stand.faults.calm()
        stand.recover()


def fail_reads(stand: Stand, scale: Scale) -> None:
    """Let the disk refuse to read, also while the node starts."""
    assert stand.faults is not None
    for number in range(scale.repeats):
        stand.faults.set(Number.READS, number * 7)
        stand.publish(1, timeout=3)
        if stand.is_running:
            stand.node.kill()
            stand.kills += 1
        stand.node.launch()
        with suppress(SiteError):
            stand.node.wait_until_ready()
        stand.faults.calm()
        stand.supervise()


def cut_power(stand: Stand, scale: Scale) -> Broken | None:
    """Let the power fail at a write: that one and all that was not synced before it are gone."""
    assert stand.faults is not None
    undone = 0
    for number in range(scale.repeats):
        stand.faults.begin_notes()
        fail_at_write(stand, 1 + 3 * number)
        undone += stand.faults.lose_unsynced()
        stand.kill()
    return None if undone else {"vacuous": "no write was ever without its sync"}


def tear_writes(stand: Stand, scale: Scale) -> None:
    """Let the power fail in the middle of a write; the rest of what was written is there."""
    for number in range(scale.repeats):
        fail_at_write(stand, 3 * number)
        stand.kill()


def fail_at_write(stand: Stand, number: int) -> None:
    """Publish until the power fails, after so many writes that succeed."""
    assert stand.faults is not None
    stand.faults.set(Number.TEAR, number)
    stand.publish(4, timeout=5)
    wait_for("the torn write", lambda: not stand.is_running)  # a status is written every second
    stand.faults.set(Number.TEAR, NEVER)
    stand.kills += 1


def lie_about_syncs(stand: Stand, scale: Scale) -> Broken | None:
    """Let the disk call synced what it has not; what is lost is lost, but the node works."""
    assert stand.faults is not None
    for _ in range(scale.repeats):
        stand.faults.begin_notes()
        stand.faults.set(Number.SYNCS, LYING)
        stand.publish(3)
        stand.node.kill()
        stand.kills += 1
        stand.faults.lose_unsynced()
        stand.faults.set(Number.SYNCS, HONEST)
        stand.acknowledged &= set(stand.received)  # the disk has lost them, not the node
        stand.kill()
    return None


def fail_syncs(stand: Stand, scale: Scale) -> None:
    """Let syncs fail."""
    assert stand.faults is not None
    for _ in range(scale.repeats):
        stand.faults.set(Number.SYNCS, FAILING)
        stand.publish(2, timeout=3)
        stand.faults.calm()
        stand.recover()


def fail_opens(stand: Stand, scale: Scale) -> None:
    """Let no file be opened for lack of room, while the node runs and while it starts."""
    assert stand.faults is not None
    for number in range(scale.repeats):
        stand.faults.set(Number.OPENS, (errno.ENOSPC, errno.EMFILE, errno.EIO)[number % 3])
        stand.publish(1, timeout=3)
        stand.faults.calm()
        stand.recover()


def alter_readings(stand: Stand, scale: Scale) -> Broken | None:
    """Change one bit of a stored reading that waits for the medic, the node being off."""
    del scale
    with stand.medic_away():
        stand.publish(1)
        number = max(stand.acknowledged)
        stand.node.stop()
        vector = notification.encode(
            parse_reading(f"patient east={number} m", load_shipped("rescue"))
        )[-4:]
        flipped = 0
        for path in (stand.data / "node.db", stand.data / "node.db-wal"):
            data = path.read_bytes() if path.exists() else b""
            at = data.find(vector)
            while at >= 0:
                flip_bit(path, at + len(vector) - 1, 3)
                flipped += 1
                at = data.find(vector, at + 1)
        try:
            stand.node.start()
        except SiteError:  # it noticed: refused, and the reading stays where it is
            stand.acknowledged.discard(number)
            shutil.rmtree(stand.data)
            stand.node.start()
    if not flipped:
        return {"vacuous": "the reading was not found in the store"}
    wait_for(
        "the medic's note, or that it is named",
        lambda: (
            len(stand.received) > 1
            or not stand.acknowledged
            or "damaged on the disk and not used: item.notification" in stand.node.journal
        ),
    )
    stand.acknowledged.discard(number)  # it came, altered or not, or was refused
    return None


def flip_bits(stand: Stand, scale: Scale) -> Broken | None:
    """Change bits anywhere in store and log: the node refuses, or works as if nothing was."""
    rng = Random(7)
    copy = stand.folder / "copy"
    refused = 0
    for number in range(scale.repeats):
        stand.publish(2)
        stand.wait_for_all()
        stand.node.stop()
        shutil.copytree(stand.data, copy)
        files = [path for path in stand.data.rglob("*") if path.is_file() and path.stat().st_size]
        for path in files if number % 2 else [stand.data / "node.db"]:
            for _ in range(8):
                flip_bit(path, rng.randrange(path.stat().st_size), rng.randrange(8))
        try:
            stand.node.start()
            stand.publish(1, timeout=10)
            stand.node.kill()
        except SiteError:
            refused += 1
        for path in sorted((stand.data / "log").iterdir()):
            with suppress(ValueError):  # the reader's own refusal
                read_segment(path.read_bytes(), is_closed=path.name.endswith(CLOSED))
        shutil.rmtree(stand.data)
        copy.rename(stand.data)
        stand.acknowledged &= set(stand.received)
        stand.node.start()
    return None


# The clock --------------------------------------------------------------------------------------


def leap_to_2107(stand: Stand, scale: Scale) -> None:
    """Set the clock to 2107 while the node runs, start it there, and set it back."""
    assert stand.faults is not None
    stand.faults.set(Number.CLOCK, _YEARS - int(time.time()) + 86_400)
    wait_for("the node to notice", lambda: "clock shows no time" in stand.node.journal)
    stand.publish(2)
    stand.kill()
    if not stand.is_dead:
        stand.publish(2, timeout=10)
    stand.faults.calm()
    stand.is_dead = False
    stand.kill()
    if scale.has_kill and not stand.is_dead:
        stand.kill()


STORMS = (
    Storm("half-open-tls", "silent connections to the TLS port", flood_tls, (1_024, 256)),
    Storm("half-open-plain", "silent connections to the plain port", flood_plain, (1_024, 256)),
    Storm("half-open-memory", "silent connections, and room for all", fill_memory),
    Storm("few-files", "silent connections at `ulimit -n 256`", flood_plain, (256, 256)),
    Storm("reconnects", "sessions that stay, clients that do not", reconnect_often),
    Storm("strangers", "refused connects", refuse_strangers),
    Storm("slow-readers", "clients that do not read", stall_readers),
    Storm("full-disk", "a small disk, filled", fill_disk, has_faults=True),
    Storm("failing-writes", "no room for a moment", fail_writes, has_faults=True),
    Storm("failing-opens", "no file can be opened", fail_opens, has_faults=True),
    Storm("failing-reads", "EIO", fail_reads, has_faults=True, may_end=True),
    Storm("failing-syncs", "syncs that fail", fail_syncs, has_faults=True, may_end=True),
    Storm("power-cuts", "all that is not synced is gone", cut_power, has_faults=True),
    Storm("torn-writes", "half a write, then a power cut", tear_writes, has_faults=True),
    Storm("lying-syncs", "syncs that do nothing", lie_about_syncs, has_faults=True),
    Storm("altered-reading", "one bit of a stored reading", alter_readings),
    Storm("flipped-bits", "bits anywhere", flip_bits),
    Storm("clock-2107", "the clock in 2107 and back", leap_to_2107, has_faults=True),
)
