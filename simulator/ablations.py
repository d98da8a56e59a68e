"""Safety rules of a node switched off, one at a time: the campaign must notice each.

Only for testing the tests. A rule is an attribute of a class or module that is replaced while one
scenario is played, in this process; nothing of it stays. The tables say which rule, and what a node
does without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from denwatch.node.core import device_protocol as device_part
from denwatch.node.core import devices, request_handler, subscriptions
from denwatch.node.core.coverage import Coverage, DeviceKind
from denwatch.node.core.delivery import Delivery, DeliveryPolicy
from denwatch.node.core.device_protocol import DeviceProtocol
from denwatch.node.core.devices import VectorTable
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.peers import item_exchange
from denwatch.node.core.peers.item_exchange import NEW, ItemValidator
from denwatch.node.core.peers.knowledge import ChangeLog
from denwatch.node.core.peers.peer_protocol import PeerSession
from denwatch.node.core.pending import Pending
from denwatch.node.core.receipts import Receipts
from denwatch.node.core.subscriber_protocol import SubscriberProtocol
from denwatch.node.ranking.topk import TopK, Verdict
from denwatch.protocol.frames import Link

from simulator.disk import FieldStore
from simulator.keys import KEY_ID, Ring, make_device_secret
from simulator.memory_store import MemoryStore
from simulator.person import Person
from simulator.registry import RULES, Rule, load_tables


def _always(value: object) -> Callable[[Any], Any]:
    return lambda _: lambda *_, **__: value


def _commit_seldom(commit: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Say things before they are on the disk: every fourth commit makes up for the others."""
    calls = 0

    def skip(store: Any) -> bool:
        nonlocal calls
        calls += 1
        return commit(store) if calls % 4 == 0 else False

    return skip


