"""The device in numbers: the filter's speed, its heap, and the size of what is installed.

The times come from unix MicroPython (64 bit), the heap figures from the 32-bit port, the sizes from
mpy-cross for microcontrollers. No board is here: read the times as ratios.

Headline: viper_over_bytecode, viper_over_float (the worse of 100 and 1,000 subscriptions),
heap_per_sv, mpy_filter_bytes, mpy_total_bytes; filter_heap_kib is the smallest heap in which 1,000
subscriptions and the filter work. `benchmarks.device_transport` adds the figures of the link, and
`benchmarks.device_field` days on a battery and the wear of the flash, `benchmarks.device_boards`
what emulated boards do, if `make boards` has built their firmware.

`--part sizes` (or tls, field, boards) makes one section of the page again, and leaves the rest:
what it has does not depend on how busy the machine is.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import device_boards, device_field, device_transport
from benchmarks.common import (
    RESULTS,
    describe_machine,
    format_table,
    new_figure,
    run,
    save_figure,
    save_text,
    say,
)
from firmware_tests.images import ARCHITECTURES, find_filter_heap, measure_role
from firmware_tests.unix import run_code

COUNTS = (100, 1000)
ENGINES = ("viper", "bytecode", "floats")


def measure_times(options: argparse.Namespace) -> dict[tuple[int, int], list[float]]:
    """Return (bits, count): ns of each engine, then bytes a subscription and bytes an event."""
    results = {}
    for bits in (64, 32):
        for count in COUNTS:
            rounds = 10 if options.quick else 40
            code = (
                f"from benchmarks.device_scan import main; main({count}, {rounds}, {options.seed})"
            )
            output, status = run_code(code, bits, heap="8M")
            if status:
                raise RuntimeError(output)
            results[bits, count] = [float(word) for word in output.split()]
            say(f"{bits} bit, {count} subscriptions:", output.replace("\n", " | "))
    return results


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and report."""
    if options.part:
        return measure_parts(options)
    times = measure_times(options)
    with tempfile.TemporaryDirectory() as name:
        heap, output = find_filter_heap(Path(name))
    result: dict[str, Any] = {
        "viper_over_bytecode": min(times[64, n][1] / times[64, n][0] for n in COUNTS),
        "viper_over_float": min(times[64, n][2] / times[64, n][0] for n in COUNTS),
        "viper_ns": times[64, 1000][0],
        "bytecode_ns": times[64, 1000][1],
        "float_ns": times[64, 1000][2],
        "heap_per_sv": max(times[bits, 1000][3] for bits in (64, 32)),
        "bytes_per_event": max(row[5] for row in times.values()),
        "filter_heap_kib": heap,
    }
    say(f"1,000 subscriptions in {heap} KiB: count, hits, free = {output}")
    result.update(device_transport.measure(options))
    report = write_report(times, result)
    for title, measure_section in SECTIONS.values():
        result.update(measure_section(options))
        text = result.pop("report")
        report += f"\n## {title}\n\n{text}" if text else ""
    say(report)
    if options.save:
        save_text("device.md", report)
        draw(times)
    return result


def measure_sizes(_: argparse.Namespace) -> dict[str, Any]:
    """Compile what boards get, for each architecture."""
    filters = measure_role("filter")
    totals = measure_role("full")
    rows = [
        *(
            [f"`{path}`", *(totals[a][path] for a in ARCHITECTURES)]
            for path in totals[ARCHITECTURES[0]]
        ),
        ["everything", *(sum(totals[a].values()) for a in ARCHITECTURES)],
        ["filter role alone", *(sum(filters[a].values()) for a in ARCHITECTURES)],
    ]
    role = ", ".join(f"`{path}`" for path in filters[ARCHITECTURES[0]])
    report = f"""Bytes of `.mpy`, as `denwatch device build` makes them (private names shortened,
constants folded, mpy-cross -O3). Everything is all that a board can need: every source, TLS, deep
sleep, radios, updates. The filter role is {role};
`check`, through which every frame from the air goes first, is not part of it: a filter alone takes
frames that were checked before. The DENS paper's watchdog took 49 KB of code.

{format_table(["file", *ARCHITECTURES], rows)}
"""
    return {
        "mpy_filter_bytes": max(sum(sizes.values()) for sizes in filters.values()),
        "mpy_total_bytes": max(sum(sizes.values()) for sizes in totals.values()),
        "report": report,
    }


# Parts of the page that can be made again by themselves: a title, and what measures it.
SECTIONS: dict[str, tuple[str, Callable[[argparse.Namespace], dict[str, Any]]]] = {
    "sizes": ("Sizes", measure_sizes),
    "tls": ("TLS", device_transport.measure_tls),
    "field": ("In the field", device_field.measure),
    "boards": ("On emulated boards", device_boards.measure),
}


