"""Which package may import which: the map of docs/architecture.md as data, and who breaks it.

Reads the source (ast), imports nothing of it. Imports inside functions count, too: a layer is
about who knows whom, not about when.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROOTS = ("protocol", "edge", "backend")  # each has a part of the package `denwatch`

_WORDS = tuple(  # what of the client is pure: words, their meaning, and nothing that is connected
    f"denwatch.client.{name}"
    for name in (
        *("compiler", "errors", "extensions", "language", "plugins"),
        *("syntax", "version", "vocabularies", "vocabulary"),
    )
)
_PURE = tuple(  # what of the node decides without state, disk, clock or network
    f"denwatch.node.{name}"
    for name in ("core.items", "covering", "log", "matching", "ranking", "replication", "services")
)

# A package, and what it may import besides itself. The longest name that fits a module counts.
LAYERS: dict[str, tuple[str, ...]] = {
    "denwatch.protocol": (),
    "denwatch.watchdog": ("denwatch.protocol",),
    "denwatch.client": ("denwatch.protocol",),
    "denwatch.node": ("denwatch.protocol", *_WORDS),
    **{
        name: ("denwatch.protocol", *_WORDS, *_PURE)
        for name in _PURE
        if name != "denwatch.node.core.items"
    },
    "denwatch.node.core.items": ("denwatch.protocol", "denwatch.node.replication"),
    "denwatch.node.core": ("denwatch.protocol", *_WORDS, *_PURE),
    "denwatch.node.mqtt": ("denwatch.node.core",),
    "denwatch.node.store": ("denwatch.node.core", "denwatch.node.log"),
    "denwatch.node.security": ("denwatch.protocol", "denwatch.node.core.items"),
    "denwatch.node.config": ("denwatch.protocol", *_WORDS, "denwatch.node.security"),
    "denwatch.node.runtime": ("denwatch.node", "denwatch.protocol", *_WORDS),
    # `backend_api` is what the node offers to analysis: its own decisions, replayed.
    "denwatch.node.backend_api": ("denwatch.node.core", "denwatch.protocol", *_WORDS),
    "denwatch.spark": ("denwatch.protocol", "denwatch.client", "denwatch.node.backend_api", *_PURE),
    "denwatch.cli": ("denwatch",),
    "examples": ("denwatch",),
    "simulator": ("denwatch", "examples"),
    "papers": ("denwatch", "benchmarks.common"),
    "firmware_tests": ("denwatch", "tests.protocol.evaluator"),
    "demo": ("denwatch", "simulator", "firmware_tests"),
    "benchmarks": ("denwatch", "examples", "simulator", "papers", "firmware_tests"),
}
OURS = tuple(sorted({name.partition(".")[0] for name in LAYERS} | {"tests"}))


class Violation(NamedTuple):
    """An import that the layers do not allow."""

    path: str
    line: int
    module: str  # who imports
    imported: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.module} imports {self.imported}"


def find_violations(root: Path = ROOT) -> list[Violation]:
    """Return every import of ours that goes against the layers."""
    found = []
    for path in _list_files(root):
        module = _name_module(path.relative_to(root))
        layer = _find_layer(module)
        if layer is None:
            continue
        allowed = (layer, *LAYERS[layer])
        for line, imported in _list_imports(path, module):
            if not any(_is_below(imported, name) for name in allowed):
                place = path.relative_to(root).as_posix()
                found.append(Violation(place, line, module, imported))
    return found


def _list_files(root: Path) -> Iterator[Path]:
    tops = [root / name / "denwatch" for name in ROOTS]
    tops += [root / name for name in OURS if name not in ("denwatch", "tests")]
    for top in tops:
        yield from sorted(path for path in top.rglob("*.py") if "node_modules" not in path.parts)


def _name_module(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    if parts[0] in ROOTS:
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _find_layer(module: str) -> str | None:
    fitting = [name for name in LAYERS if _is_below(module, name)]
    return max(fitting, key=len, default=None)


def _is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _list_imports(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of what a file imports of ours: modules, or names inside them."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.partition(".")[0] in OURS)
