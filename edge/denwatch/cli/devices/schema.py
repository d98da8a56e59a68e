"""What a watchdog.json may hold: the kinds of sensors, and the check of a whole configuration.

Of each kind of sensor: fields, size of a step, range and accuracy. The steps are those of
`watchdog/sources`, the ranges and accuracies those of the makers' data sheets: DS18B20 (Analog
Devices), DHT11 and AM2302/DHT22 (Aosong), SHT30 and SCD40 (Sensirion, the least exact of their
families), BME280 (Bosch). Where a sheet has one figure and no typical one, both are that figure.
Only this file knows sensors.

`check_config` runs before anything is written, installed or run. It refuses what the device would
refuse, by the device's own classes, and weak keys. `denwatch watchdog` starts with it, so this file
imports no vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from denwatch.cli.common import refuse
from denwatch.cli.errors import CommandError
from denwatch.watchdog.duty import SleepSettings
from denwatch.watchdog.execution import Event
from denwatch.watchdog.link import LinkSettings
from denwatch.watchdog.ring import measure
from denwatch.watchdog.sources import Channel, Source

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
class SensorField:
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
    own_words: str
    needed: str
    fields: tuple[SensorField, ...] = ()
    rest: int = 0
    is_consumed: bool = False
    address: int = 0  # of a chip on an I2C bus, unless a sentence says another one
    is_written: bool = False  # it stands in a file (--sources); a sentence names it and a field

    @property
    def words(self) -> frozenset[str]:
        """The words that may describe it."""
        return frozenset(self.own_words.split()) | EVERYWHERE

    @property
    def title(self) -> str:
        """The kind in a sentence."""
        return f"{'an' if self.kind[0] in 'ais' else 'a'} {self.kind}"


def _count(
    name: str, number: int, last: int, step: Fraction | None = None, is_obvious: bool = False
) -> SensorField:
    low, high = Fraction(0), Fraction(last)
    return SensorField(name, number, None, step, low, high, is_obvious=is_obvious)


def _measure(
    name: str, number: int, unit: str, step: str, *accuracies: tuple[int, int, str, str]
) -> SensorField:
    """Return a field with what its data sheet promises; the last promise is for the whole range."""
    known = tuple(Accuracy(*(Fraction(x) for x in each)) for each in accuracies)
    low, high = known[-1].low, known[-1].high
    is_obvious = name == "temperature"
    return SensorField(name, number, unit, Fraction(step), low, high, known, is_obvious)


_BUS = "bus clock data address register bytes signed little shift"

_GPIO = _count("level", 0, 1, is_obvious=True), _count("changes", 1, COUNTS, Fraction(1))
_DHT11 = (
    _measure("temperature", 0, "°C", "1/10", (0, 50, "1", "2")),
    _measure("humidity", 1, "%", "1/10", (0, 100, "4", "5")),
)
_DHT22 = (
    _measure("temperature", 0, "°C", "1/10", (-40, 80, "0.5", "0.5")),
    _measure("humidity", 1, "%", "1/10", (0, 100, "2", "5")),
)
_DS18X20_RANGES = (-10, 85, "0.5", "0.5"), (-55, 125, "0.5", "2")
_DS18X20 = (_measure("temperature", 0, "°C", "1/16", *_DS18X20_RANGES),)

_SHT3X = (
    _measure("temperature", 0, "°C", "1/100", (0, 65, "0.2", "0.6"), (-40, 125, "0.2", "1.2")),
    _measure("humidity", 1, "%", "1/100", (0, 100, "2", "4")),
)

_CO2 = (400, 1000, "100", "100"), (400, 2000, "150", "150"), (0, 40_000, "2050", "2050")
_SCD4X_RANGES = (15, 35, "0.8", "0.8"), (-10, 60, "1.5", "1.5")
_SCD4X = (
    replace(_measure("co2", 0, "ppm", "1", *_CO2), is_obvious=True),
    replace(_measure("temperature", 1, "°C", "1/100", *_SCD4X_RANGES), is_obvious=False),
    _measure("humidity", 2, "%", "1/100", (0, 100, "9", "9")),
)
_BME280_RANGES = (0, 65, "0.5", "1"), (-20, 65, "0.5", "1.25"), (-40, 85, "0.5", "1.5")
_BME280 = (
    _measure("temperature", 0, "°C", "1/100", *_BME280_RANGES),
    _measure("pressure", 1, "Pa", "1", (30_000, 110_000, "100", "170")),
    _measure("humidity", 2, "%", "1/100", (0, 100, "3", "3")),
)
_W1 = (_measure("temperature", 0, "°C", "1/1000", *_DS18X20_RANGES),)
_PULSES = _count("fresh", 1, COUNTS, is_obvious=True), _count("total", 0, COUNTS)
_MILLIVOLTS = (_count("millivolts", 0, 5000, is_obvious=True),)

SENSORS = {
    sensor.kind: sensor
    for sensor in (
        Sensor("csv", "file column scale in", "", is_consumed=True),
        Sensor("adc", "pin step with", "pin", (_count("count", 0, COUNTS, is_obvious=True),)),
        Sensor("adc_mv", "pin step with", "pin", _MILLIVOLTS),
        Sensor("gpio", "pin inverted field step with", "pin", _GPIO),
        Sensor("dht11", "pin field", "pin", _DHT11, rest=2000),
        Sensor("dht22", "pin field", "pin", _DHT22, rest=2000),
        Sensor("ds18x20", "pin sensor", "pin", _DS18X20, rest=750, is_consumed=True),
        Sensor("sht3x", "bus clock data address field", "clock data", _SHT3X, address=0x44),
        Sensor("scd4x", "bus clock data address field", "clock data", _SCD4X, 5000, address=0x62),
        Sensor("bme280", "bus clock data address field", "clock data", _BME280, address=0x76),
        Sensor("pulses", "pin field step with", "pin", _PULSES, is_consumed=True),
        Sensor("i2c", f"{_BUS} step with", "clock data address register bytes"),
        Sensor("w1", "sensor", "", _W1, rest=750, is_written=True),
        Sensor("iio", "field", "", is_written=True),
        Sensor("sysfs", "field", "", is_written=True),
        Sensor("nmea", "field", "", is_consumed=True, is_written=True),
        Sensor("driver", "field", "", is_written=True),
    )
}

ALIASES = {"ds18b20": "ds18x20", "am2302": "dht22", **dict.fromkeys(("sht30", "sht31"), "sht3x")}

# What still may be said of a source that stands in a file: nothing of its wiring.
READING = frozenset({"field", "column", "sensor", "step", "with", "in"}) | EVERYWHERE


def find_sensor(name: str) -> Sensor | None:
    """Return a kind of sensor by any of its names."""
    folded = name.casefold()
    return SENSORS.get(ALIASES.get(folded, folded))


_WRITTEN = {  # what a source cannot do without
    "csv": ("path", "columns", "scales"),
    "i2c": ("clock", "data", "address", "fields"),
    **dict.fromkeys(("sht3x", "scd4x", "bme280", "w1"), ()),
    "iio": ("device", "channels", "scales"),
    "sysfs": ("paths", "scales"),
    "nmea": ("port",),
    "driver": ("module", "class", "fields", "scales"),
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
    for name in ("pin", "clock", "data", "address", "bus"):
        if not _is_positive(entry.get(name, 0) + 1 if type(entry.get(name, 0)) is int else None):
            raise ValueError(f"{name} must be a whole number from 0 on")
    if kind == "csv":
        columns, scales = entry["columns"], entry["scales"]
        are_lists = isinstance(columns, list) and isinstance(scales, list)
        if not are_lists or len(columns) != len(scales) or not all(map(_is_positive, scales)):
            raise ValueError("as many scales as columns, each a whole number above 0")
    lists = [entry[name] for name in ("channels", "paths") if name in entry]
    lists += [entry["fields"]] if kind == "driver" else []
    for names in lists:
        scales = entry["scales"]
        is_same = isinstance(names, list) and isinstance(scales, list)
        if not is_same or not names or len(names) != len(scales):
            raise ValueError("as many scales as numbers that are read, and at least one")
    if kind == "i2c" and not _are_registers(entry["fields"]):
        raise ValueError("a field is [register, bytes, signed, little-endian, shift]")


_LINUX = ("w1", "iio", "sysfs")
_CHIPS = ("sht3x", "scd4x", "bme280")


def check_board(config: Mapping[str, Any]) -> None:
    """Refuse sources that only a Raspberry Pi has, and chips whose pins a board must know."""
    for name, entry in config["sources"].items():
        if entry["kind"] in _LINUX:
            raise CommandError(f"{name}: {entry['kind']} is Linux's, a board has none")
        if entry["kind"] in _CHIPS and not {"clock", "data"} <= set(entry):
            raise CommandError(f"{name}: a board must know the pins clock and data of its bus")


_POSITION = 5  # fields of a position


def count_fields(entry: Mapping[str, Any]) -> int:
    """Return how many numbers a source of a file gives, if its kind does not say it."""
    named = [len(entry[name]) for name in ("fields", "channels", "paths") if name in entry]
    return named[0] if named else _POSITION


def _is_positive(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number > 0


def _are_registers(fields: object) -> bool:
    return isinstance(fields, list) and all(isinstance(f, list) and len(f) == 5 for f in fields)


# The check of a configuration -----------------------------------------------------------------

_MIN_KEY = 16
_MAX_NODES = 4
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_PARTS = {
    "device": str,
    "vocabulary": str,
    "nodes": list,
    "spool": dict,
    "sources": dict,
    "events": list,
}
_KINDS = {str: "a text", list: "a list", dict: "an object"}


def check_config(config: Any) -> None:
    """Refuse what would fail on the device, or would not be safe."""
    if not isinstance(config, dict):
        raise CommandError("the configuration must be a JSON object")
    for name, kind in _PARTS.items():
        if name not in config:
            raise CommandError(f"the configuration has no {name}")
        if not isinstance(config[name], kind):
            raise CommandError(f"{name} must be {_KINDS[kind]}")
    if len(_read_hex(config["vocabulary"], "vocabulary")) != 8:
        raise CommandError("vocabulary must have 16 hexadecimal digits")
    check_nodes(config["nodes"], has_urls="radio" not in config)
    for node in config["nodes"]:
        if "radio" not in config:
            _check_transport(node)
    _check_events(config)
    _check_options(config)


_SAMPLE = {
    "device": "dog",
    "vocabulary": "00" * 8,
    "nodes": [
        {"name": "n", "url": "mqtt://127.0.0.1:1", "key_id": 1, "key": bytes(range(32)).hex()}
    ],
    "spool": {"file": "spool"},
    "sources": {"s": {"kind": "gpio", "pin": 1}},
    "events": [
        {
            "event": 1,
            "period": 600_000,
            "channels": [{"source": "s", "field": 0, "attribute": 0, "low": 0, "high": 1}],
        }
    ],
}


def check_changes(changes: Mapping[str, Any]) -> None:
    """Refuse fields that cannot replace those of a configuration; null removes one."""
    if ("sources" in changes) != ("events" in changes):
        raise CommandError("sources and events are changed together")
    given = {name: value for name, value in changes.items() if value is not None}
    for name in _PARTS:
        if name in changes and name not in given:
            raise CommandError(f"a device cannot go without {name}")
    check_config({**_SAMPLE, **given})


_COUNTED = {"capacity": 64, "hold": 0, "patience": 1}  # whole numbers, and the least of each
_PERIOD = 10_000  # ms: below it a deep sleep costs more than it saves


def _check_options(config: Mapping[str, Any]) -> None:
    """Refuse every other field that the device would trip over, and fields that there are not."""
    known = (*_PARTS, *_COUNTED, "link", "sleep", "battery", "watchdog", "wifi", "clock", "radio")
    for name in config:
        if name not in known:
            raise CommandError(f"there is no field {name} (there are {', '.join(sorted(known))})")
    if not 0 < len(config["device"]) <= 64 or set(config["device"]) & set("/+#"):
        raise CommandError("device must have 1 to 64 characters, and none of / + #")
    for name, least in _COUNTED.items():
        _check_number(config.get(name, least), name, least)
    _check_group(config.get("link", {}), "link", _list_settings(LinkSettings))
    sleep = config.get("sleep", 0)
    if isinstance(sleep, dict):
        _check_group(sleep, "sleep", _list_settings(SleepSettings))
    else:
        _check_number(sleep, "sleep", 0)
    shortest = min(event["period"] for event in config["events"])
    if sleep and shortest < _PERIOD:
        raise CommandError(f"sleep: a period of {shortest} ms is too short; it pays from 10 s on")
    if "battery" in config:
        _check_group(config["battery"], "battery", ("pin", "full"), has_all=True)
    _check_number(config.get("watchdog", 0), "watchdog", 0)
    if 0 < config.get("watchdog", 0) < 1000:
        raise CommandError("watchdog: at least 1000 ms, or 0 for none")
    if not isinstance(config.get("clock", True), bool):
        raise CommandError("clock must be true or false")
    networks = config.get("wifi", [])
    for network in networks if isinstance(networks, list) else [networks]:
        texts = [network.get(key) for key in ("name", "password")] if type(network) is dict else []
        if not texts or not all(isinstance(text, str) for text in texts) or not texts[0]:
            raise CommandError("wifi: each network has a name and a password, both texts")
    if "radio" in config:
        check_radio(config["radio"])
        if sleep:  # the share of the air that was used is not kept over a sleep
            raise CommandError("sleep: not with a radio")
    _check_spool(config["spool"])


_RADIOS = {  # by kind: the fields that it must have, and those that it may have
    "serial": ((), ("port", "baud")),
    "espnow": (("gateway",), ("channel",)),
    "lora": (("chip", "pins", "khz"), ("spreading", "share", "bus")),
}


def check_radio(radio: object) -> None:
    """Refuse a radio that a board cannot have."""
    if not isinstance(radio, dict) or radio.get("kind") not in _RADIOS:
        raise CommandError(f"radio must be an object with a kind: {', '.join(_RADIOS)}")
    needed, others = _RADIOS[radio["kind"]]
    for name in needed:
        if name not in radio:
            raise CommandError(f"radio: {radio['kind']} needs {name}")
    known = ("kind", *needed, *others)
    for name in radio:
        if name not in known:
            raise CommandError(f"radio: there is no {name} (there are {', '.join(known)})")
    if "gateway" in radio and len(_read_hex(radio["gateway"], "radio: gateway")) != 6:
        raise CommandError("radio: gateway has 12 hexadecimal digits")
    if "chip" in radio and not re.fullmatch(r"sx12[67]\d", str(radio["chip"]), re.IGNORECASE):
        raise CommandError("radio: chip is one of micropython-lib's, such as sx1262 or sx1276")
    if not 7 <= radio.get("spreading", 7) <= 12 or not 1 <= radio.get("share", 10) <= 1000:
        raise CommandError("radio: spreading is 7 to 12, share 1 to 1000 (of 1000)")


def _check_number(value: object, what: str, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise CommandError(f"{what} must be a whole number from {least} on")


def _check_group(value: object, what: str, known: Collection[str], has_all: bool = False) -> None:
    if not isinstance(value, dict) or (has_all and set(value) != set(known)):
        raise CommandError(f"{what} must be an object with {', '.join(known)}")
    for name, number in value.items():
        if name not in known:
            raise CommandError(f"{what}: there is no {name} (there are {', '.join(known)})")
        _check_number(number, f"{what}: {name}", 0)


def _list_settings(settings: type) -> list[str]:
    return [name for name in vars(settings) if not name.startswith("_")]


def _check_spool(spool: Mapping[str, Any]) -> None:
    (kind, *others) = [key for key in ("file", "partition", "flash") if key in spool] or [""]
    where = spool.get(kind)
    if not kind or others or set(spool) - {kind, "blocks"}:
        raise CommandError("spool must have a file, a partition or a flash")
    if kind != "flash":
        if not isinstance(where, str) or not where:
            raise CommandError(f"spool: {kind} must be a name")
        _check_number(spool.get("blocks", _BLOCKS), "spool: blocks", 3)
    elif not isinstance(where, list) or len(where) != 2 or not all(map(_is_block, where)):
        raise CommandError("spool: flash is [start, length], multiples of 4096")
    elif where[1] < 3 * _BLOCK:
        raise CommandError("spool: flash needs at least three blocks, 12288 bytes")


_BLOCK = 4096
_BLOCKS = 16
_ERASES = 100_000  # that a block of NOR flash survives, by the makers' data sheets
_STATE = 96  # bytes of the state; with the head of a block 112


def _is_block(number: object) -> bool:
    return isinstance(number, int) and number >= 0 and number % _BLOCK == 0


def estimate_life(config: Mapping[str, Any]) -> float:
    """Return for how many years the spool's flash lasts if every reading is stored there."""
    spool = config["spool"]
    blocks: int = spool["flash"][1] // _BLOCK if "flash" in spool else spool.get("blocks", _BLOCKS)
    bytes_a_second = 0.0
    for event in config["events"]:
        length = 8 + sum(
            (8 if channel.get("worst") else 2) if channel.get("wide") else 4
            for channel in event["channels"]
        )
        wakes = 2 * _STATE if config.get("sleep") else 0
        bytes_a_second += (measure(length) + wakes) * 1000 / event["period"]
    room = _BLOCK - _STATE - 16
    return float(blocks * _ERASES * room / bytes_a_second / (365.25 * 86400))


