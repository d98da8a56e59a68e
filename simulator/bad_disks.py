"""What goes wrong in a machine besides kills: its disk, files and clock, and the node itself.

A full disk is full at every write and at opening, until somebody makes room. A disk that decays
makes its node one that cannot be believed; when all heals, somebody puts a copy of the disk back.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from denwatch.node.core.items import DELIVERED, DeliveredBody, encode_body

from simulator.registry import fault, on_heal
from simulator.whole_scenarios import MALLORY, WHOLE

if TYPE_CHECKING:
    from denwatch.node.core.item_store import Transaction

    from simulator.faults import Play

_FAR = 84 * 366 * 86_400_000  # ms: to a year after 2106
_LONG = 40_000  # ms that a disk stays full


@fault("full-disk")
def fill_disk(play: Play, first: int, second: int) -> None:
    """Let a disk be full for a while, also when the node is opened."""
    host = play.world.hosts[play.node(first)]
    host.faults.is_full = True

    def make_room() -> None:
        host.faults.is_full = False

    play.world.calendar.wait(5_000 + second % _LONG, make_room)
    if second & 1:
        play.world.kill(host.name, "killed with a full disk", down=1_000)


@fault("too-many-files")
def exhaust_files(play: Play, first: int, second: int) -> None:
    """Let a process have too many open files for a while: log, key file, store."""
    if not play.scenario.dial(WHOLE):
        return
    from simulator.whole_node import make_exhaustion

    host = play.world.whole(play.node(first))  # type: ignore[attr-defined]
    host.log_files.trouble = make_exhaustion()
    if second & 1:
        host.has_new_keys = True  # somebody registers a name meanwhile
    if second & 6 == 0:
        host.faults.unopened = 1 + second % 3
        play.world.kill(host.name, "killed with too many files", down=1_000)

    def close_some() -> None:
        host.log_files.trouble = None

    play.world.calendar.wait(5_000 + second % _LONG, close_some)


def _decay(play: Play, first: int, second: int, how: str) -> None:
    host = play.world.hosts[play.node(first)]
    rng = Random(second)
    for _ in range(1 + second % 3):
        host.medium.decay(rng, how)
    play.truth.liars.add(host.name)
    if second & 8:
        play.world.kill(host.name, f"killed with a disk that decays: {how}", down=2_000)


@fault("bit-flip")
def flip_bits(play: Play, first: int, second: int) -> None:
    """Change single bits of what is on a disk."""
    _decay(play, first, second, "flip")


@fault("torn-value")
def tear_values(play: Play, first: int, second: int) -> None:
    """Lose the second half of values on a disk."""
    _decay(play, first, second, "tear")


@fault("read-error")
def refuse_reads(play: Play, first: int, second: int) -> None:
    """Let some of a disk be unreadable."""
    _decay(play, first, second, "unreadable")


@fault("far-clock")
def set_far_clock(play: Play, first: int, second: int) -> None:
    """Set a machine's clock far ahead and back, with starts of the node in between."""
    name = play.node(first)
    world = play.world
    world.set_clock(name, _FAR)
    world.calendar.wait(2_000, world.kill, name, "killed in another century", 1_000)
    back = 20_000 + second % 20_000
    world.calendar.wait(back, world.set_clock, name, -_FAR)
    world.calendar.wait(back + 2_000, world.kill, name, "killed in this century", 1_000)


@fault("late-defect")
def accept_poison(play: Play, first: int, second: int) -> None:
    """Let a node accept an item at which it fails later, in a tick: when the item ends."""
    if not play.scenario.dial(WHOLE):
        return
    host = play.world.whole(play.node(first))  # type: ignore[attr-defined]

    def make(transaction: Transaction) -> None:
        end = transaction.now + 2_000 + second % _LONG
        body = encode_body(DeliveredBody(MALLORY, []))
        host.poisoned.add(host.item_store.originate(transaction, DELIVERED, end, body).dot)

    play.world._do(host, lambda: host.act(make, play.world.now))


@on_heal.append
def mend_disks(play: Play) -> None:
    """Put back what disks had, and start nodes from them."""
    for host in play.world.hosts.values():
        if host.medium.decayed:
            host.medium.mend()
            play.world.kill(host.name, "its disk is exchanged", down=1_000)
        if hasattr(host, "log_files"):
            host.log_files.trouble = None
