"""Bytes on the air: filtering at the source against sending every reading and against a dead band.

Real weather: all 1,461 records of Seattle in `vega_datasets`, one a minute, so a day of a station.
Generated patients: twenty devices, a day, a reading a minute. Ten subscriptions each, in words; the
watchdog's real code (CSV source, execution environment, filter, significance) runs over them. Each
notification travels alone in a frame of the device link; installing the subscriptions is counted.

Headline: sent_over_all, the bytes of filtering at the source over those of every reading, both
data sets together.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from denwatch.client.compiler import compile_subscription
from denwatch.client.language import parse
from denwatch.client.vocabulary import Vocabulary, load_shipped
from denwatch.protocol import notification, subscription
from denwatch.protocol.matching import match
from denwatch.protocol.vectors import NotificationVector, SubscriptionVector
from denwatch.watchdog.execution import Event, Execution, list_senses, write_notification
from denwatch.watchdog.fuzzy import Fuzzy
from denwatch.watchdog.manager import Manager
from denwatch.watchdog.sources import Callback, Channel, Source
from denwatch.watchdog.sources.csv_file import CsvFile
from vega_datasets import local_data

from benchmarks.air_patients import MINUTES, SIGNS, draw_patient
from benchmarks.common import format_table, new_figure, run, save_figure, save_text, say

FRAME = 19 + 1  # head and tag of a frame, and the vector's length
SCALE = 100  # steps of a source in one unit
DEAD_BAND = 5  # steps of 255, of every attribute: 2 % of its domain
PATIENTS = 20
ILL = 4  # of them

WEATHER = (
    "temperature is hot",
    "temperature is very hot and wind_speed is calm",
    "wind_speed is strong",
    "wind_speed is storm",
    "temperature is very_cold",
    "temperature is cold and wind_speed is strong",
    "temperature is below 1 °C, dead band 0.5 °C",
    "rain_rate is above 1.5 mm/h and wind_speed is strong",
    "temperature is hot, dead band 1 °C, heartbeat 60 min",
    "rain_rate is above 1.2 mm/h, 2 of 3, quiet for 20 min",
)
RESCUE = (
    "patient_temperature is very high and heart_rate is not normal",
    "oxygen_saturation is critical",
    "systolic_pressure is low and heart_rate is very_high",
    "respiration_rate is very_high or respiration_rate is low",
    "heart_rate is low, dead band 5 bpm",
    "oxygen_saturation is low, 3 of 5, quiet for 2 min",
    "patient_temperature is very_low, dead band 0.3 °C, heartbeat 30 min",
    "systolic_pressure is very_high, hysteresis 0.1, quiet for 10 min",
    "diastolic_pressure is low and systolic_pressure is low, by arithmetic mean",
    "respiration_rate is high and heart_rate is high and oxygen_saturation is low, by product",
)

Row = dict[str, int]


class Outbox:
    """Counts what the watchdog hands over."""

    def __init__(self) -> None:
        self.vectors: dict[int, bytes] = {}

    def put(self, vector: bytes, degree: int, now: int) -> None:  # noqa: ARG002 - the interface
        """Take a vector; at most one a round."""
        self.vectors[now] = vector


def make_event(
    vocabulary: Vocabulary, name: str, attributes: Iterable[str], source: Source
) -> Event:
    """Return the event of a device that senses these attributes, a minute apart."""
    event = vocabulary.events[name]
    channels = []
    for field, attribute_name in enumerate(attributes):
        attribute = event.attributes[attribute_name]
        low, high = round(attribute.low * SCALE), round(attribute.high * SCALE)
        channels.append(Channel(source, field, attribute.bit, low, high, attribute.wide))
    return Event(event.number, channels, 60_000)


def run_device(event: Event, vectors: list[bytes], minutes: int) -> Row:
    """Run a device for so many minutes, filtered, and count what the three ways would send."""
    senses = list_senses([event])
    language = Fuzzy(1000, senses)
    manager = Manager([language], senses)
    for vector in vectors:
        manager.install(vector, 0)
    outbox = Outbox()
    execution = Execution(manager, [event], outbox)
    plain = [s for s in map(subscription.decode, vectors) if s.significance is None]
    last: dict[int, int] = {}
    row = dict.fromkeys(ROW, 0)
    for minute in range(minutes):
        now = 60_000 * minute
        execution.step(now)
        vector = write_notification(event.sample)
        note = notification.decode(vector)
        size = FRAME + len(vector)
        row["readings"] += 1
        row["all bytes"] += size
        values = {reading.attribute: reading.points[0] for reading in note.readings}
        moved = not last or any(abs(values[a] - last[a]) >= DEAD_BAND for a in values)
        wanted = any(_is_match(s, note) for s in plain)
        row["wanted"] += wanted
        if moved:
            last = values
            row["band sent"] += 1
            row["band bytes"] += size
        row["band missed"] += wanted and not moved
        row["missed"] += wanted and now not in outbox.vectors
    row["sent"] = len(outbox.vectors)
    row["sent bytes"] = sum(FRAME + len(vector) for vector in outbox.vectors.values())
    row["install bytes"] = FRAME - 1 + sum(1 + len(vector) for vector in vectors)
    return row


ROW = (
    *("readings", "all bytes", "band sent", "band bytes", "sent", "sent bytes", "install bytes"),
    *("wanted", "missed", "band missed"),
)


def _is_match(s: SubscriptionVector, note: NotificationVector) -> bool:
    found = match(s, note)
    return found is not None and found.matched


def compile_all(words: Iterable[str], vocabulary: Vocabulary) -> list[bytes]:
    """Return the vectors, each with a handle of its own."""
    return [
        compile_subscription(parse(text), vocabulary, handle=handle).data
        for handle, text in enumerate(words)
    ]


def run_weather(minutes: int) -> Row:
    """Run the station over the records, written as the CSV file that its base station would log."""
    vocabulary = load_shipped("weather")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "station.csv"
        records = local_data.seattle_weather().head(minutes)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["wind_speed", "temperature", "rain_rate"])
            for record in records.itertuples():  # precipitation of the day, as its mean rate
                rain = record.precipitation / 24
                writer.writerow([record.wind, record.temp_max, f"{rain:.3f}"])
        names = ["wind_speed", "temperature", "rain_rate"]
        source = CsvFile(str(path), names, [SCALE] * 3)
        event = make_event(vocabulary, "weather", names, source)
        try:
            return run_device(event, compile_all(WEATHER, vocabulary), len(records))
        finally:
            source.close()


def run_patients(patients: int, seed: int) -> Row:
    """Run one device a patient and add up."""
    vocabulary = load_shipped("rescue")
    vectors = compile_all(RESCUE, vocabulary)
    total = dict.fromkeys(ROW, 0)
    for number in range(patients):
        signs = list(draw_patient(Random(seed * 1000 + number), number % (patients // ILL) == 0))
        event = make_event(vocabulary, "patient", SIGNS, Callback(play(signs)))
        for key, value in run_device(event, vectors, len(signs)).items():
            total[key] += value
    return total


def play(signs: list[list[float]]) -> Callable[[int], int]:
    """Return what reads a minute after the other; field 0 is always asked first."""
    minutes = iter(signs)
    now: list[float] = []

    def ask(field: int) -> int:
        if field == 0:
            now[:] = next(minutes)
        return round(now[field] * SCALE)

    return ask


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run both days and report."""
    rows = {
        "Seattle weather": run_weather(300 if options.quick else 1461),
        "patients": run_patients(4 if options.quick else PATIENTS, options.seed),
    }
    every = sum(row["all bytes"] for row in rows.values())
    band = sum(row["band bytes"] for row in rows.values())
    sent = sum(row["sent bytes"] + row["install bytes"] for row in rows.values())
    result: dict[str, Any] = {
        "sent_over_all": sent / every,
        "dead_band_over_all": band / every,
        "missed": sum(row["missed"] for row in rows.values()),
        "dead_band_missed": sum(row["band missed"] for row in rows.values()),
    }
    for name, row in rows.items():
        key = name.split()[-1]
        result[f"{key}_over_all"] = (row["sent bytes"] + row["install bytes"]) / row["all bytes"]
    report = write_report(rows, result)
    say(report)
    if options.save:
        save_text("air.md", report)
        draw(rows)
    return result