def check_nodes(nodes: list[Any], *, has_urls: bool = True) -> None:
    """Refuse nodes without an address (unless a bridge knows it) or a key, or with weak ones."""
    if not 1 <= len(nodes) <= _MAX_NODES:
        raise CommandError(f"nodes: there must be 1 to {_MAX_NODES}")
    keys: set[bytes] = set()
    for node in nodes:
        if not isinstance(node, dict):
            raise CommandError("nodes: each must be an object")
        name = node.get("name", "a node without a name")
        if has_urls and not str(node.get("url", "")).startswith(("mqtt://", "mqtts://")):
            raise CommandError(f"{name}: the url must be mqtt://host:port or mqtts://host:port")
        key = _read_hex(node.get("key"), f"{name}: key")
        if len(key) < _MIN_KEY or len(set(key)) < _MIN_KEY // 2:
            raise CommandError(
                f"{name}: the key must have at least {_MIN_KEY} bytes, not all alike"
            )
        if key in keys:
            raise CommandError(f"{name}: another node has the same key")
        keys.add(key)
        if not isinstance(node.get("key_id"), int):
            raise CommandError(f"{name}: key_id must be a number")


def is_loopback(url: str) -> bool:
    """Whether a url names this machine."""
    return url.partition("://")[2].rpartition(":")[0] in _LOOPBACK


