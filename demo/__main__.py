"""The path as far as it is built: words, bytes, a sensor on MicroPython, a node that ranks.

`make demo` runs it; `python -m demo --picture FILE.svg` chooses where the picture goes.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

from demo.patients import MINUTES, make_day
from demo.picture import draw_day
from edge.client.compiler import CompiledSubscription, compile_subscription
from edge.client.language import parse, print_as
from edge.client.vocabulary import Event, Vocabulary, load_shipped
from firmware_tests.runtimes import REPOSITORY, find_unix
from protocol import notification
from protocol.vectors import Notification

PATIENTS = 6
OTHERS = 100_000  # subscriptions of other people that the node also holds
ASKED = (
    ("medic7", "patient_temperature is very high and heart_rate is not normal, at least 0.6"),
    ("medic8", "oxygen_saturation is low or respiration_rate is very_high, at least 0.7"),
    ("chief", "heart_rate above 150 bpm"),
)
HEAP = "128k"  # it compiles its own source; from .mpy files half of it would do


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--picture", type=Path, default=Path(".cache/demo/day.svg"))
    options = parser.parse_args(argv)
    vocabulary = load_shipped("rescue")
    compiled = show_words(vocabulary)
    event = compiled[0].event
    days = [make_day(patient, Random(patient)) for patient in range(PATIENTS)]
    sent = show_sensors(compiled, event, days)
    show_node(compiled, sent, event)
    draw_day(days, sent, options.picture)
    print(f"\nThe day as a picture: {options.picture}")


def show_words(vocabulary: Vocabulary) -> list[CompiledSubscription]:
    """Compile what people ask for, and show what it takes on the air."""
    print("1  Words become bytes\n")
    compiled = []
    for handle, (who, words) in enumerate(ASKED, 1):
        tree = parse(words)
        result = compile_subscription(tree, vocabulary, handle=handle)
        xml = len(print_as("xml", tree, vocabulary=vocabulary).encode())
        print(f"   {who}: {words}")
        print(f"      {result.data.hex(' ')}")
        print(f"      {len(result.data)} bytes; as XML with its fuzzy sets {xml:,}\n")
        compiled.append(result)
    return compiled


def show_sensors(
    compiled: Sequence[CompiledSubscription], event: Event, days: Sequence[list[dict[str, float]]]
) -> list[dict[int, Notification]]:
    """Let a watchdog on MicroPython for each patient decide what to send; return it by minute."""
    micropython = find_unix(32)
    print(f"2  Sensors filter at the source: {PATIENTS} patients, a reading a minute for a day\n")
    sent = []
    readings = everything = filtered = 0
    for day in days:
        lines = [str(event.number), " ".join(result.data.hex() for result in compiled)]
        lines += [" ".join(map(str, encode_values(event, values))) for values in day]
        done = subprocess.run(
            [str(micropython), "-X", f"heapsize={HEAP}", "demo/sensor.py"],
            input="\n".join(lines) + "\n",
            env={"MICROPYPATH": str(REPOSITORY)},
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        frames = [bytes.fromhex(line) for line in done.stdout.split()]
        decoded = [notification.decode(frame) for frame in frames]
        sent.append({note.sequence: note for note in decoded})
        readings += len(day)
        everything += len(day) * (8 + len(day[0]))
        filtered += sum(map(len, frames))
    count = sum(map(len, sent))
    print(f"   a watchdog each on MicroPython, 32 bit: {readings:,} readings, {count:,} sent")
    print(f"   {filtered:,} bytes instead of {everything:,}: {filtered / everything:.1%}\n")
    return sent


def encode_values(event: Event, values: dict[str, float]) -> list[int]:
    """Return the readings as the wire has them, by attribute bit."""
    coded = {}
    for name, value in values.items():
        attribute = event.attributes[name]
        coded[attribute.bit] = attribute.to_code(value)
    return [coded[bit] for bit in range(len(coded))]


def show_node(
    compiled: Sequence[CompiledSubscription], sent: Sequence[dict[int, Notification]], event: Event
) -> None:
    """Match what arrives against everybody's subscriptions, and rank it for each who asked."""
    from demo.node import Node  # numba, so only now

    print(f"3  A node finds who asked, among {OTHERS:,} other subscriptions\n")
    node = Node(OTHERS, event.number)  # the first time, its matcher is compiled: a minute
    for (who, _), result in zip(ASKED, compiled, strict=True):
        node.subscribe(who, result.vector, k=3)
    for minute in range(MINUTES):
        for patient, notes in enumerate(sent):
            if minute in notes:
                node.receive(notes[minute], patient, minute)
    print(f"   {node.received:,} notifications, {node.matched:,} matches with other people's\n")
    for (who, words), result in zip(ASKED, compiled, strict=True):
        best = node.list_best(who)
        print(f"   {who} ({words})")
        print(f"      {node.delivered[who]:,} delivered as one of the 3 best of an hour; the best:")
        for note, patient, minute, degree, bit in best:
            attribute = event.find_bit(bit)
            if attribute is None:
                raise LookupError(f"event {event.name} has no attribute {bit}")
            values = ", ".join(
                describe_value(event, note, p.attribute) for p in result.vector.predicates
            )
            clock = f"{minute // 60:02d}:{minute % 60:02d}"
            print(f"      {degree / 255:.2f}  {clock} patient {patient}: {values}")
            print(f"            decided by {attribute.name}")
        print()


def describe_value(event: Event, note: Notification, bit: int) -> str:
    """Return an attribute's name and value with its unit."""
    attribute = event.find_bit(bit)
    if attribute is None:
        raise LookupError(f"event {event.name} has no attribute {bit}")
    point = next(reading.points[0] for reading in note.readings if reading.attribute == bit)
    return f"{attribute.name} {attribute.to_value(point):.4g} {attribute.unit or ''}".rstrip()


if __name__ == "__main__":
    main()
