"""Safety rules of a whole node switched off, for the checks of whole nodes: see `ablations.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from denwatch.node.core import items, subscriptions
from denwatch.node.core.peers import item_exchange, knowledge
from denwatch.node.core.subscriber_protocol import SubscriberProtocol
from denwatch.node.runtime import build, process
from denwatch.node.runtime.durable_node import DurableNode
from denwatch.node.security import Keyring
from denwatch.node.security.notices import RegistrationsBuilder
from denwatch.node.store import Store, interface

from simulator.registry import RULES, Rule


def _serve_once(_: Callable[..., None]) -> Callable[..., None]:
    """End the process with the first error of a run."""

    def serve(config: Any) -> None:
        module: Any = process  # in which the loop's asyncio is the simulation's
        module.asyncio.run(module._serve(module.open_node(config)))

    return serve


def _commit_seldom(commit: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Undo every fifth group and say that it was written."""
    calls = 0

    def skip(store: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls % 5 or not store._group:
            return commit(store)
        store.rollback()
        return True

    return skip


def _limit_nothing(settings: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **fields: settings(**{**fields, "max_subscriptions": 1 << 30})


def _believe_all(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, __, stored: stored[: -interface.SUMS]


def _believe_receipts(add: Callable[..., None]) -> Callable[..., None]:
    """Believe every receipt as if the notifications' own node had made it."""

    def believe(protocol: Any, transaction: Any, item: items.Item, source: str) -> None:
        dots = items.decode_body(items.DeliveredBody, item.body).dots
        origin = dots[0].origin if dots else item.dot.origin
        add(protocol, transaction, replace(item, dot=item.dot._replace(origin=origin)), source)

    return believe


def _admit_all(budget: Callable[..., Any]) -> Callable[..., Any]:
    return lambda limits, *rest: budget(replace(limits, links_per_name=1 << 30), *rest)


def _end_with(_: Callable[..., None]) -> Callable[..., None]:
    """Let what a node fails at by itself end its run."""

    def fail(_: Any, __: Any, ___: Any, error: Exception, ____: int) -> None:
        raise error

    return fail


RULES |= {
    "tick": Rule(
        DurableNode,
        "_skip_failed",
        _end_with,
        "a part of a tick that fails is skipped, and the item that caused it is set aside",
        ("late-defect",),
        {"whole": 1},
    ),
    "removal-proof": Rule(
        knowledge,
        "is_open",
        lambda _: lambda _: True,
        "what another node made ends by its word, or by its person's",
        ("lying-deaths",),
    ),
    "person-signature": Rule(
        item_exchange,
        "find_forgery",
        lambda _: lambda *_: "",
        "a removal is signed by the node, or by the person, whose items it names",
        ("lying-removals",),
    ),
    "same-person": Rule(
        subscriptions,
        "may_replace",
        lambda _: lambda *_: True,
        "a subscription is replaced by one of the same name and the same person",
        ("lying-twins",),
    ),
    "receipt-proof": Rule(
        SubscriberProtocol,
        "_add_receipt",
        _believe_receipts,
        "a receipt counts if its node proves that it had the notification",
        ("lying-receipts",),
    ),
    "checksums": Rule(
        interface,
        "open_value",
        _believe_all,
        "what changed on the disk by itself is not used",
        ("bit-flip",),
    ),
    "clock-bound": Rule(
        process,
        "find_plausible",
        lambda _: lambda wall: wall,
        "a clock outside 2020 to 2100 is not used",
        ("far-clock",),
        {"whole": 1},
    ),
    "start-again": Rule(
        process,
        "serve_node",
        _serve_once,
        "after a full disk a node is opened again",
        ("disk-full",),
        {"whole": 1},
    ),
    "home-registers": Rule(
        RegistrationsBuilder,
        "_is_wanted",
        lambda _: lambda *_: True,
        "what was registered at a node is changed there",
        ("lying-registrations",),
        {"whole": 1},
    ),
    "device-nodes": Rule(
        Keyring,
        "may_speak",
        lambda _: lambda *_: True,
        "a device's readings come from the nodes that its registration names",
        ("lying-readings",),
        {"whole": 1},
    ),
    "configured-limits": Rule(
        build,
        "SubscriberSettings",
        _limit_nothing,
        "one name has as many subscriptions as the configuration says",
        ("flood",),
        {"whole": 1, "limits": 1},
    ),
    "links-per-name": Rule(
        build,
        "LinkBudget",
        _admit_all,
        "one name has as many links as the configuration says",
        ("flood",),
        {"whole": 1, "limits": 1},
    ),
    "item-schema": Rule(
        items,
        "check_run",
        lambda _: lambda *_: "",
        "what crosses a boundary is checked completely before anything changes",
        ("lying-items",),
        {"whole": 1},
    ),
    "both-stores": Rule(
        Store,
        "commit",
        _commit_seldom,
        "what a store says is committed is committed",
        ("kill",),
        {"whole": 2},
    ),
}
