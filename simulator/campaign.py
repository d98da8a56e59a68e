"""Campaigns: many seeds, each a scenario of trouble, played and checked; failing ones made shorter.

python -m simulator.campaign 4711            replays one seed and says what happens
python -m simulator.campaign 4711 --shrink   finds a shorter scenario that fails alike
python -m simulator.campaign --defect NAME   plays the scenario of a known defect
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import repeat

from simulator.ablations import switch_off
from simulator.calendar import START
from simulator.checks import find_violations
from simulator.faults import Play
from simulator.known_defects import find_defect
from simulator.registry import DEFECTS, RULES, Violation, load_tables
from simulator.scenario import Scenario, make_scenario
from simulator.shrinking import Shrinker


@dataclass(frozen=True)
class Outcome:
    """What became of one scenario."""

    seed: int
    faults: tuple[str, ...]
    hours: float  # simulated
    broken: tuple[str, ...]  # promises, by name, but for known defects
    what: str  # about the first of them
    digest: str
    known: tuple[str, ...] = ()  # defects that it shows, by name
    cpu: float = field(default=0.0, compare=False)  # seconds of a processor that it took

    @property
    def rule(self) -> str:
        """The first promise that was broken, "" for none."""
        return self.broken[0] if self.broken else ""


def play_scenario(
    scenario: Scenario, ablation: str = "", tell: Callable[[str], None] | None = None
) -> Outcome:
    """Play and check one scenario, perhaps with a safety rule switched off."""
    began = time.process_time()
    with switch_off(ablation) if ablation else nullcontext():
        digest = ""
        try:
            play = Play(scenario)
            if tell is not None:
                world = play.world
                world.tell = lambda kind, text: tell(f"{world.now - START:>8} ms  {kind} {text}")
            play.run()
            digest = play.world.digest()
            found = find_violations(play)
        except Exception as error:  # noqa: BLE001 - a core that raises has failed its scenario
            found = [blame_error(error)]
    names = [find_defect(violation) for violation in found]
    known = tuple(dict.fromkeys(name for name in names if name))
    unknown = [each for each, name in zip(found, names, strict=True) if not name]
    broken = tuple(dict.fromkeys(violation.rule for violation in unknown))
    what = str(unknown[0]) if unknown else ""
    faults = tuple(scenario.list_faults())
    cpu = time.process_time() - began
    return Outcome(scenario.seed, faults, scenario.hours, broken, what, digest, known, cpu)


def blame_error(error: Exception) -> Violation:
    """Return what a core raised, and where; the facts are the error's name and the function's."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    name = type(error).__name__
    text = f"{name} in {place.name}, line {place.lineno}: {error}"
    return Violation("alive", text, name, place.name)


def play_seed(seed: int, ablation: str = "") -> Outcome:
    """Play and check the scenario of a seed; without a rule, one in which it may matter."""
    return play_scenario(find_scenario(seed, ablation), ablation)


def find_scenario(seed: int, ablation: str = "") -> Scenario:
    """Return the scenario of a seed, as it is played without a rule."""
    load_tables()
    rule = RULES.get(ablation)
    return make_scenario(seed, rule.focus, rule.dials) if rule else make_scenario(seed)


def play_seeds(seeds: Iterable[int], workers: int = 1) -> Iterator[Outcome]:
    """Play many, in the order of seeds, in so many processes."""
    if workers <= 1:
        yield from map(play_seed, seeds)
        return
    with ProcessPoolExecutor(workers, initializer=_begin_worker) as pool:
        yield from pool.map(play_seed, seeds, chunksize=4)


def _begin_worker() -> None:
    """Look for garbage less often: what a scenario leaves behind is small, and soon all of it."""
    gc.freeze()
    gc.set_threshold(50_000)


@dataclass(frozen=True)
class Catch:
    """Whether it was noticed that a rule is off: by which promises, first in which seed (or -1)."""

    rule: str
    broken: tuple[str, ...]
    seed: int


