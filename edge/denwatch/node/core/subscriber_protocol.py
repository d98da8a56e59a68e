"""SUB/DENS, between subscribers and a node: requests in, replies and notifications out.

    dens/1/sub/<subscriber>     requests (decoded and compiled by `requests.py`)
    dens/1/report/<subscriber>  what a person reports in words: a notification of theirs
    dens/1/reply/<subscriber>   every request is answered; none that is wrong changes anything
    dens/1/note/<subscriber>    notifications (`delivery.py`)

This file is the only one that knows all the others: `Node` tells `SubscriberProtocol` which items
came and went, and it passes that on to `Subscriptions` (what is in force), `Pending` (who waits for
what), `DeliveryPolicy` (whether and in which order) and `Delivery` (sending, receipts). None of
them calls back. On the disk: `sub.reply`, subscriber and number: a reply that nobody listened for;
`sub.report`, subscriber: the number of the last report, and the last references with their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

import cbor2
import msgspec
from denwatch.client.compiler import compile_subscription
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language import parse
from denwatch.node.core import requests
from denwatch.node.core.delivery import Delivery, DeliveryPolicy
from denwatch.node.core.device_directory import DeviceDirectory
from denwatch.node.core.events import (
    NOTES,
    REPLIES,
    REPORTS,
    REQUESTS,
    Acknowledged,
    Listening,
    Message,
    Reader,
)
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    ANNOUNCEMENT,
    MAX_SUBSCRIBER,
    NOTIFICATION,
    SUBSCRIPTION,
    VOCABULARY,
    DeliveredBody,
    Dot,
    Item,
    NotificationBody,
    SubscriptionBody,
    decode_body,
    encode_body,
    is_name,
)
from denwatch.node.core.notifications import (
    REPORTED,
    Vocabularies,
    describe_values,
    format_time,
)
from denwatch.node.core.pending import Matched, Pending
from denwatch.node.core.receipts import Receipts
from denwatch.node.core.stories import Stories
from denwatch.node.core.subscriptions import (
    KEPT_REASONS,
    ItemClock,
    OpenRoles,
    Roles,
    SingleClock,
    SubscriberSettings,
    SubscriberState,
    Subscription,
    Subscriptions,
    describe_content,
    join_name,
    split_name,
)
from denwatch.node.ranking.rank import PriorityCycle, assign_levels
from denwatch.protocol import subscription as codec
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.notification import encode as encode_notification
from denwatch.protocol.vectors import SubscriptionVector

REPLY = "sub.reply"
REPORT = "sub.report"
_KEPT_REFERENCES = 16  # of reports: one that comes again under the same reference is the same
_EVICTED_SHARE = 100  # a full node makes room for this part of its limit at once

# Replies -------------------------------------------------------------------------------------


def describe_error(error: LanguageError) -> dict[str, Any]:
    """Return the body of a refusal."""
    body: dict[str, Any] = {**error.to_reply()}
    if error.at is not None:
        body["length"] = error.length
    if error.suggestions:
        body["suggestions"] = list(error.suggestions)
    if error.hint:
        body["hint"] = error.hint
    return body


def encode_question(node: str) -> bytes:
    """Return what asks an app whether it listens; our library answers with a report."""
    return msgspec.json.encode({"ok": True, "ask": "listening", "node": node})


class Replies:
    """Replies to requests: JSON, kept while nobody listens.

    Whoever uses two plain clients, one to request and one to listen, still gets the answer.
    """

    def __init__(self, settings: SubscriberSettings) -> None:
        self._limit = settings.kept_replies
        self._listening: set[str] = set()
        self._kept: dict[str, list[int]] = {}  # numbers of the replies that wait
        self._next = 1

    def restore(self, reader: Reader) -> None:
        """Load the replies that wait."""
        for key, _ in reader.scan(REPLY):
            name, rest = split_name(key)
            number = int.from_bytes(rest, "big")
            self._kept.setdefault(name, []).append(number)
            self._next = max(self._next, number + 1)

    def send(
        self,
        transaction: Transaction,
        name: str,
        body: dict[str, Any],
        reference: str | None = None,
    ) -> None:
        """Answer a subscriber."""
        if reference is not None:
            body = {**body, "request": reference}
        message = msgspec.json.encode(body)
        if name in self._listening:
            transaction.publish(REPLIES + name, message)
            return
        numbers = self._kept.setdefault(name, [])
        numbers.append(self._next)
        transaction.write(REPLY, _key(name, self._next), message)
        self._next += 1
        while len(numbers) > self._limit:
            transaction.write(REPLY, _key(name, numbers.pop(0)), None)

    def listen(self, transaction: Transaction, name: str, is_up: bool) -> None:
        """Note who listens; send what waits."""
        if not is_up:
            self._listening.discard(name)
            return
        self._listening.add(name)
        for number in self._kept.pop(name, ()):
            message = transaction.get(REPLY, _key(name, number))
            if message is not None:
                transaction.publish(REPLIES + name, message)
                transaction.write(REPLY, _key(name, number), None)


def _key(name: str, number: int) -> bytes:
    return join_name(name, number.to_bytes(8, "big"))


# Requests ------------------------------------------------------------------------------------


class RequestHandler:
    """Understands requests, without touching the node; only then performs and answers them."""

    def __init__(
        self,
        item_store: ItemStore,
        subscriptions: Subscriptions,
        pending: Pending,
        delivery: Delivery,
        roles: Roles,
        directory: DeviceDirectory,
    ) -> None:
        settings = subscriptions.settings
        self.replies = Replies(settings)
        self._item_store = item_store
        self._subscriptions = subscriptions
        self._pending = pending
        self._delivery = delivery
        self._roles = roles
        self._directory = directory
        self._settings = settings

    def handle(self, transaction: Transaction, message: Message) -> None:
        """Take a message to a request or report topic."""
        is_report = message.topic.startswith(REPORTS)
        name = message.topic[len(REPORTS if is_report else REQUESTS) :]
        size = len(message.payload)
        transaction.count("requests")
        if not is_name(name, MAX_SUBSCRIBER) or message.sender not in ("", name):
            who = message.sender or "?"
            transaction.log(
                "refuse", what="request", why="the topic of another", who=who, bytes=size
            )
            transaction.count("requests_refused")
            return
        reference = None
        try:
            if size > self._settings.max_payload:
                limit = self._settings.max_payload
                raise LanguageError(f"{size} bytes are too many, {limit} is the limit")
            reference = requests.read_reference(message.payload)
            if is_report:
                answer = self._report(transaction, name, message.payload, reference)
                self.replies.send(transaction, name, {"ok": True, **answer}, reference)
                return
            request, compiled = self._understand(transaction, name, message.payload)
            self._do(transaction, self._subscriptions.find_subscriber(name), request, compiled)
        except LanguageError as error:
            self._refuse(
                transaction, name, error.describe(), describe_error(error), reference, size
            )
        except requests.RequestRefused as refusal:
            body = {"ok": False, "error": str(refusal), "at": None}
            self._refuse(transaction, name, str(refusal), body, reference, size)

    def _refuse(
        self,
        transaction: Transaction,
        name: str,
        why: str,
        body: dict[str, Any],
        reference: str | None,
        size: int,
    ) -> None:
        transaction.log("refuse", what="request", why=why, who=name, bytes=size)
        transaction.count("requests_refused")
        self.replies.send(transaction, name, body, reference)

    def _understand(
        self, transaction: Transaction, name: str, payload: bytes
    ) -> tuple[requests.Request, requests.CompiledRequest | None]:
        """Return a request, and what it asks for if it is a subscription; changes nothing."""
        try:
            request = requests.read_request(payload)
            compiled = None
            if request.command == requests.SUBSCRIBE:
                compiled = requests.compile_request(
                    request,
                    name,
                    transaction.now,
                    self._subscriptions.vocabularies,
                    self._roles,
                    self._settings.organisation,
                )
        except (LanguageError, requests.RequestRefused):
            raise
        except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
            # Whatever a parser stumbles over, a stranger's bytes must not stop the node.
            raise LanguageError(f"this cannot be read: {type(error).__name__}") from None
        return request, compiled

    def _do(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        request: requests.Request,
        compiled: requests.CompiledRequest | None,
    ) -> None:
        answer: dict[str, Any] | None = None
        if compiled is not None:
            answer = self._subscribe(transaction, subscriber, compiled)
        elif request.command == requests.UNSUBSCRIBE:
            answer = self._unsubscribe(transaction, subscriber, request)
        elif request.command == requests.LIST:
            answer = self._list(transaction, subscriber)
        elif request.command == requests.MUTE:
            answer = self._mute(transaction, subscriber, request.argument)
        elif request.command == requests.PREFER:
            answer = self._prefer(transaction, subscriber, request.argument)
        elif request.command == requests.RECEIVED:
            self._delivery.confirm(transaction, subscriber, set(request.argument))
        elif request.command == requests.PROBE:
            answer = self._answer_probe(request.argument)
        if answer is not None:
            self.replies.send(
                transaction, subscriber.name, {"ok": True, **answer}, request.reference
            )

    # Reports --------------------------------------------------------------------------------

    def _report(
        self, transaction: Transaction, name: str, payload: bytes, reference: str | None
    ) -> dict[str, Any]:
        """Make a notification of what a person says, unless it is known; return the answer.

        Its device is the person, and its epoch 0.
        """
        vocabularies = self._subscriptions.vocabularies
        vocabulary = vocabularies.own.prefer(self._settings.organisation)
        try:
            said = requests.compile_report(payload, vocabulary, self._roles, name)
        except (ProtocolError, ArithmeticError, LookupError, RecursionError) as error:
            raise LanguageError(f"this cannot be read: {type(error).__name__}") from None
        row = transaction.get(REPORT, join_name(name))
        last, known = cbor2.loads(row) if row else (0, {})
        if reference is None or reference not in known:
            if self._item_store.count(NOTIFICATION) >= self._settings.held_limit:
                raise requests.RequestRefused("this node has no room for it now")
            last = max(last + 1, transaction.now // 1000)
            body = NotificationBody(
                name,
                REPORTED,
                number_report(reference, last),
                transaction.now - said.age,
                0,
                vocabularies.own_hash,
                encode_notification(said.vector),
            )
            expires = transaction.now + self._settings.report_life
            (item,) = self._item_store.originate_many(transaction, NOTIFICATION, expires, [body])
            if reference is not None:
                known = dict([*known.items(), (reference, item.id)][-_KEPT_REFERENCES:])
            transaction.write(REPORT, join_name(name), cbor2.dumps([last, known]))
        else:
            item = None
        values = describe_values(said.event, said.vector)
        return {
            "id": f"{known[reference] if item is None else item.id:016x}",
            "reported": f"{said.event.name}: " + ", ".join(values),
            "known": item is None,
            "node": self._item_store.name,
        }

    # Subscribing ----------------------------------------------------------------------------

    def _subscribe(
        self,
        transaction: Transaction,
        subscriber: SubscriberState,
        compiled: requests.CompiledRequest,
    ) -> dict[str, Any]:
        known = subscriber.subscriptions.get(
            subscriber.keys.get(describe_content(compiled.body), -1)
        )
        if known is not None:
            item = self._item_store.get(transaction, SUBSCRIPTION, known.dot)
            assert item is not None, "in force, and not held"
            return self._describe_taken(item, known.name, compiled, is_known=True, replaced=[])
        name = compiled.body.options.get("name")
        replaced = [
            subscription
            for subscription in subscriber.subscriptions.values()
            if name is not None and subscription.name == name
        ]
        if len(subscriber.subscriptions) - len(replaced) >= self._settings.max_subscriptions:
            limit = self._settings.max_subscriptions
            raise requests.RequestRefused(
                f"there are {limit} subscriptions already, unsubscribe from one first"
            )
        gone = {each.id for each in replaced}
        stay = [
            subscription
            for subscription in subscriber.subscriptions.values()
            if subscription.id not in gone
        ]
        pairs = [tuple(pair) for pair in compiled.body.options.get("prefer", ())]
        self._check_priorities(
            subscriber, [*_list_pairs(stay), *subscriber.asked, *pairs], stay, name
        )
        for subscription in replaced:
            self._item_store.remove(transaction, SUBSCRIPTION, subscription.dot, "replaced")
        item = self._item_store.originate(
            transaction, SUBSCRIPTION, compiled.expires, encode_body(compiled.body)
        )
        return self._describe_taken(item, name, compiled, is_known=False, replaced=replaced)

    def _describe_taken(
        self,
        item: Item,
        name: str | None,
        compiled: requests.CompiledRequest,
        *,
        is_known: bool,
        replaced: list[Subscription],
    ) -> dict[str, Any]:
        return {
            "id": f"{item.id:016x}",
            "name": name,
            **compiled.reply,
            "expires": self._show(item.dot, item.expires),
            "known": is_known,
            "replaced": [old.hex for old in replaced],
            "devices": self._describe_devices(compiled),
            "node": self._item_store.name,
        }

    def _describe_devices(self, compiled: requests.CompiledRequest) -> dict[str, Any] | None:
        """Return who can answer; None where sensors do not send for it."""
        need = self._subscriptions.find_need(compiled.body)
        return None if need is None else self._directory.describe(need, compiled.event)

    def tell_answerable(
        self, transaction: Transaction, subscription: Subscription, device: str, item: Item
    ) -> None:
        """Tell a subscriber that a device can answer what nobody could before."""
        told = {
            "answerable": subscription.hex,
            "name": subscription.name,
            "device": device,
            "at": item.dot.origin,
            "node": self._item_store.name,
        }
        self.replies.send(transaction, subscription.subscriber.name, {"ok": True, **told})

    def _check_priorities(
        self,
        subscriber: SubscriberState,
        pairs: list[Any],
        subscriptions: list[Subscription],
        newcomer: str | None,
    ) -> None:
        """Raise LanguageError if priorities prefer something over itself."""
        names = {each.name for each in subscriptions if each.name} | (
            {newcomer} if newcomer else set()
        )
        known = [(better, worse) for better, worse in pairs if {better, worse} <= names]
        try:
            assign_levels(names, dict.fromkeys(known))
        except PriorityCycle as cycle:
            raise LanguageError(f"{subscriber.name}: {cycle}") from None

    def _unsubscribe(
        self, transaction: Transaction, subscriber: SubscriberState, request: requests.Request
    ) -> dict[str, Any]:
        text = request.argument
        number = requests.read_id(text)
        gone = [
            subscription
            for subscription in subscriber.subscriptions.values()
            if subscription.name == text or subscription.id == number
        ]
        keys = {each.key for each in gone}
        gone += [
            subscription
            for subscription in subscriber.subscriptions.values()
            if subscription.key in keys and subscription not in gone
        ]
        if not gone and request.reference is None:
            labels = [each.label for each in subscriber.subscriptions.values()]
            raise LanguageError(
                f'there is no subscription "{text}"', suggestions=suggest_names(text, labels)
            )
        for subscription in gone:
            self._item_store.remove(transaction, SUBSCRIPTION, subscription.dot, "removed")
        return {"removed": [each.hex for each in gone], "name": text}

    # Everything else ------------------------------------------------------------------------

    def _list(self, transaction: Transaction, subscriber: SubscriberState) -> dict[str, Any]:
        rows = []
        for subscription in sorted(subscriber.subscriptions.values(), key=self._rank_age):
            item = self._item_store.get(transaction, SUBSCRIPTION, subscription.dot)
            words = decode_body(SubscriptionBody, item.body).words if item else ""
            row = {"id": subscription.hex, "name": subscription.name, "words": words}
            row["created"] = self._show(subscription.dot, subscription.created)
            row["expires"] = self._show(subscription.dot, subscription.expires)
            rows.append({**row, "origin": subscription.dot.origin})
        waiting = 0
        for code in set(subscriber.codes):
            entry = self._pending.peek(transaction, code)
            if entry is not None and subscriber.name in self._pending.list_degrees(entry):
                waiting += 1
        return {"subscriptions": rows, "waiting": waiting, "muted": subscriber.is_muted}

    def _rank_age(self, subscription: Subscription) -> tuple[int, Dot]:
        return self._subscriptions.clock.show(
            subscription.dot, subscription.created
        ), subscription.dot

    def _show(self, dot: Dot, time: int) -> str | None:
        """Return a time of a subscription as people have it; None for never."""
        return format_time(self._subscriptions.clock.show(dot, time)) if time else None

    def _mute(
        self, transaction: Transaction, subscriber: SubscriberState, is_muted: bool
    ) -> dict[str, Any]:
        was_served = subscriber.is_served
        self._subscriptions.set_muted(transaction, subscriber, is_muted)
        if subscriber.is_served and not was_served:
            self._delivery.begin_service(transaction, subscriber)
        elif was_served and not subscriber.is_served:
            self._delivery.end_service(subscriber)
        return {"muted": is_muted}

    def _prefer(
        self, transaction: Transaction, subscriber: SubscriberState, pairs: list[tuple[str, str]]
    ) -> dict[str, Any]:
        subscriptions = list(subscriber.subscriptions.values())
        names = [each.name for each in subscriptions if each.name]
        for name in (name for pair in pairs for name in pair):
            if name not in names:
                raise LanguageError(
                    f'there is no subscription named "{name}"',
                    suggestions=suggest_names(name, names),
                )
        self._check_priorities(
            subscriber, [*_list_pairs(subscriptions), *pairs], subscriptions, None
        )
        self._subscriptions.set_priorities(transaction, subscriber, pairs)
        self._delivery.reorder(transaction, subscriber)
        levels = {
            subscription.label: subscriber.levels.get(subscription.id, 1)
            for subscription in subscriptions
        }
        return {"prefer": [list(pair) for pair in pairs], "levels": levels}

    def _answer_probe(self, texts: list[str]) -> dict[str, Any]:
        vectors = [
            compile_subscription(
                parse(text),
                self._subscriptions.vocabularies.own,
                organisation=self._settings.organisation,
            ).vector
            for text in texts
        ]
        new_roots, nodes = self._compare_vectors(vectors)
        return {"node": self._item_store.name, "new_roots": new_roots, "nodes": nodes}

    def _compare_vectors(self, vectors: list[SubscriptionVector]) -> tuple[int, int]:
        """Count what is subscribed to in exactly these words already: covering by equality."""
        known = {
            subscription.vector
            for subscription in self._subscriptions.by_id.values()
            if subscription.is_live
        }
        new = {codec.encode(vector) for vector in vectors} - known
        return len(new), len(known)


def number_report(reference: str | None, second: int) -> int:
    """Return the number of a person's report.

    Of one with a reference it follows from that: who walks to another node before the answer comes
    reports again there, and by the number it is the same reading. Others are numbered by time.
    """
    return second if reference is None else crc32(reference.encode())


def _list_pairs(subscriptions: list[Subscription]) -> list[tuple[str, str]]:
    return [pair for subscription in subscriptions for pair in subscription.prefer]


# The protocol --------------------------------------------------------------------------------


class SubscriberProtocol:
    """Serves the subscribers of a node."""

    def __init__(
        self,
        item_store: ItemStore,
        vocabularies: Vocabularies,
        *,
        roles: Roles | None = None,
        clock: ItemClock | None = None,
        settings: SubscriberSettings | None = None,
    ) -> None:
        roles = OpenRoles() if roles is None else roles
        clock = SingleClock() if clock is None else clock
        self._settings = settings = SubscriberSettings() if settings is None else settings
        self._item_store = item_store
        self._vocabularies = vocabularies
        self._subscriptions = subscriptions = Subscriptions(
            item_store, vocabularies, clock, settings
        )
        self._pending = pending = Pending(item_store, subscriptions, settings)
        self.stories = Stories(item_store, subscriptions, pending, settings)
        self._policy = DeliveryPolicy(roles, clock, settings)
        self._receipts = Receipts(item_store, subscriptions, settings)
        self.directory = DeviceDirectory(item_store.name, vocabularies.agree)
        self._delivery = delivery = Delivery(
            item_store, subscriptions, pending, self._policy, self._receipts, settings
        )
        self._requests = RequestHandler(
            item_store, subscriptions, pending, delivery, roles, self.directory
        )
        self._is_announced = not settings.is_announcing

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run stored."""
        for item in self._item_store.iterate(reader, VOCABULARY):
            self._vocabularies.learn(item)
        for item in self._item_store.iterate(reader, ANNOUNCEMENT):
            with suppress(ProtocolError):  # stored by a version that checked less
                self.directory.add(item)
        self._subscriptions.restore(reader)
        for subscription in self._subscriptions.by_id.values():
            self._policy.restore_top_k(reader, subscription)
        self._pending.restore(reader)
        self.stories.restore(reader)
        self._receipts.restore(reader)
        self._requests.replies.restore(reader)

    # Events ---------------------------------------------------------------------------------

    def receive(self, transaction: Transaction, message: Message) -> None:
        """Handle a request or a report."""
        self._requests.handle(transaction, message)
        self._pending.flush(transaction)

    def listen(self, transaction: Transaction, event: Listening) -> None:
        """Note that a subscriber is there, or gone."""
        if event.topic.startswith(REPLIES):
            name = event.topic[len(REPLIES) :]
            self._requests.replies.listen(transaction, name, event.is_up)
        else:
            self._attach(transaction, event.topic[len(NOTES) :], event.is_up)
        self._pending.flush(transaction)

    def _attach(self, transaction: Transaction, name: str, is_up: bool) -> None:
        subscriber = self._subscriptions.find_subscriber(name)
        if subscriber.is_listening == is_up:
            return
        subscriber.is_listening = is_up
        transaction.log("attach", subscriber=name, is_up=is_up)
        self._receipts.report_place(transaction, subscriber)
        if subscriber.is_served:
            self._delivery.begin_service(transaction, subscriber)
        elif not is_up:
            self._delivery.end_service(subscriber)

    def acknowledge(self, transaction: Transaction, event: Acknowledged) -> None:
        """Note that a notification arrived."""
        subscriber = self._subscriptions.find_subscriber(event.topic[len(NOTES) :])
        self._delivery.acknowledge(transaction, subscriber, event.token)
        self._pending.flush(transaction)

    def report_receipts(self, transaction: Transaction) -> None:
        """Make items of deliveries that other nodes do not know of yet."""
        self._receipts.report(transaction)

    def tick(self, transaction: Transaction) -> None:
        """Do what is due: first what only looks at the items, then what changes them."""
        for found in self._pending.catch_up(transaction):
            self._hand_out(transaction, found)
        for told in self.stories.tick(transaction):
            self._delivery.hand_out(transaction, told)
        for subscription in self._subscriptions.drop_ended(transaction):
            self._policy.forget(transaction, subscription)
        self._subscriptions.join_twins(transaction)
        if not self._is_announced:
            self._is_announced = True
            self._vocabularies.announce(transaction, self._item_store)
        self._receipts.report_due(transaction)
        self._pending.flush(transaction)
        excess = self._item_store.count(NOTIFICATION) - self._settings.held_limit
        if excess > 0:
            self.evict(transaction, max(excess, self._settings.held_limit // _EVICTED_SHARE))
        self._delivery.purge_delivered(transaction)

    # Items that came and went ---------------------------------------------------------------

    def add_notifications(
        self, transaction: Transaction, items: Sequence[Item], source: str
    ) -> None:
        """Match new notifications, and send them to those who are there."""
        for found in self._pending.add_notifications(transaction, items, source):
            self._hand_out(transaction, found)
        self._pending.flush(transaction)

    def _hand_out(self, transaction: Transaction, found: Matched) -> None:
        """Hand out a notification, then the stories that it tells."""
        self._delivery.hand_out(transaction, found)
        if found.parts:
            for told in self.stories.add(transaction, found):
                self._delivery.hand_out(transaction, told)

    def add_subscriptions(
        self, transaction: Transaction, items: Sequence[Item], source: str
    ) -> None:
        """Put new subscriptions in force."""
        for item in items:
            subscription = self._subscriptions.add(transaction, item, source)
            if subscription is not None:
                subscriber = subscription.subscriber
                self.stories.add_subscription(subscription)
                self._pending.note_late(transaction, subscription)
                self._receipts.note_place(transaction, subscriber, item.dot.origin)
                self._receipts.report_place(transaction, subscriber)
                self._delivery.reorder(transaction, subscriber)

    def add_receipts(self, transaction: Transaction, items: Sequence[Item], source: str) -> None:
        """Note what other nodes have delivered."""
        for item in items:
            if source:  # our own say what is known here
                self._add_receipt(transaction, item, source)
        self._pending.flush(transaction)

    def _add_receipt(self, transaction: Transaction, item: Item, source: str) -> None:
        try:
            body = decode_body(DeliveredBody, item.body)
        except ProtocolError as error:
            transaction.log("refuse", what="delivered", why=str(error), who=item.dot.origin)
            return
        subscriber = self._subscriptions.find_subscriber(body.subscriber)
        self._receipts.note_place(transaction, subscriber, item.dot.origin)
        notes = []
        for dot, proof in body.proofs:
            word = item.dot.origin, proof
            if not proof and word[0] != dot.origin:
                is_believed: bool | None = False
            else:
                is_believed = self._delivery.settle_elsewhere(transaction, subscriber, dot, word)
            if is_believed is False:
                transaction.count("receipts_refused")
                continue
            if is_believed is None:
                # Not matched here: it comes later, or is reported after this receipt.
                is_held = self._item_store.holds(NOTIFICATION, dot)
                if is_held or not self._item_store.context.holds(*dot):
                    self._pending.note_done(transaction, dot, body.subscriber, word)
            notes.append(dot.id)
        if len(notes) < len(body.notes):
            why = f"{len(body.notes) - len(notes)} of notifications that it never had"
            transaction.log("refuse", what="delivered", why=why, who=item.dot.origin)
        transaction.log("learn_delivered", subscriber=body.subscriber, notes=notes, source=source)

    def add_vocabularies(
        self, transaction: Transaction, items: Sequence[Item], source: str
    ) -> None:
        """Learn vocabularies of other nodes."""
        for item in items:
            body = self._vocabularies.learn(item)
            if body is None:
                who = item.dot.origin
                transaction.log(
                    "refuse", what="vocabulary", why="not a vocabulary of its hash", who=who
                )
                continue
            self._pending.forget_decoded()
            transaction.log("vocabulary", hash=body.hash, document=body.document, source=source)

    def add_announcements(self, transaction: Transaction, items: Sequence[Item]) -> None:
        """Note what devices sense; tell those whose subscriptions had nobody to answer them."""
        for item in items:
            try:
                body = self.directory.add(item)
            except ProtocolError as error:
                why = str(error)
                transaction.log("refuse", what="announcement", why=why, who=item.dot.origin)
                continue
            if not self.directory.is_new_kind(body):
                continue  # nobody waited for one more of these
            for subscription in self._subscriptions.by_id.values():
                need = self._subscriptions.find_need(subscription) if subscription.is_live else None
                if need is None or not self.directory.can_answer(body, need):
                    continue
                if self._is_ours(subscription) and not self.directory.has_another(body, need):
                    self._requests.tell_answerable(transaction, subscription, body.device, item)

    def _is_ours(self, subscription: Subscription) -> bool:
        """Return whether it is this node that has to tell a subscriber something."""
        place = subscription.subscriber.place or subscription.dot.origin
        return place == self._item_store.name

    def remove_notification(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Forget who waits for a notification that is gone."""
        self.stories.remove_notification(transaction, item)
        for name in self._pending.remove_notification(transaction, item, reason):
            self._delivery.note_gone(transaction, self._subscriptions.find_subscriber(name))

    def remove_subscription(self, transaction: Transaction, item: Item, reason: str) -> None:
        """Take a subscription out of force; what it matched stays, if its time was just over."""
        subscription = self._subscriptions.by_id.get(item.id)
        if subscription is None or not subscription.is_live:
            return
        if reason in KEPT_REASONS:
            for found in self._pending.match_before_end(transaction, subscription):
                self._hand_out(transaction, found)
        self._subscriptions.remove(transaction, item, reason)
        self.stories.remove_subscription(transaction, subscription, reason in KEPT_REASONS)
        self._pending.forget_late(transaction, subscription.id)
        if reason not in KEPT_REASONS:
            self._policy.forget(transaction, subscription)
        self._delivery.reorder(transaction, subscription.subscriber)
        self._pending.flush(transaction)

    def remove_receipts(self, transaction: Transaction, item: Item) -> None:
        """Forget receipts of notifications that never came."""
        try:
            body = decode_body(DeliveredBody, item.body)
        except ProtocolError:
            return
        for dot, proof in body.proofs:
            self._pending.forget_done(transaction, dot, body.subscriber, (item.dot.origin, proof))

    # For the rest of the node ---------------------------------------------------------------

    def wanted(self, reader: Reader, dot: Dot) -> dict[str, int]:
        """Return who still waits for a notification that is held, with the degrees (0..255)."""
        entry = self._pending.peek(reader, self._pending.encode(dot))
        return {} if entry is None else self._pending.list_wanted(entry)

    def find_time(self, reader: Reader, dot: Dot) -> int:
        """Return when a notification that is held was made, by the clock here; 0 if unknown."""
        entry = self._pending.peek(reader, self._pending.encode(dot))
        return 0 if entry is None else entry.latest

    def evict(self, transaction: Transaction, count: int) -> int:
        """Give up so many notifications that are worth least; return how many there were."""
        victims = self._pending.choose_least_worth(transaction, count)
        for dot, degree in victims:
            transaction.log("drop", what="notification", why="space", item=dot.id, degree=degree)
            self._item_store.remove(transaction, NOTIFICATION, dot, "space")
        transaction.count("notes_dropped", len(victims))
        return len(victims)

    def forget_roles(self) -> None:
        """Ask again who may see what, after the rules were changed."""
        self._policy.forget_roles()

    @property
    def is_full(self) -> bool:
        """Whether the node holds as many notifications as it may."""
        return self._item_store.count(NOTIFICATION) >= self._settings.held_limit

    def list_subscribers(self) -> list[str]:
        """Return who has subscriptions."""
        states = self._subscriptions.subscribers.values()
        return sorted(state.name for state in states if state.subscriptions)

    def count_subscriptions(self) -> int:
        """Return how many subscriptions are in force."""
        return self._subscriptions.count

    def count_attached(self) -> int:
        """Return how many subscribers are served now."""
        return sum(state.is_served for state in self._subscriptions.subscribers.values())

    def count_waiting(self) -> int:
        """Return about how many deliveries wait: those of subscribers who are not here, too."""
        states = self._subscriptions.subscribers.values()
        return sum(len(state.codes) - state.stale for state in states)
