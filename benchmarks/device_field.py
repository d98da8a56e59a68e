"""The device in the field, in numbers: days on a battery, and the wear of a board's flash.

`measure(options)` returns

* days on 2,500 mAh of an ESP32 and of a Pico W, a reading a minute of which as many are wanted as
  in the demo: with the duty cycle, connected all the time, and awake for each reading to send it.
  When the radio is on follows from the watchdog's own `choose_reason`; the currents are those of
  data sheets, the times are assumptions, both stand below. Self-discharge is left out;
* erases for one notification that must last, on MicroPython's own littlefs with a counting block
  device below it: by the spool of stock firmware, and by a file of that file system;
* updates over the air on such a littlefs, with a power cut in every operation of the flash, torn in
  several ways: how many cuts, after how many of them the board did not come back to good code.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from random import Random
from typing import Any

from denwatch.watchdog.duty import SleepSettings, choose_reason

from benchmarks.common import format_table, say
from firmware_tests.unix import run_code

BATTERY = 2500  # mAh
PERIOD = 60  # s between readings
WANTED = 416 / 7673  # of the demo's readings, as README.md shows them
DAYS = 30  # that are counted
BEACONS = 0.03  # of the time that a connected radio listens, in its power-save mode
SENDING = 0.1  # of a connection's time
BOOT = 0.8  # s from the timer to the first line of the program, code in a ROM file system
WORK = 0.2  # s of computing a wake
CONVERSION = 0.75  # s that a DS18B20 takes; the board rests in its light sleep
CONNECTION = 3.5  # s: join 1.5, TLS 1.0, messages 0.3, silence at the end 0.7


@dataclass(frozen=True)
class Currents:
    """Of one board in mA, and whose figures they are."""

    board: str
    source: str
    cpu: float
    listening: float  # with the processor on
    sending: float
    light_sleep: float
    deep_sleep: float


BOARDS = (
    Currents(
        "ESP32",
        "data sheet of Espressif, listening and computing rounded up: [an edition]"
        "(https://www.manualshelf.com/manual/espressif-systems/espwroom32/user-s-manual-english/"
        "page-12.html) has 80 to 90 listening, 160 to 260 sending, 0.8 in light sleep",
        *(40, 100, 240, 0.8, 0.01),
    ),
    Currents(
        "ESP32-DevKitC",
        "as above, but asleep as [measured](https://lucidar.me/en/esp32/"
        "power-consumption-of-esp32-devkitc-v4/): its regulator and USB chip do not sleep",
        *(43, 100, 240, 3.8, 3.8),
    ),
    Currents(
        "Pico W",
        "RP2040 and CYW43439 data sheets; sleep as MicroPython's rp2 port gives for lightsleep",
        *(25, 68, 345, 1.5, 1.5),
    ),
)


def count_connections(seed: int) -> float:
    """Return the share of wakes in which the duty cycle switches the radio on."""
    rng, settings = Random(seed), SleepSettings(600_000)
    pause = connections = 0
    wakes = DAYS * 86_400 // PERIOD
    for _ in range(wakes):
        pause += 1
        degree = rng.randrange(1, 256) if rng.random() < WANTED else 0
        # A lower degree waits for 15 minutes at most, and then for the tenth wake at most.
        if choose_reason(degree, -1, pause, 0, settings):
            connections, pause = connections + 1, 0
    return connections / wakes


def estimate_days(c: Currents, share: float) -> tuple[float, float, float]:
    """Return the days with the duty cycle, connected all the time, and sending every reading."""
    wake = (BOOT + WORK) * c.cpu + CONVERSION * c.light_sleep
    radio = CONNECTION * ((1 - SENDING) * c.listening + SENDING * c.sending)

    def last(charge: float) -> float:  # mAs in a period, beside the sleep
        return BATTERY / (c.deep_sleep + charge / PERIOD) / 24

    always = BATTERY / (c.cpu + BEACONS * (c.listening - c.cpu)) / 24
    return last(wake + share * radio), always, last(wake + radio)


_WEAR = """
import vfs
from tests.watchdog.flash import Flash, make_vector
from denwatch.watchdog.ring import CarvedBlocks, FileBlocks
from denwatch.watchdog.spool import Spool

