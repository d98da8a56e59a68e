"""What a device may be asked for: 8 KB of `.mpy` for the filter, 48 KB for everything but the parts
that can be left out (4.5 KB for uncertain readings in machine code, 1.6 KB for what is sent of a
reading, 3.5 KB for the duty cycle, 4.5 KB for updates over the air, 4.75 KB for radios, 2.5 KB
for a page at the first start), 20 bytes of heap a subscription, 24 KB for a thousand of them."""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path

import pytest
from denwatch.cli.devices.images import PARTS, UPDATE, build_role

from firmware_tests.images import ARCHITECTURES, find_filter_heap
from firmware_tests.runtimes import REPOSITORY, find_unix
from firmware_tests.support import require
from firmware_tests.unix import run_code

HEAP = """
import gc
from denwatch.watchdog.filter import Filter
frames = []
for handle in range(1000):
    low = handle * 7 % 200
    head = bytes([0x41, 0, handle >> 8, handle & 255, 160, 72, 0, 7])
    frames.append(head + bytes([low, low + 12, 100 + handle % 150]) * 3)
gc.collect()
before = gc.mem_alloc()
filter = Filter(6 + 19 * 1000)
for frame in frames:
    filter.add(frame, bytes(2))
gc.collect()
print((gc.mem_alloc() - before) / 1000)
"""

_SENSORS = ("bme280", "driver", "nmea")


@cache
def build_whole(architecture: str) -> dict[str, int]:
    """Return the size of every file that a board can need."""
    with tempfile.TemporaryDirectory() as name:
        return build_role("full", architecture, Path(name))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_filter_role_fits_8_kilobytes(architecture: str, tmp_path: Path) -> None:
    sizes = build_role("filter", architecture, tmp_path)
    assert "denwatch/watchdog/rating.mpy" in sizes
    assert sum(sizes.values()) <= 8192, sizes


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_everything_fits_48_kilobytes(architecture: str) -> None:
    sizes = dict(build_whole(architecture))
    for part in ("app", "board", "config", "duty", "fuzzy", "link", "manager", "rating", "ring"):
        assert f"denwatch/watchdog/{part}.mpy" in sizes
    for part in ("significance", "spool", "uplink", "sources/csv_file", "sources/ds18x20"):
        assert f"denwatch/watchdog/{part}.mpy" in sizes
    optional = sizes["denwatch/watchdog/duty.mpy"]  # installed only if the configuration sleeps
    interest = sizes["denwatch/watchdog/interest.mpy"]
    parts = sum(sizes[part.removesuffix("py") + "mpy"] for part in PARTS)
    sensors = [sizes.pop(f"denwatch/watchdog/sources/{name}.mpy") for name in _SENSORS]
    assert max(sensors) <= 1_900  # each is installed only if the configuration names it
    updates = sizes["slots.mpy"]
    updates += sum(sizes[f"denwatch/watchdog/{name}.mpy"] for name in UPDATE)
    radios, portal = (sizes[f"denwatch/watchdog/{name}.mpy"] for name in ("radio", "portal"))
    assert sum(sizes.values()) - optional - parts - updates - radios - portal <= 49_152, sizes
    assert portal <= 2_560
    assert radios <= 4_864
    assert updates <= 4_608
    assert optional <= 3_584
    assert interest <= 1_640
    assert parts - interest <= 4_608


def test_pages_say_how_large_it_is() -> None:
    """All files for an ESP32; and without sensors and what can be left out."""
    sizes = build_whole("xtensawin")
    needless = {f"denwatch/watchdog/{name}.mpy" for name in ("duty", "portal", "radio", *UPDATE)}
    needless |= {part.removesuffix("py") + "mpy" for part in PARTS} | {"slots.mpy"}
    sensors = {name for name in sizes if "/sources/" in name and "__init__" not in name}
    least = sum(size for name, size in sizes.items() if name not in needless | sensors)
    for page in ("README.md", "docs/esp32.md"):
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        for number in (least, sum(sizes.values())):
            assert f"{number:,} bytes" in " ".join(text.split()), (page, number)


def test_thousand_subscriptions_and_the_filter_work_in_24_kilobytes(tmp_path: Path) -> None:
    require(partial(find_unix, 32))
    kibibytes, output = find_filter_heap(tmp_path)
    assert kibibytes <= 24
    assert output.split()[:2] == ["1000", "50"]  # subscriptions and hits


@pytest.mark.parametrize("bits", [64, 32])
def test_subscription_takes_at_most_20_bytes_of_heap(bits: int) -> None:
    require(partial(find_unix, bits))
    output, code = run_code(HEAP, bits, heap="4M")
    assert code == 0, output
    assert float(output) <= 20
