"""Who has what: "I have it". A claim is an item that all nodes learn.

A *subject* is a device (a bed, a place: whatever its readings are of), or one notification, `#` and
its id. The latest claim of a subject holds, wherever it was made: who has it, since when, and until
when its alarms are to be silent. It ends when it is released, or after `claim_life`. Only this file
reads and makes these items.

A claim takes nothing from anybody. Notifications are delivered as before, and say who has them; an
app makes no sound for what is silent. What a claim does stop is an escalation: a subscription that
waits for somebody to have it (`Subscription.delay`) stays quiet if somebody has.
"""

from __future__ import annotations

from typing import Any

from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import CLAIM, ClaimBody, Item, decode_body, encode_body
from denwatch.node.core.notifications import Notification, format_time
from denwatch.node.core.subscriptions import ItemClock, SubscriberSettings
from denwatch.protocol.errors import ProtocolError


def name_subject(id: int) -> str:
    """Return the subject that is one notification; no device has such a name."""
    return f"#{id:016x}"


class Claims:
    """All claims that a node knows of, by subject."""

    def __init__(
        self, item_store: ItemStore, clock: ItemClock, settings: SubscriberSettings
    ) -> None:
        self.item_store = item_store
        self._clock = clock
        self._settings = settings
        self.held: dict[str, tuple[Item, ClaimBody]] = {}  # by subject

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run stored."""
        for item in self.item_store.iterate(reader, CLAIM):
            body = decode_body(ClaimBody, item.body)
            known = self.held.get(body.subject)
            if known is None or _is_newer((item, body), known):
                self.held[body.subject] = item, body

    def set(
        self, transaction: Transaction, subject: str, holder: str, by: str, silence: int
    ) -> None:
        """Let somebody have a subject; it holds when the item is reported as added."""
        known = self.held.get(subject)
        since = created = transaction.now
        if known is not None:
            item, before = known
            created = max(created, before.created + 1)
            if before.holder == holder:
                since = min(since, self._clock.localise(item.dot, before.since))
                if not silence and not before.silence:
                    return  # said again
        body = ClaimBody(subject, holder, by, since, created, silence)
        expires = transaction.now + self._settings.claim_life
        self.item_store.originate(transaction, CLAIM, expires, encode_body(body))

    def release(self, transaction: Transaction, subject: str) -> bool:
        """Let nobody have a subject; return whether anybody had."""
        known = self.held.get(subject)
        if known is not None:
            self.item_store.remove(transaction, CLAIM, known[0].dot, "removed")
        return known is not None

    def add(self, transaction: Transaction, item: Item) -> str | None:
        """Note a new claim; return its subject, None if another one holds or it is refused."""
        try:
            body = decode_body(ClaimBody, item.body)
        except ProtocolError as error:
            transaction.log("refuse", what="claim", why=str(error), who=item.dot.origin)
            return None
        known = self.held.get(body.subject)
        if known is not None and not _is_newer((item, body), known):
            self.item_store.remove(transaction, CLAIM, item.dot, "replaced")
            return None
        self.held[body.subject] = item, body
        if known is not None:
            self.item_store.remove(transaction, CLAIM, known[0].dot, "replaced")
        return body.subject

    def remove(self, item: Item) -> str | None:
        """Forget a claim that is gone; return its subject, None if another one holds."""
        body = decode_body(ClaimBody, item.body)
        known = self.held.get(body.subject)
        if known is None or known[0].dot != item.dot:
            return None
        del self.held[body.subject]
        return body.subject

    def find(self, notification: Notification) -> str | None:
        """Return the subject of a notification that somebody has: itself, or its device."""
        for subject in (name_subject(notification.id), notification.device):
            if subject in self.held:
                return subject
        return None

    def describe(self, subject: str, now: int) -> dict[str, Any]:
        """Return who has a subject as people read it; `by` is None if nobody has."""
        known = self.held.get(subject)
        about = {"subject": subject.removeprefix("#"), "is_notification": subject.startswith("#")}
        if known is None:
            return {**about, "by": None, "words": f"nobody has {about['subject']}"}
        item, body = known
        since = format_time(self._clock.show(item.dot, body.since))
        words = f"{body.holder} has {about['subject']} since {since}"
        if body.said_by != body.holder:
            words += f", says {body.said_by}"
        silent = None
        until = self._clock.localise(item.dot, body.created) + body.silence
        if body.silence and until > now:
            silent = format_time(self._clock.date(until))
            words += f", silent until {silent}"
        return {**about, "by": body.holder, "since": since, "silent_until": silent, "words": words}

    def list_subjects(self) -> list[str]:
        """Return what somebody has."""
        return sorted(self.held)

    def find_holder(self, subject: str) -> str | None:
        """Return who has a subject."""
        known = self.held.get(subject)
        return None if known is None else known[1].holder


def _is_newer(one: tuple[Item, ClaimBody], other: tuple[Item, ClaimBody]) -> bool:
    return (one[1].created, one[0].id) > (other[1].created, other[0].id)
