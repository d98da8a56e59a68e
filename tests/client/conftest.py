"""Fixtures: a site with a broker and a node, and settings that do not make tests wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.sites import ScriptedSite


@pytest.fixture
def build_site(tmp_path: Path) -> Iterator[Callable[..., ScriptedSite]]:
    sites: list[ScriptedSite] = []

    def build(name: str = "tent", **options: Any) -> ScriptedSite:
        sites.append(ScriptedSite(tmp_path / name, name, **options))
        return sites[-1]

    yield build
    for site in sites:
        site.close()


@pytest.fixture
def site(build_site: Callable[..., ScriptedSite]) -> ScriptedSite:
    return build_site()
