"""Fifty sensors on one LoRa channel: asked for what matters, against plain periodic telemetry.

Patients as in `benchmarks.air`, a reading a minute, one in five gets worse; ten subscriptions in
words at a real node. The watchdogs' own code (filter, spool, uplink, radio link) and the bridge's
gateway run in the simulator's air: datagrams take the time of the SX1276's data sheet, are lost
when two overlap, and one in twenty besides. Devices keep to 1 % of the air, the gateway to 10 %.
Plain telemetry sends every reading once, in one datagram of the same format, at the same share of
the air and on the same channel, and nobody answers: that is how such sensors are built.

Headline, on the slow setting (SF10, datagrams of 51 bytes): airtime_over_sending_all, all of ours
with the gateway's, subscriptions and answers over the telemetry's; delivered_over_possible, of the
readings that somebody wanted, those that a node had committed at the end, and
telemetry_delivered_over_possible, those of the same readings that the telemetry brought. Both are
also measured at SF7 with 222 bytes (`_fast`).
"""

from __future__ import annotations

import argparse
from random import Random
from typing import Any

from denwatch.client.vocabulary import load_shipped
from denwatch.watchdog.radio import HEAD, AirBudget, find_lora_airtime

from benchmarks.air import FRAME, RESCUE
from benchmarks.air_patients import SIGNS, draw_patient
from benchmarks.common import format_table, run, save_text, say
from simulator.device import Sense
from simulator.radio import RadioAir, RadioSettings, find_excess
from simulator.world import World

DEVICES = 50
ILL = 5  # one in so many
LOSS = 0.05
SHARE = 10  # of the time, in 1/1000
MINUTE = 60_000
SETTLE = 60 * MINUTE  # at the end, in which nothing new counts
SETTINGS = {"": (10, 51), "_fast": (7, 222)}


def build_world(seed: int, spreading: int, size: int) -> World:
    """Return a node with its radio, and a person who asks."""
    world = World(seed, load_shipped("rescue"))
    settings = RadioSettings(size, lambda n: find_lora_airtime(n, spreading), SHARE, loss=LOSS)
    world.add_node("north")
    world.air = RadioAir(world, settings, Random(seed))
    world.add_person("medic", "north")
    for number, words in enumerate(RESCUE):
        world.ask("medic", {"subscribe": words, "name": f"s{number}"})
    return world


def add_patients(world: World, seed: int) -> dict[str, int]:
    """Add the devices at random moments of the first minute; return when each began, in ms."""
    vocabulary = world.vocabulary
    attributes = vocabulary.events["patient"].attributes
    bits = {attributes[name].bit: index for index, name in enumerate(SIGNS)}
    rng = Random(seed)
    starts = sorted(rng.randrange(MINUTE) for _ in range(DEVICES))
    began = {}
    for number, start in enumerate(starts):
        world.run(start)
        signs = list(draw_patient(Random(seed * 1000 + number), number % ILL == 0))
        codes = [
            [
                round(255 * (row[index] - attribute.low) / (attribute.high - attribute.low))
                for attribute, index in (
                    (attributes[name], index) for index, name in enumerate(SIGNS)
                )
            ]
            for row in signs
        ]
        order = [bits[bit] for bit in sorted(bits)]
        name = f"bed-{number}"
        began[name] = world.now
        sense = Sense(vocabulary.events["patient"].number, tuple(sorted(bits)), period=MINUTE)
        world.add_device(name, "north", [sense], _play(codes, order))
    return began


def _play(codes: list[list[int]], order: list[int]) -> Any:
    """Return what gives a minute's signs, one after the other in the order of their attributes."""
    calls = 0

    def read(rng: Random, event: int, level: int, last: int) -> int:  # noqa: ARG001 - a drive's
        nonlocal calls
        minute, place = divmod(calls, len(order))
        calls += 1
        return min(last, max(0, codes[min(minute, len(codes) - 1)][order[place]]))

    return read


def play_telemetry(
    seed: int, spreading: int, began: dict[str, int], until: int
) -> tuple[int, set[tuple[str, int]]]:
    """Return the ms of sending every reading once, and which arrived (device, minute)."""
    rng = Random(seed)
    airtime = find_lora_airtime(HEAD + FRAME + 8 + len(SIGNS), spreading)
    sent = []
    for name, start in began.items():
        budget = AirBudget(SHARE, start)
        for minute in range((until - start) // MINUTE):
            at = start + minute * MINUTE + rng.randrange(1000)  # clocks drift
            if budget.is_free(airtime, at):
                budget.spend(airtime, at)
                sent.append((at, name, minute))
    sent.sort()
    arrived = set()
    for place, (at, name, minute) in enumerate(sent):
        is_hit = place > 0 and sent[place - 1][0] > at - airtime
        is_hit |= place + 1 < len(sent) and sent[place + 1][0] < at + airtime
        if not is_hit and rng.random() >= LOSS:
            arrived.add((name, minute))
    return airtime * len(sent), arrived


def play(options: argparse.Namespace, spreading: int, size: int) -> dict[str, Any]:
    """Run both ways for some hours."""
    hours = 2 if options.quick else 10
    world = build_world(options.seed, spreading, size)
    began = add_patients(world, options.seed)
    start = min(began.values())
    world.run(hours * 60 * MINUTE)
    air = world.air
    assert air is not None
    until = world.now
    telemetry, arrived = play_telemetry(options.seed, spreading, began, until)
    wanted = delivered = brought = 0
    for name, device in world.devices.items():
        for number, told in device.told.items():
            if told.time > until - SETTLE:
                continue
            wanted += 1
            delivered += number in device.freed
            brought += (name, (told.time - began[name]) // MINUTE) in arrived
    ours = sum(each.end - each.start for each in air.sent)
    devices = sum(each.end - each.start for each in air.sent if each.station)
    readings = sum((until - each) // MINUTE for each in began.values())
    return {
        "hours": (until - start) / 3_600_000,
        "readings": readings,
        "wanted": wanted,
        "delivered_over_possible": round(delivered / wanted, 4),
        "telemetry_delivered_over_possible": round(brought / wanted, 4),
        "airtime_over_sending_all": round(ours / telemetry, 4),
        "device_airtime_over_sending_all": round(devices / telemetry, 4),
        "collided_share": round(air.collided / len(air.sent), 4),
        "telemetry_airtime_s": telemetry // 1000,
        "airtime_s": ours // 1000,
        "stations_over_their_share": len(find_excess(air)),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and report."""
    rows = {name: play(options, *setting) for name, setting in SETTINGS.items()}
    result = {f"{key}{name}": value for name, row in rows.items() for key, value in row.items()}
    keys = list(rows[""])
    heads = [f"SF{spreading}, {size} bytes" for spreading, size in SETTINGS.values()]
    cells = [[key.replace("_", " "), *(row[key] for row in rows.values())] for key in keys]
    table = format_table(["", *heads], cells)
    say(table)
    if options.save:
        save_text("radio.md", f"# Fifty sensors on one radio channel\n\n{_WORDS}\n{table}\n")
    return result


_WORDS = """Emulated air, real code: `python -m benchmarks.radio`. Fifty patients' devices, a
reading a minute, ten subscriptions in words. Devices send at most 1 % of any hour, the gateway 10
%; a datagram is lost if another overlaps it, and one in twenty besides. *Sending all* is plain
telemetry: every reading once, in one datagram, without answers, on the same channel. Our airtime
has the gateway's, the hellos, the subscriptions and all answers in it. What was wanted in the
last hour is not counted.
"""


def main() -> None:
    """Run the benchmark."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