def write_report(rows: dict[str, Row], result: dict[str, Any]) -> str:
    """Return the committed table."""
    lines = []
    for name, row in rows.items():
        filtered = row["sent bytes"] + row["install bytes"]
        ways = (
            ("every reading", row["readings"], row["all bytes"], 0),
            ("dead band alone", row["band sent"], row["band bytes"], row["band missed"]),
            ("filtered at the source", row["sent"], filtered, row["missed"]),
        )
        for way, messages, size, missed in ways:
            share = f"{100 * size / row['all bytes']:.1f} %"
            lines.append((name, way, messages, size, share, f"{missed} of {row['wanted']}"))
    header = ("data", "sent", "messages", "bytes", "of all", "wanted readings not sent")
    weather, rescue = ("\n".join(f"- {text}" for text in words) for words in (WEATHER, RESCUE))
    records = rows["Seattle weather"]["readings"]
    patients = rows["patients"]["readings"] // MINUTES
    return f"""# Bytes on the air

A day each: {records:,} real records of Seattle (`vega_datasets`, one a minute: the values are real,
their pace is not, so neighbours differ more than a station's minutes would), and {patients}
generated patients, {ILL} of whom get worse for some hours. Ten subscriptions each. A notification
takes its vector and {FRAME} bytes of frame; the subscriptions' own bytes are counted for the
filter. The dead band alone is {DEAD_BAND}/255 of every attribute's domain. A reading is wanted if a
subscription without a significance of its own matches it.

{format_table(header, lines)}

Filtered at the source, {100 * result["sent_over_all"]:.1f} % of the bytes of every reading go out,
and nothing that was wanted is held back. The dead band alone sends
{100 * result["dead_band_over_all"]:.1f} % and holds back readings that somebody asked for, because
it does not know what they asked.

Weather:

{weather}

Patients:

{rescue}
"""


def draw(rows: dict[str, Row]) -> None:
    """Save the plot: share of the bytes of every reading."""
    figure, axis = new_figure()
    ways = ("every reading", "dead band alone", "filtered at the source")
    colours = ("#8a8a8a", "#c98b2b", "#1b6e3c")
    for i, way in enumerate(ways):
        shares = []
        for row in rows.values():
            size = (row["all bytes"], row["band bytes"], row["sent bytes"] + row["install bytes"])
            shares.append(100 * size[i] / row["all bytes"])
        bars = axis.bar([j + 0.27 * (i - 1) for j in range(len(rows))], shares, 0.25, label=way)
        for bar in bars:
            bar.set_color(colours[i])
        axis.bar_label(bars, [f"{share:.1f}" for share in shares], fontsize=8)
    axis.set_xticks(range(len(rows)), list(rows))
    axis.set_ylabel("% of the bytes of every reading")
    axis.set_ylim(0, 118)
    axis.legend(frameon=False, ncols=3, fontsize=7, loc="upper center")
    save_figure(figure, "air.svg")


def main() -> None:
    """Run the benchmark."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
