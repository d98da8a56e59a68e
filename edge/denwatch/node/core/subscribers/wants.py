"""Who wants which notification: the rows of `sub.want`, written once in a transaction.

The only file that reads and writes these rows, so what was read lately is still right.
"""

from __future__ import annotations

from collections.abc import Iterable

from denwatch.node.core.interface import Reader
from denwatch.node.core.subscribers.ledger import Ledger
from denwatch.node.core.subscribers.people import Owner
from denwatch.node.core.subscribers.registry import Registry
from denwatch.node.core.subscribers.tables import Tables, Want, decode_want, encode_row
from denwatch.node.core.transaction import Transaction

_KEPT = 4_096  # rows at hand between turns


class Wants:
    """The notifications that are held, with their subscribers."""

    def __init__(self, tables: Tables, registry: Registry, ledger: Ledger) -> None:
        self._table = tables.want
        self._registry = registry
        self._ledger = ledger
        self._open: dict[int, Want] = {}  # read or made lately
        self._changed: dict[int, Want] = {}

    def find(self, reader: Reader, code: int) -> Want | None:
        """Return what is known of a notification; change it only together with `change`."""
        want = self._open.get(code)
        if want is None:
            row = self._table.get(reader, self._ledger.make_key(code))
            if row is None:
                return None
            want = self._open[code] = decode_want(row)
        return want

    def peek(self, reader: Reader, code: int) -> Want | None:
        """Return what is known of a notification, only to look at: nothing is kept of it."""
        want = self._open.get(code)
        if want is None:
            row = self._table.get(reader, self._ledger.make_key(code))
            return None if row is None else decode_want(row)
        return want

    def change(self, code: int, want: Want) -> None:
        """Note that a row has changed, or is new."""
        self._open[code] = self._changed[code] = want

    def flush(self, transaction: Transaction) -> None:
        """Write what has changed."""
        for code, want in self._changed.items():
            self._table.put(transaction, self._ledger.make_key(code), encode_row(want))
        if self._changed:
            self._changed = {}
        if len(self._open) > _KEPT:
            self._open.clear()

    def drop(self, transaction: Transaction, code: int) -> Want | None:
        """Forget a notification; return what was known."""
        want = self.find(transaction, code)
        if want is not None:
            self._open.pop(code, None)
            self._changed.pop(code, None)
            self._table.put(transaction, self._ledger.make_key(code), None)
        return want

    def settle(self, code: int, want: Want, owner: Owner) -> bool:
        """Note that a subscriber is done with a notification; return whether that is news."""
        if owner.name in want.settled:
            return False
        self._withdraw(want, owner)
        want.offered.pop(owner.name, None)
        want.settled.append(owner.name)
        self.change(code, want)
        return True

    def refuse(self, code: int, want: Want, owner: Owner, ids: Iterable[int]) -> None:
        """Note that it was decided against a notification, for these subscriptions of an owner.

        Another one of the same owner may still come that wants it.
        """
        self._withdraw(want, owner)
        want.refused = sorted({*want.refused, *ids})
        self.change(code, want)

    def _withdraw(self, want: Want, owner: Owner) -> None:
        by_id = self._registry.by_id
        want.hits = [
            hit for hit in want.hits if (sub := by_id.get(hit[0])) is None or sub.owner is not owner
        ]

    def list_degrees(self, want: Want) -> dict[str, int]:
        """Return who still wants a notification, and how much."""
        degrees: dict[str, int] = {}
        for id, possible, _, _ in want.hits:
            sub = self._registry.by_id.get(id)
            if sub is not None:
                name = sub.owner.name
                degrees[name] = max(possible, degrees.get(name, 0))
        return degrees

    def restore(self, reader: Reader) -> int:
        """Fill the ledger from the disk; return how many notifications there are."""
        count = 0
        by_id = self._registry.by_id
        for key, row in self._table.scan(reader):
            want = decode_want(row)
            code = self._ledger.encode_key(key)
            self._ledger.note_time(code, want.latest)
            for hit in want.hits:
                sub = by_id.get(hit[0])
                if sub is not None:
                    codes = sub.owner.codes
                    if not codes or codes[-1] != code:  # once, however many hits are theirs
                        codes.append(code)
            count += 1
        return count
