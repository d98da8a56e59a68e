"""Trouble by the thousand: seeds of mixed faults on real cores, promises checked after each.

    python -m benchmarks.campaign --seeds 10000 --json

Each seed is a small site with its own people, devices and faults (`simulator/scenario.py`), played
for minutes of simulated time and held against every promise (`simulator/checks.py`). Then each
safety rule of a node is switched off (`simulator/ablations.py`): some seed must notice. A seed
that fails is printed with the command that replays it, the first ones with the shortest schedule
that was found to fail alike. `--resume FILE` keeps what
became of each seed in a file, and plays only what is not there yet, as long as the program is the
same.

Known defects (`simulator/known_defects.py`) are counted apart. One that does not show any more in
its own scenario is a violation, until it is removed from the list.

Headline: `seeds`, `violations`, `ablations`, `ablations_caught`, `fault_kinds`,
`known_defects_found`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.campaign_journal import Journal, hash_program
from benchmarks.common import describe_machine, format_table, run, save_text, say
from simulator.campaign import (
    Catch,
    Outcome,
    catch_rules,
    describe_failure,
    find_scenario,
    find_stale,
    play_seeds,
    tell_replay,
)
from simulator.registry import DEFECTS, RULES, list_checks, list_faults
from simulator.whole_scenarios import BOTH_STORES, WHOLE

SEEDS = 1_000
QUICK = 60
# What the world with whole nodes, uncertain readings and generated lies saw in the program as it
# was before any of it was mended: the defect, the check, the first seed, how many that takes. A
# focused run draws the faults named alone; then it is the share of seeds that show it.
_SEEN = (
    ("uncertain readings lost to covering", "held-back", "357", "358"),
    ("a content subscription that starves although it was accepted", "held-back", "13", "14"),
    ('a node stopped by `{"list": true, "request": "\\ud800"}`', "unstopped", "broken clients",
     "19 of 40 show it"),
    ('a node stopped by a signed subscription with `{"prefer": 5}`', "unstopped",
     "`lying-items 93 15572`", "1, focused"),
    ("a user of another node taken over by a higher version", "own-voice",
     "`lying-registrations 1 1`", "1, focused"),
    ("a person silenced by receipts for dots that do not exist yet", "unsilenced",
     "lying receipts", "9 of 40 show it"),
    ("subscriptions of others called dead", "unsilenced", "lying deaths", "12 of 40 show it"),
    ("a top-k that starts anew when the person walks", "top-k-anywhere", "221", "222"),
    ("a device listed as present after it was killed", "present", "6", "7"),
    ("a device listed as present after it disconnected in order", "present", "52", "53"),
    ("a node that does not come back from a full disk", "back", "full disks", "15 of 16 show it"),
    ("a node that does not come back from too many files", "back", "few files",
     "14 of 16 show it"),
    ("an erased device that passes for its old self", "held-back", "38", "39"),
    ("a number of a reading used again after an erasure", "arrived", "302", "303"),
)  # fmt: skip
_SHORTENED = 3  # failing seeds for which a short schedule is looked for at once
_SEARCH = 400  # seeds in which a rule that is switched off must be noticed
_BAR = 30
_EVERY = 100  # seeds between two lines where nobody looks at a bar


def take_options() -> argparse.Namespace:
    """Take our own options from the command line; the others are common to all benchmarks."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--resume", type=Path, default=None)
    found, rest = parser.parse_known_args(sys.argv[1:])
    sys.argv[1:] = rest
    return found


def show_progress(done: int, count: int, failed: int, seconds: float) -> None:
    """Show how far it is: as a bar where somebody looks, else as a line now and then."""
    text = f"{done} of {count} seeds, {failed} violations, {seconds:.0f} s"
    if sys.stderr.isatty():
        length = _BAR * done // count
        end = "\n" if done == count else ""
        bar = "#" * length + "." * (_BAR - length)
        print(f"\r[{bar}] {text}", end=end, file=sys.stderr, flush=True)
    elif done % _EVERY == 0 or done == count:
        say(text)


def play_all(seeds: range, journal: Journal) -> Iterator[Outcome]:
    """Yield what becomes of all seeds, in their order; what the journal has is not played again."""
    missing = [seed for seed in seeds if seed not in journal.outcomes]
    played = play_seeds(missing, os.cpu_count() or 1)
    last = time.perf_counter()
    for seed in seeds:
        known = journal.outcomes.get(seed)
        if known is None:
            known = next(played)
            last, before = time.perf_counter(), last
            journal.keep(known, last - before)
        yield known


def run_campaign(seeds: range, journal: Journal) -> list[Outcome]:
    """Play seeds on all processors; return what became of them."""
    outcomes: list[Outcome] = []
    failed, seconds = 0, 0.0
    for outcome in play_all(seeds, journal):
        outcomes.append(outcome)
        seconds += journal.spent[outcome.seed]
        if outcome.rule:
            failed += 1
            if failed <= _SHORTENED:
                say(f"\n{describe_failure(outcome)}")
            else:
                say(f"\nseed {outcome.seed}: {outcome.what}\n    {tell_replay(outcome)}")
        show_progress(len(outcomes), len(seeds), failed, seconds)
    return outcomes


