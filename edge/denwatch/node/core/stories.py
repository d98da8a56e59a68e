"""The stories of a node: what it holds is joined, in event time, and what is told is delivered.

THEORY. Every notification that fits a part of a story has that part in its pending row
(`PendingRow.parts`): so it is carried to where the subscriber is, like one that somebody waits for,
and is never delivered by itself. In memory there is a join for each story (`matching/story_join`),
which follows from those rows alone; after a start it is built from them again. What a join tells
becomes a row of its own (`told_stories.py`), in the transaction of the reading that closed it or
came late, and a match of the story's subscription: from there on ranking, roles, delivery and
receipts treat it like a notification.

ONCE       a told story has the same dot at every node, which follows from the reading that closes
           it; which one that is does not depend on what a node knows of clocks. A receipt from
           elsewhere settles it, also before it is told here. The anchor of a silence may differ
           where clocks doubt which of two readings was the last before it.
TIME       event time is when a reading was made, in our timeline, as well as clocks tell; what
           they do not tell is doubt, and makes a gap possible and not certain. Readings of one
           run are compared by its own clock.
LATE       a better choice that comes late replaces what was told, until it was sent; a reading
           that breaks a silence takes it back, until it was sent. What was sent stays.
BOUND      joins forget (`story_entries` for each part); the status counts it, the log says it.

Only this file changes joins.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from denwatch.client.compiler.stories import ABSENCE, KINDS, Story
from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    Item,
    name_story,
    prove_item,
    read_dot,
)
from denwatch.node.core.notifications import Notification
from denwatch.node.core.pending import Matched, Pending, PendingRow
from denwatch.node.core.subscriptions import (
    MatchRow,
    SubscriberSettings,
    Subscription,
    Subscriptions,
)
from denwatch.node.core.told_stories import (
    TOLD,
    ToldPart,
    ToldRow,
    decode_told,
    encode_told,
    find_prefix,
)
from denwatch.node.matching.story_join import (
    BEGINNING,
    OwnTime,
    StoryEntry,
    StoryJoin,
    Telling,
    find_place,
)


class Stories:
    """The joins of all stories in force, and the stories that were told."""

    def __init__(
        self,
        item_store: ItemStore,
        subscriptions: Subscriptions,
        pending: Pending,
        settings: SubscriberSettings,
    ) -> None:
        self._item_store = item_store
        self._subscriptions = subscriptions
        self._pending = pending
        self._settings = settings
        self._joins: dict[int, StoryJoin] = {}  # by the subscription's id
        self._silences: dict[int, StoryJoin] = {}  # those of absences
        self._ends: list[tuple[int, bytes]] = []  # (expires, key) of what was told: a heap
        self._items: dict[int, Item] = {}  # readings by code, while one notification is joined
        self._proofs: dict[int, bytes] = {}  # of those readings, by id

    def restore(self, reader: Reader) -> None:
        """Build the joins from what an earlier run stored."""
        for subscription in self._subscriptions.by_id.values():
            if subscription.is_live and subscription.story is not None:
                self._begin(subscription, subscription.story)
        for code in self._pending.part_codes:
            entry = self._pending.peek(reader, code)
            notification = self._pending.find_notification(reader, code)
            if entry is not None and notification is not None:
                for id, entries in self._read_entries(
                    notification, entry.parts, entry.latest
                ).items():
                    self._joins[id].add(entries)  # told already
        self._pending.part_codes.clear()
        for key, row in reader.scan(TOLD):
            heapq.heappush(self._ends, (decode_told(row).expires, key))

    def count(self) -> dict[str, int]:
        """Return how many stories there are, and how much they remember."""
        return {
            "stories": len(self._joins),
            "story_entries": sum(map(len, self._joins.values())),
        }

    def list_joins(self) -> list[StoryJoin]:
        """Return the joins, for who wants to know what they take."""
        return list(self._joins.values())

    # Subscriptions and notifications that come and go -------------------------------------------

    def add_subscription(self, subscription: Subscription) -> None:
        """Begin a join for a story."""
        if subscription.story is not None:
            self._begin(subscription, subscription.story)

    def _begin(self, subscription: Subscription, story: Story) -> None:
        since = self._subscriptions.clock.localise(subscription.dot, subscription.created)
        join = StoryJoin(story, since, self._settings.story_entries)
        self._joins[subscription.id] = join
        if story.kind == ABSENCE:
            self._silences[subscription.id] = join

    def remove_subscription(
        self, transaction: Transaction, subscription: Subscription, is_kept: bool
    ) -> None:
        """End a join; what was told stays if it is to be delivered still."""
        self._silences.pop(subscription.id, None)
        if self._joins.pop(subscription.id, None) is None or is_kept:
            return
        for key, _ in list(transaction.scan(TOLD, find_prefix(subscription.id))):
            self._forget(transaction, key, "removed")

    def add(self, transaction: Transaction, found: Matched) -> Iterator[Matched]:
        """Join what fits parts of stories; yield what is told."""
        if not found.parts:
            return
        notification = self._pending.find_notification(transaction, found.code)
        if notification is None:
            return
        self._items.clear()
        self._proofs.clear()
        read = self._read_entries(notification, found.parts, transaction.now)
        for id, entries in read.items():
            join = self._joins[id]
            before = join.forgotten
            tellings = join.add(entries)
            if join.forgotten > before:
                self._say_forgotten(transaction, id, join.forgotten - before)
            yield from self._tell_all(transaction, id, tellings)

    def remove_notification(self, transaction: Transaction, item: Item) -> None:
        """Forget a part that is gone; what was told with it stays."""
        entry = self._pending.peek(transaction, self._pending.encode(item.dot))
        for id in {row[0] for row in entry.parts} if entry is not None else ():
            if id in self._joins:
                self._joins[id].remove(item.id)

    def tick(self, transaction: Transaction) -> Iterator[Matched]:
        """Yield the silences that are long enough; forget what nobody fetched in time."""
        now = transaction.now
        self._items.clear()
        self._proofs.clear()
        for id, join in list(self._silences.items()):
            if join.due <= now:
                yield from self._tell_all(transaction, id, join.tick(now))
        while self._ends and self._ends[0][0] <= now:
            self._forget(transaction, heapq.heappop(self._ends)[1], "expired")

    def _say_forgotten(self, transaction: Transaction, id: int, count: int) -> None:
        transaction.count("story_entries_forgotten", count)
        owner = self._subscriptions.by_id[id].subscriber.name
        transaction.log("drop", what="story part", why="space", owner=owner)

    # Entries ------------------------------------------------------------------------------------

    def _read_entries(
        self, notification: Notification, rows: Iterable[MatchRow], now: int
    ) -> dict[int, list[StoryEntry]]:
        """Return what a notification adds to which join."""
        clock = self._subscriptions.clock
        latest = clock.localise(notification.dot, notification.at)
        unsure = clock.doubt(*notification.run, now)
        time, doubt = latest - unsure, notification.doubt + unsure
        place = find_place(notification.event, notification.vector)
        found: dict[int, list[StoryEntry]] = {}
        for id, possible, certain, part in rows:
            if id in self._joins:
                entry = StoryEntry(
                    time,
                    notification.id,
                    part,
                    doubt,
                    notification.device,
                    (possible, certain),
                    place,
                    notification.code,
                    OwnTime(notification.run, notification.at, notification.doubt),
                )
                found.setdefault(id, []).append(entry)
        return found

    # Telling ------------------------------------------------------------------------------------

    def _tell_all(
        self, transaction: Transaction, id: int, tellings: Iterable[Telling]
    ) -> Iterator[Matched]:
        subscription = self._subscriptions.by_id[id]
        for telling in tellings:
            found = self._tell(transaction, subscription, telling)
            if found is not None:
                yield found

    def _tell(
        self, transaction: Transaction, subscription: Subscription, telling: Telling
    ) -> Matched | None:
        dot = name_story(subscription.id, telling.id)
        code = self._pending.encode(dot)
        entry = self._pending.find(transaction, code)
        expires = telling.at + self._settings.story_life
        if entry is not None and (entry.settled or entry.offered or not entry.matches):
            return None  # it is on its way, or was decided about
        if not telling.degrees[0]:
            if entry is not None:
                self._forget(transaction, dot.key, "withdrawn")
            return None
        if expires <= transaction.now:
            return None
        parts = []
        proof = b""
        for one in telling.entries:
            item = self._find_part(transaction, one.key)
            if item is None:
                return None
            if one.id == telling.id:
                proof = self._prove_part(item)
            parts.append(ToldPart(one.part, item.dot.key, item.body, *one.degrees))
        if telling.id == BEGINNING:
            asked = self._item_store.get(transaction, SUBSCRIPTION, subscription.dot)
            proof = b"" if asked is None else prove_item(asked.signature)
        assert subscription.story is not None
        row = ToldRow(
            subscription.id,
            subscription.vector,
            subscription.vocabulary,
            *telling.degrees,
            telling.id,
            telling.at,
            expires,
            transaction.now,
            parts,
        )
        transaction.write(TOLD, dot.key, encode_told(row))
        possible, certain = telling.degrees
        match: MatchRow = subscription.id, possible, certain, -1
        if entry is not None:  # told better than before
            entry.matches = [match]
            self._pending.change(code, entry)
            self._pending.forget_decoded(code)
            return None
        heapq.heappush(self._ends, (expires, dot.key))
        transaction.count("stories_told")
        transaction.log(
            "story",
            item=dot.id,
            subscription=subscription.id,
            owner=subscription.subscriber.name,
            what=KINDS[subscription.story.kind],
            parts=[one.id for one in telling.entries],
            at=telling.at,
            expires=expires,
            possible=possible,
            certain=certain,
        )
        fresh = PendingRow(telling.at, 0, expires, telling.at, [match], proof=proof)
        return self._pending.add_told(transaction, dot, fresh)

    def _find_part(self, transaction: Transaction, code: int) -> Item | None:
        """Return a reading; one that closes a hundred stories is read from the disk once."""
        item = self._items.get(code)
        if item is None:
            item = self._item_store.get(transaction, NOTIFICATION, self._pending.decode(code))
            if item is not None:
                self._items[code] = item
        return item

    def _prove_part(self, item: Item) -> bytes:
        """Return the proof that we had a reading; the signature is made once for all stories."""
        proof = self._proofs.get(item.id)
        if proof is None:
            proof = self._proofs[item.id] = prove_item(self._item_store.sign(item).signature)
        return proof

    def _forget(self, transaction: Transaction, key: bytes, reason: str) -> None:
        if transaction.get(TOLD, key) is None:
            return
        transaction.write(TOLD, key, None)
        dot = read_dot(key)
        self._pending.remove_told(transaction, dot)
        transaction.log("purge", item=dot.id, what="story", why=reason)
