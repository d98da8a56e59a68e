"""What subscribers prefer: items that follow them from node to node, and ranks made by them.

A *preference* is one item for a subscriber: how many they want to hear of all their subscriptions,
and what first ("my top 3", "prefer fever over burns"). The latest one holds, wherever it was made;
others are removed. Only this file reads and makes these items.

On the disk: `sub.person`, subscriber: the state of the top-k over all of their subscriptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
from denwatch.node.core.coverage import read_masks, strip_vector
from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import (
    NEVER,
    PREFERENCE,
    Item,
    PreferenceBody,
    decode_body,
    encode_body,
)
from denwatch.node.core.languages import load_languages
from denwatch.node.core.subscriptions import (
    SubscriberState,
    Subscription,
    Subscriptions,
    TopState,
    encode_row,
    join_name,
    load_top_k,
    save_top_k,
    split_name,
)
from denwatch.node.covering.boxes import ATTRIBUTES_PER_EVENT, Domains, box_vector, covers
from denwatch.node.ranking import content_covering
from denwatch.node.ranking.content import ContentFilter
from denwatch.node.ranking.topk import PersonPreference
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.subscription import decode

PERSON = "sub.person"
FoundMatch = tuple[Subscription, int, int, int]  # a subscription, possible, certain, attribute
_WIDE = (0, 0xFFFF)
_top_decoder = msgspec.msgpack.Decoder(TopState)


# The most specific of several subscriptions -------------------------------------------------------


def list_most_specific(matches: Sequence[FoundMatch]) -> list[FoundMatch]:
    """Return the matches of subscriptions that cover no other one, unless that covers them too.

    PrefSIENA's text says "that no other covers", against its own example.
    """

    def is_above(one: Subscription, other: Subscription) -> bool:
        return _covers(one, other) and not _covers(other, one)

    return [
        match
        for match in matches
        if not any(is_above(match[0], other[0]) for other in matches if other is not match)
    ]


def _covers(general: Subscription, special: Subscription) -> bool:
    """Return True only if whatever matches the special subscription matches the general one."""
    if (general.language, general.vocabulary) != (special.language, special.vocabulary):
        return False
    return covers_vector(general.language, general.vector, special.vector)


@lru_cache(maxsize=4096)
def covers_vector(language: int, general: bytes, special: bytes) -> bool:
    """Return True only if whatever matches the special vector matches the general one."""
    if language == FUZZY:
        one, other = decode(general), decode(special)
        if one.event != other.event:
            return False
        wides = read_masks(strip_vector(general))[1] | read_masks(strip_vector(special))[1]
        base = ATTRIBUTES_PER_EVENT * one.event
        domains = Domains(special={base + bit: _WIDE for bit in range(16) if wides >> bit & 1})
        return covers(box_vector(one), box_vector(other), domains)
    found = load_languages().find(language)
    filters = found.decode(general), found.decode(special)
    if isinstance(filters[0], ContentFilter) and isinstance(filters[1], ContentFilter):
        return content_covering.covers(*filters)
    return general == special  # what a plug-in's subscriptions cover is not known here


# Items -----------------------------------------------------------------------------------------


class Preferences:
    """The preferences of all subscribers, as the latest items say them."""

    def __init__(self, item_store: ItemStore, subscriptions: Subscriptions) -> None:
        self._item_store = item_store
        self.subscriptions = subscriptions
        self._items: dict[str, tuple[Item, PreferenceBody]] = {}  # what holds, by subscriber

    def restore(self, reader: Reader) -> None:
        """Load what an earlier run stored, after the subscriptions."""
        for item in self._item_store.iterate(reader, PREFERENCE):
            body = decode_body(PreferenceBody, item.body)
            known = self._items.get(body.owner)
            if known is None or _is_newer((item, body), known):
                self._items[body.owner] = item, body
        for _, body in self._items.values():
            self._apply(body.owner, body.options)
        for key, row in reader.scan(PERSON):
            subscriber = self.subscriptions.find_subscriber(split_name(key)[0])
            if subscriber.top_k is not None:
                subscriber.top_k = load_top_k(subscriber.top_k, _top_decoder.decode(row))

    def find_options(self, name: str) -> dict[str, Any]:
        """Return what a subscriber prefers."""
        known = self._items.get(name)
        return {} if known is None else known[1].options

    def set(self, transaction: Transaction, name: str, options: dict[str, Any]) -> None:
        """Make what a subscriber prefers an item; it holds when the item is reported as added."""
        known = self._items.get(name)
        if known is not None and known[1].options == options:
            return
        if not options:
            if known is not None:
                self._item_store.remove(transaction, PREFERENCE, known[0].dot, "removed")
            return
        created = max(transaction.now, known[1].created + 1 if known else 0)
        body = encode_body(PreferenceBody(name, created, options))
        self._item_store.originate(transaction, PREFERENCE, NEVER, body)

    def add(self, transaction: Transaction, item: Item) -> SubscriberState | None:
        """Note a new preference; of several of one subscriber the latest stays. None: refused."""
        try:
            body = decode_body(PreferenceBody, item.body)
        except ProtocolError as error:
            transaction.log("refuse", what="preference", why=str(error), who=item.dot.origin)
            return None
        known = self._items.get(body.owner)
        if known is not None and not _is_newer((item, body), known):
            self._item_store.remove(transaction, PREFERENCE, item.dot, "replaced")
            return None
        self._items[body.owner] = item, body
        if known is not None:
            self._item_store.remove(transaction, PREFERENCE, known[0].dot, "replaced")
        subscriber = self._apply(body.owner, body.options)
        save_person(transaction, subscriber)
        return subscriber

    def remove(self, transaction: Transaction, item: Item) -> SubscriberState | None:
        """Forget a preference that is gone; None if another one holds."""
        body = decode_body(PreferenceBody, item.body)
        known = self._items.get(body.owner)
        if known is None or known[0].dot != item.dot:
            return None
        del self._items[body.owner]
        subscriber = self._apply(body.owner, {})
        save_person(transaction, subscriber)
        return subscriber

    def _apply(self, name: str, options: dict[str, Any]) -> SubscriberState:
        subscriber = self.subscriptions.find_subscriber(name)
        preference = PersonPreference.read(options)
        subscriber.preference = None if preference == PersonPreference() else preference
        subscriber.top_k = preference.make_top_k(subscriber.top_k)
        subscriber.asked = [(pair[0], pair[1]) for pair in options.get("prefer", ())]
        subscriber.assign_levels()
        return subscriber


def save_person(transaction: Transaction, subscriber: SubscriberState) -> None:
    """Write the state of a subscriber's top-k over all subscriptions."""
    row = None if subscriber.top_k is None else encode_row(save_top_k(subscriber.top_k))
    transaction.write(PERSON, join_name(subscriber.name), row)


def _is_newer(one: tuple[Item, PreferenceBody], other: tuple[Item, PreferenceBody]) -> bool:
    return (one[1].created, one[0].id) > (other[1].created, other[0].id)
