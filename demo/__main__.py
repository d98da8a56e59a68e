"""The whole path: people ask in words, sensors filter on MicroPython, nodes carry it all.

Three nodes, six watchdogs on real MicroPython (three patients, three weather stations), three
rescue apps. In the middle of it the north is cut off, somebody walks there, and the links heal.
`make demo` runs it; it needs about two minutes, no terminal and no network.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random

from denwatch.cli import main as denwatch
from denwatch.client.compiler import compile_subscription
from denwatch.client.language import parse

from demo.bridges import Bridges
from demo.cast import Person, WatchdogProcess, make_folder
from demo.patients import make_day
from demo.picture import draw_day
from demo.site import NODES, PERIOD, DemoSite, DevicePlan, load_vocabulary, make_site
from demo.view import View, describe_note
from demo.weather import read_station

ASKED = (
    (
        "medic7",
        "south",
        "patient_temperature is very high and heart_rate is not normal, at least 0.6",
    ),
    ("medic8", "middle", "oxygen_saturation is low or respiration_rate is very_high"),
    ("chief", "north", "rain_rate above 1.2 mm/h or wind_speed above 8 m/s"),
)
TOGETHER, APART, AGAIN = 20.0, 25.0, 20.0  # s of each act
READING = 19 + 1 + 11  # bytes on the air of a reading sent by itself: frame, length, vector
STATIONS = 3
NEAR = 8  # readings around the one that a time says: times are told to 1/16 s


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".cache/demo"), help="for everything")
    parser.add_argument("--picture", type=Path, default=Path(".cache/demo/day.svg"))
    parser.add_argument("--pace", type=float, default=1.0, help="1: as written; less is shorter")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="no report")
    options = parser.parse_args(argv)
    folder = make_folder(options.folder)
    devices = list(plan_devices())
    show_words()
    print("2  A site: three nodes, keys for everybody\n")
    site = make_site(folder.resolve(), [who for who, _, _ in ASKED], devices)
    print(f"   {', '.join(NODES)} in {folder}; {len(devices)} watchdogs; {len(ASKED)} people\n")
    print("3  It runs", flush=True)
    play(site, devices, options.pace, options.picture, options.spark)


def plan_devices() -> list[DevicePlan]:
    """Return three patients at the north, and three weather stations at the south."""
    beds = [
        DevicePlan(f"bed-{bed + 1}", "north", "patient", make_day(bed, Random(bed)))
        for bed in (0, 1, 2)
    ]
    masts = [
        DevicePlan(f"mast-{mast + 1}", "south", "weather", read_station(mast, STATIONS))
        for mast in range(STATIONS)
    ]
    return [*beds, *masts]


def show_words() -> None:
    """Show what people ask for, and what it takes on the air."""
    print("1  Words become bytes\n")
    vocabulary = load_vocabulary()
    for who, _, words in ASKED:
        data = compile_subscription(parse(words), vocabulary).data
        print(f"   {who}: {words}")
        print(f"      {data.hex(' ')}   {len(data)} bytes\n")


def play(
    site: DemoSite, devices: Sequence[DevicePlan], pace: float, picture: Path, has_spark: bool
) -> None:
    """Start everybody, tell the story, and sum it up."""
    with contextlib.ExitStack() as stack:
        bridges = Bridges()
        stack.callback(bridges.close)
        for name, (port, target) in site.bridges.items():
            bridges.add(name, port, target)
        stack.enter_context(site)
        people = [Person(site, *asked) for asked in ASKED]
        for person in people:
            stack.callback(person.leave)
            person.ask()
        dogs = [WatchdogProcess(site, device.name) for device in devices]
        for dog in dogs:
            stack.callback(dog.stop)
        view = stack.enter_context(View(site.metrics, dogs, people, bridges))
        tell(view, bridges, people, pace)
        sum_up(dogs, people, bridges)
    print(f"\nLogs of the nodes, for analysis: {site.folder}/*/data/log")
    draw_patients(devices, people, picture)
    report(site, has_spark)


def tell(view: View, bridges: Bridges, people: Sequence[Person], pace: float) -> None:
    """Let it happen."""
    view.say("Together: subscriptions spread, sensors send what somebody wants")
    view.watch(TOGETHER * pace)
    for name in bridges.bytes:
        bridges.cut(name)
    view.say("The north is cut off: what is for the other side waits, on disks")
    view.watch(APART / 2 * pace)
    people[0].walk("north")
    view.say(f"{people[0].name} walks to the north, and gets what waited there")
    view.watch(APART / 2 * pace)
    for name in bridges.bytes:
        bridges.heal(name)
    view.say("The links are back: nodes find what the other lacks, best first")
    view.watch(AGAIN * pace)


def sum_up(dogs: Sequence[WatchdogProcess], people: Sequence[Person], bridges: Bridges) -> None:
    """Say what it came to."""
    taken = sum(dog.readings for dog in dogs)
    sent = sum(dog.sent for dog in dogs)
    print("\n4  What it came to\n")
    share = sent / taken if taken else 0.0
    print(f"   readings taken {taken:,}, sent {sent:,} ({share:.1%}); on the air about")
    print(f"   {sent * READING:,} bytes instead of {taken * READING:,}")
    for name, count in bridges.bytes.items():
        print(f"   over the link {name}: {count:,} bytes")
    print()
    for person in people:
        delays = sorted(person.delays)
        unique = len({note.key for note in person.notes})
        print(f"   {person.name}: {len(person.notes):,} notifications, each once: "
              f"{'yes' if unique == len(person.notes) else 'NO'}")  # fmt: skip
        if delays:
            late = delays[int(0.95 * (len(delays) - 1))]
            print(f"      from reading to app: median {statistics.median(delays):.2f} s, "
                  f"p95 {late:.1f} s")  # fmt: skip
            best = max(person.notes, key=lambda note: note.degree)
            print(f"      best: {describe_note(best)}")
    if not all(person.notes for person in people):
        sys.exit("somebody got nothing: that is a defect")


def report(site: DemoSite, has_spark: bool) -> None:
    """Let Spark look at all nodes' logs together, where it is installed."""
    print("\n5  All nodes' logs together, on Spark\n", flush=True)
    if not has_spark or find_spec("pyspark") is None or shutil.which("java") is None:
        print("   left out: it needs Java and `pip install denwatch[spark]`")
        return
    logs = [str(site.folder / node / "data" / "log") for node in NODES]
    status = denwatch(["analyze", *logs, "--out", str(site.folder / "report"), "--quiet"])
    if status:
        sys.exit(f"denwatch analyze: exit status {status}")


