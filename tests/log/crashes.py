"""The life of a log on a machine that breaks down, and what must hold afterwards.

`live` writes records into a store and moves them to segments, in small steps that a seed decides;
closed segments are carried away, as an operator would. `finish` starts once more on what a crash
left and reads everything. Records say their own number, so `check` sees what is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from denwatch.node.log import Damage, LogRecord, Writer, encode_record, read_segment

from simulator.memory_store import Crashed, EmulatedDisk, Faults, MemoryStore
from tests.log.building import read_all
from tests.log.disk import CrashingFiles
from tests.log.samples import NOW

MakeWriter = Callable[[MemoryStore, CrashingFiles], Writer]


class Broken(Exception):
    """A promise was broken; the text says which."""


def make_writer(store: MemoryStore, files: CrashingFiles) -> Writer:
    """Return a writer whose segments are small, so that all of its paths are walked."""
    return Writer(store, files, segment_bytes=900, segment_age=20_000)


@dataclass
class World:
    """What outlives a process: the store's disk, the log's directory, the operator's copies."""

    medium: EmulatedDisk
    files: CrashingFiles
    carried: dict[str, bytes] = field(default_factory=dict)
    told: int = 0  # records whose commit returned
    now: int = NOW

    def carry_away(self) -> None:
        """Take closed segments off the machine."""
        for name in self.files.list_names():
            if name.endswith(".dlog"):
                self.carried[name] = self.files.files.pop(name)


def live(world: World, faults: Faults, chance: Random, make: MakeWriter, steps: int = 25) -> None:
    """Run a node's log until it is done, or dies."""
    store = MemoryStore("north", world.medium, faults=faults)
    writer = make(store, world.files)
    for _ in range(steps):
        world.now += chance.randrange(2_000)
        for _ in range(chance.randrange(3)):
            for _ in range(chance.randrange(4)):
                fields = {"subscriber": str(store.next_number), "is_up": True}
                store.apply([], [encode_record("attach", fields, world.now)])
            store.commit()
            world.told = store.next_number - 1
        if chance.random() < 0.7:
            with suppress(OSError):  # a full disk: the node goes on, and tries again later
                writer.move(world.now, limit=1 + chance.randrange(8))
            if chance.random() < 0.3:
                world.carry_away()
            if chance.random() < 0.7:
                store.commit()
    store.close()


def finish(world: World, make: MakeWriter) -> None:
    """Start once more, and let everything become segments."""
    store = MemoryStore("north", world.medium)
    writer = make(store, world.files)
    writer.close(world.now)
    store.close()
    check(world, store.next_number)


def check(world: World, next_number: int) -> None:
    """Compare all segments with all that was committed."""
    records: list[LogRecord] = []
    damages: list[Damage] = []
    for name, data in {**world.carried, **world.files.files}.items():
        if not name.endswith(".dlog"):
            raise Broken(f"{name} was left open")
        found, damaged = read_all(read_segment(data, is_closed=True))
        records += found
        damages += damaged
    if damages:
        raise Broken(f"there is damage: {damages[0]}")
    numbers = sorted(record.number for record in records)
    if len(set(numbers)) < len(numbers):
        raise Broken("a record is there twice")
    if numbers != list(range(1, next_number)) or world.told >= next_number:
        raise Broken(f"records are lost: {len(numbers)} of {world.told} are there")
    for record in records:
        if record.fields["subscriber"] != str(record.number):
            raise Broken(f"record {record.number} is another one")


def run_life(
    seed: int,
    *,
    file_cut: int = 0,
    file_failure: int = 0,
    store_cut: int = 0,
    is_power_cut: bool = False,
    make: MakeWriter = make_writer,
) -> tuple[int, int]:
    """Live, die at the chosen operation, live again, finish, check; return operations counted."""
    chance = Random(seed)
    world = World(EmulatedDisk(), CrashingFiles(Random(seed + 1), file_cut))
    world.files.fail_at = file_failure
    faults = Faults()
    if store_cut:
        faults.plan("any", store_cut, "crash" if seed % 2 else "crash-after")
    with suppress(Crashed, OSError):  # an OSError ends it only at the start
        live(world, faults, chance, make)
    counted = world.files.operations, faults.counts["any"]
    world.medium.is_open = False
    world.files = world.files.crash(is_power_cut)
    live(world, Faults(), chance, make, steps=5)
    world.files = world.files.crash(is_power_cut)
    finish(world, make)
    return counted


def run_campaign(seed: int, make: MakeWriter = make_writer) -> int:
    """Cut a life at every operation of the files and of the store; return how many that were."""
    files, store = run_life(seed, make=make)
    for is_power_cut in (False, True):
        for number in range(1, files + 1):
            run_life(seed, file_cut=number, is_power_cut=is_power_cut, make=make)
        for number in range(1, store + 1):
            run_life(seed, store_cut=number, is_power_cut=is_power_cut, make=make)
    for number in range(1, files + 1):
        run_life(seed, file_failure=number, make=make)
    return 3 * files + 2 * store
