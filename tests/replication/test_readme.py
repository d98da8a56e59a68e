"""The frames that the package's README shows are the frames that two nodes send."""

from __future__ import annotations

import re

from denwatch.node.replication.wire import NAMES, read_frame

from simulator.site import REPOSITORY
from tests.replication.network import Network

README = REPOSITORY / "edge" / "denwatch" / "node" / "replication" / "README.md"
FRAME = re.compile(r"^(\w) → (\w) (\w+) +(.*)$")
BYTES = re.compile(r"(?:[0-9a-f]{2}(?: |$))+")


def list_shown() -> list[tuple[str, str, str, bytes]]:
    """Return sender, receiver, kind and bytes of each frame in the README's blocks."""
    shown: list[tuple[str, str, str, bytes]] = []
    for block in README.read_text(encoding="utf-8").split("```")[1::2]:
        for line in block.strip("\n").split("\n"):
            found = FRAME.match(line)
            start = found.groups() if found else (*shown[-1][:3], line.strip())
            piece = BYTES.match(start[3])
            data = bytes.fromhex(piece.group()) if piece else b""
            if found:
                shown.append((*start[:3], data))
            else:
                shown[-1] = (*shown[-1][:3], shown[-1][3] + data)
    return shown


def test_the_readme_shows_real_frames() -> None:
    network = Network("ab")
    first, second = network.hosts["a"], network.hosts["b"]
    first.subscribe(network.now, "medic7")
    for number in (1, 2):
        second.notify(network.now, number)
    network.link("a", "b")
    network.run()
    for is_news in (False, True):
        network.cut("a", "b")
        if is_news:
            second.notify(network.now, 3)
        network.now += 60_000
        network.link("a", "b")
        network.run()
    sent = [
        (sender, receiver, NAMES[read_frame(frame, 1 << 20).kind], frame)
        for sender, receiver, frame in network.sent
    ]
    shown = list_shown()
    assert [kind for _, _, kind, _ in shown] == [
        *("digest", "summary", "answer", "completion", "items"),
        *("equal", "summary", "answer"),
    ]
    place = 0
    for sender, receiver, kind, data in shown:
        while not (sent[place][:3] == (sender, receiver, kind) and sent[place][3].startswith(data)):
            place += 1  # IndexError: no such frame was sent, in this order
        assert kind == "items" or sent[place][3] == data
