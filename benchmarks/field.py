"""The field at size: what an emulated day costs, and the scenario of the DENS paper on real cores.

    python -m benchmarks.field --save --rows rows.jsonl

Days of 50 to 1,000 nodes, each in a process of its own: processor time and peak memory, and how
they grow with nodes; the largest for six hours. Then fifty nodes with up to 1,000 subscriptions and
200 events a publisher, beside the paper's figures. A long run may be cut: with `--rows` each day
that is done goes to a file, and is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.common import (
    describe_machine,
    format_table,
    median,
    new_figure,
    run,
    save_figure,
    save_text,
    say,
)
from benchmarks.field_dens import EVENTS, Figures, measure_scenario
from benchmarks.field_scale import DEVICES, PEOPLE, PERIOD, REACH, STRATEGY

ROOT = Path(__file__).parents[1]
DAYS = ((50, 1.0), (100, 1.0), (200, 1.0), (500, 1.0), (1_000, 1.0), (1_000, 6.0))
QUICK_DAYS = ((20, 0.1), (40, 0.1))
SIZES = (40, 100, 200, 500, 1_000)
LIMIT = 4_096  # MiB
# The paper's own numbers (section 5): ms of matching with the flat algorithm and the break-down
# one, and the share of subscriptions that covering saves.
PAPER_MATCHING = {100: ("10", "60"), 1_000: ("100", "600")}
PAPER_EQUAL = {100: 0.60, 500: 0.92, 1_000: 0.96}

Row = dict[str, Any]


def take_rows() -> Path | None:
    """Take our own option from the command line; the others are common to all benchmarks."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rows", type=Path)
    found, rest = parser.parse_known_args(sys.argv[1:])
    sys.argv[1:] = rest
    rows: Path | None = found.rows
    return rows


def measure_days(days: tuple[tuple[int, float], ...], kept: Path | None) -> list[Row]:
    """Return one row a day, measured now or kept of an earlier run that was cut."""
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    known = {(row["nodes"], row["hours"]): row for row in map(json.loads, lines)}
    for nodes, hours in days:
        if (nodes, hours) in known:
            continue
        say(f"{nodes} nodes, {hours:g} hours")
        command = [sys.executable, "-m", "benchmarks.field_scale", str(nodes), str(hours)]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        line = done.stdout.splitlines()[-1]
        known[nodes, hours] = json.loads(line)
        if kept is not None:
            with kept.open("a") as file:
                file.write(line + "\n")
    return [known[day] for day in days if day in known]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both; return the headline."""
    rows = measure_days(QUICK_DAYS if options.quick else DAYS, _kept)
    print(tell_days(rows))
    sizes, events = ((40,), 10) if options.quick else (SIZES, EVENTS)
    scenes = measure_scenario(sizes, options.seed, events)
    print(tell_scenes(scenes))
    if options.save:
        save(rows, scenes)
    largest, last = rows[-1], scenes[-1]
    return {
        "nodes": largest["nodes"],
        "hours": largest["hours"],
        "cpu_s": largest["cpu_s"],
        "rss_mib": largest["rss_mib"],
        "cost_exponent": round(find_exponent(rows, "cpu_s"), 2),
        "dens_subscriptions": last.subscriptions,
        "dens_filtering_ms": round(median(last.filtering), 4),
        "dens_matching_ms": round(median(last.matching), 4),
        "dens_sent_share": round(last.sent / last.measured, 4),
    }


def find_exponent(rows: list[Row], name: str) -> float:
    """Return by which power of the number of nodes a cost grows, among days of equal length."""
    days = [row for row in rows if row["hours"] == rows[0]["hours"]]
    first, last = days[0], days[-1]
    if first["nodes"] == last["nodes"]:
        return 0.0
    return math.log(last[name] / first[name]) / math.log(last["nodes"] / first["nodes"])


def tell_days(rows: list[Row]) -> str:
    """Return the table of days."""
    header = ["nodes", "hours", "contacts", "events", "CPU s", "CPU ms a contact", "peak MiB"]
    return format_table(
        [*header, "notifications", "delivered of wanted"],
        [
            [
                row["nodes"],
                f"{row['hours']:g}",
                row["contacts"],
                row["events"],
                f"{row['cpu_s']:.0f}",
                f"{1e3 * row['cpu_s'] / max(1, row['contacts']):.2f}",
                f"{row['rss_mib']:.0f}",
                row["notifications"],
                f"{row['delivered']} of {row['wanted']}",
            ]
            for row in rows
        ],
    )


def tell_scenes(scenes: list[Figures]) -> str:
    """Return the table of the paper's scenario."""
    header = [
        *("subscriptions", "vectors at publishers", "saved by covering", "paper"),
        *("filtering an event, ms", f"{EVENTS} events, ms", "sent of measured"),
        *("node's index, ms", "FNIF, ms", "paper", "break-down, ms", "paper", "crisp, ms"),
    ]
    rows = []
    for each in scenes:
        equal = PAPER_EQUAL.get(each.subscriptions)
        flat, broken = PAPER_MATCHING.get(each.subscriptions, ("", ""))
        active = sum(each.installed.values())
        saved = 1 - active / each.subscriptions
        rows.append(
            [
                each.subscriptions,
                active,
                f"{saved:.0%}",
                "" if equal is None else f"{equal:.0%}",
                f"{median(each.filtering):.3f}",
                f"{EVENTS * sum(each.filtering) / len(each.filtering):.1f}",
                f"{each.sent} of {each.measured}",
                f"{median(each.matching):.3f}",
                f"{each.engines['FNIF']:.3f}",
                flat,
                f"{each.engines['break-down']:.3f}",
                broken,
                f"{each.engines['crisp']:.3f}",
            ]
        )
    return format_table(header, rows)


