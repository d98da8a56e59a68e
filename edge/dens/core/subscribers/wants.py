"""Who wants which notification: the rows of `sub.want`, read once and written once in a turn."""

from __future__ import annotations

from edge.dens.core.items import Dot
from edge.dens.core.subscribers.ledger import Ledger
from edge.dens.core.subscribers.people import Owner
from edge.dens.core.subscribers.registry import Registry
from edge.dens.core.subscribers.tables import Tables, Want, decode_want, encode_row
from edge.dens.core.turn import Turn


class Wants:
    """The notifications that are held, with their subscribers."""

    def __init__(self, tables: Tables, registry: Registry, ledger: Ledger) -> None:
        self._table = tables.want
        self._registry = registry
        self._ledger = ledger
        self._open: dict[bytes, Want] = {}  # read or made in this turn
        self._changed: dict[bytes, Want] = {}
        self._turn: Turn | None = None

    def begin(self, turn: Turn) -> None:
        """Note which turn it is."""
        if turn is not self._turn:
            self._turn = turn
            self._open = {}

    def find(self, dot: Dot) -> Want | None:
        """Return what is known of a notification; change it only together with `change`."""
        key = dot.key
        want = self._open.get(key)
        if want is None:
            row = self._table.get(key)
            if row is None:
                return None
            want = self._open[key] = decode_want(row)
        return want

    def peek(self, dot: Dot) -> Want | None:
        """Return what is known of a notification, only to look at: nothing is kept of it."""
        key = dot.key
        want = self._open.get(key)
        if want is None:
            row = self._table.get(key)
            return None if row is None else decode_want(row)
        return want

    def change(self, dot: Dot, want: Want) -> None:
        """Note that a row has changed, or is new."""
        key = dot.key
        self._open[key] = self._changed[key] = want

    def flush(self, turn: Turn) -> None:
        """Write what has changed."""
        for key, want in self._changed.items():
            self._table.put(turn, key, encode_row(want))
        if self._changed:
            self._changed = {}

    def drop(self, turn: Turn, dot: Dot) -> Want | None:
        """Forget a notification; return what was known."""
        want = self.find(dot)
        if want is not None:
            key = dot.key
            self._open.pop(key, None)
            self._changed.pop(key, None)
            self._table.put(turn, key, None)
        return want

    def settle(self, dot: Dot, want: Want, owner: Owner) -> bool:
        """Note that a subscriber is done with a notification; return whether that is news."""
        if owner.name in want.settled:
            return False
        by_id = self._registry.by_id
        want.hits = [
            hit for hit in want.hits if (sub := by_id.get(hit[0])) is None or sub.owner is not owner
        ]
        want.offered.pop(owner.name, None)
        want.settled.append(owner.name)
        self.change(dot, want)
        return True

    def list_degrees(self, want: Want) -> dict[str, int]:
        """Return who still wants a notification, and how much."""
        degrees: dict[str, int] = {}
        for id, possible, _, _ in want.hits:
            sub = self._registry.by_id.get(id)
            if sub is not None:
                name = sub.owner.name
                degrees[name] = max(possible, degrees.get(name, 0))
        return degrees

    def restore(self) -> int:
        """Fill the ledger from the disk; return how many notifications there are."""
        count = 0
        by_id = self._registry.by_id
        for key, row in self._table.scan():
            want = decode_want(row)
            code = self._ledger.encode_key(key)
            self._ledger.note_time(code, want.latest)
            owners = {id(sub.owner): sub.owner for hit in want.hits if (sub := by_id.get(hit[0]))}
            for owner in owners.values():
                owner.codes.append(code)
            count += 1
        return count
