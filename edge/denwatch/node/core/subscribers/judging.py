"""Whether a subscriber gets a notification that matched, and how it ranks: roles, age, top-k.

The ranking is that of `node.ranking` (PrefSIENA): value = score * degree, priorities first,
the maximum over the matching subscriptions of the best level. A `top k` belongs to the
subscription that says it, and ranks by that one alone: others of the same subscriber are neither
held back by it nor do they lift anything over it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from denwatch.node.core.interface import Reader
from denwatch.node.core.subscribers.notes import Note, name_attribute, name_event
from denwatch.node.core.subscribers.people import Owner, Sub, read_filter
from denwatch.node.core.subscribers.settings import Clock, Roles, SubscriberSettings
from denwatch.node.core.subscribers.significance import is_significant, remember
from denwatch.node.core.subscribers.tables import GateState, Last, Tables, encode_row
from denwatch.node.core.transaction import Transaction
from denwatch.node.matching.plugins import CONTENT
from denwatch.node.ranking.rank import Rank
from denwatch.node.ranking.topk import Verdict
from denwatch.protocol.matching import rate_age

Found = tuple[Sub, int, int, int]  # a subscription, possible, certain, attribute
_last_decoder = msgspec.msgpack.Decoder(Last)
_gate_decoder = msgspec.msgpack.Decoder(GateState)


def rank_hits(owner: Owner, hits: Sequence[Found]) -> tuple[Rank, Found]:
    """Return the rank of a notification for an owner, and the hit that decides it."""
    levels = owner.levels
    best_level = min(levels.get(hit[0].id, 1) for hit in hits) if levels else 1
    best: Found | None = None
    value = -1.0
    for hit in hits:  # by rising id: of equals the first stays
        if levels and levels.get(hit[0].id, 1) != best_level:
            continue
        worth = hit[0].score * hit[1] / 255
        if best is None or worth > value or (worth == value and hit[1] > best[1]):
            best, value = hit, worth
    assert best is not None, "a notification that matches nothing has no rank"
    return Rank(-best_level, value), best


@lru_cache(maxsize=1024)
def _name_constraints(vector: bytes) -> tuple[str, ...]:
    names = {constraint.name for constraint in read_filter(vector).constraints}
    return tuple(sorted(names - {"event", "device"}))


class Judge:
    """Decides for one subscriber after the other; its memory is on the disk."""

    def __init__(
        self, roles: Roles, clock: Clock, tables: Tables, settings: SubscriberSettings
    ) -> None:
        self._roles = roles
        self._clock = clock
        self._tables = tables
        self._settings = settings
        self._visible: dict[tuple[str, bytes, int, int], tuple[str | None, int]] = {}

    def localise(self, note: Note) -> tuple[int, int]:
        """Return when a notification was read and when it expires (0: never), in our timeline."""
        localise = self._clock.localise
        return localise(note.dot, note.at), note.expires and localise(note.dot, note.expires)

    def find_visible(self, role: str, note: Note) -> tuple[str | None, int]:
        """Return why a role may not see a notification at all, or the attributes it may see."""
        mask = note.vector.features | note.vector.faults
        key = role, note.vocabulary, note.vector.event, mask
        known = self._visible.get(key)
        if known is None:
            event = name_event(note)
            reason = self._roles.check(role, event, ())
            visible = 0
            for bit in range(16):
                if mask >> bit & 1:
                    name = name_attribute(note.event, bit)
                    if self._roles.check(role, event, (name,)) is None:
                        visible |= 1 << bit
            known = (None if reason is None else str(reason)), visible
            if note.event is not None:  # else it may get its names later
                self._visible[key] = known
        return known

    def forget_roles(self) -> None:
        """Ask again who may see what: the rules have changed."""
        self._visible.clear()

    def decide(
        self, transaction: Transaction, owner: Owner, note: Note, hits: Sequence[Found]
    ) -> tuple[list[Found], int, dict[str, list[int]]]:
        """Return the hits for which it is delivered, until when it counts, and why others fail."""
        at, expires = self.localise(note)
        refused: dict[str, list[int]] = {}
        passing: list[tuple[Found, float]] = []
        for hit in hits:
            reason, rated, until = self._judge_hit(transaction, note, hit, at, expires)
            if reason:
                refused.setdefault(reason, []).append(hit[0].id)
            else:
                passing.append((rated, until))
        if not passing:
            return [], 0, refused
        kept: list[tuple[Found, float]] = []
        for hit, until in passing:
            sub = hit[0]
            if sub.gate is not None:
                rank, _ = rank_hits(owner, (hit,))
                verdict = self._offer(transaction, sub, note, rank, until)
                if verdict is not Verdict.DELIVERED:
                    refused.setdefault("top-k", []).append(sub.id)
                    continue
            kept.append((hit, until))
        for hit, _ in kept:
            if hit[0].significance is not None:
                self._remember(transaction, hit[0], note, at)
        longest = max((until for _, until in kept), default=0)
        return [hit for hit, _ in kept], 0 if longest == math.inf else int(longest), refused

    def _judge_hit(
        self, transaction: Transaction, note: Note, hit: Found, at: int, expires: int
    ) -> tuple[str, Found, float]:
        """Return why a hit does not count ("" if it does), the hit as rated now, its end."""
        sub, possible, certain, attribute = hit
        if not self.may_see(sub, note):
            return "role", hit, 0
        until: float = expires or math.inf
        if sub.refresh is not None:
            until = min(until, at + note.doubt + sub.refresh)
        if until <= transaction.now:
            return "expired", hit, 0
        if sub.recent is not None:
            fresh = rate_age(max(0, transaction.now - at - note.doubt) // 1000, sub.recent)
            possible, certain = min(possible, fresh), min(certain, fresh)
            if possible < sub.threshold or certain < sub.certain:
                return "expired", hit, 0
            hit = sub, possible, certain, attribute
        if sub.significance is not None:
            last = self._read_last(transaction, sub, note)
            if not is_significant(sub, note, at, last, self._settings.episode):
                return "quiet", hit, 0
        return "", hit, until

    def may_see(self, sub: Sub, note: Note) -> bool:
        """Return whether the owner may see what the subscription asks for."""
        reason, visible = self.find_shown(sub, note)
        if reason is not None:
            return False
        if sub.language == CONTENT:
            names = _name_constraints(sub.vector)
            event = name_event(note)
            return all(self._roles.check(r, event, names) is None for r in self._list_roles(sub))
        return not sub.features & ~visible

    def find_shown(self, sub: Sub, note: Note) -> tuple[str | None, int]:
        """Return why the owner may not see a notification, or the attributes to be shown."""
        shown = -1
        for role in self._list_roles(sub):
            reason, visible = self.find_visible(role, note)
            if reason is not None:
                return reason, 0
            shown &= visible
        return None, shown

    def _list_roles(self, sub: Sub) -> set[str]:
        """Return the role that travels with the subscription, and the one that the owner has now.

        The second only if it is known here: who lost a role sees no more by what was asked before.
        """
        return {sub.role, self._roles.role_of(sub.owner.name) or sub.role}

    def _offer(
        self, transaction: Transaction, sub: Sub, note: Note, rank: Rank, until: float
    ) -> Verdict:
        assert sub.gate is not None
        verdict = sub.gate.offer(note.id, rank, transaction.now, until)
        self._tables.gate.put(transaction, sub.id.to_bytes(8, "big"), encode_row(sub.save_gate()))
        return verdict

    def _read_last(self, transaction: Transaction, sub: Sub, note: Note) -> Last | None:
        row = self._tables.last.get(transaction, _last_key(sub, note))
        return None if row is None else _last_decoder.decode(row)

    def _remember(self, transaction: Transaction, sub: Sub, note: Note, at: int) -> None:
        last = remember(sub, note, at, self._read_last(transaction, sub, note))
        self._tables.last.put(transaction, _last_key(sub, note), encode_row(last))

    def restore_gate(self, reader: Reader, sub: Sub) -> None:
        """Take up a top-k that an earlier run left."""
        if sub.gate is not None:
            row = self._tables.gate.get(reader, sub.id.to_bytes(8, "big"))
            if row is not None:
                sub.restore_gate(_gate_decoder.decode(row))

    def forget(self, transaction: Transaction, sub: Sub) -> None:
        """Forget all about a subscription."""
        key = sub.id.to_bytes(8, "big")
        if sub.gate is not None:
            self._tables.gate.put(transaction, key, None)
        if sub.significance is not None:
            transaction.clear(self._tables.last.space, key)


def _last_key(sub: Sub, note: Note) -> bytes:
    return sub.id.to_bytes(8, "big") + note.device.encode()
