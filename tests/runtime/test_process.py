"""A node that stumbles over its own defect goes on from its store, but not for ever."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from denwatch.cli.node import run as run_command
from denwatch.node.config import load_config
from denwatch.node.log.segments import Footer, Header, pack_footer, pack_header
from denwatch.node.runtime import process
from denwatch.node.runtime.process import OpenedNode
from denwatch.node.store import StoreDecayed, StoreFailed, StoreFull

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
    # A run's number is at least the time in seconds: on a slow machine it would skip some.
    now = process.read_wall()
    monkeypatch.setattr(process, "read_wall", lambda: now)
    process.serve_node(load_config(node.folder / "node.toml"))
    return stage


def test_after_a_defect_and_a_full_disk_it_starts_again_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = run(tmp_path, monkeypatch, KeyError("defect"), StoreFull("no room"), None)
    assert len(stage.epochs) == 3
    assert sorted(set(stage.epochs)) == stage.epochs  # a run of its own each time


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


@pytest.mark.parametrize(
    "shortage", [StoreFull("no room"), OSError(errno.EMFILE, "too many"), OSError(errno.ENOSPC, "")]
)
def test_a_node_that_finds_no_room_when_it_opens_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shortage: Exception
) -> None:
    open_node = process.open_node
    shortages = [shortage] * 3

    def open_late(config: Any) -> OpenedNode:
        if shortages:
            raise shortages.pop()
        return open_node(config)

    monkeypatch.setattr(process, "open_node", open_late)
    assert len(run(tmp_path, monkeypatch, StoreDecayed("a value"), None).epochs) == 2


def test_what_does_not_pass_by_itself_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="in use"):
        run(tmp_path, monkeypatch, OSError(errno.EADDRINUSE, "the port is in use"))


def test_a_check_names_what_is_damaged_in_store_and_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, monkeypatch, None)
    folder = tmp_path / "north"
    assert run_command(["--check", str(folder)]) == 0
    assert capsys.readouterr().out == "north: configuration, keys, store and log are valid\n"
    log = folder / "data" / "log" / f"north-{1:010d}-{1:020d}.dlog"
    header = pack_header(Header("north", 1, 1, 1_700_000_000_000))
    log.write_bytes(header + pack_footer(Footer(1, {}, [])))
    assert run_command(["--check", str(folder)]) == 0
    log.write_bytes(log.read_bytes()[:-9] + b"?" + log.read_bytes()[-8:])
    path = folder / "data" / "node.db"
    data = bytearray(path.read_bytes())
    place = data.index(b"epoch~") + 12
    data[place] ^= 1
    path.write_bytes(data)
    capsys.readouterr()
    assert run_command(["--check", str(folder)]) == 1
    *named, last = capsys.readouterr().out.splitlines()
    assert last == "north: 3 damaged; when the node is started it goes on without these"
    assert named[0] == f"{path}: meta: epoch~ is damaged"
    assert all(line.startswith(f"{log}: byte ") for line in named[1:])  # a footer that is no footer
