"""Collects what one call of the server gives out: changes first, then bytes, then closings.

All bytes for one link become one `Send`, so that a burst of publishes is answered with one write.
"""

from __future__ import annotations

from denwatch.node.mqtt.interface import Close, Output, Send


class Step:
    """The outputs of the call that is under way."""

    __slots__ = ("_closes", "_outputs", "_sends", "add")

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._sends: dict[int, list[bytes]] = {}
        self._closes: list[Output] = []
        self.add = self._outputs.append

    def send(self, link: int, data: bytes) -> None:
        """Send a packet."""
        chunks = self._sends.get(link)
        if chunks is None:
            self._sends[link] = [data]
        else:
            chunks.append(data)

    def close(self, link: int, reason: str) -> None:
        """Close a link after what is sent."""
        self._closes.append(Close(link, reason))

    def finish(self) -> list[Output]:
        """Return everything in order, and start anew."""
        outputs = self._outputs
        for link, chunks in self._sends.items():
            outputs.append(Send(link, chunks[0] if len(chunks) == 1 else b"".join(chunks)))
        if self._sends:
            self._sends = {}
        if self._closes:
            outputs += self._closes
            self._closes = []
        self._outputs = []
        self.add = self._outputs.append
        return outputs