def _take_seldom(originate: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Let a device forget what was never taken: every fourth time."""
    calls = 0

    def skip(*arguments: Any) -> list[Any]:
        nonlocal calls
        calls += 1
        return originate(*arguments) if calls % 4 else []

    return skip


def _keep_epoch(open_store: Callable[..., None]) -> Callable[..., None]:
    def reopen(store: Any, node: str, medium: Any = None, **options: Any) -> None:
        if medium is not None and medium.epoch:
            medium.epoch -= 1
            options["first_epoch"] = 1
        open_store(store, node, medium, **options)

    return reopen


def _trust_all(make_key: Callable[..., Any]) -> Callable[..., Any]:
    return lambda device: make_key(replace(device, is_doubtful=False, doubts={}))


def _know_all(link_for: Callable[..., Any]) -> Callable[..., Any]:
    """Let a device have its rights for ever."""

    def find(ring: Any, device: str, key_id: int) -> Any:
        found = link_for(ring, device, key_id)
        return found or Link(device, ring.name, KEY_ID, make_device_secret(device))

    return find


def _let_expired(judge: Callable[..., Any]) -> Callable[..., Any]:
    def pass_on(*arguments: Any) -> Any:
        reason, hit, until = judge(*arguments)
        return ("", hit, math.inf) if reason == "expired" else (reason, hit, until)

    return pass_on


RULES |= {
    "commit-first": Rule(FieldStore, "commit", _commit_seldom, "what is said is on the disk"),
    "take-first": Rule(ItemStore, "originate_many", _take_seldom, "what is acknowledged is held"),
    # A run goes on where its own items end; a disk that forgot some of them makes epochs matter.
    "new-epoch": Rule(
        MemoryStore,
        "__init__",
        _keep_epoch,
        "every start has its own numbers",
        ("lying-disk",),
    ),
    "signature": Rule(Ring, "verify", _always(True), "an item is its origin's"),
    "gate": Rule(ItemValidator, "judge", _always((NEW, "")), "what comes from a peer is judged"),
    "content": Rule(
        item_exchange,
        "_read_body",
        _always(None),
        "what cannot be read is refused",
        ("mad-node",),
    ),
    "device-numbers": Rule(device_part, "is_new", _always(True), "a reading is taken once"),
    "delay": Rule(
        device_part,
        "find_delay",
        _always((0, 0)),
        "what was held back is dated by when it was made",
        ("held-up",),
    ),
    "reinstall": Rule(VectorTable, "doubt_all", _always(None), "a restarted device is told again"),
    "covering": Rule(
        Coverage, "_activate", _always(None), "what is not sent to a device is covered"
    ),
    "doubt": Rule(
        devices,
        "_make_key",
        _trust_all,
        "uncertain readings are covered by rules of their own",
        ("carry", "nap"),
        {"sensors": 0b11_11_11_11_11, "silent": 1, "sure": 1},
    ),
    "names": Rule(
        DeviceKind,
        "_rename",
        _always([]),
        "what a covered subscription names is sent",
    ),
    "will": Rule(
        DeviceProtocol,
        "_note_gone",
        _always(None),
        "who is gone is not listed",
        ("device-killed",),
    ),
    "rights": Rule(
        Ring, "link_for", _know_all, "who has no rights is not heard", ("revoked-device",)
    ),
    "typed-content": Rule(
        subscriptions, "describe_content_values", _always({}), "typed content is matched"
    ),
    "report-number": Rule(
        request_handler,
        "number_report",
        lambda _: lambda _, second: second,
        "what is reported again at another node is the same report",
        ("report", "vanish"),
    ),
    "removal": Rule(ChangeLog, "accept_dead", _always(0), "a removal goes everywhere"),
    "retry": Rule(PeerSession, "tick", _always(None), "an exchange that got stuck begins again"),
    "catch-up": Rule(Pending, "catch_up", _always(()), "a late subscription meets what is held"),
    "remember-waiting": Rule(Pending, "restore", _always(0), "a restart forgets nobody who waits"),
    "settle": Rule(Delivery, "acknowledge", _always(None), "what was acknowledged is settled"),
    "settled-once": Rule(Pending, "settle", _always(True), "what is delivered is not sent again"),
    "one-reading": Rule(
        Person, "has_twin", _always(False), "a reading is shown once", ("power-cut", "carry")
    ),
    "tell-place": Rule(Receipts, "report_place", _always(None), "a walk is told to other nodes"),
    "roles": Rule(
        DeliveryPolicy, "find_visible", _always((None, 0xFFFF)), "roles hide what they hide"
    ),
    "expiry": Rule(
        DeliveryPolicy,
        "_judge_match",
        _let_expired,
        "what has expired, or is not recent, is not delivered",
        ("vanish",),
        {"recent": 1},
    ),
    "top-k": Rule(TopK, "judge", _always(Verdict.DELIVERED), "only the k best are delivered"),
    "top-k-follows": Rule(
        DeliveryPolicy,
        "count_delivered",
        _always(None),
        "what another node delivered counts as one of the k",
        ("walk",),
        {"stroll": 1},
    ),
    "my-top": Rule(
        DeliveryPolicy,
        "_passes_person",
        _always(True),
        "only the k best of all subscriptions are delivered",
        ("report",),
        {"my-top": 1},
    ),
    "my-top-follows": Rule(
        Delivery,
        "_count_elsewhere",
        _always(None),
        "what a receipt brings along counts as one of the k",
        ("report", "walk"),
        {"my-top": 1, "stroll": 0xFF},
    ),
    "best": Rule(TopK, "judge", _always(Verdict.OUTRANKED), "the k best are delivered"),
    "room": Rule(
        SubscriberProtocol, "evict", _always(0), "a full node gives up what is worth least"
    ),
}


@contextmanager
def switch_off(name: str) -> Iterator[None]:
    """Play without a rule; ValueError for a name that is none."""
    load_tables()
    if name not in RULES:
        raise ValueError(f"no rule {name!r}: there are {', '.join(RULES)}")
    rule = RULES[name]
    before = rule.owner.__dict__[rule.name]
    setattr(rule.owner, rule.name, rule.make(before))
    try:
        yield
    finally:
        setattr(rule.owner, rule.name, before)