def _check_transport(node: Mapping[str, Any]) -> None:
    """Refuse what the device refuses when it starts: `edge/denwatch/watchdog/config.py`."""
    name, url = node.get("name", "a node without a name"), str(node["url"])
    host, _, port = url.partition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        raise CommandError(f"{name}: the url {url} has no port")
    if url.startswith("mqtts:"):
        if not node.get("ca"):
            raise CommandError(f"{name}: ca is missing, the certificate of its authority")
    elif not is_loopback(url) and node.get("plain") is not True:
        raise CommandError(f'{name}: {url} has no TLS; use mqtts://, or say "plain": true')


def _check_events(config: Mapping[str, Any]) -> None:
    """Refuse sources, events and channels that the device's own classes refuse."""
    for name, source in config["sources"].items():
        with refuse(ValueError, before=f"{name}: "):
            check_source(source)
    if not config["events"]:
        raise CommandError("events: there must be at least one")
    sources = {name: Source() for name in config["sources"]}
    numbers = set()
    for event in config["events"]:
        if not isinstance(event, dict) or not isinstance(event.get("channels"), list):
            raise CommandError("an event must have a list of channels")
        channels = [_make_channel(channel, sources) for channel in event["channels"]]
        number, period = event.get("event"), event.get("period")
        if not isinstance(number, int) or not isinstance(period, int) or period < 1:
            raise CommandError("an event must have a number and a period in ms")
        with refuse(ValueError, before=f"event {number}: "):
            Event(number, channels, period)
        if number in numbers:  # a device would report only the last one to its node
            raise CommandError(f"event {number} is listed twice: put its channels together")
        numbers.add(number)


def _make_channel(entry: object, sources: Mapping[str, Source]) -> Channel:
    if not isinstance(entry, dict) or "source" not in entry:
        raise CommandError('a channel must have a "source"')
    name = entry["source"]
    if name not in sources:
        raise CommandError(f"there is no source {name}")
    fields = {key: value for key, value in entry.items() if key != "source"}
    with refuse(TypeError, ValueError, before=f"a channel of {name}: "):
        return Channel(sources[name], **fields)


def _read_hex(text: object, what: str) -> bytes:
    try:
        return bytes.fromhex(str(text))
    except ValueError:
        raise CommandError(f"{what} is not hexadecimal") from None
