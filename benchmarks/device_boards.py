"""The watchdog's firmware on boards that QEMU emulates: instructions of the filter, and the path.

`measure(options)` returns, for firmware that `make boards` built (nothing, if it is not there),

* microseconds of one event among 10, 100 and 1,000 subscriptions of three attributes, exact and
  uncertain, at 125 million instructions a second: QEMU counts them, so the figures repeat. A real
  board has waits for its flash besides;
* whether every degree equals CPython's, with machine code;
* on how many boards the whole watchdog, over its serial port and `denwatch bridge`, told a
  subscriber of a real node what it asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import format_table, say
from firmware_tests.boards.emulator import (
    CORTEX_M3,
    MODELS,
    BoardModel,
    EmulatedBoard,
    find_firmware,
)
from firmware_tests.boards.site import run_watchdog
from firmware_tests.runtimes import MissingRuntimeError

COUNTS = (10, 100, 1000)

# Runs on the board and on CPython: subscriptions, then events, exact and uncertain.
_PROGRAM = """
import gc
try:
    import machine
except ImportError:
    pass
from denwatch.watchdog.check import check
from denwatch.watchdog.execution import Sample
from denwatch.watchdog.fuzzy import Fuzzy
try:
    from time import ticks_us, ticks_diff
except ImportError:
    ticks_us, ticks_diff = int, int.__sub__

state = [1]

def below(limit):
    state[0] = (state[0] * 1103515245 + 12345) & 0x7FFFFFFF
    return (state[0] >> 8) % limit

def build(count):
    state[0] = 1
    language = Fuzzy(17 * count + 16, {1: (7, 0)})
    language.filter.all = True  # no subscription is passed over because another was met
    for handle in range(count):
        frame = bytearray([0x41, 0, handle >> 8, handle & 255, 160, 0, 0, 7])
        for _ in range(3):
            low = below(244)
            frame += bytes([low, low + 12, 100 + below(155)])
        language.add(bytes(frame), b"", check(frame))
    return language

def judge(language, is_sure, events):
    state[0] = 7
    sample = Sample(1)
    degrees = []
    total = 0
    for _ in range(events):
        sample.clear()
        for a in range(3):
            x = below(256)
            if is_sure:
                sample.set(a, x)
            else:
                points = [min(max(x + width, 0), 255) for width in (-5, -2, 2, 5)]
                sample.set_doubtful(a, *points)
        gc.collect()
        start = ticks_us()
        degrees.append(language.judge(sample, 0))
        total += ticks_diff(ticks_us(), start)
    return total // events, degrees

def run(count, events):
    language = build(count)
    judge(language, False, 1)
    exact, first = judge(language, True, events)
    unsure, second = judge(language, False, events)
    print(exact, unsure, first + second)
"""


def judge_here(count: int, events: int) -> str:
    """Return the degrees of the same program on CPython."""
    names: dict[str, Any] = {}
    output = io.StringIO()
    exec(_PROGRAM, names)
    with contextlib.redirect_stdout(output):
        names["run"](count, events)
    return output.getvalue().split(" ", 2)[2]


def measure_board(model: BoardModel, events: int) -> tuple[dict[int, tuple[int, int]], bool]:
    """Return the µs of an event by count, exact and uncertain; whether all degrees are right."""
    times = {}
    is_right = True
    for count in COUNTS:
        with EmulatedBoard(model, is_counted=True) as board:
            board.exec(_PROGRAM)
            kernel = board.exec("from denwatch.watchdog.filter import KERNEL; print(KERNEL)")
            exact, unsure, degrees = board.exec(f"run({count}, {events})").split(" ", 2)
        times[count] = (int(exact), int(unsure))
        is_right &= degrees == judge_here(count, events) and kernel.strip() == "viper"
    return times, is_right


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all boards whose firmware is there."""
    result: dict[str, Any] = {}
    rows = []
    told = 0
    for model in MODELS:
        try:
            find_firmware(model)
        except MissingRuntimeError as error:
            say(error)
            continue
        times, is_right = measure_board(model, 10)
        say(model.architecture, times, is_right)
        report: dict[str, Any] = {}
        if not options.quick:
            with tempfile.TemporaryDirectory() as folder:
                _, report = run_watchdog(model, Path(folder), 4)
            told += 1
        cells = [f"{us:,}" for count in COUNTS for us in times[count]]
        rows.append(
            [model.architecture, *cells, "yes" if is_right else "no", report.get("lowest", "-")]
        )
        name = {"armv7m": "cortex_m3", "armv6m": "cortex_m0", "rv32imc": "rv32"}[model.architecture]
        result[f"{name}_us_1000"], result[f"{name}_us_1000_uncertain"] = times[1000]
        if model is not CORTEX_M3:
            result["rv32_ok" if name == "rv32" else "armv6m_viper_ok"] = is_right
    if not options.quick:
        result["end_to_end_boards"] = told
    heads = [f"{count:,}{word}" for count in COUNTS for word in ("", ", uncertain")]
    table = format_table(["machine code", *heads, "as CPython", "lowest free, B"], rows)
    whole = _WHOLE if told else ""
    result["report"] = f"{_WORDS}\n{table}\n{whole}" if rows else ""
    return result


_WORDS = """MicroPython 1.25 from Debian's sources for boards that QEMU emulates, the watchdog
frozen in, a heap of 64 KiB (`make boards`). Microseconds of one event among so many subscriptions
of three attributes, all of them judged, at 125 million instructions a second, the mean of ten
events; real boards wait for their flash besides.
"""
_WHOLE = """
Each board then ran whole: its serial port, `denwatch bridge`, a real node, and a subscriber who got
four notifications. AES is plain Python there, as this firmware has none.
"""
