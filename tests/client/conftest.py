"""Fixtures: a place with a broker and a node, and settings that do not make tests wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.plant import Place


@pytest.fixture
def build_place(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    places: list[Place] = []

    def build(name: str = "tent", **options: Any) -> Place:
        places.append(Place(tmp_path / name, name, **options))
        return places[-1]

    yield build
    for place in places:
        place.close()


@pytest.fixture
def place(build_place: Callable[..., Place]) -> Place:
    return build_place()
