"""The invariants of replication, by name; the ablation tests use the same."""

from __future__ import annotations

from denwatch.node.core.items import DELIVERED, NOTIFICATION, SUBSCRIPTION

from tests.replication.network import Network
from tests.replication.oracle import Truth


class Violation(AssertionError):
    """An invariant that does not hold."""


def check_subscriptions(network: Network, truth: Truth) -> None:
    """Every node has exactly the subscriptions that were made and not removed."""
    for host in network.hosts.values():
        found = host.list_dots(SUBSCRIPTION)
        if found != truth.live:
            raise Violation(
                f"{host.name} lacks {truth.live - found}, has too much: {found - truth.live}"
            )


def check_notifications(network: Network, truth: Truth) -> None:
    """Every node has every notification and every mark, as flooding promises."""
    for host in network.hosts.values():
        for kind, expected in ((NOTIFICATION, truth.notes), (DELIVERED, truth.marks)):
            found = host.list_dots(kind)
            if found != expected:
                raise Violation(f"{host.name}, kind {kind}: {found ^ expected}")


def check_once(network: Network) -> None:
    """No node takes an item twice, however often it comes."""
    for host in network.hosts.values():
        taken = [
            log.fields["item"]
            for log in host.logs
            if log.kind == "transfer" and not log.fields["is_out"]
        ]
        if len(taken) != len(set(taken)):
            raise Violation(f"{host.name} took something twice")


def check_rest(network: Network) -> None:
    """Once all is said, no link has anything to say, and a new contact costs 64 bytes at most."""
    for link in sorted(network.links, key=sorted):
        first, second = sorted(link)
        network.cut(first, second)
        network.sent.clear()
        network.link(first, second)
        network.run()
        size = sum(len(frame) for _, _, frame in network.sent)
        if size > 64:
            raise Violation(f"{first} and {second} say {size} bytes about nothing")


def check_disks(network: Network) -> None:
    """What a node has in memory is what it finds on its disk."""
    for host in network.hosts.values():
        before = [host.list_dots(kind) for kind in (SUBSCRIPTION, NOTIFICATION, DELIVERED)]
        seen = dict(host.item_store.context.runs)
        network.restart(host.name)
        after = [host.list_dots(kind) for kind in (SUBSCRIPTION, NOTIFICATION, DELIVERED)]
        if before != after or seen != host.item_store.context.runs:
            raise Violation(f"{host.name} remembers something else")


def check_all(network: Network, truth: Truth) -> None:
    """All of them, once the network is healed."""
    check_subscriptions(network, truth)
    check_notifications(network, truth)
    check_once(network)
    check_rest(network)
    check_disks(network)
