"""Every place in the node that logs names a kind of the table, and its fields.

Found in the source, because a record that no test happens to write would fail in the field.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from denwatch.node.log import KINDS

NODE = Path(__file__).parents[2] / "edge" / "denwatch" / "node"


def find_calls() -> Iterator[tuple[str, str, list[str | None]]]:
    """Yield place, kind, fields (None for `**fields`) of every `transaction.log("kind", ...)`."""
    for path in sorted(NODE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "log"
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "transaction"
                and isinstance(node.args[0], ast.Constant)
            ):
                place = f"{path.relative_to(NODE)}:{node.lineno}"
                yield place, str(node.args[0].value), [word.arg for word in node.keywords]


CALLS = list(find_calls())


@pytest.mark.parametrize(("place", "kind", "names"), CALLS, ids=[call[0] for call in CALLS])
def test_what_the_node_logs_is_in_the_table(place: str, kind: str, names: list[str | None]) -> None:
    assert kind in KINDS, place
    fields = {field.name: field for field in KINDS[kind].fields}
    assert {name for name in names if name} <= set(fields), place
    if None not in names:
        required = {name for name, field in fields.items() if not field.is_optional}
        assert required <= set(names), place
