"""Each rule that keeps replication safe, and the proof that without it the checks fail.

Every scenario runs twice: with the rule, where the checks must pass, and with the rule taken out,
where the same checks must fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from denwatch.node.core.events import PEERS, Action, Message, Publish, Write
from denwatch.node.core.item_store import ItemStore, Transaction
from denwatch.node.core.items import SUBSCRIPTION, Dot, Item
from denwatch.node.core.peers.item_exchange import ItemValidator
from denwatch.node.replication.dot_sets import EMPTY, Run, SeenRange
from denwatch.node.replication.wire import ITEMS, ItemBatch, PeerFrame, encode_item_batch, seal

from tests.replication.checks import (
    Violation,
    check_all,
    check_once,
    check_rest,
    check_subscriptions,
)
from tests.replication.network import Network, PeerNode
from tests.replication.oracle import Truth

Patch = Callable[[pytest.MonkeyPatch], None]
Scenario = Callable[[], None]


# Scenarios ------------------------------------------------------------------------------------


def forge_a_removal() -> None:
    """Somebody without the secret tells a node, in the midst of an exchange, what is dead."""
    network, truth = Network("ab"), Truth()
    network.link("a", "b")
    network.run()
    item, published = network.hosts["a"].subscribe(network.now, "medic")
    truth.subscriptions.add(item.dot)
    network.post("a", published)
    network.run()
    contact = network.hosts["b"].peers.sessions["a"]
    run = (item.dot.origin, item.dot.epoch)
    body = encode_item_batch(ItemBatch(((run, ((item.dot.sequence,) * 2,)),), (), ()))
    network.hand("a", "b", seal(b"x" * 32, "a", "b", b"", ITEMS, contact.channel.next_in, body))
    network.run()
    check_subscriptions(network, truth)


def send_the_same_twice() -> None:
    """Two peers send one subscription; between the two frames its owner removes it."""
    network, truth = Network("abc"), Truth()
    item, _ = network.hosts["a"].subscribe(network.now, "medic")
    truth.subscriptions.add(item.dot)
    network.link("a", "c")
    network.run()
    network.cut("a", "c")
    network.link("a", "b")
    network.link("b", "c")
    for _ in range(2):  # both exchanges up to the items, which stay under way
        for one, other in (("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")):
            network.deliver(one, other)
    while item.dot not in network.hosts["b"].list_dots(SUBSCRIPTION):
        assert network.deliver("a", "b") or network.deliver("b", "a")
    truth.remove(item.dot)
    network.post("b", network.hosts["b"].remove(network.now, item.dot))
    network.heal()
    check_once(network)
    check_all(network, truth)


def meet_after_a_removal() -> None:
    """A subscription is removed where its owner is; a node that was away still has it."""
    network, truth = Network("ab"), Truth()
    item, _ = network.hosts["a"].subscribe(network.now, "medic")
    truth.subscriptions.add(item.dot)
    network.link("a", "b")
    network.run()
    network.cut("a", "b")
    truth.remove(item.dot)
    network.hosts["a"].remove(network.now, item.dot)
    network.heal()
    check_all(network, truth)


class LateNode(PeerNode):
    """A node that publishes first and commits later: a crash takes back what it said."""

    publishes_early = False

    def settle(self, actions: Sequence[Action]) -> list[Publish]:
        published = super().settle(actions)
        return published if self.medium.syncs or LateNode.publishes_early else []


def crash_before_the_commit() -> None:
    """b hears something from c, tells a that it has it, and loses it before the commit."""
    network, truth = Network("ac"), Truth()
    late = LateNode("b", network.settings)
    network.hosts["b"] = late
    for name in "ac":  # a known state between all, so that later ones are told as differences
        truth.subscriptions.add(network.hosts[name].subscribe(network.now, "x")[0].dot)
    network.heal()
    check_rest(network)
    for one, other in (("a", "b"), ("b", "c"), ("a", "c")):
        network.cut(one, other)
    truth.subscriptions.add(network.hosts["c"].subscribe(network.now, "medic")[0].dot)
    network.link("a", "c")
    network.run()
    network.cut("a", "c")
    late.medium.syncs = False  # commits are safe only later
    network.link("b", "c")
    network.run()
    network.link("a", "b")
    network.run()
    network.restart("b")
    del network.hosts["c"]  # it never comes back
    network.links = {link for link in network.links if "c" not in link}
    network.heal()
    check_subscriptions(network, truth)


# Rules, taken out -----------------------------------------------------------------------------


def believe_every_tag(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PeerFrame, "is_from", lambda *_: True)


def take_dots_again(patch: pytest.MonkeyPatch) -> None:
    def accept(self: ItemStore, transaction: Transaction, item: Item, source: str) -> bool:
        self._add(transaction, (item,), source)
        return True

    patch.setattr(ItemValidator, "has_seen", lambda *_: False)
    patch.setattr(ItemStore, "accept", accept)


def forget_what_was_seen(patch: pytest.MonkeyPatch) -> None:
    remove = ItemStore.remove

    def forgetful(
        self: ItemStore,
        transaction: Transaction,
        kind: int,
        dot: Dot,
        reason: str,
        source: str = "",
    ) -> Item | None:
        gone = remove(self, transaction, kind, dot, reason, source)
        run: Run = (dot.origin, dot.epoch)
        kept = EMPTY
        for held in self.live.values():
            for sequence in held.get(run, ()):
                kept = kept.add(sequence)
        self.context.runs[run] = SeenRange(*kept)
        transaction.actions.append(Write("context", Dot(*run, 0).key, kept.encode()))
        return gone

    patch.setattr(ItemStore, "remove", forgetful)


def publish_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LateNode, "publishes_early", True)


RULES: list[tuple[Scenario, Patch]] = [
    (forge_a_removal, believe_every_tag),
    (send_the_same_twice, take_dots_again),
    (meet_after_a_removal, forget_what_was_seen),
    (crash_before_the_commit, publish_before_the_commit),
]
NAMES = [patch.__name__ for _, patch in RULES]


@pytest.mark.parametrize(("scenario", "patch"), RULES, ids=NAMES)
def test_the_rule_holds(scenario: Scenario, patch: Patch) -> None:  # noqa: ARG001
    scenario()


@pytest.mark.parametrize(("scenario", "patch"), RULES, ids=NAMES)
def test_without_the_rule_the_checks_fail(
    scenario: Scenario, patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)
    with pytest.raises(Violation):
        scenario()


def test_a_replayed_conversation_changes_nothing() -> None:
    """All frames that a node ever got, again: nothing is held, removed or forgotten by it."""
    network, truth = Network("ab"), Truth()
    network.link("a", "b")
    network.run()
    for number in range(5):
        item, published = network.hosts["a"].subscribe(network.now, "medic")
        truth.subscriptions.add(item.dot)
        network.post("a", published)
        network.run()
        if number % 2:
            truth.remove(item.dot)
            network.post("a", network.hosts["a"].remove(network.now, item.dot))
            network.run()
    old = [frame for sender, _, frame in network.sent if sender == "a"]
    network.cut("a", "b")
    network.link("a", "b")
    network.run()
    for frame in old:
        network.hosts["b"].handle(Message("a", PEERS + "b", frame), network.now)
    check_subscriptions(network, truth)
    network.heal()
    check_all(network, truth)
