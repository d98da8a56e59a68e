"""One event as some devices sense it: which wishes about it must be sent, and for how long.

Devices that sense the same attributes of an event share one covering table: a thousand devices cost
one decision a subscription. A wish that the active ones cover is passive and is not sent; when what
covered it goes, it comes back.

Covering speaks of exact readings only. A reading with doubt can match a covered wish and none of
those that cover it, so devices that have sent readings with doubt share a table without covering:
they get everything. A hello does not say whether a sensor has doubt; the first such reading does,
and from then on it is remembered.

An active wish must stay on the device as long as any wish that it stands for, also where nobody can
reach the device when its own subscription ends. So all active ones are leased for as long as the
passive ones live. What had to be extended once gets twice the time that it needs: people who ask
for the same day by day shall not cost a frame each.
"""

from __future__ import annotations

from typing import NamedTuple

from denwatch.node.core.devices.contracts import Masks
from denwatch.node.core.devices.wishes import FOREVER, Wish
from denwatch.node.covering import Covering, Domains, Policy
from denwatch.node.covering.boxes import ATTRIBUTES_PER_EVENT, box_vector
from denwatch.protocol.subscription import decode

_LEAST_CHANGES = 32  # before a table is built anew
_WIDE = (0, 65535)


class SenseKey(NamedTuple):
    """What devices have in common that share a table."""

    vocabulary: bytes
    event: int
    masks: Masks
    is_doubtful: bool


class Change(NamedTuple):
    """Wishes that devices must hear of: because they came, went, or must stay longer."""

    added: list[bytes]
    dropped: list[bytes]
    renewed: list[bytes]


