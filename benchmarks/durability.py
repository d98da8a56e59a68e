"""What is acknowledged is kept, and handled once: `kill -9` under load, and every commit point.

Real processes: a `denwatch node` with its own MQTT server and SQLite, devices and people that
stream, and an app with the subscriber library; node and app are killed at random moments and
started again, some hundreds of times. The same rounds with Mosquitto in the node's place, for plain
QoS 1 messages to a persistent session, which both have. Then, in one process, the node's store
fails before and after each of its operations.

    python -m benchmarks.durability [--json] [--quick] [--save] [--seed N] [--rounds N]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import describe_machine, format_table, run, save_text, say
from benchmarks.durability_points import Point, count_faults, list_points, try_points
from benchmarks.durability_stand import Verdict, make_mosquitto_stand, make_node_stand
from benchmarks.durability_world import make_plan
from simulator.site import find_mosquitto

ROUNDS, QUICK_ROUNDS = 200, 6
STANDS = 3  # nodes that are killed at the same time
QUICK_STEP = 25  # every so many commit points, in a quick run
BROKERS = {
    "Mosquitto, default": [],
    "Mosquitto, autosave on change": ["autosave_interval 1", "autosave_on_changes true"],
}
_HEADER = (
    "server",
    "kills of server",
    "kills of app",
    "what",
    "acknowledged",
    "lost",
    "share lost",
)


def main() -> None:
    """Take our own option, and leave the others to all benchmarks."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rounds", type=int, default=0)
    ours, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    run(lambda options: measure(options, ours.rounds), __doc__)


def measure(options: argparse.Namespace, rounds: int) -> dict[str, Any]:
    """Run everything, print the table, and return the headline figures."""
    rounds = rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    say(f"seed {options.seed}, {rounds} rounds")
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="denwatch-durability-"))
    say(f"stores and logs are in {folder} until the end")
    # First, because it also has numba compile, and keep, what every node needs at its start.
    points, found = run_points(folder / "points", QUICK_STEP if options.quick else 1)
    nodes, brokers = run_stands(folder, rounds, options.seed)
    shutil.rmtree(folder)  # not after an error: they say why
    table = format_verdicts([merge(nodes), *brokers])
    print(table)
    for verdict in (*nodes, *brokers):
        for example in verdict.examples:
            say("lost,", example)
    for point, faults in found.items():
        say(point, faults)
    result = summarise(merge(nodes), brokers, points, found)
    result["seed"] = options.seed
    result["seconds"] = round(time.monotonic() - started, 1)
    if options.save:
        save_text("durability.md", write_page(table, merge(nodes), brokers, result, rounds))
    return result


