"""Delivery: what waits for a subscriber goes out in the order of rank, and is told to others.

Only this file publishes notifications. A subscriber who is served has at most a window of them on
the way; an acknowledgement settles one and lets the next go. What was decided stays decided: after
a lost link or a restart, the same ones go out again without a second decision.
"""

from __future__ import annotations

import heapq
from array import array

from denwatch.node.core.interface import NOTES, Reader
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import NOTIFICATION, Dot
from denwatch.node.core.subscribers.judging import Found, Judge, rank_hits
from denwatch.node.core.subscribers.ledger import Ledger
from denwatch.node.core.subscribers.marks import Marks
from denwatch.node.core.subscribers.notes import Note, render_note
from denwatch.node.core.subscribers.people import Owner
from denwatch.node.core.subscribers.registry import Registry
from denwatch.node.core.subscribers.settings import Clock, SubscriberSettings
from denwatch.node.core.subscribers.tables import Want
from denwatch.node.core.subscribers.wants import Wants
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.vocabularies import Vocabularies
from denwatch.protocol.errors import ProtocolError

_KEPT_NOTES = 256
_WORTH_CLEANING = 1_024


class Delivery:
    """Notifications on their way to subscribers."""

    def __init__(
        self,
        item_store: ItemStore,
        vocabularies: Vocabularies,
        registry: Registry,
        wants: Wants,
        ledger: Ledger,
        judge: Judge,
        marks: Marks,
        clock: Clock,
        settings: SubscriberSettings,
    ) -> None:
        self._item_store = item_store
        self._vocabularies = vocabularies
        self._registry = registry
        self._wants = wants
        self._ledger = ledger
        self._judge = judge
        self._marks = marks
        self._clock = clock
        self._settings = settings
        self._notes: dict[int, Note] = {}
        self._token = 0
        self._let_go: list[tuple[int, int]] = []  # (time, code) of what all have

    # Notes ----------------------------------------------------------------------------------

    def keep(self, note: Note) -> None:
        """Have a decoded notification at hand."""
        if len(self._notes) >= _KEPT_NOTES:
            self._notes.clear()
        self._notes[note.code] = note

    def find_note(self, reader: Reader, code: int) -> Note | None:
        """Return a notification that is held."""
        note = self._notes.get(code)
        if note is None:
            item = self._item_store.get(reader, NOTIFICATION, self._ledger.decode(code))
            if item is None:
                return None
            try:
                note = Note(item, code)
            except ProtocolError:
                return None
            note.event = self._vocabularies.find_event(note.vocabulary, note.vector.event)
            self.keep(note)
        return note

    def forget_notes(self) -> None:
        """Decode anew: a vocabulary came."""
        self._notes.clear()

    # Subscribers ----------------------------------------------------------------------------

    def begin_service(self, transaction: Transaction, owner: Owner) -> None:
        """Offer everything that waits, best first."""
        waiting = array("Q")
        seen: set[int] = set()
        owner.heap = []
        owner.queued = set()
        owner.flight = {}
        for code in owner.codes:
            if code in seen:
                continue
            seen.add(code)
            want = self._wants.peek(transaction, code)
            if want is not None and self._push(owner, code, want):
                waiting.append(code)
        owner.codes = waiting
        owner.stale = 0
        self.serve(transaction, owner)

    def end_service(self, owner: Owner) -> None:
        """Stop: what is on its way goes out again when the subscriber is back."""
        owner.heap = []
        owner.queued = set()
        owner.flight = {}

    def reorder(self, transaction: Transaction, owner: Owner) -> None:
        """Rank what waits anew: the subscriber's wishes have changed."""
        codes = [entry[-1] for entry in owner.heap]
        owner.heap = []
        for code in codes:
            owner.queued.discard(code)
            want = self._wants.peek(transaction, code)
            if want is not None:
                self._push(owner, code, want)

    def note_gone(self, transaction: Transaction, owner: Owner) -> None:
        """Note that one of an owner's codes means nothing any more; clean when it is worth it."""
        owner.stale += 1
        if owner.stale > _WORTH_CLEANING and 2 * owner.stale > len(owner.codes):
            owner.codes = array(
                "Q", (c for c in set(owner.codes) if self._is_waiting(transaction, owner, c))
            )
            owner.stale = 0

    def _is_waiting(self, transaction: Transaction, owner: Owner, code: int) -> bool:
        if owner.is_served:
            return code in owner.queued
        want = self._wants.peek(transaction, code)
        return want is not None and owner.name in self._wants.list_degrees(want)

    def hand(self, transaction: Transaction, owner: Owner, code: int, want: Want) -> None:
        """Send a notification to a subscriber who has room for it, else let it wait."""
        owner.codes.append(code)
        if not owner.is_served or code in owner.queued:
            return
        if owner.heap or len(owner.flight) >= self._settings.window:
            self._push(owner, code, want)
        elif self._send(transaction, owner, code):
            owner.queued.add(code)

    def _push(self, owner: Owner, code: int, want: Want) -> bool:
        hits = self._registry.list_hits(owner, want.hits)
        if not hits or owner.name in want.settled:
            return False
        dot = self._ledger.decode(code)
        decided = want.offered.get(owner.name)
        rank, best = rank_hits(owner, hits)
        priority, value = rank if decided is None else decided[:2]
        read = want.latest - want.doubt
        heapq.heappush(owner.heap, (-priority, -value, -best[1], -read, dot.id, code))
        owner.queued.add(code)
        return True

    def serve(self, transaction: Transaction, owner: Owner) -> None:
        """Send while the window has room."""
        if not owner.is_served:
            return
        while owner.heap and len(owner.flight) < self._settings.window:
            code = heapq.heappop(owner.heap)[-1]
            if not self._send(transaction, owner, code):
                owner.queued.discard(code)

    def _send(self, transaction: Transaction, owner: Owner, code: int) -> bool:
        """Send one, if it is to be sent."""
        want = self._wants.find(transaction, code)
        note = self.find_note(transaction, code)
        if want is None or note is None or owner.name in want.settled:
            return False
        hits = self._registry.list_hits(owner, want.hits)
        if not hits:
            return False
        decided = want.offered.get(owner.name)
        if decided is None:
            hits, until = self._decide(transaction, owner, note, want, hits)
            if not hits:
                return False
            attempt = 1
        else:
            hits = [hit for hit in hits if self._judge.may_see(hit[0], note)]
            if not hits:
                return False
            until, attempt = decided[2], decided[3] + 1
        rank, best = rank_hits(owner, hits)
        want.offered[owner.name] = (rank.priority, rank.value, until, attempt)
        self._wants.change(code, want)
        self._token += 1
        owner.flight[self._token] = code
        self._publish(transaction, owner, note, hits, best, rank.value, until)
        transaction.log(
            "send",
            note=note.id,
            owner=owner.name,
            subscriptions=[hit[0].id for hit in hits],
            attempt=attempt,
            degree=best[1],
            score=rank.value,
        )
        transaction.count("notes_sent")
        return True

    def _decide(
        self, transaction: Transaction, owner: Owner, note: Note, want: Want, hits: list[Found]
    ) -> tuple[list[Found], int]:
        """Judge once; what fails is taken out of the row, so that nobody judges it again."""
        kept, until, refused = self._judge.decide(transaction, owner, note, hits)
        for reason, ids in refused.items():
            transaction.log(
                "suppress", note=note.id, owner=owner.name, reason=reason, subscriptions=ids
            )
            transaction.count("notes_suppressed", len(ids), reason)
        if not kept:
            self._wants.refuse(note.code, want, owner, (hit[0].id for hit in hits))
            self.note_gone(transaction, owner)
            self._check_all_have(transaction, note.code, want)
            return [], 0
        mine = {hit[0].id for hit in hits}
        rated = [(hit[0].id, *hit[1:]) for hit in kept]
        want.hits = sorted([hit for hit in want.hits if hit[0] not in mine] + rated)
        return kept, until

    def _publish(
        self,
        transaction: Transaction,
        owner: Owner,
        note: Note,
        hits: list[Found],
        best: Found,
        score: float,
        until: int,
    ) -> None:
        sub, possible, certain, attribute = best
        _, visible = self._judge.find_shown(sub, note)
        message = render_note(
            note,
            visible,
            sub,
            (possible, certain, attribute),
            [hit[0].label for hit in hits],
            score,
            self._clock.show(note.dot, note.at),
            self._clock.date(until) if until else None,
            self._item_store.name,
        )
        transaction.publish(NOTES + owner.name, message, token=self._token)

    # Acknowledgements -----------------------------------------------------------------------

    def acknowledge(self, transaction: Transaction, owner: Owner, token: int) -> None:
        """Note that the subscriber has what was sent with this token."""
        code = owner.flight.pop(token, None)
        if code is None:
            transaction.log("duplicate", what="acknowledgement", source=owner.name)
            return
        self._settle(transaction, owner, code)
        self.serve(transaction, owner)

    def receive(self, transaction: Transaction, owner: Owner, ids: set[int]) -> int:
        """Note that the subscriber has these, as its library says; return how many were new."""
        tokens = {self._ledger.decode(code).id: token for token, code in owner.flight.items()}
        count = 0
        for id in sorted(ids):
            token = tokens.get(id)
            if token is not None:
                self._settle(transaction, owner, owner.flight.pop(token))
                count += 1
        rest = ids - tokens.keys()
        if rest:
            for code in list(owner.queued) if owner.is_served else list(owner.codes):
                if self._ledger.decode(code).id in rest and self._settle(transaction, owner, code):
                    count += 1
        self.serve(transaction, owner)
        return count

    def _settle(self, transaction: Transaction, owner: Owner, code: int) -> bool:
        owner.queued.discard(code)
        dot = self._ledger.decode(code)
        want = self._wants.find(transaction, code)
        if want is None:  # gone while it was on its way; nobody else has it either
            transaction.log("deliver", note=dot.id, owner=owner.name, subscriptions=[], attempt=1)
            transaction.count("notes_delivered")
            return False
        hits = self._registry.list_hits(owner, want.hits)
        sent = want.offered.get(owner.name)
        if not self._wants.settle(code, want, owner):
            # Another node was faster while it was on its way from here.
            transaction.log("duplicate", what="delivery", source=owner.name, item=dot.id)
            return False
        self.note_gone(transaction, owner)
        transaction.log(
            "deliver",
            note=dot.id,
            owner=owner.name,
            subscriptions=[hit[0].id for hit in hits],
            attempt=sent[3] if sent else 0,
            at=want.at,
            degree=max((hit[1] for hit in hits), default=None),
        )
        transaction.count("notes_delivered")
        # A mark is an item of ours: it lives as long as what it marks, in our timeline.
        expires = want.expires and self._clock.localise(dot, want.expires)
        self._marks.keep(transaction, owner.name, dot, expires)
        self._check_all_have(transaction, code, want)
        return True

    def settle_elsewhere(self, transaction: Transaction, owner: Owner, dot: Dot) -> None:
        """Note that another node has delivered what is held here."""
        code = self._ledger.encode(dot)
        want = self._wants.find(transaction, code)
        if want is not None and self._wants.settle(code, want, owner):
            self.note_gone(transaction, owner)
            self._check_all_have(transaction, code, want)

    # Letting go -----------------------------------------------------------------------------

    def _check_all_have(self, transaction: Transaction, code: int, want: Want) -> None:
        after = self._settings.purge_after
        if after is not None and not self._wants.list_degrees(want):
            due = max(transaction.now, want.latest + after)
            heapq.heappush(self._let_go, (due, code))

    def let_go(self, transaction: Transaction) -> None:
        """Let go of what all known subscribers have had for long enough."""
        while self._let_go and self._let_go[0][0] <= transaction.now:
            code = heapq.heappop(self._let_go)[1]
            want = self._wants.find(transaction, code)
            if want is not None and not self._wants.list_degrees(want):
                dot = self._ledger.decode(code)
                self._item_store.remove(transaction, NOTIFICATION, dot, "delivered")