def measure(make, notes):
    flash = Flash(64, 4096)
    vfs.VfsLfs2.mkfs(flash)
    vfs.mount(vfs.VfsLfs2(flash), "/flash")
    spool = Spool(make(flash), 0)
    before = sum(flash.erases)
    for i in range(notes):
        spool.put(make_vector(i, 11), 100, i)
        spool.flush(i)
    vfs.umount("/flash")
    return (sum(flash.erases) - before) / notes

print(measure(lambda flash: CarvedBlocks("/flash/spool", 16, flash), 1000))
print(measure(lambda flash: FileBlocks("/flash/spool.bin", 16), 20))
"""


def measure_wear() -> tuple[float, float]:
    """Return the erases of a notification: the spool's, and those of a file."""
    output, status = run_code(_WEAR, 64, heap="8M")
    if status:
        raise RuntimeError(output)
    carved, file = (float(word) for word in output.split())
    return carved, file


_CUTS = """
from tests.watchdog.test_update_cuts import Cutter
from tests.watchdog.updates import Bricked

cuts = seconds = bricked = 0
for seed in range(1, {lives} + 1):
    cutter = Cutter(seed=seed, resume=11 + seed % 3)
    try:
        cutter.run()
    except Bricked as error:
        bricked += 1
    cuts += cutter.cuts
    seconds += cutter.second_cuts
print("cuts", cuts, seconds, bricked)
"""


def measure_cuts(lives: int) -> tuple[int, int, int]:
    """Return the power cuts in lives with four updates each, those of them that were cut again, and
    the lives in which the board did not come back."""
    output, status = run_code(_CUTS.format(lives=lives), 64, heap="16M")
    if status:
        raise RuntimeError(output)
    (line,) = [line for line in output.splitlines() if line.startswith("cuts ")]
    cuts, again, bricked = (int(word) for word in line.split()[1:])
    return cuts, again, bricked


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure; the table for people is `report`."""
    share = count_connections(options.seed)
    days = {c.board: estimate_days(c, share) for c in BOARDS}
    carved, file = measure_wear()
    cuts, again, bricked = measure_cuts(2 if options.quick else 12)
    table = format_table(
        ["board", "duty cycle, days", "always connected", "sending everything", "currents"],
        [
            [c.board, *(f"{value:.1f}" for value in days[c.board]), f"{_describe(c)}; {c.source}"]
            for c in BOARDS
        ],
    )
    duty, always, everything = days["ESP32"]
    report = f"""Days on {BATTERY:,} mAh, a reading each {PERIOD} s, {100 * WANTED:.1f} % of them wanted as in
the demo: the radio is on in {100 * share:.0f} % of the wakes, for {CONNECTION} s. Computed, not measured: the currents are
of data sheets, the times assumptions (`benchmarks/device_field.py`); self-discharge is left out.

{table}

Erases for one notification that must last, MicroPython's littlefs on a counting block device:
{carved:.3f} by the spool in blocks of the file system, {file:.1f} by a file.

Updates over the air, the power cut in every operation of a simulated littlefs: {cuts:,} cuts, {again:,} of
them with a second one on the way back; after {bricked} the board did not run good code.
"""  # noqa: E501 - a paragraph
    say(report)
    return {
        "battery_days_duty": round(duty, 1),
        "battery_days_always_on": round(always, 2),
        "battery_days_sending_all": round(everything, 1),
        "battery_days_duty_over_always_on": round(duty / always, 1),
        "battery_days_pico_w": round(days["Pico W"][0], 1),
        "erases_per_note_littlefs": carved,
        "ota_power_cuts": cuts,
        "ota_bricked": bricked,
        "erases_per_note_file": file,
        "report": report,
    }


def _describe(c: Currents) -> str:
    parts = f"{c.cpu:g} mA computing, {c.listening:g} listening, {c.sending:g} sending"
    return f"{parts}, {c.light_sleep:g} light sleep, {c.deep_sleep:g} deep sleep"
