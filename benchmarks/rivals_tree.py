"""The same crisp conjunctions in the A-Tree crate and in our two matchers, in turns.

    python -m benchmarks.rivals_tree RULES EVENTS columns|index

is our side: a process that does what `rivals_builds` has A-Tree's program do. It reads rules and
events, writes by how many bytes its matcher made it grow, and then, for every line that comes, the
seconds that all events took and `matches:sum of their ids` of each. So time, memory and answers of
all three are taken in the same way.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from denwatch.node.matching import compiling
from denwatch.node.matching.columns import ColumnIndex
from denwatch.node.matching.records import pack_subscriptions
from denwatch.node.matching.search import pack_notifications
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector

from benchmarks.common import median
from benchmarks.match_work import Shape, draw_masks, draw_subscriptions
from simulator.site import ENVIRONMENT

CRISP = Shape(attributes=16, masks=100, core=8.0, steep=255)  # one event of the wire
Rule = tuple[tuple[int, int, int], ...]  # attribute, low, high of each predicate
_EVENT = 0


@dataclass(frozen=True)
class TreeWork:
    """What all of them match."""

    rules: Sequence[Rule]
    events: Sequence[Sequence[int]]


@dataclass(frozen=True)
class TreeRun:
    """What one of them gave: seconds of each round, bytes it grew by, matches of each event."""

    seconds: list[float]
    grown: int
    answers: list[str]

    @property
    def us(self) -> float:
        """Microseconds an event, the median of the rounds."""
        return 1e6 * median(self.seconds) / len(self.answers)

    @property
    def matches(self) -> int:
        """Matches of all events."""
        return sum(int(answer.partition(":")[0]) for answer in self.answers)


def draw_tree_work(seed: int, rules: int, events: int) -> TreeWork:
    """Draw crisp rules and events that have all attributes."""
    rng = np.random.default_rng(seed)
    batch = draw_subscriptions(rng, CRISP, draw_masks(rng, CRISP), rules)
    rows = iter(batch.preds[["attribute", "low", "high"]].tolist())
    drawn = [tuple(next(rows) for _ in range(int(sub["count"]))) for sub in batch.subs]
    return TreeWork(drawn, rng.integers(0, 256, (events, CRISP.attributes)).tolist())


def write_expression(rule: Rule) -> str:
    """Return a rule in A-Tree's own language."""
    return " and ".join(f"a{name} >= {low} and a{name} <= {high}" for name, low, high in rule)


def compare_matchers(
    work: TreeWork, folder: Path, rounds: int, a_tree: Path | None
) -> dict[str, TreeRun]:
    """Let each match all events in turns, round after round; the answers must be the same."""
    rules, expressions, events = (folder / name for name in ("rules", "expressions", "events"))
    rules.write_text(
        "".join(" ".join(str(n) for p in rule for n in p) + "\n" for rule in work.rules)
    )
    expressions.write_text("".join(write_expression(rule) + "\n" for rule in work.rules))
    events.write_text("".join(" ".join(map(str, row)) + "\n" for row in work.events))
    ours = [sys.executable, "-m", "benchmarks.rivals_tree", str(rules), str(events)]
    commands = {"columns": [*ours, "columns"]}
    if compiling.is_installed():
        commands["index"] = [*ours, "index"]
    if a_tree is not None:
        commands["a_tree"] = [str(a_tree), str(expressions), str(events)]
    return _run_rounds(commands, rounds)


def _run_rounds(commands: dict[str, list[str]], rounds: int) -> dict[str, TreeRun]:
    found: dict[str, TreeRun] = {}
    with _start_all(commands) as children:
        for name, child in children.items():
            found[name] = TreeRun([], int(_read_line(child)), [])
        for number in range(1 + rounds):  # the first warms up
            for name, child in children.items():
                child.stdin.write("go\n")
                child.stdin.flush()
                seconds, *answers = _read_line(child).split()
                if number:
                    found[name].seconds.append(float(seconds))
                found[name].answers[:] = answers
    first, *others = found
    for name in others:
        if found[name].answers != found[first].answers:
            raise AssertionError(f"{name} and {first} do not find the same matches")
    return found


@contextmanager
def _start_all(commands: dict[str, list[str]]) -> Iterator[dict[str, Any]]:
    children: dict[str, Any] = {}
    try:
        for name, command in commands.items():
            children[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
            )
        yield children
    finally:
        for child in children.values():
            child.stdin.close()
            child.stdout.close()
            child.wait()


def _read_line(child: Any) -> str:
    line: str = child.stdout.readline()
    if not line:
        raise RuntimeError(f"{child.args[0]} ended: {child.wait()}")
    return line


# Our side, in a process of its own ----------------------------------------------------------------


def read_resident() -> int:
    """Return the bytes of memory that this process has."""
    gc.collect()
    return 4096 * int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])


def serve(rules: Path, events: Path, kind: str) -> None:
    """Match all events for every line that comes."""
    vectors = []
    for id, line in enumerate(rules.read_text(encoding="ascii").splitlines()):
        numbers = list(map(int, line.split()))
        parts = [Predicate(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
        vectors.append((id, SubscriptionVector(_EVENT, parts)))
    notes = []
    for line in events.read_text(encoding="ascii").splitlines():
        readings = [Reading(a, (int(v),) * 4) for a, v in enumerate(line.split())]
        notes.append(NotificationVector(_EVENT, readings))
    match = _make_index(vectors, notes) if kind == "index" else _make_columns(vectors, notes)
    for _ in sys.stdin:
        start = time.perf_counter()
        found = match()
        seconds = time.perf_counter() - start
        print(seconds, *(f"{len(ids)}:{sum(ids)}" for ids in found), flush=True)


def _make_index(vectors: Any, notes: list[NotificationVector]) -> Any:
    from denwatch.node.matching.index import FuzzyIndex, warm_up

    warm_up()
    batch = pack_subscriptions(vectors)
    packed = [pack_notifications([note], [0]) for note in notes]
    before = read_resident()
    index = FuzzyIndex()
    index.add_batch(batch)
    print(read_resident() - before, flush=True)
    return lambda: [ids.tolist() for ids in [index.match_batch(one).ids for one in packed]]


def _make_columns(vectors: Any, notes: list[NotificationVector]) -> Any:
    before = read_resident()
    columns = ColumnIndex()
    for id, vector in vectors:
        columns.add(id, vector)
    print(read_resident() - before, flush=True)
    return lambda: [[hit[0] for hit in columns.find_matches(note, 0)] for note in notes]


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
