"""Replication as a pure library: sets of dots, frames, clocks, strategies. Start with README.md.

It imports no state of a node. Of `core` it uses `core/items.py` alone, which is pure as well: dots
and items as bytes, with no import of the rest of the core. `core/peers` runs the protocol.
"""
