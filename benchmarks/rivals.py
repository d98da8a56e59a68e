"""What people would take instead, in one run with ours: eKuiper, Mosquitto alone, the A-Tree crate.

The same readings and the same crisp rules: at a node, as eKuiper's SQL on the readings of a
Mosquitto, and relayed by Mosquitto without rules; the same crisp conjunctions in A-Tree and in our
matchers with and without `denwatch[fast]`; a day of patients, and the bytes that leave their beds.
Rounds alternate, figures are medians, ratios are of one round each, and answers are compared.

A rival that cannot be had is named with the reason, and its figures are absent. eKuiper and A-Tree
are built by a run without --quick, into `.cache/rivals`.

Headline: `over_ekuiper`, readings a second of processor time at the node over those of eKuiper with
its broker, both with most rules and a reading a message; `over_a_tree`, A-Tree's time an event over
that of our compiled index with most rules. Below 1 the rival is faster.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from denwatch.client.vocabulary import load_shipped
from denwatch.watchdog.sources import Callback

from benchmarks.air import make_event, play, run_device
from benchmarks.air_patients import SIGNS, draw_patient
from benchmarks.common import describe_machine, format_table, median, run, save_text, say
from benchmarks.node_client import write_publish
from benchmarks.rivals_builds import A_TREE, EKUIPER, Missing, find_a_tree, find_ekuiper
from benchmarks.rivals_site import (
    BATCH,
    MARK,
    NAMES,
    SiteRun,
    compare_servers,
    draw_site_work,
    encode_rule,
    write_json,
)
from benchmarks.rivals_tree import CRISP, Rule, TreeRun, compare_matchers, draw_tree_work
from simulator.site import SiteError, find_mosquitto

_FULL = {"rules": (10, 100, 1_000), "readings": 600, "tree": (1_000, 10_000)}
_QUICK = {"rules": (10, 100), "readings": 500, "tree": (1_000,)}
_TREE_EVENTS, _ROUNDS = 200, 3
_QUICK_EVENTS, _QUICK_ROUNDS = 50, 1
_PATIENTS = 20
_ILL = 4  # of them
_PACKET = 2  # a PUBLISH's packet id
_WANTS: tuple[Rule, ...] = (  # in steps: 0.1 °C from 25 °C, 1 bpm, 0.25 a minute
    ((0, 140, 255),),  # at least 39 °C
    ((0, 0, 95),),  # at most 34.5 °C
    ((1, 140, 255),),
    ((1, 0, 45),),
    ((2, 112, 255),),  # at least 28 a minute
    ((2, 0, 32),),
    ((0, 130, 255), (1, 115, 255)),  # 38 °C and 115 bpm
    ((1, 110, 255), (2, 88, 255)),
    ((0, 130, 255), (2, 88, 255)),
    ((0, 125, 255), (1, 105, 255), (2, 80, 255)),
)
_LABELS = {
    "node": "denwatch, a reading a message",
    "node_batch": f"denwatch, {BATCH} readings a message",
    "ekuiper": f"eKuiper {EKUIPER} (with Mosquitto)",
    "mosquitto": "Mosquitto alone: everything relayed, no rules",
    "index": "denwatch[fast]",
    "columns": "denwatch without [fast]",
    "a_tree": f"A-Tree {A_TREE}",
}
Found = TypeVar("Found")
Sites = dict[int, dict[str, SiteRun]]
Trees = dict[int, dict[str, TreeRun]]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything and return the headline figures."""
    sizes: dict[str, Any] = _QUICK if options.quick else _FULL
    rounds = _QUICK_ROUNDS if options.quick else _ROUNDS
    missing: dict[str, str] = {}
    ekuiper = _try("ekuiper", lambda: find_ekuiper(not options.quick), missing)
    a_tree = _try("a_tree", lambda: find_a_tree(not options.quick), missing)
    sites: Sites = {}
    if _try("mosquitto", find_mosquitto, missing) is None:
        missing["ekuiper"] = "its readings come from Mosquitto"
    else:
        for rules in sizes["rules"]:
            say(f"  {rules:,} rules at the servers")
            work = draw_site_work(options.seed, rules, sizes["readings"])
            with tempfile.TemporaryDirectory(prefix="denwatch-rivals-") as name:
                sites[rules] = compare_servers(work, Path(name), rounds, ekuiper)
    trees: Trees = {}
    for rules in sizes["tree"]:
        say(f"  {rules:,} rules in the matchers")
        events = _QUICK_EVENTS if options.quick else _TREE_EVENTS
        with tempfile.TemporaryDirectory(prefix="denwatch-rivals-") as name:
            drawn = draw_tree_work(options.seed, rules, events)
            trees[rules] = compare_matchers(drawn, Path(name), rounds, a_tree)
    air = measure_air(4 if options.quick else _PATIENTS, options.seed)
    result = summarise(sites, trees, air, missing)
    report = write_report(sites, trees, air, result, sizes["readings"], rounds)
    say(report)
    if options.save:
        save_text("rivals.md", report)
    return result


