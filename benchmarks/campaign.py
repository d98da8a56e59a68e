"""Trouble by the thousand: seeds of mixed faults on real cores, promises checked after each.

    python -m benchmarks.campaign --seeds 10000 --json

Each seed is a small site with its own people, devices and faults (`edge/field/scenario.py`), played
for nine simulated minutes and held against every promise (`edge/field/checks.py`). Then each safety
rule of a node is switched off (`edge/field/ablations.py`): some seed must notice. A seed that fails
prints the command that replays it and makes it shorter.

Headline: `seeds`, `violations`, `ablations`, `ablations_caught`, `fault_kinds`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.common import describe_machine, format_table, run, save_text, say
from edge.field.ablations import RULES
from edge.field.campaign import HOURS, Outcome, play_seed, play_seeds, tell_replay
from edge.field.scenario import FAULTS

SEEDS = 500
QUICK = 12
_SEARCH = 60  # seeds in which a rule that is switched off must be noticed


def take_seeds() -> int:
    """Take our own option from the command line; the others are common to all benchmarks."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seeds", type=int, default=0)
    found, rest = parser.parse_known_args(sys.argv[1:])
    sys.argv[1:] = rest
    return int(found.seeds)


def play_all(count: int, first: int) -> tuple[list[Outcome], float]:
    """Play so many seeds on all processors; return what became of them, and the seconds."""
    began = time.perf_counter()
    outcomes = []
    for number, outcome in enumerate(play_seeds(range(first, first + count), os.cpu_count() or 1)):
        outcomes.append(outcome)
        if outcome.rule:
            say(f"seed {outcome.seed}: {outcome.what}\n    {tell_replay(outcome)}")
        if number % 100 == 99:
            say(f"{number + 1} seeds, {time.perf_counter() - began:.0f} s")
    return outcomes, time.perf_counter() - began


def find_ablation(rule: str, first: int, limit: int) -> tuple[int, str]:
    """Return the first seed that notices that a rule is off, and what it says; -1 if none does."""
    for seed in range(first, first + limit):
        outcome = play_seed(seed, rule)
        if outcome.rule:
            return seed, outcome.rule
    return -1, ""


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Play seeds, then play without each rule."""
    count = _seeds or (QUICK if options.quick else SEEDS)
    outcomes, seconds = play_all(count, options.seed)
    violations = [outcome for outcome in outcomes if outcome.rule]
    kinds = Counter(kind for outcome in outcomes for kind in outcome.faults)
    names = ["signature", "commit-first", "settled-once"] if options.quick else list(RULES)
    rows = []
    for name in names:
        seed, noticed = find_ablation(name, options.seed, _SEARCH)
        rows.append([name, RULES[name].meaning, noticed or "nobody", seed])
        say(f"without {name}: {noticed or 'nobody notices'}, seed {seed}")
    caught = sum(row[3] != -1 for row in rows)
    table = format_table(["without the rule", "which says", "noticed by", "seed"], rows)
    faults = format_table(["fault", "in seeds"], [[kind, kinds[kind]] for kind in FAULTS])
    hours = HOURS * count / seconds
    text = (
        f"{count} seeds, {len(violations)} violations; {60 * count / seconds:.0f} seeds a minute,"
        f" {hours:.2f} simulated hours a second ({describe_machine()})."
    )
    print(text, table, faults, sep="\n\n")
    if options.save:
        command = f"`python -m benchmarks.campaign --seeds {count} --save`"
        head = f"# Trouble by the thousand\n\n{command}: {text}"
        save_text("campaign.md", f"{head}\n\n{table}\n\n{faults}")
    return {
        "seeds": count,
        "violations": len(violations),
        "ablations": len(rows),
        "ablations_caught": caught,
        "fault_kinds": len([kind for kind in FAULTS if kinds[kind]]),
        "seeds_per_minute": round(60 * count / seconds, 1),
        "simulated_hours_per_second": round(hours, 3),
    }


_seeds = 0


def main() -> None:
    """Run it."""
    global _seeds
    _seeds = take_seeds()
    run(measure, __doc__)


if __name__ == "__main__":
    main()
