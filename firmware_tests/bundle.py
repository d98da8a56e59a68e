"""Makes modules small enough for a micro:bit: what a few functions need, in parts that compile.

The micro:bit has no packages, 13 KB for files, and compiles on the device inside a 9 KB heap that
must also hold the result. So of the given modules only what the wanted functions reach is kept,
without docstrings and annotations; `X = const(...)` becomes the number; local names become one
letter (each name that the device reads stays in its heap); and the definitions are dealt out to
small programs, the longest first, because a program's text and its syntax tree must fit beside
what is there already. All run in one namespace: a module of its own costs 100 bytes. The
statements stay what they were, and global names are kept, so a traceback still reads.

Pure: texts in, texts out. What it cannot do safely it refuses with ValueError.
"""

from __future__ import annotations

import ast
import string
from collections.abc import Iterable, Iterator

PART_SIZE = 400  # bytes of source; a longer definition gets a part of its own


def bundle(sources: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Return programs that define, run in this order, the wanted functions of these modules."""
    constants: dict[str, int] = {}
    definitions: dict[str, ast.stmt] = {}
    for source in sources:
        _collect(ast.parse(source), constants, definitions)
    inliner = _Inliner(constants)
    for name, definition in definitions.items():
        changed = inliner.visit(_Stripper().visit(definition))
        if isinstance(changed, ast.FunctionDef):
            _shorten_locals(changed)
        definitions[name] = ast.fix_missing_locations(changed)
        _check_independence(name, definitions)
    return _deal_out([_write(definitions[name]) for name in _reach(wanted, definitions)])


def _collect(tree: ast.Module, constants: dict[str, int], definitions: dict[str, ast.stmt]) -> None:
    """Sort a module's statements into numbers and definitions; imports are not needed any more."""
    for stmt in tree.body:
        if isinstance(stmt, ast.Import | ast.ImportFrom | ast.Try) or _is_text(stmt):
            continue  # `try` guards the import of const, which is inlined
        if isinstance(stmt, ast.FunctionDef):
            name = stmt.name
        elif isinstance(stmt, ast.Assign | ast.AnnAssign):
            target = stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt.target
            if not isinstance(target, ast.Name) or stmt.value is None:
                raise ValueError(f"line {stmt.lineno}: only plain names can be assigned")
            name = target.id
            number = _read_constant(stmt.value)
            if number is not None:
                if constants.setdefault(name, number) != number or name in definitions:
                    raise ValueError(f"two modules define {name}")
                continue
        else:
            raise ValueError(f"line {stmt.lineno}: a {type(stmt).__name__} cannot be bundled")
        if name in definitions or name in constants:
            raise ValueError(f"two modules define {name}")
        definitions[name] = stmt


def _read_constant(value: ast.expr) -> int | None:
    """Return the number of `const(number)`, or None."""
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "const"
    ):
        number = ast.literal_eval(value.args[0])
        if isinstance(number, int):
            return number
    return None


def _is_text(stmt: ast.stmt) -> bool:
    return (
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Constant)
        and isinstance(stmt.value.value, str)
    )


class _Stripper(ast.NodeTransformer):
    """Drops docstrings and annotations, which say nothing to the interpreter."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.returns = None
        node.body = [stmt for stmt in node.body if not _is_text(stmt)] or [ast.Pass()]
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign | None:
        return None if node.value is None else ast.Assign([node.target], node.value)


class _Inliner(ast.NodeTransformer):
    """Puts the number in the place of a constant's name."""

    def __init__(self, constants: dict[str, int]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.constants:
            return node
        if not isinstance(node.ctx, ast.Load):
            raise ValueError(f"line {node.lineno}: {node.id} is a constant")
        return ast.Constant(self.constants[node.id])


def _check_independence(name: str, definitions: dict[str, ast.stmt]) -> None:
    """Refuse what needs another definition as soon as it runs: that one may come later."""
    definition = definitions[name]
    early: list[ast.AST] = [definition]
    if isinstance(definition, ast.FunctionDef):
        early = [*definition.args.defaults, *definition.decorator_list]
    for node in early:
        for used in _list_globals(node, definitions):
            if used != name:
                raise ValueError(f"{name} needs {used} before it is called")


def _shorten_locals(function: ast.FunctionDef) -> None:
    """Rename arguments and local variables to a, b, c, ..."""
    arguments = [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    stored = [
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    for node in ast.walk(function):
        nested = isinstance(node, ast.FunctionDef | ast.Lambda) and node is not function
        if nested or isinstance(node, ast.Global | ast.Nonlocal | ast.keyword):
            raise ValueError(f"{function.name}: a {type(node).__name__} cannot be renamed safely")
    own = list(dict.fromkeys(arguments + stored))
    loaded = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    free = (name for name in _make_names() if name in own or name not in loaded)
    short = dict(zip(own, free, strict=False))
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = short.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = short[node.arg]


def _make_names() -> Iterator[str]:
    letters = string.ascii_lowercase
    yield from letters
    for first in letters:
        yield from (first + str(digit) for digit in range(10))


def _reach(wanted: Iterable[str], definitions: dict[str, ast.stmt]) -> list[str]:
    """Return the wanted names and all that they use, themselves or through others."""
    reached: list[str] = []
    waiting = list(wanted)
    while waiting:
        name = waiting.pop(0)
        if name not in definitions:
            raise ValueError(f"{name} is not defined in these modules")
        if name not in reached:
            reached.append(name)
            waiting += _list_globals(definitions[name], definitions)
    return reached


def _list_globals(definition: ast.AST, definitions: dict[str, ast.stmt]) -> list[str]:
    names = (node.id for node in ast.walk(definition) if isinstance(node, ast.Name))
    return [name for name in dict.fromkeys(names) if name in definitions]


def _deal_out(texts: Iterable[str]) -> list[str]:
    """Join definitions to parts, the longest first, while the heap is empty."""
    parts: list[str] = []
    for text in sorted(texts, key=len, reverse=True):
        if not parts or len(parts[-1]) + len(text) > PART_SIZE:
            parts.append("")
        parts[-1] += text
    return parts


def _write(definition: ast.stmt) -> str:
    """Return the definition's source, indented by one space a level."""
    small = ""
    for line in ast.unparse(definition).splitlines():
        text = line.lstrip()
        small += " " * ((len(line) - len(text)) // 4) + text + "\n"
    if ast.dump(ast.parse(small)) != ast.dump(ast.parse(ast.unparse(definition))):
        raise ValueError("a text over several lines cannot be bundled: write it with \\n")
    return small