def _try(name: str, find: Callable[[], Found], missing: dict[str, str]) -> Found | None:
    """Return a rival, or None with the reason in `missing`."""
    try:
        return find()
    except (Missing, SiteError) as error:
        say(f"  without {name}: {error}")
        missing[name] = str(error)
        return None


def measure_air(patients: int, seed: int) -> dict[str, int]:
    """Return bytes and messages of a day that leave the beds, for the wants in `_WANTS`.

    Each message is counted as its whole MQTT packet. eKuiper and Mosquitto are at the site, so
    every reading goes to them; `filtered` is what the wanted ones would take as JSON, if each bed
    had a Linux with eKuiper.
    """
    event_name = "patient"
    vectors = [encode_rule(rule, handle) for handle, rule in enumerate(_WANTS)]
    vocabulary = load_shipped("rescue")
    found = dict.fromkeys(("readings", "sent", "every", "filtered", "ours", "missed"), 0)
    for number in range(patients):
        rng = Random(seed * 1000 + number)
        every = list(draw_patient(rng, number % (patients // _ILL) == 0))
        signs = [row[: len(NAMES)] for row in every]
        sensed = list(SIGNS)[: len(NAMES)]
        event = make_event(vocabulary, event_name, sensed, Callback(play(signs)))
        row = run_device(event, vectors, len(signs))
        bed = f"bed-{number}"
        plain = [_measure_packet(f"readings/{bed}", len(write_json(_round(r)))) for r in signs]
        head = _measure_packet(f"dens/1/wd/{bed}/nv", 0)
        found["readings"] += row["readings"]
        found["sent"] += row["sent"]
        found["missed"] += row["missed"]
        found["every"] += sum(plain)
        found["filtered"] += sum(plain) * row["wanted"] // row["readings"]
        found["ours"] += row["sent bytes"] + row["sent"] * head
        found["ours"] += row["install bytes"] + _measure_packet(f"dens/1/wd/{bed}/sv", 0)
    return found


def _round(values: Sequence[float]) -> list[float]:
    return [round(value, 1) for value in values]


def _measure_packet(topic: str, size: int) -> int:
    """Return the bytes of a PUBLISH with QoS 1 and a payload of this size."""
    head, payload = write_publish(topic, bytes(size))
    return len(head) + _PACKET + len(payload)


def summarise(
    sites: Sites, trees: Trees, air: dict[str, int], missing: dict[str, str]
) -> dict[str, Any]:
    """Return the figures of `--json`; those of a missing rival are absent."""
    result: dict[str, Any] = {}
    for rules, runs in sites.items():
        for name, each in runs.items():
            result[f"{name}_readings_per_cpu_s_{rules}"] = median(each.cpu_rates)
            result[f"{name}_readings_per_s_{rules}"] = median(each.rates)
            result[f"{name}_mb_{rules}"] = each.memory_mb
        if "ekuiper" in runs:
            for way, words in (("node", ""), ("node_batch", "_batch")):
                ours, theirs = runs[way], runs["ekuiper"]
                result[f"over_ekuiper{words}_{rules}"] = _divide(ours.cpu_rates, theirs.cpu_rates)
                result[f"over_ekuiper{words}_clock_{rules}"] = _divide(ours.rates, theirs.rates)
    for rules, found in trees.items():
        for name, tree in found.items():
            result[f"{name}_us_{rules}"] = tree.us
            result[f"{name}_bytes_per_rule_{rules}"] = tree.grown / rules
        for name, words in (("index", ""), ("columns", "_without_fast")):
            if "a_tree" in found and name in found:
                over = _divide(found["a_tree"].seconds, found[name].seconds)
                result[f"over_a_tree{words}_{rules}"] = over
    heads = [("over_ekuiper", list(sites)), ("over_a_tree", list(trees))]
    for name, counts in heads:
        if counts and f"{name}_{counts[-1]}" in result:
            result[name] = result[f"{name}_{counts[-1]}"]
    result |= {f"air_{name}": value for name, value in air.items()}
    result["air_over_everything"] = air["ours"] / air["every"]
    result |= {f"missing_{name}": why for name, why in missing.items()}
    return result


def _divide(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the median of the ratios of the rounds."""
    return median([a / b for a, b in zip(one, other, strict=True)])


def write_report(
    sites: Sites,
    trees: Trees,
    air: dict[str, int],
    result: dict[str, Any],
    readings: int,
    rounds: int,
) -> str:
    """Return the page of results."""
    servers, memories = [], []
    for rules, runs in sites.items():
        for name, each in runs.items():
            per_cpu, per_s = median(each.cpu_rates), median(each.rates)
            pairs = "" if name == "mosquitto" else f"{rules * per_cpu:,.0f}"
            servers.append((f"{rules:,}", _LABELS[name], f"{per_cpu:,.0f}", pairs, f"{per_s:,.0f}"))
            if name != "node_batch":
                memories.append((f"{rules:,}", _LABELS[name], round(each.memory_mb, 1)))
    matchers = [
        (f"{rules:,}", _LABELS[name], tree.us, f"{1e6 * rules / tree.us:,.0f}", tree.grown / rules)
        for rules, found in trees.items()
        for name, tree in found.items()
    ]
    counts = [found["columns"] for found in trees.values()]
    hits = ", ".join(f"{each.matches / len(each.answers):,.1f}" for each in counts)
    ratios = [(name, value) for name, value in result.items() if name.startswith("over_")]
    missing = [(key[8:], why) for key, why in result.items() if key.startswith("missing_")]
    first = format_table(("figure", "ratio"), ratios) if ratios else "No rival was there."
    notes = "".join(f"\n- **{name}** is missing: {why}." for name, why in missing)
    servers_head = ("rules", "", "readings/s of processor", "rules x readings/s", "readings/s")
    matchers_head = ("rules", "", "µs an event", "rules x events/s", "bytes a rule")
    ways = (
        ("Mosquitto, or eKuiper at the site: every reading as JSON", *_share(air, "every")),
        ("eKuiper at the bed, on a Linux there: wanted ones as JSON", *_share(air, "filtered")),
        ("denwatch, filtered on the device", *_share(air, "ours")),
    )
    return f"""# What people would take instead

Ratios are medians of the ratios within a round; above 1, ours is faster.

{first}
{notes}

## Rules at a site: eKuiper, Mosquitto

{readings:,} readings of three attributes, {rounds} rounds in turns after one that is not counted.
Rules are crisp conjunctions of two or three ranges, each of which one reading in 1,000 matches, and
one that every {MARK}th does. Everybody's matches were counted, and are as many as numpy finds. The
machine had other work, so the rate is that of the server's processor time, eKuiper's with its
broker's; readings a second by the clock stand beside (`clock` above).

{format_table(servers_head, servers)}

{format_table(("rules", "", "memory of the process, MB"), memories)}

- They do not promise the same. The node checks each device's tag, writes to the disk before it
  acknowledges, and says why a reading matches; eKuiper and Mosquitto keep all in memory here.
  eKuiper can aggregate over windows, join and call functions, which these rules do not use.
- eKuiper is in its fastest form: a shared stream, one connection for all rules, the core edition.
  It sends a message for every rule that matches, the node one for each reading.
- Where rules are few, eKuiper is the faster one and takes less memory: it does less for a reading.
  Processor time is counted in ticks of 10 ms, so Mosquitto's figures are rough.

## Matching alone: A-Tree

{CRISP.attributes} attributes, crisp conjunctions of one to four; events have all attributes and
match {hits} rules. Loading and making events are not counted; each
matcher is a process of its own, its memory is what it grew by while it loaded the rules. All found
the same matches.

{format_table(matchers_head, matchers)}

- A-Tree takes any Boolean expression, with *or* and *not* at any depth, and strings; it shares
  parts that expressions have in common, of which these have few.
- Times are by the clock of a machine with other work: only their ratios say something.

## Bytes on the air

A day of generated patients, {air["readings"]:,} readings of three attributes, ten crisp wants.
Bytes of whole MQTT packets with QoS 1; the subscriptions that go to the beds are counted.

{format_table(("", "messages", "bytes", "of all"), ways)}

Wanted readings that a device held back: {air["missed"]}.

- {describe_machine()}.
"""


def _share(air: dict[str, int], name: str) -> tuple[str, str, str]:
    count = air["readings"] if name == "every" else air["sent"]
    return f"{count:,}", f"{air[name]:,}", f"{100 * air[name] / air['every']:.1f} %"


def main() -> None:
    """Run the benchmark."""
    run(measure, __doc__)


if __name__ == "__main__":
    main()