def run_ablations(rules: list[str], first: int, journal: Journal) -> list[Catch]:
    """Play without each rule; return who noticed."""
    missing = [rule for rule in rules if rule not in journal.catches]
    for catch in catch_rules(missing, range(first, first + _SEARCH), os.cpu_count() or 1):
        journal.keep_catch(catch)
        say(f"without {catch.rule}: {', '.join(catch.broken) or 'nobody notices'} ({catch.seed})")
    return [journal.catches[rule] for rule in rules]


def describe_catches(catches: list[Catch]) -> str:
    """Return the table of rules that were switched off."""
    rows = [
        [each.rule, RULES[each.rule].meaning, ", ".join(each.broken) or "nobody", each.seed]
        for each in catches
    ]
    return format_table(["without the rule", "which says", "broken then", "first seed"], rows)


def describe_defects(outcomes: list[Outcome], stale: list[str]) -> str:
    """Return the table of known defects: who notices each, and after how many seeds."""
    rows = []
    for name, defect in DEFECTS.items():
        showing = [place for place, outcome in enumerate(outcomes) if name in outcome.known]
        first = outcomes[showing[0]].seed if showing else "-"
        needed = showing[0] + 1 if showing else "not found"
        meaning = f"{defect.meaning} (mended: remove it)" if name in stale else defect.meaning
        rows.append([name, meaning, defect.check, first, needed, len(showing)])
    header = ["known defect", "which is", "noticed by", "first seed", "seeds needed", "in seeds"]
    return format_table(header, rows)


def describe_seen() -> str:
    """Return what was seen before anything was mended."""
    text = (
        "What this world saw in the program as it was before, none of it mended (seeds 0 to 759,"
        " and runs of 16 to 40 seeds with the faults named alone):"
    )
    return f"{text}\n\n" + format_table(["defect", "noticed by", "seed", "seeds needed"], _SEEN)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Play seeds, then play without each rule."""
    count = _own.seeds or (QUICK if options.quick else SEEDS)
    seeds = range(options.seed, options.seed + count)
    names = ["commit-first", "settled-once", "top-k"] if options.quick else list(RULES)
    with Journal(_own.resume) as journal:
        outcomes = run_campaign(seeds, journal)
        catches = run_ablations(names, options.seed, journal)
    stale = find_stale()
    for name in stale:
        say(f"{name} does not show any more: remove it from simulator/known_defects.py")
    seconds = sum(journal.spent[seed] for seed in seeds)
    violations = [outcome for outcome in outcomes if outcome.rule]
    kinds = Counter(kind for outcome in outcomes for kind in outcome.faults)
    caught = sum(bool(catch.broken) for catch in catches)
    broken = {promise for catch in catches for promise in catch.broken}
    found = {name for outcome in outcomes for name in outcome.known}
    on_sqlite = sum(find_scenario(seed).dial(WHOLE) == BOTH_STORES for seed in seeds)
    simulated = sum(outcome.hours for outcome in outcomes)
    cpu = sum(outcome.cpu for outcome in outcomes)
    text = (
        f"{count} seeds, {len(violations) + len(stale)} violations;"
        f" {simulated:.0f} simulated hours, in"
        f" {seconds / 60:.0f} minutes on {os.cpu_count()} processors that others used too:"
        f" {60 * count / seconds:.0f} seeds a minute, {simulated / seconds:.2f} simulated hours a"
        f" second. A seed takes {cpu / count:.2f} s of one processor"
        f" ({describe_machine()}; program {hash_program()})."
    )
    told = f"{caught} of {len(catches)} rules that were switched off were noticed."
    checks = list_checks()
    promises = (
        f"Promises that some missing rule breaks: {len(broken & set(checks))} of {len(checks)}"
        f" ({', '.join(checks)})."
    )
    table = describe_catches(catches)
    faults = format_table(["fault", "in seeds"], [[kind, kinds[kind]] for kind in list_faults()])
    failures = "\n".join(f"- seed {each.seed}: {each.what}" for each in violations)
    defects = [describe_defects(outcomes, stale)] if DEFECTS else []
    parts = [text, *([failures] if failures else []), *defects, told, table, promises, faults]
    parts.append(describe_seen())
    print(*parts, sep="\n\n")
    if options.save:
        command = f"`python -m benchmarks.campaign --seeds {count} --save`"
        save_text("campaign.md", "\n\n".join(["# Trouble by the thousand", command, *parts]))
    return {
        "seeds": count,
        "violations": len(violations) + len(stale),
        "known_defects": len(DEFECTS),
        "known_defects_found": len(found),
        "known_defects_stale": len(stale),
        "ablations": len(catches),
        "ablations_caught": caught,
        "fault_kinds": len([kind for kind in list_faults() if kinds[kind]]),
        "share_sqlite": round(on_sqlite / count, 3),
        "promises": len(checks),
        "promises_broken_by_ablations": len(broken & set(checks)),
        "seeds_per_minute": round(60 * count / seconds, 1),
        "cpu_seconds_per_seed": round(cpu / count, 3),
        "simulated_hours": round(simulated, 1),
        "simulated_hours_per_second": round(simulated / seconds, 3),
    }


_own = argparse.Namespace(seeds=0, resume=None)


def main() -> None:
    """Run it."""
    global _own
    _own = take_options()
    run(measure, __doc__)


if __name__ == "__main__":
    main()
