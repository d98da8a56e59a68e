"""Strategies: which notifications are handed to which node, in which order, in how many copies.

    strategy = build_strategy("spray:8")
    choices = strategy.choose(candidates, peer, encounters, now)

Marks, subscriptions and vocabularies always go to everybody: they are small, they steer everything
else, and a mark that arrives frees room. A strategy is a pure decision about notifications.
"""

from __future__ import annotations

from denwatch.node.replication.strategies.epidemic import Epidemic
from denwatch.node.replication.strategies.interface import Candidate, Choice, Copy, Peer, Strategy
from denwatch.node.replication.strategies.spray import SprayAndWait
from denwatch.node.replication.strategies.utility import Utility

__all__ = [
    "Candidate",
    "Choice",
    "Copy",
    "Epidemic",
    "Peer",
    "SprayAndWait",
    "Strategy",
    "Utility",
    "build_strategy",
]


def build_strategy(text: str) -> Strategy:
    """Return the strategy that a word names: `epidemic`, `spray:8`, `utility` or `utility:12`."""
    name, colon, number = text.partition(":")
    if colon and not (number.isascii() and number.isdigit() and 0 < int(number) < 1 << 16):
        raise ValueError(f'strategy "{text}": a number of copies follows the colon')
    if name == "epidemic" and not colon:
        return Epidemic()
    if name == "spray":
        return SprayAndWait(int(number)) if colon else SprayAndWait()
    if name == "utility":
        return Utility(int(number)) if colon else Utility()
    raise ValueError(f'strategy "{text}": there are epidemic, spray:L and utility[:L]')
