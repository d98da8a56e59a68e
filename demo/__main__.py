"""The whole path: people ask in words, sensors filter on MicroPython, nodes carry it all.

Three nodes, five watchdogs on real MicroPython, three rescue apps and a plain MQTT 5 client, each a
process or a connection of its own. Somebody takes care of a patient, somebody reports in words,
gas is followed by smoke; then the north is cut off, somebody walks there, and the links heal. Each
act ends when what it is about has happened, however busy the machine is. `make demo` runs it; it
needs about a minute, no terminal and no network.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from demo.bridges import Bridges
from demo.cast import Person, Visitor, WatchdogProcess, make_folder, read_metrics
from demo.sensors import DevicePlan, Sensors, plan_devices
from demo.site import NODES, DemoSite, make_site
from demo.view import View, describe_note
from simulator.site import SiteError, run_denwatch

ASKED = (
    (
        "medic7",
        "south",
        "patient_temperature is very high and heart_rate is not normal, at least 0.6",
    ),
    ("medic8", "middle", "oxygen_saturation is low or respiration_rate is very_high"),
    ("chief", "north", "smoke is dense within about 5 min after carbon_monoxide is high"),
    ("visitor", "middle", "triage = red"),
)
REPORT = "patient: triage red, pulse about 130, pain 6 to 8"
READING = 19 + 1 + 11  # bytes on the air of a reading sent by itself: frame, length, vector
ACT = 6.0  # s that an act lasts at least
WAITING = 10  # notifications that wait behind the cut links before the story goes on


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".cache/demo"), help="for everything")
    parser.add_argument("--pace", type=float, default=1.0, help="1: as written; less is shorter")
    options = parser.parse_args(argv)
    folder = make_folder(options.folder)
    devices = plan_devices()
    show_words()
    print("2  A site: three nodes, keys for everybody\n")
    site = make_site(folder.resolve(), [who for who, _, _ in ASKED], devices.values())
    print(f"   {', '.join(NODES)} in {folder}; {len(devices)} watchdogs; {len(ASKED)} people\n")
    print("3  It runs", flush=True)
    try:
        play(site, devices, options.pace * ACT, began)
    except SiteError as error:
        sys.exit(str(error))
    print(f"\nLogs of the nodes, for analysis: {folder}/*/data/log", flush=True)


def show_words() -> None:
    """Show what people ask for, and what it takes on the air."""
    print("1  Words become bytes\n")
    for who, _, words in ASKED:
        compiled = json.loads(run_denwatch("compile", "--json", words))
        print(f"   {who}: {words}")
        for data in map(bytes.fromhex, compiled.get("parts", [compiled["hex"]])):
            print(f"      {data.hex(' ')}   {len(data)} bytes")
        print(flush=True)


def play(site: DemoSite, devices: Mapping[str, DevicePlan], act: float, began: float) -> None:
    """Start everybody, tell the story, and sum it up."""
    with contextlib.ExitStack() as stack:
        bridges = Bridges()
        stack.callback(bridges.close)
        for name, (port, target) in site.bridges.items():
            bridges.add(name, port, target)
        stack.enter_context(site)
        medic7, medic8, chief = (Person(site, *asked) for asked in ASKED[:3])
        visitor = Visitor(site, *ASKED[3])
        people: list[Person | Visitor] = [medic7, medic8, chief, visitor]
        for person in people:
            stack.callback(person.leave)
            person.ask()
        sensors = Sensors(devices, site.folder)
        stack.callback(sensors.stop)
        dogs = [WatchdogProcess(site, name) for name in devices]
        for dog in dogs:
            stack.callback(dog.stop)
        view = stack.enter_context(View(site, sensors, dogs, people, bridges))
        tell_together(view, devices, medic7, medic8, act, began)
        tell_reports(view, devices, chief, visitor, act)
        tell_apart(view, devices, bridges, (medic7, medic8), site.metrics, act)
        sum_up(sensors, dogs, people, bridges)


def tell_together(
    view: View,
    devices: Mapping[str, DevicePlan],
    medic7: Person,
    medic8: Person,
    act: float,
    began: float,
) -> None:
    """A patient gets worse; somebody is notified, and takes care."""
    view.say("Together: subscriptions spread, sensors send what somebody wants")
    devices["bed-1"].is_in_trouble = True
    note = view.wait_for("medic7's first notification", lambda: medic7.find("bed-1"))
    seconds = time.monotonic() - began
    view.tell(f"   first answer, {seconds:.0f} s after the start: {describe_note(note)}")
    view.say("medic7: I have bed-1")
    medic7.send(have="bed-1")
    told = view.wait_for("medic8 to be told", lambda: medic8.told and medic8.told[-1])
    view.tell(f"   medic8 is told, at another node: {told}")
    devices["bed-1"].is_in_trouble = False
    view.watch(act)


def tell_reports(
    view: View, devices: Mapping[str, DevicePlan], chief: Person, visitor: Visitor, act: float
) -> None:
    """A person is a sensor, too; and what follows upon something is a story."""
    view.say(f"chief reports in words: {REPORT}")
    chief.send(report=REPORT)
    view.wait_for("the visitor's notification", lambda: visitor.notes)
    view.tell(f"   visitor, by plain MQTT 5: {describe_note(visitor.notes[-1])}")
    view.watch(act)
    view.say("Gas, then smoke: a story, which nodes join of two sensors' readings")
    for name in ("nose-1", "eye-1"):
        devices[name].is_in_trouble = True
    note = view.wait_for("chief's story", lambda: chief.find("eye-1"))
    parts = "; ".join(
        f"{part['device']} {', '.join(part['values'])}" for part in note.fields["story"]["parts"]
    )
    view.tell(f"   chief, at another node: {parts} ({note.why['words']})")
    for name in ("nose-1", "eye-1"):
        devices[name].is_in_trouble = False
    view.watch(act)


def tell_apart(
    view: View,
    devices: Mapping[str, DevicePlan],
    bridges: Bridges,
    medics: tuple[Person, Person],
    metrics: Mapping[str, str],
    act: float,
) -> None:
    """Links break, somebody walks, links heal."""
    medic7, medic8 = medics
    for name in bridges.bytes:
        bridges.cut(name)
    view.say("The north is cut off: what is for the other side waits, on disks")
    cut = time.time()
    for name in ("bed-2", "bed-3"):
        devices[name].is_in_trouble = True

    def count_waiting() -> int:
        held = [read_metrics(metrics[name]).get("notifications", 0.0) for name in NODES]
        return max(0, int(held[0] - max(held[1:])) - WAITING)

    view.wait_for("notifications that wait", count_waiting)
    devices["bed-3"].is_in_trouble = False
    view.say("medic7 walks to the north, and gets what waited there")
    medic7.walk("north")
    note = view.wait_for("what waited for medic7", lambda: medic7.find("bed-2", cut))
    view.tell(f"   medic7, of a thermometer that is not exact: {describe_note(note)}")
    devices["bed-2"].is_in_trouble = False
    view.watch(act)
    for name in bridges.bytes:
        bridges.heal(name)
    view.say("The links are back: nodes find what the other lacks, best first")
    note = view.wait_for("what waited for medic8", lambda: medic8.find("bed-3", cut))
    view.tell(f"   medic8: {describe_note(note)}")
    view.watch(act)


def sum_up(
    sensors: Sensors,
    dogs: Sequence[WatchdogProcess],
    people: Sequence[Person | Visitor],
    bridges: Bridges,
) -> None:
    """Say what it came to."""
    taken, sent = sensors.readings, sum(dog.sent for dog in dogs)
    print("\n4  What it came to\n")
    print(f"   readings taken {taken:,}, sent {sent:,} ({sent / taken:.1%}); on the air about")
    print(f"   {sent * READING:,} bytes instead of {taken * READING:,}")
    for name, count in bridges.bytes.items():
        print(f"   over the link {name}: {count:,} bytes")
    print()
    for person in people:
        unique = len({note.key for note in person.notes})
        print(f"   {person.name}: notifications {len(person.notes):,}, each once: "
              f"{'yes' if unique == len(person.notes) else 'NO'}")  # fmt: skip
        delays = sorted(person.delays)
        late = delays[int(0.95 * len(delays))]
        print(f"      from reading to app: median {statistics.median(delays):.2f} s, "
              f"p95 {late:.1f} s")  # fmt: skip


if __name__ == "__main__":
    main()
