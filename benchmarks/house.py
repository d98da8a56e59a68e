"""How easy the house is to enter: counts of the source, and two walks followed by a profiler.

    python -m benchmarks.house --json

Over the product's Python (protocol, edge, backend): files, lines, class names that are used twice,
the constructor with the most collaborators, imports against the layers of `docs/architecture.md`.
Walks: the files that one reading crosses, from a device's frame at one node to the delivery at
another, and the calls of Python functions that one sentence takes from words to bytes.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.common import format_table, run, save_text, say
from benchmarks.layers import find_violations

ROOT = Path(__file__).resolve().parents[1]
BEFORE: dict[str, tuple[int, str]] = {  # of the first release, and the aim
    "files": (524, "≤ 290"),
    "lines": (74_473, "≤ 62,000"),
    "duplicate_class_names": (109, "0"),
    "max_collaborators": (11, "≤ 6"),
    "files_crossed_by_a_reading": (74, "≤ 25"),
    "calls_for_a_sentence": (20_875, "≤ 1,500"),
    "layer_violations": (47, "0"),
}
_PAGE = """# The house

`python -m benchmarks.house --save`: how much there is to read, counted in the source (`ast`) and
with a profiler.

{table}

*Collaborators* are the arguments of a constructor that are objects or functions, not values.
*Calls* are calls of Python functions from the text of a sentence to its bytes, in a process that
has used its terms in another sentence before (the first use of a term fits it to bytes, once for a
vocabulary, in some 2,000 calls). *Layers* are those of
[architecture.md](../../docs/architecture.md).

## The files that one reading crosses

From a device's frame at one node, over a contact, to the delivery at another node; two nodes in
memory, in the simulator. In the order in which they are first entered:

{walked}
"""
SENTENCE = "patient_temperature is very high and heart_rate is not normal, at least 0.6"
# Annotations of values, which are no collaborators: numbers, texts, and collections of them.
_VALUES = frozenset(
    ("None", "Any", "Path", "Sequence", "Iterable", "Mapping", "Iterator", "Collection")
)


def list_product() -> list[Path]:
    """Return the product's Python files."""
    roots = [ROOT / name / "denwatch" for name in ("protocol", "edge", "backend")]
    return [path for root in roots for path in sorted(root.rglob("*.py"))]


def count_class_names(trees: dict[Path, ast.Module]) -> Counter[str]:
    """Return how often each class name is defined, also inside functions and classes."""
    return Counter(
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )


def list_collaborators(trees: dict[Path, ast.Module]) -> Iterator[tuple[int, str]]:
    """Yield, for every constructor, how many arguments are objects or functions, and its class."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    arguments = [*method.args.posonlyargs, *method.args.args[1:]]
                    arguments += method.args.kwonlyargs
                    count = sum(_is_collaborator(argument.annotation) for argument in arguments)
                    yield count, f"{path.relative_to(ROOT).as_posix()}: {node.name}"


def _is_collaborator(annotation: ast.expr | None) -> bool:
    if annotation is None:
        return False
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        names = {annotation.value}
    return bool({name for name in names if name[:1].isupper()} - _VALUES)


class Walk:
    """What Python ran while it was followed: calls, and the product's files that they were in."""

    def __init__(self) -> None:
        self.calls = 0
        self.files: dict[str, int] = {}
        self._product = {str(path) for path in list_product()}

    def follow(self, act: Callable[[], object]) -> None:
        """Run something and count."""
        sys.setprofile(self._note)
        try:
            act()
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self.calls += 1
            name = frame.f_code.co_filename
            if name in self._product:
                self.files[name] = self.files.get(name, 0) + 1


def walk_reading() -> Walk:
    """Follow a reading from a device's frame at one node to its delivery at another, in memory.

    The nodes are the simulator's: real cores, a store in memory, simulated time. What ticks do
    meanwhile is not the reading's way, and does not count.
    """
    from denwatch.client.vocabulary import load_shipped
    from denwatch.node.core.events import Event, Message, Publish

    from simulator.device import Sense
    from simulator.hosted_node import HostedNode
    from simulator.world import World

    walk = Walk()
    world = World(1, load_shipped("rescue"))
    for name in ("north", "south"):
        world.add_node(name)
    world.meet("north", "south", True)
    medic = world.add_person("medic", "south")
    value = {"heart_rate": 60}
    patient = world.vocabulary.events["patient"]
    rate = patient.attributes["heart_rate"]
    device = world.add_device(
        "bed-1", "north", [Sense(patient.number, (rate.bit,))], lambda *_: value["heart_rate"]
    )
    world.ask("medic", {"subscribe": "heart_rate above 100"})
    world.run(60_000)
    assert device.language.filter.count == 1, "the device has the subscription"
    # The first reading of a process waits for the matcher's compiler: it is not followed.
    for until, level in ((90_000, 200), (120_000, 60)):
        value["heart_rate"] = level
        world.run(until)
    known = len(medic.notes)
    assert known, "readings are delivered"
    handle = HostedNode.handle

    def follow(host: HostedNode, event: Event, now: int) -> list[Publish]:
        found: list[Publish] = []
        if isinstance(event, Message) and len(medic.notes) == known:
            walk.follow(lambda: found.extend(handle(host, event, now)))
            return found
        return handle(host, event, now)

    HostedNode.handle = follow  # type: ignore[method-assign]
    try:
        value["heart_rate"] = 210
        world.run(150_000)
    finally:
        HostedNode.handle = handle  # type: ignore[method-assign]
    assert len(medic.notes) > known, "the reading was delivered"
    return walk


def walk_sentence() -> Walk:
    """Follow a sentence from words to bytes, in a process that has used its terms before.

    The first sentence of a form has lark compile its lexers, and the first use of a term fits it
    to bytes; both are kept.
    """
    from denwatch.client.compiler import compile_subscription
    from denwatch.client.language import parse
    from denwatch.client.vocabulary import load_shipped

    vocabulary = load_shipped("rescue")
    compile_subscription(parse(SENTENCE.replace("and", "or")), vocabulary)
    walk = Walk()
    walk.follow(lambda: compile_subscription(parse(SENTENCE), vocabulary))
    return walk


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Count, follow both walks, and return the figures."""
    files = list_product()
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    most, owner = max(list_collaborators(trees))
    reading, sentence = walk_reading(), walk_sentence()
    violations = find_violations()
    for violation in violations:
        say(violation)
    figures = {
        "files": len(files),
        "lines": sum(len(text.splitlines()) for text in texts.values()),
        "duplicate_class_names": sum(n > 1 for n in count_class_names(trees).values()),
        "max_collaborators": most,
        "files_crossed_by_a_reading": len(reading.files),
        "calls_for_a_sentence": sentence.calls,
        "layer_violations": len(violations),
    }
    say(f"most collaborators: {owner}")
    table = format_table(
        ("figure", "first release", "aim", "now"),
        [(name, *BEFORE[name], value) for name, value in figures.items()],
    )
    walked = "\n".join(f"- `{Path(name).relative_to(ROOT)}`" for name in reading.files)
    page = f"{_PAGE.format(table=table, walked=walked)}"
    say(page)
    if options.save:
        save_text("house.md", page)
    return figures


if __name__ == "__main__":
    run(measure, __doc__)