def catch_rule(rule: str, seeds: range, more: int = 0) -> Catch:
    """Play without a rule until somebody notices, and so many seeds more: what else breaks?"""
    for seed in seeds:
        broken = play_seed(seed, rule).broken
        if broken:
            for other in range(seed + 1, seed + 1 + more):
                broken += play_seed(other, rule).broken
            return Catch(rule, tuple(dict.fromkeys(broken)), seed)
    return Catch(rule, (), -1)


def catch_rules(
    rules: Sequence[str], seeds: range, workers: int = 1, more: int = 10
) -> Iterator[Catch]:
    """Play without each rule in turn, in so many processes."""
    with ProcessPoolExecutor(workers, initializer=_begin_worker) as pool:
        yield from pool.map(catch_rule, rules, repeat(seeds), repeat(more))


def tell_replay(outcome: Outcome) -> str:
    """Return the one command that replays a failing seed."""
    return f"python -m simulator.campaign {outcome.seed} --shrink"


def shrink_scenario(
    scenario: Scenario, what: str, ablation: str = "", budget: int = 400
) -> Scenario:
    """Return a short scenario that breaks the same promise, or shows the same known defect."""

    def fails(candidate: Scenario) -> bool:
        outcome = play_scenario(candidate, ablation)
        return outcome.rule == what or what in outcome.known

    return Shrinker(fails, budget).shrink(scenario)


def describe_failure(outcome: Outcome, budget: int = 100) -> str:
    """Return a failing seed, the shortest schedule found in so many plays, and what replays it."""
    shorter = shrink_scenario(find_scenario(outcome.seed), outcome.rule, budget=budget)
    head = f"seed {outcome.seed}: {outcome.what}"
    return "\n".join([head, describe_scenario(shorter), f"    {tell_replay(outcome)}"])


def find_stale() -> list[str]:
    """Return the known defects that do not show any more where they did: they are to be removed."""
    load_tables()
    return [
        name for name, defect in DEFECTS.items() if name not in play_scenario(defect.scenario).known
    ]


def describe_scenario(scenario: Scenario) -> str:
    """Return a scenario for a person to read."""
    head = (
        f"seed {scenario.seed}: {scenario.nodes} nodes, {scenario.people} people,"
        f" {scenario.devices} devices that measure every {12 * scenario.pace} s,"
        f" {scenario.strategy}, {scenario.bandwidth} bytes/s, room for {scenario.room},"
        f" {scenario.trouble // 60_000} min of trouble"
    )
    if scenario.dials:
        head += "\n  " + ", ".join(f"{name} {value}" for name, value in scenario.dials)
    lines = [
        f"  {h.time:>7} ms  {h.kind} {h.first} {h.second} {h.body}".rstrip()
        for h in scenario.happenings
    ]
    return "\n".join([head, *lines])


def main(arguments: list[str] | None = None) -> int:
    """Replay one seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--defect", default="", help="a known defect, or one that the seed shows")
    parser.add_argument("--shrink", action="store_true", help="find a shorter one that fails alike")
    parser.add_argument("--ablation", default="", help="a safety rule to switch off")
    parser.add_argument("--budget", type=int, default=400, help="plays to spend on a shorter one")
    options = parser.parse_args(arguments)
    scenario = find_scenario(options.seed, options.ablation)
    if options.defect and not options.seed:
        scenario = DEFECTS[options.defect].scenario
    print(describe_scenario(scenario))
    outcome = play_scenario(scenario, options.ablation, print)
    print(outcome.what or "all promises are kept", outcome.digest)
    for name in outcome.known:
        print(f"known: {name} ({DEFECTS[name].check}): {DEFECTS[name].meaning}")
    what = options.defect or outcome.rule
    if what and options.shrink:
        shorter = shrink_scenario(scenario, what, options.ablation, options.budget)
        print("\nThe same is broken by:", describe_scenario(shorter), sep="\n")
        print(play_scenario(shorter, options.ablation).what or what)
        print(repr(shorter))
    return 1 if outcome.rule else 0


if __name__ == "__main__":
    sys.exit(main())
