"""The air between two nodes: a link with a bandwidth and a delay, and weather that spoils it.

A link carries one frame after another in each direction. When it breaks, what is under way is
lost. Weather loses, repeats, delays and changes frames, each direction on its own, so that a link
can be one-sided. Decides only when and whether a frame arrives, never what it means.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Disturbance:
    """What happens to frames of one direction; shares of 1."""

    loss: float = 0.0
    repeat: float = 0.0
    corrupt: float = 0.0
    jitter: int = 0  # ms, at most: later frames overtake earlier ones


FAIR = Disturbance()


@dataclass(frozen=True)
class Radio:
    """A kind of link."""

    reach: float = 100.0  # m
    bandwidth: int = 250_000  # bytes a second
    delay: int = 5  # ms


class Way:
    """One direction of a link."""

    def __init__(self, radio: Radio) -> None:
        self.radio = radio
        self.weather = FAIR
        self.free_at = 0  # when the last frame has left
        self.bytes = 0
        self.frames = 0

    def send(self, payload: bytes, now: int, rng: Random) -> list[tuple[int, bytes]]:
        """Return when a frame arrives, and as what; nothing if it is lost, two if repeated."""
        size = len(payload)
        self.bytes += size
        self.frames += 1
        start = max(now, self.free_at)
        self.free_at = start + size * 1000 // self.radio.bandwidth
        arrival = self.free_at + self.radio.delay
        if self.weather is FAIR:
            return [(arrival, payload)]
        weather, arrivals = self.weather, []
        for _ in range(2 if rng.random() < weather.repeat else 1):
            if rng.random() < weather.loss:
                continue
            late = rng.randrange(weather.jitter + 1) if weather.jitter else 0
            spoilt = spoil(payload, rng) if rng.random() < weather.corrupt else payload
            arrivals.append((arrival + late, spoilt))
        return arrivals


class Air:
    """A link that is up."""

    def __init__(self, first: str, second: str, radio: Radio) -> None:
        self.ways = {first: Way(radio), second: Way(radio)}  # by sender

    @property
    def bytes(self) -> int:
        """All that went over it."""
        return sum(way.bytes for way in self.ways.values())


def spoil(payload: bytes, rng: Random) -> bytes:
    """Return a frame with one thing wrong: a bit, a piece missing, something behind it."""
    kind = rng.randrange(3)
    if kind == 0 and payload:
        at = rng.randrange(len(payload))
        return payload[:at] + bytes([payload[at] ^ 1 << rng.randrange(8)]) + payload[at + 1 :]
    if kind == 1:
        return payload[: rng.randrange(len(payload) + 1)]
    return payload + rng.randbytes(1 + rng.randrange(40))
