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
SENTENCE = "patient_temperature is very high and heart_rate is not normal, at least 0.6"
# Annotations of values, which are no collaborators: numbers, texts, and collections of them.
_VALUES = frozenset(
    "None str int float bool bytes bytearray object Any Path Sequence Iterable Mapping Iterator "
    "dict list tuple set frozenset type".split()
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


def walk_sentence() -> Walk:
    """Follow a sentence from words to bytes, in a process that has compiled one before."""
    from denwatch.client.compiler import compile_subscription
    from denwatch.client.language import parse
    from denwatch.client.vocabulary import load_shipped

    vocabulary = load_shipped("rescue")
    compile_subscription(parse("heart_rate is high and respiration_rate is low"), vocabulary)
    walk = Walk()
    walk.follow(lambda: compile_subscription(parse(SENTENCE), vocabulary))
    return walk