def measure_parts(options: argparse.Namespace) -> dict[str, Any]:
    """Measure some sections, and put them into the page; the others stay."""
    page = (RESULTS / "device.md").read_text(encoding="utf-8")
    result: dict[str, Any] = {}
    for part in options.part:
        title, measure_section = SECTIONS[part]
        result.update(measure_section(options))
        section = f"## {title}\n\n{result.pop('report').rstrip()}\n\n"
        say(section)
        page, count = re.subn(
            rf"^## {title}\n.*?(?=^## |\Z)", lambda _, text=section: text, page, flags=re.M | re.S
        )
        page = page if count else f"{page.rstrip()}\n\n{section}"
    if options.save:
        save_text("device.md", page)
    return result


def write_report(times: dict[tuple[int, int], list[float]], result: dict[str, Any]) -> str:
    """Return the page without its sections."""
    speed = format_table(
        [
            "word",
            "subscriptions",
            *(f"{name}, ns" for name in ENGINES),
            "over bytecode",
            "over floats",
        ],
        [
            [
                *(f"{bits} bit", f"{n:,}", f"{row[0]:.1f}", *(f"{ns:,.0f}" for ns in row[1:3])),
                *(f"{row[i] / row[0]:.0f}" for i in (1, 2)),
            ]
            for (bits, n), row in times.items()
        ],
    )
    memory = format_table(
        [
            "word",
            "subscriptions",
            "heap a subscription, B",
            "as objects, B",
            "an event, B",
            "objects, B",
        ],
        [
            [f"{bits} bit", f"{n:,}", f"{row[3]:.1f}", *(f"{size:,.0f}" for size in row[4:])]
            for (bits, n), row in times.items()
        ],
    )
    return f"""# The filter on a device

{describe_machine()}, unix MicroPython 1.25; no board was measured, so read times as ratios.

Nanoseconds a subscription: three attributes under min, an event that nobody asked for, every
engine gives up at the first predicate that is too low. Best of many short rounds.

{speed}

Heap: subscriptions with a deadline each (19 bytes; 17 without), the filter object included; bytes
that one event allocates.

{memory}

1,000 subscriptions and the filter role work in a heap of {result["filter_heap_kib"]} KiB (32-bit
port, files as `.mpy`). The DENS paper's watchdog took about 180 KB of memory in a MIDP emulator,
and tens of milliseconds for 1,000 subscriptions (Fig. 7): other hardware, so only the sizes
compare. Machine code covers plain vectors under min, max, product and arithmetic mean: conjunctions
of terms, 10 of the 20 subscriptions in `benchmarks.air`. Vectors with sections and the other means
are evaluated in bytecode, at the speed of that.

The whole watchdog, connected to Mosquitto and to a node that acknowledges, with 200 subscriptions
and its spool, took {result["full_rounds"]:,} samples and sent {result["full_notifications"]:,}
notifications in a heap of {result["full_heap_kib"]} KiB on the 32-bit port, its code in a ROMFS
image that is executed in place; {result["full_lowest_free_bytes"]:,} bytes were free at the lowest,
after a collection. Run from `.mpy` files, which copies their code to the heap, it needs
{result["full_files_heap_kib"]} KiB (tried for 360 samples).

QoS 1 messages/s:
{result["qos1_per_s"]:,} with four under way, {result["qos1_one_by_one_per_s"]:,} one by one,
{result["umqtt_qos1_per_s"] or "not measured"} with micropython-lib's umqtt.simple.
"""


def draw(times: dict[tuple[int, int], list[float]]) -> None:
    """Save the plot: nanoseconds a subscription."""
    figure, axis = new_figure()
    colours = ("#1b6e3c", "#8a8a8a", "#c98b2b")
    for i, engine in enumerate(ENGINES):
        places = [j + 0.27 * (i - 1) for j in range(len(COUNTS))]
        heights = [times[64, n][i] for n in COUNTS]
        bars = axis.bar(places, heights, 0.25, label=engine, color=colours[i])
        axis.bar_label(bars, [f"{height:.0f}" for height in heights], fontsize=8)
    axis.set_yscale("log")
    axis.set_xticks(range(len(COUNTS)), [f"{n:,} subscriptions" for n in COUNTS])
    axis.set_ylabel("ns a subscription")
    axis.legend(frameon=False)
    save_figure(figure, "device.svg")


def main() -> None:
    """Run the benchmark."""
    run(measure, __doc__, _add_part)


def _add_part(parser: argparse.ArgumentParser) -> None:
    words = "make this section of the page again, and leave the rest"
    parser.add_argument("--part", action="append", choices=SECTIONS, help=words)


if __name__ == "__main__":
    main()
