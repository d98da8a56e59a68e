"""The house rules that a reader relies on: layers, one name for one class, few collaborators."""

from __future__ import annotations

import ast
from pathlib import Path

from benchmarks.house import count_class_names, list_collaborators, list_product, walk_reading
from benchmarks.layers import LAYERS, ROOT, find_violations

TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in list_product()}


def test_nothing_imports_upwards() -> None:
    assert not [str(violation) for violation in find_violations()]


def test_an_import_upwards_is_found(tmp_path: Path) -> None:
    for text, count in (
        ("from denwatch.protocol import frames\n", 0),
        ("from ..protocol import frames\n", 0),
        ("from denwatch.client import errors\n", 1),
        ("def f():\n    import denwatch.cli.node\n", 1),
        ("import tests.protocol\n", 1),
        ("import json, cbor2\n", 0),
    ):
        file = tmp_path / "edge" / "denwatch" / "watchdog" / "one.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        assert len(find_violations(tmp_path)) == count, text


def test_every_folder_has_a_layer() -> None:
    layers = {name for name in LAYERS if name.startswith("denwatch.") and name.count(".") == 1}
    assert {f"denwatch.{path.name}" for path in list_folders()} == layers


def list_folders() -> list[Path]:
    """Return the packages right below `denwatch`."""
    roots = [ROOT / name / "denwatch" for name in ("protocol", "edge", "backend")]
    return [path for root in roots for path in root.iterdir() if (path / "__init__.py").exists()]


def test_the_architecture_page_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in LAYERS:
        assert f"`{name}`" in page, f"docs/architecture.md does not name {name}"


def test_a_class_name_is_used_once() -> None:
    assert not [name for name, count in count_class_names(TREES).items() if count > 1]


def test_no_constructor_has_more_than_six_collaborators() -> None:
    assert not [(count, name) for count, name in list_collaborators(TREES) if count > 6]


def test_a_reading_crosses_few_files() -> None:
    assert len(walk_reading().files) <= 25


def test_the_product_has_few_files() -> None:
    # 290 was the aim when the rooms were merged; MQTT 5, updates, stories and words came since.
    assert len(TREES) <= 320
