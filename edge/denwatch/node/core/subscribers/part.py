"""SUB/DENS, the protocol between subscribers and a node, as a part of the node's core.

This file only puts the pieces together and hands events to them:

    requests, asking, commands   what people ask for, understood and done
    replies                      answers, kept while nobody listens
    registry, people             subscriptions in force, their owners
    intake                       items that come and go; matching
    wants, ledger                who waits for what: on the disk, and where to look
    judging, significance        whether a match is delivered, and its rank
    delivery, notes, marks       what goes out, how it looks, who has it
    overload                     what a full node gives up
    tables, settings             rows on the disk; limits and contracts
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from denwatch.node.core.interface import (
    NOTES,
    REPLIES,
    Acknowledged,
    Listening,
    Message,
    Reader,
)
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import NOTIFICATION, VOCABULARY, Dot, Item
from denwatch.node.core.subscribers.commands import Commands, Probe
from denwatch.node.core.subscribers.delivery import Delivery
from denwatch.node.core.subscribers.intake import Intake
from denwatch.node.core.subscribers.judging import Judge
from denwatch.node.core.subscribers.ledger import Ledger
from denwatch.node.core.subscribers.marks import Marks
from denwatch.node.core.subscribers.overload import choose_victims
from denwatch.node.core.subscribers.registry import Registry
from denwatch.node.core.subscribers.replies import Replies
from denwatch.node.core.subscribers.settings import (
    Clock,
    OneClock,
    OpenRoles,
    Roles,
    SubscriberSettings,
)
from denwatch.node.core.subscribers.tables import Priorities, Tables, Want, split_name
from denwatch.node.core.subscribers.wants import Wants
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.vocabularies import Vocabularies
from denwatch.node.matching.plugins import MatcherPlugins

_EVICTED_SHARE = 100  # a full node makes room for this part of its limit at once


class Subscribers:
    """The part of a node that serves subscribers."""

    def __init__(
        self,
        item_store: ItemStore,
        vocabularies: Vocabularies,
        *,
        roles: Roles | None = None,
        clock: Clock | None = None,
        settings: SubscriberSettings | None = None,
        plugins: MatcherPlugins | None = None,
        probe: Probe | None = None,
    ) -> None:
        roles = OpenRoles() if roles is None else roles
        clock = OneClock() if clock is None else clock
        settings = SubscriberSettings() if settings is None else settings
        self._item_store = item_store
        self._settings = settings
        self._vocabularies = vocabularies
        self._tables = tables = Tables()
        self._registry = registry = Registry(
            vocabularies, clock, MatcherPlugins() if plugins is None else plugins
        )
        self._ledger = ledger = Ledger()
        self._wants = wants = Wants(tables, registry, ledger)
        self._judge = judge = Judge(roles, clock, tables, settings)
        self._marks = Marks(item_store, tables, settings)
        self._delivery = delivery = Delivery(
            item_store, vocabularies, registry, wants, ledger, judge, self._marks, clock, settings
        )
        self._intake = Intake(
            item_store,
            vocabularies,
            registry,
            wants,
            ledger,
            judge,
            delivery,
            self._marks,
            clock,
            tables,
            settings,
        )
        self._replies = Replies(tables, settings)
        self._commands = Commands(
            item_store,
            vocabularies,
            registry,
            wants,
            delivery,
            self._replies,
            roles,
            clock,
            tables,
            settings,
            probe,
        )
        self._is_announced = not settings.is_announcing

    def restore(self, reader: Reader) -> None:
        """Take up what an earlier run left."""
        for item in self._item_store.iterate(reader, VOCABULARY):
            self._vocabularies.learn(item)
        self._intake.restore(reader)
        for key, row in self._tables.prefer.scan(reader):
            owner = self._registry.find_owner(split_name(key)[0])
            owner.asked = msgspec.msgpack.decode(row, type=Priorities).pairs
            owner.assign_levels()
        for key, _ in self._tables.mute.scan(reader):
            self._registry.find_owner(split_name(key)[0]).is_muted = True
        for key, row in self._tables.place.scan(reader):
            self._registry.find_owner(split_name(key)[0]).place = row.decode()
        self._marks.restore(reader)
        self._replies.restore(reader)

    # Events ---------------------------------------------------------------------------------

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Handle a request."""
        self._commands.handle(transaction, message)
        self._wants.flush(transaction)

    def listen(self, transaction: Transaction, event: Listening) -> None:
        """Note that a subscriber is there, or gone."""
        if event.topic.startswith(REPLIES):
            self._replies.listen(transaction, event.topic[len(REPLIES) :], event.is_up)
        else:
            self._attach(transaction, event.topic[len(NOTES) :], event.is_up)
        self._wants.flush(transaction)

    def _attach(self, transaction: Transaction, name: str, is_up: bool) -> None:
        owner = self._registry.find_owner(name)
        if owner.is_listening == is_up:
            return
        owner.is_listening = is_up
        transaction.log("attach", subscriber=name, is_up=is_up)
        self._marks.tell_place(transaction, owner)
        if owner.is_served:
            self._delivery.begin_service(transaction, owner)
        elif not is_up:
            self._delivery.end_service(owner)

    def acknowledge(self, transaction: Transaction, event: Acknowledged) -> None:
        """Note that a notification arrived."""
        owner = self._registry.find_owner(event.topic[len(NOTES) :])
        self._delivery.acknowledge(transaction, owner, event.token)
        self._wants.flush(transaction)

    def report_receipts(self, transaction: Transaction) -> None:
        """Make items of deliveries that other nodes do not know of yet."""
        self._marks.tell(transaction)

    def tick(self, transaction: Transaction) -> None:
        """Do what is due: first what only looks at the items, then what changes them."""
        self._intake.catch_up(transaction)
        self._intake.drop_ended(transaction)
        self._intake.join_twins(transaction)
        if not self._is_announced:
            self._is_announced = True
            self._vocabularies.announce(transaction, self._item_store)
        self._marks.tell_due(transaction)
        self._wants.flush(transaction)
        excess = self._item_store.count(NOTIFICATION) - self._settings.held_limit
        if excess > 0:
            self.evict(transaction, max(excess, self._settings.held_limit // _EVICTED_SHARE))
        self._delivery.let_go(transaction)

    # Items that came and went ---------------------------------------------------------------

    def add_notifications(
        self, transaction: Transaction, items: Sequence[Item], source: str
    ) -> None:
        """Match new notifications, and send them to those who are there."""
        self._intake.learn_notes(transaction, items, source)
        self._wants.flush(transaction)

    def add_subscriptions(
        self, transaction: Transaction, items: Sequence[Item], source: str
    ) -> None:
        """Put new subscriptions in force."""
        for item in items:
            self._intake.learn_subscription(transaction, item, source)
        self._wants.flush(transaction)

    def add_receipts(self, transaction: Transaction, items: Sequence[Item], source: str) -> None:
        """Note what other nodes have delivered."""
        for item in items:
            self._intake.learn_marks(transaction, item, source)
        self._wants.flush(transaction)

    def add_vocabularies(
        self, transaction: Transaction, items: Sequence[Item], source: str
    ) -> None:
        """Learn vocabularies of other nodes."""
        for item in items:
            self._learn_vocabulary(transaction, item, source)

    def _learn_vocabulary(self, transaction: Transaction, item: Item, source: str) -> None:
        body = self._vocabularies.learn(item)
        if body is None:
            who = item.dot.origin
            transaction.log(
                "refuse", what="vocabulary", why="not a vocabulary of its hash", who=who
            )
            return
        self._delivery.forget_notes()
        transaction.log("vocabulary", hash=body.hash, document=body.document, source=source)

    def remove_notification(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Forget who waits for a notification that is gone."""
        self._intake.forget_note(transaction, item, reason)

    def remove_subscription(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Take a subscription out of force."""
        self._intake.forget_subscription(transaction, item, reason)
        self._wants.flush(transaction)

    def remove_receipts(self, transaction: Transaction, item: Item) -> None:
        """Forget receipts whose time is over."""
        self._intake.forget_marks(transaction, item)

    # For the node's other parts -------------------------------------------------------------

    def wanted(self, reader: Reader, dot: Dot) -> dict[str, int]:
        """Return who still wants a notification that is held, and how much (0..255)."""
        want = self._wants.peek(reader, self._ledger.encode(dot))
        return {} if want is None else self._wants.list_degrees(want)

    def degree(self, reader: Reader, dot: Dot) -> int:
        """Return how much a notification is wanted by whoever wants it most."""
        return max(self.wanted(reader, dot).values(), default=0)

    def evict(self, transaction: Transaction, count: int) -> int:
        """Give up so many notifications that are worth least; return how many there were."""
        victims = choose_victims(self._tables.want, transaction, count, self._find_degree)
        for dot, degree in victims:
            transaction.log("drop", what="notification", why="space", item=dot.id, degree=degree)
            self._item_store.remove(transaction, NOTIFICATION, dot, "space")
        transaction.count("notes_dropped", len(victims))
        return len(victims)

    def _find_degree(self, want: Want) -> int:
        return max(self._wants.list_degrees(want).values(), default=0)

    def forget_roles(self) -> None:
        """Ask again who may see what, after the rules were changed."""
        self._judge.forget_roles()

    @property
    def is_full(self) -> bool:
        """Whether the node holds as many notifications as it may."""
        return self._item_store.count(NOTIFICATION) >= self._settings.held_limit

    def list_owners(self) -> list[str]:
        """Return who has subscriptions."""
        return sorted(name for name, owner in self._registry.owners.items() if owner.subs)

    def count_subscriptions(self) -> int:
        """Return how many subscriptions are in force."""
        return self._registry.count

    def count_attached(self) -> int:
        """Return how many subscribers are served now."""
        return sum(owner.is_served for owner in self._registry.owners.values())

    def count_waiting(self) -> int:
        """Return about how many deliveries wait: those of subscribers who are not here, too."""
        owners = self._registry.owners.values()
        return sum(len(owner.codes) - owner.stale for owner in owners)