class Sense:
    """The wishes about one event that fit one set of features."""

    def __init__(self, key: SenseKey, policy: Policy) -> None:
        self.key = key
        self.active: dict[bytes, None] = {}
        self.waiting: dict[bytes, None] = {}  # to be placed
        # By vector. Several wishes have the same one if they are of several vocabularies.
        self._wishes: dict[bytes, list[Wish]] = {}
        self._table: Covering[bytes] | None = None
        if not key.is_doubtful:
            base = ATTRIBUTES_PER_EVENT * key.event
            wides = {base + bit: _WIDE for bit in range(16) if key.masks[1] >> bit & 1}
            self._table = Covering(Domains(special=wides), policy)
        self._by: dict[bytes, bytes] = {}  # passive ones that one active one covers alone
        self._covered: dict[bytes, dict[bytes, None]] = {}  # the reverse
        self._leases: dict[bytes, int] = {}  # of placed wishes, for their own sake
        self._horizon = 0  # the lease of all active ones, for the sake of the passive ones
        self._changes = 0  # since the table was built anew

    @property
    def name(self) -> str:
        """What the log calls it."""
        doubt = "?" if self.key.is_doubtful else ""
        features, wides = self.key.masks
        vocabulary = self.key.vocabulary.hex()
        return f"{vocabulary}/{self.key.event}/{features:04x}/{wides:04x}{doubt}"

    def __len__(self) -> int:
        return len(self._leases)

    def find_lease(self, body: bytes) -> int:
        """Return until when an active wish must stay on a device."""
        return max(self._leases[body], self._horizon)

    def name_item(self, body: bytes) -> int:
        """Return the first subscription that asks for a wish."""
        return self._wishes[body][0].ids[0]

    def rate(self, body: bytes) -> tuple[int, float]:
        """Return how many subscriptions an active wish serves, with those it covers; its score."""
        served = [body, *self._covered.get(body, ())]
        count = sum(len(wish.ids) for one in served for wish in self._wishes[one])
        return count, sum(wish.score for wish in self._wishes[body])

    def get_coverer(self, body: bytes) -> bytes | None:
        """Return the active wish that covers a passive one alone, if that is known."""
        return self._by.get(body)

    # Changing ---------------------------------------------------------------------------------

    def offer(self, wish: Wish) -> bool:
        """Take a wish in; return whether its vector is new here, so that `place` decides on it."""
        is_new = wish.body not in self._wishes
        self._wishes.setdefault(wish.body, []).append(wish)
        if is_new:
            self.waiting[wish.body] = None
        return is_new

    def place(self, limit: int, now: int) -> Change:
        """Decide on at most so many of the wishes that wait."""
        change = Change([], [], [])
        for body in list(self.waiting)[:limit]:
            del self.waiting[body]
            self._leases[body] = self._find_end(body)
            self._changes += 1
            if self._table is None:
                self._activate(body, change)
                continue
            placement = self._table.subscribe(body, box_vector(decode(body)))
            if placement.active:
                self._activate(body, change)
            else:
                if placement.by is not None:
                    self._by[body] = placement.by
                    self._covered.setdefault(placement.by, {})[body] = None
                self._reach(self._leases[body], now, change)
        return change

    def withdraw(self, wish: Wish) -> Change:
        """Let go of a wish, if it is here; passive ones that it covered come back."""
        change = Change([], [], [])
        body = wish.body
        wishes = self._wishes.get(body, [])
        if wish not in wishes:
            return change
        wishes.remove(wish)
        if wishes:
            return change
        del self._wishes[body]
        if body in self.waiting:
            del self.waiting[body]
            return change
        self._changes += 1
        del self._leases[body]
        self._uncover(body)
        if body in self.active:
            del self.active[body]
            change.dropped.append(body)
        if self._table is not None:
            back = self._table.unsubscribe(body)
            for other in self._covered.pop(body, ()):
                del self._by[other]
            for other in back:
                self._activate(other, change)
        return change

    def renew(self, body: bytes, now: int) -> Change:
        """Note that a wish which is here already may have to stay longer."""
        change = Change([], [], [])
        end = self._find_end(body)
        if body in self.active:
            is_short = end > self.find_lease(body)
            if end > self._leases[body]:
                self._leases[body] = _extend(end, now)
            if is_short:
                change.renewed.append(body)
        elif body not in self.waiting:
            self._reach(end, now, change)
        return change

    def rebuild(self, limit: int) -> Change:
        """Place all anew, the widest first, if much has changed and it is not too much work."""
        change = Change([], [], [])
        size = len(self)
        if self._table is None or self._changes < max(_LEAST_CHANGES, size // 2) or size > limit:
            return change
        self._changes = 0
        moved = self._table.rebuild()
        self._by.clear()
        self._covered.clear()
        for body in moved.activated:
            self._activate(body, change)
        longest = self._horizon
        for body in moved.silenced:
            del self.active[body]
            change.dropped.append(body)
            longest = max(longest, self._leases[body])
        if longest > self._horizon:
            self._horizon = longest
            self._list_short(change)
        return change

    def _find_end(self, body: bytes) -> int:
        """Return when the last subscription that asks for it ends."""
        return max(wish.expires for wish in self._wishes[body])

    def _activate(self, body: bytes, change: Change) -> None:
        self._uncover(body)
        self._leases[body] = max(self._leases[body], self._find_end(body))
        self.active[body] = None
        change.added.append(body)

    def _uncover(self, body: bytes) -> None:
        by = self._by.pop(body, None)
        if by is not None:
            del self._covered[by][body]

    def _reach(self, expires: int, now: int, change: Change) -> None:
        """Lease the active ones for as long as a passive one lives."""
        if expires > self._horizon:
            self._horizon = _extend(expires, now) if self._horizon else expires
            self._list_short(change)

    def _list_short(self, change: Change) -> None:
        """Tell of the active ones that the horizon concerns."""
        change.renewed.extend(body for body in self.active if self._leases[body] < self._horizon)


def _extend(expires: int, now: int) -> int:
    """Return twice the time that is needed."""
    return expires if expires >= FOREVER else now + 2 * (expires - now)