def run_stands(folder: Path, rounds: int, seed: int) -> tuple[list[Verdict], list[Verdict]]:
    """Run all stands at the same time; return the verdicts of nodes and of brokers."""
    shares = [rounds // STANDS + (number < rounds % STANDS) for number in range(STANDS)]
    # Made one after the other: making a site captures what is printed.
    stands = [
        (make_node_stand("denwatch", folder / f"node-{number}", f"{seed}-node-{number}"), share)
        for number, share in enumerate(shares)
        if share
    ]
    works: list[Callable[[], Verdict]] = [
        (lambda stand=stand, share=share: stand.run(share))  # type: ignore[misc]
        for stand, share in stands
    ]
    for number, (name, settings) in enumerate(BROKERS.items()):
        place = folder / f"broker-{number}"
        broker = make_mosquitto_stand(name, place, f"{seed}-broker", settings)
        works.append(lambda broker=broker: broker.run(rounds))  # type: ignore[misc]
    with ThreadPoolExecutor(len(works)) as pool:
        found = [future.result() for future in [pool.submit(work) for work in works]]
    return found[: len(stands)], found[len(stands) :]


def run_points(folder: Path, step: int) -> tuple[int, dict[Point, list[str]]]:
    """Try commit points; return how many, and what went wrong at which."""
    folder.mkdir()
    plan = make_plan(folder)
    points = list_points(plan)[::step]
    say(f"{len(points)} commit points")
    return len(points), try_points(plan, points)


def merge(verdicts: list[Verdict]) -> Verdict:
    """Return the sum of stands of the same kind."""
    total = Verdict(verdicts[0].name)
    for verdict in verdicts:
        total.kills += verdict.kills
        total.acknowledged += verdict.acknowledged
        total.lost += verdict.lost
        total.twice += verdict.twice
        total.again += verdict.again
        total.log_records += verdict.log_records
        total.log_faults += verdict.log_faults
        total.seconds = max(total.seconds, verdict.seconds)
        total.examples += verdict.examples
    return total


def summarise(
    node: Verdict, brokers: list[Verdict], points: int, found: dict[Point, list[str]]
) -> dict[str, Any]:
    """Return the headline figures."""
    default, careful = brokers
    stuck = count_faults(found, "stuck") + count_faults(found, "log")
    return {
        "kills": node.kills.total(),
        "node_kills": node.kills["server"],
        "client_kills": node.kills["app"],
        "acked": node.acknowledged.total(),
        "acked_lost": node.lost.total() + count_faults(found, "lost"),
        "delivered_twice": node.twice + count_faults(found, "twice"),
        "log_records": node.log_records,
        "log_faults": node.log_faults + stuck,
        "cut_points": points,
        "cut_points_failed": len(found),
        "mosquitto_kills": default.kills.total(),
        "mosquitto_acked": default.acknowledged.total(),
        "mosquitto_acked_lost": default.lost.total(),
        "mosquitto_autosave_kills": careful.kills.total(),
        "mosquitto_autosave_acked": careful.acknowledged.total(),
        "mosquitto_autosave_acked_lost": careful.lost.total(),
    }


def format_verdicts(verdicts: list[Verdict]) -> str:
    """Return the table: a line for each server and each kind of thing that it acknowledged."""
    rows = []
    for verdict in verdicts:
        for what, count in sorted(verdict.acknowledged.items()):
            lost = verdict.lost[what]
            share = f"{100 * lost / count:.2f} %" if count else "-"
            kills = verdict.kills
            rows.append(
                (verdict.name, kills["server"], kills["app"], what, count, lost, share),
            )
    return format_table(_HEADER, rows)


def write_page(
    table: str, node: Verdict, brokers: list[Verdict], result: dict[str, Any], rounds: int
) -> str:
    """Return the page of results."""
    version = subprocess.run(
        [find_mosquitto(), "-h"], capture_output=True, text=True, check=False
    ).stdout.splitlines()[0]
    again = Counter({verdict.name: verdict.again for verdict in (node, *brokers)})
    repeated = ", ".join(f"{name} {count}" for name, count in again.items())
    return f"""# Durability: `kill -9` under load

`python -m benchmarks.durability --save --seed {result["seed"]} --rounds {rounds}`, \
{describe_machine()}, {version}; {result["seconds"]:.0f} s.

{table}

Handled twice by the app through the subscriber library: **{result["delivered_twice"]}**. \
Log records of the nodes over all their lives: {result["log_records"]:,}; gaps, repetitions or \
damages: {result["log_faults"]}.

Commit points, in one process, with a death (or a full, or failing disk) before and after each \
operation of the store: {result["cut_points"]} tried, {result["cut_points_failed"]} with something \
lost, repeated or stuck.

## What was done

Three nodes at a time, each with three devices that send sealed notification frames, a planner who
subscribes and unsubscribes, a plain MQTT publisher, and an app; {rounds} rounds in all. In each
round everybody is first acknowledged something; up to 0.4 s later the node, the app or both get
SIGKILL and are started again. One round in ten also kills the node while it starts. What counts as
acknowledged is known to senders that are never killed:

- *notifications*: the node's acknowledgement frame, or the PUBACK of the frame. There: in a table
  of the app, written in the transaction that the library lends to its handler.
- *subscriptions*: answered `ok`, also their ends, and those of the app itself. There: in the node's
  own list, in the end.
- *messages*: plain QoS 1, PUBACK received. There: in a file that a receiver with a persistent
  session writes before it acknowledges. This line is the comparison: Mosquitto had the same
  harness, the same number of rounds, and `persistence true` (its own default is to keep nothing).

## Where Mosquitto loses

By default it saves its state every 30 minutes (mosquitto.conf(5)), so a kill takes the sessions,
what waited for them, and what is published before a receiver has subscribed anew. With
`autosave_on_changes true` and `autosave_interval 1`, the smallest there is, it saves whenever more
than one thing has changed. What is lost even then was not traced; a PUBACK that leaves before its
message is saved would explain it. `max_queued_messages 0` took away its bound on queues, so nothing
was lost for lack of room. Plain messages came again, which QoS 1 allows: {repeated}.

## What this does not show

SIGKILL leaves what the kernel was given; it does not cut the power. That a commit is on the disk
rests on SQLite's `synchronous=FULL` and on the disk. How much Mosquitto loses depends on how long
its receiver is away and how fast messages come; that it loses does not.
"""


if __name__ == "__main__":
    main()
