"""The examples in the packages' own words run."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from denwatch.node import log, store

from simulator import memory_store
from tests.log.samples import NOW


def list_examples(module: ModuleType) -> list[str]:
    """Return the indented blocks of a module's docstring."""
    blocks = re.findall(r"(?:^    .*\n)+", f"{module.__doc__}\n", re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks]


def test_the_examples_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {**vars(store), "encode_record": log.encode_record, "now": NOW}
    (example,) = list_examples(store)
    exec(example, names)
    with store.Store("north.db", "north") as again:
        assert again.get("item", b"k1") == b"v1"
        assert again.next_number == 2


def test_the_example_of_the_memory_store() -> None:
    names: dict[str, Any] = {**vars(memory_store)}
    (example,) = list_examples(memory_store)
    exec(example, names)
    names["store"].apply([("item", b"k", b"v")])
    with pytest.raises(memory_store.Crashed):
        names["store"].commit()
    assert names["disk"].spaces == {"item": {b"k": b"v"}}


def test_the_examples_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {**vars(log), "store": memory_store.MemoryStore("north"), "now": NOW}
    names["changes"] = [("item", b"k1", b"v1")]
    first, second = list_examples(log)
    exec(first, names)
    (path,) = (tmp_path / "log").iterdir()
    names.update(data=path.read_bytes(), name=path.name)
    exec(second, names)
    assert [record.fields["subscriber"] for record in names["records"]] == ["medic7"]
    assert names["damages"] == []
