"""Campaigns: many seeds, each a scenario of trouble, played and checked; failing ones made shorter.

python -m edge.field.campaign 4711          replays one seed and says what happens
python -m edge.field.campaign 4711 --shrink finds a shorter scenario that fails alike
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace

from edge.field.calendar import START
from edge.field.checks import Violation, check_all
from edge.field.scenario import CALM, TROUBLE, Scenario, make_scenario
from edge.field.trouble import Play

HOURS = (TROUBLE + CALM) / 3_600_000  # simulated, of one scenario


@dataclass(frozen=True)
class Outcome:
    """What became of one scenario; `rule` is the promise that was broken, "" for none."""

    seed: int
    faults: tuple[str, ...]
    rule: str
    what: str
    digest: str


def play_scenario(
    scenario: Scenario, ablation: str = "", tell: Callable[[str], None] | None = None
) -> Outcome:
    """Play and check one scenario, perhaps with a safety rule switched off."""
    from edge.field.ablations import switch_off

    with switch_off(ablation) if ablation else nullcontext():
        rule = what = digest = ""
        try:
            play = Play(scenario)
            if tell is not None:
                world = play.world
                world.tell = lambda kind, text: tell(f"{world.now - START:>8} ms  {kind} {text}")
            play.run()
            digest = play.world.digest()
            check_all(play)
        except Violation as violation:
            rule, what = violation.rule, str(violation)
        except Exception as error:  # noqa: BLE001 - a core that raises has failed its scenario
            rule, what = "alive", f"alive: {type(error).__name__}: {error}"
    return Outcome(scenario.seed, tuple(scenario.list_faults()), rule, what, digest)


def play_seed(seed: int, ablation: str = "") -> Outcome:
    """Play and check the scenario of a seed."""
    return play_scenario(make_scenario(seed), ablation)


def play_seeds(seeds: Iterable[int], workers: int = 1) -> Iterator[Outcome]:
    """Play many, in the order of seeds, in so many processes."""
    if workers <= 1:
        yield from map(play_seed, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(play_seed, seeds, chunksize=4)


def tell_replay(outcome: Outcome) -> str:
    """Return the one command that replays a failing seed."""
    return f"python -m edge.field.campaign {outcome.seed} --shrink"


def shrink_scenario(
    scenario: Scenario, rule: str, ablation: str = "", budget: int = 400
) -> Scenario:
    """Return a scenario with as few happenings as break the same promise."""

    def fails(candidate: Scenario) -> bool:
        return play_scenario(candidate, ablation).rule == rule

    happenings = list(scenario.happenings)
    size = max(1, len(happenings) // 2)
    while size and budget > 0:
        place = 0
        while place < len(happenings) and budget > 0:
            fewer = happenings[:place] + happenings[place + size :]
            budget -= 1
            if fails(replace(scenario, happenings=tuple(fewer))):
                happenings = fewer
            else:
                place += size
        size //= 2
    shorter = replace(scenario, happenings=tuple(happenings))
    for field in ("people", "dogs", "nodes"):
        while budget > 0 and getattr(shorter, field) > (2 if field == "nodes" else 1):
            smaller = replace(shorter, **{field: getattr(shorter, field) - 1})
            budget -= 1
            if not fails(smaller):
                break
            shorter = smaller
    return shorter


def describe_scenario(scenario: Scenario) -> str:
    """Return a scenario for a person to read."""
    head = (
        f"seed {scenario.seed}: {scenario.nodes} nodes, {scenario.people} people,"
        f" {scenario.dogs} devices, {scenario.strategy}, room for {scenario.room}"
    )
    lines = [f"  {h.time:>7} ms  {h.kind} {h.first} {h.second}" for h in scenario.happenings]
    return "\n".join([head, *lines])


def main(arguments: list[str] | None = None) -> int:
    """Replay one seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--shrink", action="store_true", help="find a shorter one that fails alike")
    parser.add_argument("--ablation", default="", help="a safety rule to switch off")
    options = parser.parse_args(arguments)
    scenario = make_scenario(options.seed)
    print(describe_scenario(scenario))
    outcome = play_scenario(scenario, options.ablation, print)
    print(outcome.what or "all promises are kept", outcome.digest)
    if outcome.rule and options.shrink:
        shorter = shrink_scenario(scenario, outcome.rule, options.ablation)
        print("\nThe same is broken by:", describe_scenario(shorter), sep="\n")
        print(play_scenario(shorter, options.ablation).what)
    return 1 if outcome.rule else 0


if __name__ == "__main__":
    sys.exit(main())