def save(rows: list[Row], scenes: list[Figures]) -> None:
    """Write the committed results."""
    largest = rows[-1]
    fits = "within" if largest["rss_mib"] <= LIMIT else "NOT within"
    text = "\n".join(
        [
            "# The field at size",
            "",
            f"`python -m benchmarks.field --save` on {describe_machine()}.",
            "",
            "## What a day costs",
            "",
            "Sites of a disaster with a crew of about fifty each and one hospital for all;"
            f" radios that reach {REACH:g} m; {STRATEGY}. The load is the same for all"
            f" sizes ({PEOPLE} subscribers, {DEVICES} devices that measure every"
            f" {PERIOD // 60_000} minutes); only the number of nodes that carry it grows. Each day"
            " runs in a process of its own. CPU seconds are those of one core, which a busy machine"
            " disturbs less than wall-clock time.",
            "",
            tell_days(rows),
            "",
            f"{largest['nodes']} nodes for {largest['hours']:g} hours are {fits} 4 GiB. CPU time"
            f" grows as the number of nodes to the power of {find_exponent(rows, 'cpu_s'):.2f}"
            f" over all, start-up included, and of {find_exponent(rows[-3:], 'cpu_s'):.2f} between"
            " the two largest."
            " Delivery is not what these days are about: with more sites, fewer of those who ask"
            " are where something is read, and eight copies seldom come from one site to another"
            " (`replication.md` is about that).",
            "",
            "## The scenario of the DENS paper",
            "",
            f"50 nodes, one publisher in each of the seven groups, {EVENTS} events of each, one a"
            " second; subscriptions of 3 and 4 attributes, those of `papers-dens.md`. Filtering is"
            " done by the real watchdog core, interpreted by CPython; matching by the real node's"
            " index. FNIF, break-down and crisp are the paper's algorithms on the notifications"
            " that nodes matched here. Medians, in ms of processor time.",
            "",
            tell_scenes(scenes),
            "",
            "The paper ran Java on an emulated phone and a network emulator: milliseconds cannot be"
            " compared, shapes can. There, flat matching takes 10 ms at 100 subscriptions and 100"
            " at 1,000, break-down six times as long, crisp next to nothing; filtering with"
            " covering stays flat at about 20 ms. Vectors are those that nodes install at the"
            " publishers of the three events together; the rest is covered by them.",
            "",
            "![cost and filtering](field.svg)",
        ]
    )
    save_text("field.md", text)
    plot(rows, scenes)


def plot(rows: list[Row], scenes: list[Figures]) -> None:
    """Draw cost by nodes, and times by subscriptions."""
    figure, (axis, times) = new_figure(columns=2, width=4.8)
    days = [row for row in rows if row["hours"] == rows[0]["hours"]]
    nodes = [row["nodes"] for row in days]
    axis.loglog(nodes, [row["cpu_s"] for row in days], "o-", label="CPU s")
    axis.loglog(nodes, [row["rss_mib"] for row in days], "s--", label="peak MiB")
    axis.set_xlabel(f"nodes, {rows[0]['hours']:g} h")
    axis.legend(fontsize=8)
    counts = [each.subscriptions for each in scenes]
    times.loglog(counts, [median(e.filtering) for e in scenes], "o-", label="filtering an event")
    times.loglog(counts, [median(e.matching) for e in scenes], "s-", label="node's index")
    for name, style in (("FNIF", "--"), ("break-down", ":")):
        times.loglog(counts, [each.engines[name] for each in scenes], style, label=name)
    times.set_xlabel("subscriptions")
    times.set_ylabel("ms")
    times.legend(fontsize=8)
    save_figure(figure, "field.svg")


_kept: Path | None = None


def main() -> None:
    """Run it."""
    global _kept
    _kept = take_rows()
    run(measure, __doc__)


if __name__ == "__main__":
    main()
