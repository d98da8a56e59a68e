"""The tables of a campaign: kinds of happenings, dials, checks, rules and known defects, by name.

Any file may add to them; `MODULES` lists the files that do, and `load_tables` imports them, so that
whoever asks for a table finds it whole. A file adds like this:

    @fault("kill")                             # something that goes wrong
    def kill_node(play: Play, first: int, second: int) -> None: ...

    @ordinary("walk", weight=2)                # something that people and machines do anyway
    def walk(play: Play, first: int, second: int) -> None: ...

    @dial("sqlite")                            # a choice for a whole scenario; 0 is the plain one
    def draw_sqlite(rng: Random) -> int: ...   # read it with play.scenario.dial("sqlite")

    @check("acknowledged")                     # raises Violation("acknowledged", ...)
    def check_acknowledged(play: Play) -> None: ...

    RULES["take-first"] = Rule(...)            # a safety rule, and how it is switched off

    DEFECTS["starving"] = Defect(...)          # see known_defects.py

Functions at `on_setup` are called with the play before anything happens, those at `on_heal` when
the trouble ends. Which scenario a seed is depends on a name only where the name is drawn: a new
kind, dial or check leaves most seeds as they were.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from simulator.faults import Play
    from simulator.known_defects import Defect

MODULES = (
    "simulator.whole_scenarios",
    "simulator.faults",
    "simulator.byzantine",
    "simulator.life",
    "simulator.bad_disks",
    "simulator.liars",
    "simulator.checks",
    "simulator.stories",
    "simulator.claims",
    "simulator.answers",
    "simulator.wills",
    "simulator.updates",
    "simulator.whole_checks",
    "simulator.ablations",
    "simulator.whole_rules",
    "simulator.known_defects",
)

Act = Callable[..., None]  # of a play, two numbers, and a body where the kind has one
Check = Callable[["Play"], "Iterable[Violation] | None"]  # raises one, or returns all
Draw = Callable[[Random], int]
_Some = TypeVar("_Some", bound=Callable[..., Any])


class Violation(AssertionError):
    """A promise that was not kept; `rule` is its name, `facts` is what tells defects apart."""

    def __init__(self, rule: str, what: str, *facts: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule
        self.facts = frozenset(facts)


class Kind(NamedTuple):
    """A kind of happening."""

    act: Act
    weight: float  # how often it is drawn, among its like
    is_fault: bool


class Rule(NamedTuple):
    """A safety rule: what is replaced, by something made from what it was."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    meaning: str
    focus: tuple[str, ...] = ()  # what must happen for it to matter, where that is seldom
    dials: Mapping[str, int] = {}  # and the dials that a scenario must have


KINDS: dict[str, Kind] = {}
DIALS: dict[str, Draw] = {}
CHECKS: dict[str, tuple[int, Check]] = {}  # with their order
FINAL: set[str] = {"alive"}  # checks after which, when they fail, nothing else can be asked
RULES: dict[str, Rule] = {}
DEFECTS: dict[str, Defect] = {}
on_setup: list[Callable[[Play], None]] = []
on_heal: list[Callable[[Play], None]] = []
_is_loaded = False


def load_tables() -> None:
    """Import every file that adds to the tables."""
    global _is_loaded
    if not _is_loaded:
        _is_loaded = True
        for name in MODULES:
            importlib.import_module(name)


def fault(name: str, weight: float = 1) -> Callable[[_Some], _Some]:
    """Add something that goes wrong."""
    return _add_kind(name, weight, True)


def ordinary(name: str, weight: float = 1) -> Callable[[_Some], _Some]:
    """Add something that happens without anything going wrong."""
    return _add_kind(name, weight, False)


def _add_kind(name: str, weight: float, is_fault: bool) -> Callable[[_Some], _Some]:
    def add(act: _Some) -> _Some:
        assert name not in KINDS, f"there is a kind {name!r}"
        KINDS[name] = Kind(act, weight, is_fault)
        return act

    return add


def dial(name: str) -> Callable[[_Some], _Some]:
    """Add a choice that is made once for a scenario; 0 stands for the plainest."""

    def add(draw: _Some) -> _Some:
        assert name not in DIALS, f"there is a dial {name!r}"
        DIALS[name] = draw
        return draw

    return add


def check(name: str, order: int = 50) -> Callable[[_Some], _Some]:
    """Add a check; those with a lower order are made first."""

    def add(check: _Some) -> _Some:
        assert name not in CHECKS, f"there is a check {name!r}"
        CHECKS[name] = (order, check)
        return check

    return add


def list_faults() -> list[str]:
    """Return the names of what goes wrong."""
    load_tables()
    return sorted(name for name, kind in KINDS.items() if kind.is_fault)


def list_ordinary() -> list[str]:
    """Return the names of what happens anyway."""
    load_tables()
    return sorted(name for name, kind in KINDS.items() if not kind.is_fault)


def list_checks() -> list[str]:
    """Return the names of the checks, in the order in which they are made."""
    load_tables()
    return sorted(CHECKS, key=lambda name: (CHECKS[name][0], name))


def draw_names(what: str, names: Iterable[str], count: int) -> list[str]:
    """Return so many of the names, by their weights.

    Each name has a number that depends on itself and on `what` alone, and the largest win: so one
    name more changes the result only where it is drawn.
    """

    def weigh(name: str) -> float:
        digest = hashlib.blake2b(f"{what}\0{name}".encode(), digest_size=6).digest()
        chance = (int.from_bytes(digest, "big") + 1) / (1 << 48)
        return math.log(chance) / (KINDS[name].weight if name in KINDS else 1)

    return sorted(names, key=weigh, reverse=True)[:count]
