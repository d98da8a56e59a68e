"""`denwatch device log`: what a node's log has of one device."""

# cpython only: it runs the PC's commands

from __future__ import annotations

from pathlib import Path

import pytest
from denwatch.cli import device
from denwatch.cli.errors import CommandError
from denwatch.node.log import DiskFiles, Writer, encode_record
from denwatch.node.store import Store

from tests.devices.device_node import DeviceNode, make_hello
from tests.devices.test_hello import hello


def write_log(folder: Path, node: DeviceNode) -> None:
    """Write what a node logged into segments."""
    with Store(folder.parent / "n.db", "north") as store:
        writer = Writer(store, DiskFiles(folder))
        for i, log in enumerate(node.logs):
            store.apply([], [encode_record(log.kind, log.fields, node.now + i)])
        store.commit()
        writer.move(node.now)
        store.commit()


def test_hellos_facts_log_lines_and_refusals_of_one_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = DeviceNode()
    node.do(hello(make_hello(2, 1, facts={1: 3712, 2: 9, 9: 61}, log="12 link: ended\n")))
    node.do(hello(make_hello(1, 1)))
    node.do(hello(b""))
    (tmp_path / "north").mkdir()
    write_log(tmp_path / "north" / "log", node)
    assert device.run(["log", "dog-1", "--directory", str(tmp_path / "north")]) == 0
    lines = [line[20:] for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == [
        "hello, epoch 2: battery_mv 3712, wakes 9, signal_dbm -61",
        "  12 link: ended",
    ]
    assert lines[2].startswith("refused: replay: hello (1, 1)")
    assert lines[3:] == ["gone"]
    with pytest.raises(CommandError, match="dog-2"):
        device.run(["log", "dog-2", "--directory", str(tmp_path)])
