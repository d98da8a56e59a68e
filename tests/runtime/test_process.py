"""A node that stumbles over its own defect goes on from its store, but not for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from denwatch.node.config import load_config
from denwatch.node.runtime import process
from denwatch.node.runtime.process import OpenedNode
from denwatch.node.store import StoreFailed, StoreFull

from simulator.site import Site


class Stage:
    """Stands in for the event loop: each run ends as the script says."""

    def __init__(self, *endings: BaseException | None) -> None:
        self.endings = list(endings)
        self.epochs: list[int] = []

    async def serve(self, opened: OpenedNode) -> None:
        self.epochs.append(opened.store.epoch)
        ending = self.endings.pop(0)
        if ending is not None:
            raise ending


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *endings: BaseException | None) -> Stage:
    node = Site(tmp_path).add_node("north")
    stage = Stage(*endings)
    monkeypatch.setattr(process, "_serve", stage.serve)
    monkeypatch.setattr(process, "_PAUSE", 0)
    process.serve_node(load_config(node.folder / "node.toml"))
    return stage


def test_after_a_defect_and_a_full_disk_it_starts_again_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = run(tmp_path, monkeypatch, KeyError("defect"), StoreFull("no room"), None)
    first = stage.epochs[0]
    assert stage.epochs == [first, first + 1, first + 2]  # a run of its own each time


def test_a_defect_that_comes_back_at_once_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyError):
        run(tmp_path, monkeypatch, *[KeyError("defect")] * 20)


def test_a_store_that_fails_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreFailed):
        run(tmp_path, monkeypatch, StoreFailed("broken"))
