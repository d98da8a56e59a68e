"""One fingerprint of all that a node could tell another: equal prints, nothing to say. Pure.

It covers what was ever seen (the context) and which removable items are held; with both equal, no
frame could change anything at either side. Held notifications and marks are not in it: whoever has
seen one does not take it again, and lets go of it by its own clock.

A run's hash is taken anew only when the run changed; a contact hashes 16 bytes a run. There is no
algebra in it (no sums, no XOR of hashes), so that nobody can choose dots that cancel out, and the
salt of each contact is made with a secret, so that nobody can look for collisions beforehand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from denwatch.node.replication.context import EMPTY, Range, Run
from denwatch.node.replication.wire import GROUP, PRINT, SALT


class Prints:
    """The hashes of one node's runs."""

    def __init__(self) -> None:
        self._hashes: dict[Run, bytes] = {}
        self._order: list[Run] = []

    def update(self, run: Run, seen: Range, held: Mapping[int, int]) -> None:
        """Hash a run that changed: what was seen, and the removable items held, as 64-bit masks."""
        if seen == EMPTY:
            return
        state = hashlib.blake2b(digest_size=PRINT, person=b"run")
        name = run[0].encode()
        encoded = seen.encode()
        state.update(bytes([len(name)]) + name + run[1].to_bytes(4, "big"))
        state.update(len(encoded).to_bytes(4, "big") + encoded)
        for block in sorted(held):
            if held[block]:
                state.update(block.to_bytes(8, "big") + held[block].to_bytes(8, "big"))
        if run not in self._hashes:
            self._order = []
        self._hashes[run] = state.digest()

    def combine(self, salt: bytes) -> bytes:
        """Return the print of everything, for one contact."""
        if not self._order:
            self._order = sorted(self._hashes)
        state = hashlib.blake2b(digest_size=PRINT, key=salt, person=b"contact")
        for run in self._order:
            state.update(self._hashes[run])
        return state.digest()

    def hash_groups(self, salt: bytes, count: int) -> list[bytes]:
        """Return the hashes of so many groups of runs, for one contact."""
        states = [
            hashlib.blake2b(digest_size=GROUP, key=salt, person=b"group") for _ in range(count)
        ]
        for run in sorted(self._hashes):
            states[find_group(run, count)].update(self._hashes[run])
        return [state.digest() for state in states]


def find_group(run: Run, count: int) -> int:
    """Return the group of a run, which both sides find alike."""
    name = run[0].encode() + run[1].to_bytes(4, "big")
    return int.from_bytes(hashlib.blake2b(name, digest_size=4).digest(), "big") % count


def make_salt(secret: bytes, name: str, epoch: int, count: int, now: int) -> bytes:
    """Return a salt that no other contact of this node has and no third node can foresee."""
    told = b"".join(number.to_bytes(8, "big", signed=True) for number in (epoch, count, now))
    told += name.encode()  # both ends have the secret, and may begin at the same time
    return hashlib.blake2b(told, digest_size=SALT, key=secret[:64], person=b"salt").digest()
