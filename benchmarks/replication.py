"""How good replication is: messages over a contact trace, beside the best that any could do.

    python -m benchmarks.replication --trace contacts.txt.xz --messages messages.txt --json

Each strategy carries the same messages over the same contacts, beside the *oracle*, which is the
earliest arrival over these contacts with unlimited bandwidth. The contacts are in the connectivity
format of the ONE simulator (its ConnectivityONEReport writes them from any scenario), the messages
are lines `time id bytes from to minutes`. Paths may also stand in DENWATCH_TRACE and
DENWATCH_MESSAGES; without any, a generated day of walkers is taken, which compares with nothing.

Without a trace in hand the other places are as they are: disaster areas, walkers, sites with a
ferry, a convoy, a chain of villages, a place where hardly anybody meets; with and without limits of
links and nodes; and the rule without each of its parts.

Headline: `delivery_over_oracle`, `median_latency_over_oracle` and `overhead_ratio` of the default
strategy on the trace, where overhead is (relayed - delivered) / delivered and the last hop is a
relay too; `delivery_over_oracle_min` elsewhere.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from denwatch.node.core.peers import PeerSettings
from denwatch.node.replication.strategies import Strategy, build_strategy

from benchmarks.common import format_table, new_figure, run, save_figure, save_text, say
from benchmarks.replication_cores import measure_cores
from benchmarks.replication_scenarios import (
    RADIO,
    WIFI,
    Day,
    Found,
    measure_ablations,
    measure_bounded,
    measure_scenarios,
    replay,
)
from simulator.mobility import find_contacts, walk_randomly
from simulator.oracle import find_arrivals
from simulator.replay import Direct, Replay
from simulator.traces import ContactEvent, Parcel, close_contacts, read_contacts, read_messages
from simulator.workload import Score

HOUR = 3_600_000
# The ONE's own routers on the Helsinki trace: delivered, overhead, median latency in s.
ONE = {
    "direct": (0.5607, 0.0, 4847.5),
    "spray-and-wait, L = 6": (0.9438, 5.19, 1772.4),
    "MaxProp": (0.9794, 100.2, 749.5),
    "epidemic": (0.9794, 124.1, 755.2),
}
HEADER = ["strategy", "delivered", "of oracle", "median s", "of oracle", "p95 s", "overhead"]
ONE_MESSAGES = 1_459  # by which the list is known again


class Work(NamedTuple):
    """What is carried, and over what."""

    contacts: list[ContactEvent]
    parcels: list[Parcel]
    hosts: int
    end: int  # ms
    is_helsinki: bool


def take_paths() -> tuple[str, str]:
    """Take our own options from the command line; the others are common to all benchmarks."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--trace", default=os.environ.get("DENWATCH_TRACE", ""))
    parser.add_argument("--messages", default=os.environ.get("DENWATCH_MESSAGES", ""))
    found, rest = parser.parse_known_args(sys.argv[1:])
    sys.argv[1:] = rest
    return found.trace, found.messages


