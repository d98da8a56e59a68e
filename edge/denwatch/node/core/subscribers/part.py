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
    REQUESTS,
    Acknowledged,
    Listening,
    Message,
    Part,
    Reader,
)
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import DELIVERED, NOTIFICATION, SUBSCRIPTION, VOCABULARY, Dot, Item
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
from denwatch.node.matching.plugins import Plugins

_EVICTED_SHARE = 100  # a full node makes room for this part of its limit at once


class Subscribers(Part):
    """The part of a node that serves subscribers."""

    topics = (REQUESTS, REPLIES, NOTES)

    def __init__(
        self,
        item_store: ItemStore,
        reader: Reader,
        vocabularies: Vocabularies,
        *,
        roles: Roles | None = None,
        clock: Clock | None = None,
        settings: SubscriberSettings | None = None,
        plugins: Plugins | None = None,
        probe: Probe | None = None,
    ) -> None:
        roles = OpenRoles() if roles is None else roles
        clock = OneClock() if clock is None else clock
        settings = SubscriberSettings() if settings is None else settings
        self._item_store = item_store
        self._settings = settings
        self._vocabularies = vocabularies
        self._tables = tables = Tables(reader)
        self._registry = registry = Registry(
            vocabularies, clock, Plugins() if plugins is None else plugins
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

    def restore(self, reader: Reader, now: int) -> None:  # noqa: ARG002
        """Take up what an earlier run left."""
        for item in self._item_store.iterate(VOCABULARY):
            self._vocabularies.learn(item)
        self._intake.restore()
        for key, row in self._tables.prefer.scan():
            owner = self._registry.find_owner(split_name(key)[0])
            owner.asked = msgspec.msgpack.decode(row, type=Priorities).pairs
            owner.assign_levels()
        for key, _ in self._tables.mute.scan():
            self._registry.find_owner(split_name(key)[0]).is_muted = True
        for key, row in self._tables.place.scan():
            self._registry.find_owner(split_name(key)[0]).place = row.decode()
        self._marks.restore()
        self._replies.restore()

    # Events ---------------------------------------------------------------------------------

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Take a request."""
        if message.topic.startswith(REQUESTS):
            self._begin(transaction)
            self._commands.handle(transaction, message)
            self._wants.flush(transaction)

    def listen(self, transaction: Transaction, event: Listening) -> None:
        """Note that a subscriber is there, or gone."""
        self._begin(transaction)
        if event.topic.startswith(REPLIES):
            self._replies.listen(transaction, event.topic[len(REPLIES) :], event.is_up)
        elif event.topic.startswith(NOTES):
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
        if event.topic.startswith(NOTES):
            self._begin(transaction)
            owner = self._registry.find_owner(event.topic[len(NOTES) :])
            self._delivery.acknowledge(transaction, owner, event.token)
            self._wants.flush(transaction)

    def meet(self, transaction: Transaction, peer: str, is_up: bool) -> None:  # noqa: ARG002
        """Have all deliveries ready to be told, before anything is exchanged."""
        self.tell(transaction)

    def learn(self, transaction: Transaction, item: Item, source: str) -> None:
        """Take an item that is new here."""
        self._begin(transaction)
        if item.kind == NOTIFICATION:
            self._intake.learn_notes(transaction, (item,), source)
        elif item.kind == SUBSCRIPTION:
            self._intake.learn_subscription(transaction, item, source)
        elif item.kind == DELIVERED:
            self._intake.learn_marks(transaction, item, source)
        elif item.kind == VOCABULARY:
            self._learn_vocabulary(transaction, item, source)
        self._wants.flush(transaction)

    def learn_many(self, transaction: Transaction, items: Sequence[Item], source: str) -> None:
        """Take items that came together: notifications are matched together."""
        if items and items[0].kind == NOTIFICATION:
            self._begin(transaction)
            self._intake.learn_notes(transaction, items, source)
            self._wants.flush(transaction)
        else:
            super().learn_many(transaction, items, source)

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

    def forget(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Let go of an item."""
        self._begin(transaction)
        if item.kind == NOTIFICATION:
            self._intake.forget_note(transaction, item, reason)
        elif item.kind == SUBSCRIPTION:
            self._intake.forget_subscription(transaction, item, reason)
        elif item.kind == DELIVERED:
            self._intake.forget_marks(transaction, item)
        self._wants.flush(transaction)

    def tick(self, transaction: Transaction) -> None:
        """Do what is due."""
        self._begin(transaction)
        excess = self._item_store.count(NOTIFICATION) - self._settings.held_limit
        if excess > 0:
            self.evict(transaction, max(excess, self._settings.held_limit // _EVICTED_SHARE))
        if not self._is_announced:
            self._is_announced = True
            self._vocabularies.announce(transaction, self._item_store)
        self._intake.join_twins(transaction)
        self._intake.catch_up(transaction)
        self._intake.drop_ended(transaction)
        self._marks.tell_due(transaction)
        self._delivery.let_go(transaction)
        self._wants.flush(transaction)

    def _begin(self, transaction: Transaction) -> None:
        self._tables.begin(transaction)
        self._wants.begin(transaction)

    # For the node's other parts -------------------------------------------------------------

    def wanted(self, dot: Dot) -> dict[str, int]:
        """Return who still wants a notification that is held, and how much (0..255)."""
        want = self._wants.peek(self._ledger.encode(dot))
        return {} if want is None else self._wants.list_degrees(want)

    def degree(self, dot: Dot) -> int:
        """Return how much a notification is wanted by whoever wants it most."""
        return max(self.wanted(dot).values(), default=0)

    def tell(self, transaction: Transaction) -> None:
        """Make items of deliveries that are not told yet."""
        self._begin(transaction)
        self._marks.tell(transaction)

    def evict(self, transaction: Transaction, count: int) -> int:
        """Give up so many notifications that are worth least; return how many there were."""
        self._begin(transaction)
        victims = choose_victims(self._tables.want, count, transaction.now, self._find_degree)
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
