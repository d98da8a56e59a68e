"""Requests of subscribers, done: every one is answered, none that is wrong changes anything.

A request is first understood, without touching the node; only then done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from denwatch.client.compiler import compile_subscription
from denwatch.client.errors import LanguageError, suggest_names
from denwatch.client.language import parse
from denwatch.node.core.interface import REQUESTS, Message
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import (
    SUBSCRIPTION,
    Dot,
    Item,
    SubscriptionBody,
    decode_body,
    encode_body,
)
from denwatch.node.core.subscribers import requests
from denwatch.node.core.subscribers.asking import Asked, Refused, compile_content, compile_request
from denwatch.node.core.subscribers.delivery import Delivery
from denwatch.node.core.subscribers.notes import format_time
from denwatch.node.core.subscribers.people import Owner, Sub, describe_content
from denwatch.node.core.subscribers.registry import Registry
from denwatch.node.core.subscribers.replies import Replies, describe_error
from denwatch.node.core.subscribers.requests import Request, read_id, read_reference, read_request
from denwatch.node.core.subscribers.settings import Clock, Roles, SubscriberSettings
from denwatch.node.core.subscribers.tables import Priorities, Tables, encode_row, join_name
from denwatch.node.core.subscribers.wants import Wants
from denwatch.node.core.transaction import Transaction
from denwatch.node.core.vocabularies import Vocabularies
from denwatch.node.ranking.rank import PriorityCycle, assign_levels
from denwatch.protocol.vectors import SubscriptionVector

Probe = Callable[[list[SubscriptionVector]], tuple[int, int]]  # new roots, nodes (PrefSIENA, 3.3)
_MAX_OWNER = 128


class Commands:
    """Understands and does what subscribers ask for."""

    def __init__(
        self,
        item_store: ItemStore,
        vocabularies: Vocabularies,
        registry: Registry,
        wants: Wants,
        delivery: Delivery,
        replies: Replies,
        roles: Roles,
        clock: Clock,
        tables: Tables,
        settings: SubscriberSettings,
        probe: Probe | None,
    ) -> None:
        self._item_store = item_store
        self._vocabularies = vocabularies
        self._registry = registry
        self._wants = wants
        self._delivery = delivery
        self._replies = replies
        self._roles = roles
        self._clock = clock
        self._tables = tables
        self._settings = settings
        self._probe = probe or self._compare_vectors

    def handle(self, transaction: Transaction, message: Message) -> None:
        """Take a message to a request topic."""
        name = message.topic[len(REQUESTS) :]
        size = len(message.payload)
        transaction.count("requests")
        if not name or "/" in name or len(name) > _MAX_OWNER or message.sender not in ("", name):
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
            reference = read_reference(message.payload)
            request, asked = self._understand(transaction, name, message.payload)
            self._do(transaction, self._registry.find_owner(name), request, asked)
        except LanguageError as error:
            self._refuse(
                transaction, name, error.describe(), describe_error(error), reference, size
            )
        except Refused as refusal:
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
        self._replies.send(transaction, name, body, reference)

    def _understand(
        self, transaction: Transaction, name: str, payload: bytes
    ) -> tuple[Request, Asked | None]:
        """Return a request, and what it asks for if it is a subscription; changes nothing."""
        try:
            request = read_request(payload)
            asked = None
            if request.command == requests.SUBSCRIBE:
                asked = compile_request(
                    request,
                    name,
                    transaction.now,
                    self._vocabularies,
                    self._roles,
                    self._settings.organisation,
                )
            elif request.command == requests.CONTENT:
                asked = compile_content(
                    request, name, transaction.now, self._vocabularies, self._roles
                )
        except (LanguageError, Refused):
            raise
        except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
            # Whatever a parser stumbles over, a stranger's bytes must not stop the node.
            raise LanguageError(f"this cannot be read: {type(error).__name__}") from None
        return request, asked

    def _do(
        self, transaction: Transaction, owner: Owner, request: Request, asked: Asked | None
    ) -> None:
        answer: dict[str, Any] | None = None
        if asked is not None:
            answer = self._subscribe(transaction, owner, asked)
        elif request.command == requests.UNSUBSCRIBE:
            answer = self._unsubscribe(transaction, owner, request)
        elif request.command == requests.LIST:
            answer = self._list(transaction, owner)
        elif request.command == requests.MUTE:
            answer = self._mute(transaction, owner, request.argument)
        elif request.command == requests.PREFER:
            answer = self._prefer(transaction, owner, request.argument)
        elif request.command == requests.RECEIVED:
            self._delivery.receive(transaction, owner, set(request.argument))
        elif request.command == requests.PROBE:
            answer = self._answer_probe(request.argument)
        if answer is not None:
            self._replies.send(transaction, owner.name, {"ok": True, **answer}, request.reference)

    # Subscribing ----------------------------------------------------------------------------

    def _subscribe(self, transaction: Transaction, owner: Owner, asked: Asked) -> dict[str, Any]:
        known = owner.subs.get(owner.keys.get(describe_content(asked.body), -1))
        if known is not None:
            item = self._item_store.get(transaction, SUBSCRIPTION, known.dot)
            assert item is not None, "in force, and not held"
            return self._describe_taken(item, known.name, asked, is_known=True, replaced=[])
        name = asked.body.options.get("name")
        replaced = [sub for sub in owner.subs.values() if name is not None and sub.name == name]
        if len(owner.subs) - len(replaced) >= self._settings.max_subscriptions:
            limit = self._settings.max_subscriptions
            raise Refused(f"there are {limit} subscriptions already, unsubscribe from one first")
        gone = {sub.id for sub in replaced}
        stay = [sub for sub in owner.subs.values() if sub.id not in gone]
        pairs = [tuple(pair) for pair in asked.body.options.get("prefer", ())]
        self._check_priorities(owner, [*_list_pairs(stay), *owner.asked, *pairs], stay, name)
        for sub in replaced:
            self._item_store.remove(transaction, SUBSCRIPTION, sub.dot, "replaced")
        item = self._item_store.originate(
            transaction, SUBSCRIPTION, asked.expires, encode_body(asked.body)
        )
        return self._describe_taken(item, name, asked, is_known=False, replaced=replaced)

    def _describe_taken(
        self, item: Item, name: str | None, asked: Asked, *, is_known: bool, replaced: list[Sub]
    ) -> dict[str, Any]:
        return {
            "id": f"{item.id:016x}",
            "name": name,
            **asked.told,
            "expires": self._show(item.dot, item.expires),
            "known": is_known,
            "replaced": [old.hex for old in replaced],
            "node": self._item_store.name,
        }

    def _check_priorities(
        self, owner: Owner, pairs: list[Any], subs: list[Sub], newcomer: str | None
    ) -> None:
        """Raise LanguageError if priorities prefer something over itself."""
        names = {sub.name for sub in subs if sub.name} | ({newcomer} if newcomer else set())
        known = [(better, worse) for better, worse in pairs if {better, worse} <= names]
        try:
            assign_levels(names, dict.fromkeys(known))
        except PriorityCycle as cycle:
            raise LanguageError(f"{owner.name}: {cycle}") from None

    def _unsubscribe(
        self, transaction: Transaction, owner: Owner, request: Request
    ) -> dict[str, Any]:
        text = request.argument
        number = read_id(text)
        gone = [sub for sub in owner.subs.values() if sub.name == text or sub.id == number]
        keys = {sub.key for sub in gone}
        gone += [sub for sub in owner.subs.values() if sub.key in keys and sub not in gone]
        if not gone and request.reference is None:
            labels = [sub.label for sub in owner.subs.values()]
            raise LanguageError(
                f'there is no subscription "{text}"', suggestions=suggest_names(text, labels)
            )
        for sub in gone:
            self._item_store.remove(transaction, SUBSCRIPTION, sub.dot, "removed")
        return {"removed": [sub.hex for sub in gone], "name": text}

    # Everything else ------------------------------------------------------------------------

    def _list(self, transaction: Transaction, owner: Owner) -> dict[str, Any]:
        rows = []
        for sub in sorted(owner.subs.values(), key=self._rank_age):
            item = self._item_store.get(transaction, SUBSCRIPTION, sub.dot)
            words = decode_body(SubscriptionBody, item.body).words if item else ""
            row = {"id": sub.hex, "name": sub.name, "words": words}
            row["created"] = self._show(sub.dot, sub.created)
            row["expires"] = self._show(sub.dot, sub.expires)
            rows.append({**row, "origin": sub.dot.origin})
        waiting = 0
        for code in set(owner.codes):
            want = self._wants.peek(transaction, code)
            if want is not None and owner.name in self._wants.list_degrees(want):
                waiting += 1
        return {"subscriptions": rows, "waiting": waiting, "muted": owner.is_muted}

    def _rank_age(self, sub: Sub) -> tuple[int, Dot]:
        return self._clock.show(sub.dot, sub.created), sub.dot

    def _show(self, dot: Dot, time: int) -> str | None:
        """Return a time of a subscription as people have it; None for never."""
        return format_time(self._clock.show(dot, time)) if time else None

    def _mute(self, transaction: Transaction, owner: Owner, is_muted: bool) -> dict[str, Any]:
        was_served = owner.is_served
        owner.is_muted = is_muted
        self._tables.mute.put(transaction, join_name(owner.name), b"" if is_muted else None)
        if owner.is_served and not was_served:
            self._delivery.begin_service(transaction, owner)
        elif was_served and not owner.is_served:
            self._delivery.end_service(owner)
        return {"muted": is_muted}

    def _prefer(
        self, transaction: Transaction, owner: Owner, pairs: list[tuple[str, str]]
    ) -> dict[str, Any]:
        subs = list(owner.subs.values())
        names = [sub.name for sub in subs if sub.name]
        for name in (name for pair in pairs for name in pair):
            if name not in names:
                raise LanguageError(
                    f'there is no subscription named "{name}"',
                    suggestions=suggest_names(name, names),
                )
        self._check_priorities(owner, [*_list_pairs(subs), *pairs], subs, None)
        owner.asked = pairs
        row = encode_row(Priorities(pairs)) if pairs else None
        self._tables.prefer.put(transaction, join_name(owner.name), row)
        owner.assign_levels()
        self._delivery.reorder(transaction, owner)
        levels = {sub.label: owner.levels.get(sub.id, 1) for sub in subs}
        return {"prefer": [list(pair) for pair in pairs], "levels": levels}

    def _answer_probe(self, texts: list[str]) -> dict[str, Any]:
        vectors = [
            compile_subscription(
                parse(text), self._vocabularies.own, organisation=self._settings.organisation
            ).vector
            for text in texts
        ]
        new_roots, nodes = self._probe(vectors)
        return {"node": self._item_store.name, "new_roots": new_roots, "nodes": nodes}

    def _compare_vectors(self, vectors: list[SubscriptionVector]) -> tuple[int, int]:
        """Count what is asked for in exactly these words already: covering without reasoning."""
        from denwatch.protocol import subscription as codec

        known = {sub.vector for sub in self._registry.by_id.values() if sub.is_live}
        new = {codec.encode(vector) for vector in vectors} - known
        return len(new), len(known)


def _list_pairs(subs: list[Sub]) -> list[tuple[str, str]]:
    return [pair for sub in subs for pair in sub.prefer]