def load_work(trace: str, messages: str, is_quick: bool, seed: int) -> Work:
    """Return the trace and the messages, or generated ones."""
    if not trace or not messages:
        say("no trace: generated contacts of 60 walkers; --trace and --messages name real ones")
        end = 2 * HOUR
        rng = Random(seed)
        contacts = find_contacts(walk_randomly(60, end, rng), end, 60.0, 2_000)
        parcels = []
        for number in range(200):
            source, target = rng.sample(range(60), 2)
            parcels.append(Parcel(end * number // 200, f"M{number}", 500, source, target, HOUR))
        return Work(contacts, parcels, 60, end, False)
    contacts, parcels = read_contacts(Path(trace)), read_messages(Path(messages))
    hosts = 1 + max(max(event.first, event.second) for event in contacts)
    end = contacts[-1].time + 1
    is_whole = len(parcels) == ONE_MESSAGES and hosts == 126
    if is_quick:
        end = min(end, 2 * HOUR)
        parcels = [parcel for parcel in parcels if parcel.time < end]
        is_whole = False
    return Work(close_contacts(contacts, end), parcels, hosts, end, is_whole)


def list_strategies() -> dict[str, tuple[Strategy, bool]]:
    """Return the strategies by name, and whether marks of delivery are spread with them."""
    default = PeerSettings().strategy
    return {
        "direct": (Direct(), False),
        "spray-and-wait, L = 6": (build_strategy("spray:6"), False),
        "epidemic": (build_strategy("epidemic"), True),
        f"{default} (default)": (build_strategy(default), True),
    }


def describe(name: str, score: Score, oracle: Score) -> list[object]:
    """Return one row of the table."""
    return [
        name,
        f"{score.delivery:.4f}",
        f"{score.delivery / oracle.delivery:.3f}",
        f"{score.find_latency(0.5):.0f}",
        f"{score.find_latency(0.5) / oracle.find_latency(0.5):.2f}",
        f"{score.find_latency(0.95):.0f}",
        f"{score.overhead:.2f}" if score is not oracle else "none",
        f"{score.payload / 1e6:.1f}" if score is not oracle else "none",
    ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run every strategy; return the headline of the default one."""
    work = load_work(*_paths, options.quick, options.seed)
    oracle = Score(len(work.parcels))
    oracle.latencies = find_arrivals(work.contacts, work.parcels, work.end)
    scores: dict[str, Score] = {}
    rows = []
    for name, (strategy, has_marks) in list_strategies().items():
        began = time.perf_counter()
        replay = Replay(strategy, work.parcels, work.hosts, has_marks=has_marks)
        scores[name] = replay.run(work.contacts)
        rows.append(describe(name, scores[name], oracle))
        say(f"{name}: {time.perf_counter() - began:.1f} s")
    rows.append(describe("oracle", oracle, oracle))
    table = format_table([*HEADER, "MB of messages"], rows)
    print(table)
    trace = Day(work.hosts, work.contacts, work.parcels, work.end, oracle)
    lists = "" if options.quick or not work.is_helsinki else measure_lists(trace)
    parts = {
        "lists": Found(lists, {}),
        "elsewhere": measure_scenarios(options.quick),
        "bounded": measure_bounded(options.quick),
        "ablations": Found("", {}) if options.quick else measure_ablations(trace),
        "cores": measure_cores(trace, options.quick),
    }
    for part in parts.values():
        print(part.text)
    if options.save:
        save(work, table, {name: part.text for name, part in parts.items()}, scores, oracle)
    (ours,) = [score for name, score in scores.items() if "default" in name]
    result = {
        "delivery_over_oracle": round(ours.delivery / oracle.delivery, 4),
        "overhead_ratio": round(ours.overhead, 2),
        "median_latency_over_oracle": round(ours.find_latency(0.5) / oracle.find_latency(0.5), 3),
        "oracle_delivery": round(oracle.delivery, 4),
        "oracle_median_s": round(oracle.find_latency(0.5), 1),
        "hosts": work.hosts,
        "messages": len(work.parcels),
        "trace": "helsinki" if work.is_helsinki else "other",
    }
    for part in parts.values():
        result |= part.keys
    return result


def measure_lists(trace: Day) -> str:
    """Return what the default does with other messages over the same contacts."""
    rows = []
    for seed in (1, 3):
        rng, moment, parcels = Random(seed), 0, []
        while moment < trace.end:
            source, target = rng.sample(range(trace.hosts), 2)
            parcels.append(Parcel(moment, f"M{len(parcels)}", 500, source, target, 5 * HOUR))
            moment += rng.randrange(25_000, 35_000)
        oracle = Score(len(parcels))
        oracle.latencies = find_arrivals(trace.contacts, parcels, trace.end)
        day = Day(trace.hosts, trace.contacts, parcels, trace.end, oracle)
        score = replay(day, build_strategy(PeerSettings().strategy))
        rows.append(describe(f"list of seed {seed}", score, oracle))
        say(f"messages of seed {seed}")
    return format_table([*HEADER, "MB of messages"], rows)


def save(
    work: Work, table: str, parts: dict[str, str], scores: dict[str, Score], oracle: Score
) -> None:
    """Write the committed results."""
    known = ONE if work.is_helsinki else {}
    rows = [[name, f"{v[0]:.4f}", f"{v[1]:.2f}", f"{v[2]:.0f}"] for name, v in known.items()]
    others = format_table(["router of the ONE", "delivered", "overhead", "median s"], rows)
    text = "\n".join(
        [
            "# Replication over contacts",
            "",
            "Sites of more than 64 nodes use `utility` by default, smaller ones flood. The rule,"
            " and why it is enough, stand at the head of"
            " [strategies.py](../../edge/denwatch/node/replication/strategies.py)."
            " `python -m benchmarks.replication --trace … --messages … --save`.",
            "",
            "## A city",
            "",
            f"{work.hosts} hosts, {work.end / HOUR:.0f} hours, {len(work.parcels)} messages; the"
            " nodes' own strategies, replayed without delays or limits of links:",
            "",
            table,
            "",
            "The ONE simulator's routers on the same contacts and messages (5 MB buffers):",
            "",
            others,
            "",
            "Our epidemic costs less than the ONE's: receipts stop copies on their way. What is not"
            " delivered was mostly made shortly before the end. This list was looked at while"
            " constants were chosen; the default with other lists of messages, on which none was:",
            "",
            parts["lists"],
            "",
            "## Elsewhere",
            "",
            "Generated days; messages begin in the first half and live for half of the day."
            " Constants were chosen on days of even seeds, and these are odd:",
            "",
            parts["elsewhere"],
            "",
            "## Slow links, small nodes",
            "",
            f"Wi-Fi is {WIFI.rate / 1000:.0f} kB/s and {WIFI.room / 1e6:.0f} MB a node, the slow"
            f" radio {RADIO.rate} bytes/s and {RADIO.room // 1000} kB. What nodes tell each other"
            " of ways is charged, too. This oracle knows all contacts and reserves room for one"
            " copy of each message, in the order of their birth:",
            "",
            parts["bounded"],
            "",
            "Where hardly anybody meets, nobody knows which copy will matter: on a slow radio both"
            " we and flooding fill the few contacts with the wrong ones.",
            "",
            "## What each part is worth",
            "",
            "Delivered of the oracle's / overhead, with one part of the rule switched off:",
            "",
            parts["ablations"],
            "",
            "## Real cores",
            "",
            "The same through real node cores, with every frame, signature and commit:",
            "",
            parts["cores"],
            "",
            "![latency](replication.svg)",
        ]
    )
    save_text("replication.md", text)
    figure, axis = new_figure()
    for name, score in {**scores, "oracle": oracle}.items():
        ordered = sorted(latency / 1000 for latency in score.latencies.values())
        share = [(number + 1) / score.made for number in range(len(ordered))]
        style = "--" if name == "oracle" else "-"
        axis.plot(ordered, share, style, label=name, color="black" if name == "oracle" else None)
    axis.set_xscale("log")
    axis.set_xlabel("seconds after it was made")
    axis.set_ylabel("messages delivered")
    axis.set_xlim(10, 20_000)
    axis.legend(fontsize=8)
    save_figure(figure, "replication.svg")


_paths = ("", "")


def main() -> None:
    """Run it."""
    global _paths
    _paths = take_paths()
    run(measure, __doc__)


if __name__ == "__main__":
    main()