def place_notes(
    rows: Sequence[Mapping[str, float]], notes: Sequence[tuple[int, Mapping[str, float]]]
) -> list[int]:
    """Return which reading each notification (its time, its values) is.

    Values are rounded, so that some fit several readings. But most fit one: these say together when
    the device began, and near the time that follows from it one fits best.
    """

    def find_nearest(values: Mapping[str, float], minutes: range) -> int:
        # Relative, so that a degree of temperature counts as much as two beats of the heart.
        return min(
            minutes,
            key=lambda minute: sum((1 - values[n] / rows[minute][n]) ** 2 for n in rows[minute]),
        )

    if not notes:
        return []
    guesses = [find_nearest(values, range(len(rows))) for _, values in notes]
    begin = statistics.median(
        at - PERIOD * guess for (at, _), guess in zip(notes, guesses, strict=True)
    )
    places = []
    for at, values in notes:
        middle = min(max(round((at - begin) / PERIOD), 0), len(rows) - 1)
        around = range(max(0, middle - NEAR), min(len(rows), middle + NEAR + 1))
        places.append(find_nearest(values, around))
    return places


def draw_patients(devices: Sequence[DevicePlan], people: Sequence[Person], picture: Path) -> None:
    """Draw the patients' day, and what reached somebody."""
    beds = [device for device in devices if device.event == "patient"]
    got: list[dict[int, object]] = []
    for bed in beds:
        notes = [
            (note.at, {name: entry["value"] for name, entry in note.values.items()})
            for person in people
            for note in person.notes
            if note.fields.get("device") == bed.name and note.at is not None
        ]
        got.append(dict.fromkeys(place_notes(bed.rows, notes)))
    draw_day([list(map(dict, bed.rows)) for bed in beds], got, picture)
    print(f"The patients' day as a picture: {picture}")


if __name__ == "__main__":
    main()
