"""What is known of each kind of sensor: fields, size of a step, range and accuracy.

Pure data. The steps are those of `watchdog/sources`, the ranges and accuracies those of the
makers' data sheets: DS18B20 (Analog Devices), DHT11 and AM2302/DHT22 (Aosong). Where a sheet has
one figure and no typical one, both are that figure. Only this file knows sensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

EVERYWHERE = frozenset({"accuracy", "range", "every"})  # words that every sensor takes
COUNTS = 65535  # the highest count of a converter, and of changes


@dataclass(frozen=True)
class Accuracy:
    """How far a reading may be off while the true value lies in low..high, in the field's unit."""

    low: Fraction
    high: Fraction
    typical: Fraction
    worst: Fraction


@dataclass(frozen=True)
class Field:
    """One number that a sensor gives.

    `step` is None where the wiring decides what a number means. `low` and `high` are what a
    working sensor says, in its unit; without a unit, in numbers. An `is_obvious` field is meant
    where nothing else is said and its unit fits; another one must be called by its name.
    """

    name: str
    number: int
    unit: str | None = None
    step: Fraction | None = None
    low: Fraction | None = None
    high: Fraction | None = None
    accuracies: tuple[Accuracy, ...] = ()  # the narrowest part of the range first
    is_obvious: bool = False


@dataclass(frozen=True)
class Sensor:
    """A kind of source: which words describe it, which it cannot do without, what it gives.

    `rest` is the shortest time between measurements, in ms. Of a source that `is_consumed` every
    round takes something away, so that it serves one event only.
    """

    kind: str
    words: frozenset[str]
    needs: tuple[str, ...]
    fields: tuple[Field, ...]
    rest: int = 0
    is_consumed: bool = False

    @property
    def title(self) -> str:
        """The kind in a sentence."""
        return f"{'an' if self.kind[0] in 'ai' else 'a'} {self.kind}"


def _measure(
    name: str,
    number: int,
    unit: str,
    step: str,
    span: tuple[int, int],
    *accuracies: tuple[int, int, str, str],
) -> Field:
    return Field(
        name,
        number,
        unit,
        Fraction(step),
        Fraction(span[0]),
        Fraction(span[1]),
        tuple(
            Accuracy(Fraction(low), Fraction(high), Fraction(typical), Fraction(worst))
            for low, high, typical, worst in accuracies
        ),
        is_obvious=name == "temperature",
    )


def _make(
    kind: str, words: str, needs: str, *fields: Field, rest: int = 0, is_consumed: bool = False
) -> Sensor:
    known = frozenset(words.split()) | EVERYWHERE
    return Sensor(kind, known, tuple(needs.split()), fields, rest, is_consumed)


_BUS = "bus clock data address register bytes signed little shift"

SENSORS = {
    sensor.kind: sensor
    for sensor in (
        _make("csv", "file column scale in", "", is_consumed=True),
        _make(
            "adc",
            "pin step with",
            "pin",
            Field("count", 0, low=Fraction(0), high=Fraction(COUNTS), is_obvious=True),
        ),
        _make(
            "gpio",
            "pin inverted field step with",
            "pin",
            Field("level", 0, low=Fraction(0), high=Fraction(1), is_obvious=True),
            Field("changes", 1, None, Fraction(1), Fraction(0), Fraction(COUNTS)),
        ),
        _make(
            "dht11",
            "pin field",
            "pin",
            _measure("temperature", 0, "°C", "1/10", (0, 50), (0, 50, "1", "2")),
            _measure("humidity", 1, "%", "1/10", (0, 100), (0, 100, "4", "5")),
            rest=2000,
        ),
        _make(
            "dht22",
            "pin field",
            "pin",
            _measure("temperature", 0, "°C", "1/10", (-40, 80), (-40, 80, "0.5", "0.5")),
            _measure("humidity", 1, "%", "1/10", (0, 100), (0, 100, "2", "5")),
            rest=2000,
        ),
        _make(
            "ds18x20",
            "pin sensor",
            "pin",
            _measure(
                "temperature",
                0,
                "°C",
                "1/16",
                (-55, 125),
                (-10, 85, "0.5", "0.5"),
                (-55, 125, "0.5", "2"),
            ),
            rest=750,
            is_consumed=True,
        ),
        _make("i2c", f"{_BUS} step with", "clock data address register bytes"),
    )
}

ALIASES = {"ds18b20": "ds18x20", "am2302": "dht22"}

# What still may be said of a source that stands in a file: nothing of its wiring.
READING = frozenset({"field", "column", "sensor", "step", "with", "in"}) | EVERYWHERE


def find_sensor(name: str) -> Sensor | None:
    """Return a kind of sensor by any of its names."""
    folded = name.casefold()
    return SENSORS.get(ALIASES.get(folded, folded))


_WRITTEN = {  # what a source cannot do without
    "csv": ("path", "columns", "scales"),
    "i2c": ("clock", "data", "address", "fields"),
}


def check_source(entry: object) -> None:
    """Refuse a source of a configuration that no watchdog could make; ValueError says why."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("kind"), str):
        raise ValueError('a source has a "kind"')
    kind = entry["kind"]
    if kind not in SENSORS:
        raise ValueError(f'no kind "{kind}" (there are {", ".join(SENSORS)})')
    for name in _WRITTEN.get(kind, ("pin",)):
        if name not in entry:
            raise ValueError(f'{SENSORS[kind].title} has a "{name}"')
    if kind == "csv":
        columns, scales = entry["columns"], entry["scales"]
        are_lists = isinstance(columns, list) and isinstance(scales, list)
        if not are_lists or len(columns) != len(scales) or not all(map(_is_positive, scales)):
            raise ValueError("as many scales as columns, each a whole number above 0")
    if kind == "i2c" and not _are_registers(entry["fields"]):
        raise ValueError("a field is [register, bytes, signed, little-endian, shift]")


def _is_positive(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number > 0


def _are_registers(fields: object) -> bool:
    return isinstance(fields, list) and all(isinstance(f, list) and len(f) == 5 for f in fields)
