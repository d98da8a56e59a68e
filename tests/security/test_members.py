"""What a stolen member of the site can do to others, and what it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from denwatch.node.core.delivery import Delivery
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import (
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    NotificationBody,
    decode_body,
    prove_item,
)
from denwatch.node.core.pending import DONE
from denwatch.node.security import site
from denwatch.node.security.cards import make_node_keys
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.registrations import read_registrations, write_registrations
from denwatch.protocol import cbor

from simulator.keys import HmacKeys
from tests.replication.network import Network
from tests.security.sites import make_registries, tell
from tests.subscribers.subscriber_node import (
    DAY,
    START,
    SubscriberNode,
    list_ids,
    make_notification,
    make_receipts,
    patient,
)

FUTURE = Dot("b", 1, 1)  # a notification of node b; node c is stolen
PROOF = prove_item(b"signed")  # of what the tests' other nodes make


def make_node() -> SubscriberNode:
    node = SubscriberNode()
    node.ask("m", "heart_rate is high")
    return node


def silence(node: SubscriberNode, *proofs: bytes) -> list[str]:
    """Return what is delivered of a notification that comes after receipts of the stolen node."""
    for number, proof in enumerate(proofs, 1):
        node.bring(make_receipts("m", [FUTURE], Dot("c", 1, number), START + DAY, proof))
    note = make_notification(node, patient(heart_rate=180), FUTURE, at=START + 5)
    node.bring(note)
    return list_ids(node.attach("m"), "m")


def test_a_receipt_of_what_does_not_exist_yet_silences_nobody() -> None:
    assert len(silence(make_node(), b"", bytes(8), prove_item(b""))) == 1
    own = make_node()
    dots = [Dot(own.item_store.name, own.item_store.epoch, number) for number in range(1, 50)]
    for number, proof in enumerate((b"", bytes(8)), 1):
        own.bring(make_receipts("m", dots, Dot("c", 1, number), START + DAY, proof))
    own.attach("m")
    assert len(own.read(patient(heart_rate=180))[1]) == 1


def test_an_honest_receipt_counts_in_any_order_among_lies() -> None:
    assert silence(make_node(), PROOF) == []
    assert silence(make_node(), bytes(8), PROOF, b"another.") == []
    # The last words are kept: a flood of lies makes it twice, never silent.
    assert len(silence(make_node(), PROOF, *(bytes([n]) * 8 for n in range(1, 10)))) == 1


def test_a_receipt_that_is_over_takes_no_other_with_it() -> None:
    node = make_node()
    node.bring(make_receipts("m", [FUTURE], Dot("d", 1, 1), START + DAY, PROOF))
    node.bring(make_receipts("m", [FUTURE], Dot("c", 1, 1), START + 1000, bytes(8)))
    node.tick(5000)
    assert silence(node) == []


def test_receipts_of_runs_that_nobody_saw_are_kept_of_a_few() -> None:
    node = make_node()
    for number in range(1, 301):
        dot = Dot("c", 5_000 + number, 1)
        node.bring(make_receipts("m", [dot], Dot("c", 1, number), 0))
    rows = list(node.store.scan(DONE))
    assert 0 < len(rows) <= 64
    node = node.reopen()
    node.bring(make_receipts("m", [Dot("c", 9_000, 1)], Dot("c", 1, 301), 0))
    assert list(node.store.scan(DONE)) == rows
    # Of a run that exists they count, however many are made up.
    node.bring(make_notification(node, patient(heart_rate=180), Dot("c", 7_000, 1), at=START + 5))
    node.bring(make_receipts("m", [Dot("c", 7_000, 2)], Dot("c", 1, 302), 0))
    assert len(list(node.store.scan(DONE))) == len(rows) + 1


def test_runs_that_a_member_makes_up_are_believed_in_as_long_as_they_are_few() -> None:
    network = Network("abc")
    host = network.hosts["b"]

    def lie(transaction: Transaction) -> None:
        for epoch in range(1_000, 1_400):
            host.peers._change_log.accept_dead(transaction, ("c", epoch), ((1, 1),), "c")

    host.act(lie, network.now)
    network.restart("b")
    host.act(lie, network.now)
    assert sum(origin == "c" for origin, _ in host.item_store.context.runs) == 128
    network.restart("c")
    note, _ = network.hosts["c"].notify(network.now, 1)
    network.heal()
    assert note.dot in host.list_dots(NOTIFICATION)  # a run that shows an item always counts


def test_a_receipt_of_what_is_here_needs_its_proof() -> None:
    node = make_node()
    note = make_notification(node, patient(heart_rate=180), FUTURE, at=START + 5)
    node.bring(note)
    for number, proof in enumerate((b"", bytes(8)), 1):
        node.bring(make_receipts("m", [FUTURE], Dot("c", 1, number), START + DAY, proof))
        assert node.subscribers.wanted(node.store, FUTURE) == {"m": 255}
    # What a member was sent it can still call delivered: a node vouches for plain clients.
    node.bring(make_receipts("m", [FUTURE], Dot("c", 1, 9), START + DAY, PROOF))
    assert node.subscribers.wanted(node.store, FUTURE) == {}


def test_without_the_rule_a_person_is_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Delivery.settle_elsewhere

    def believe(self: Delivery, transaction, subscriber, dot, word, **rest):  # type: ignore[no-untyped-def]
        return real(self, transaction, subscriber, dot, (dot.origin, word[1]), **rest)

    monkeypatch.setattr(Delivery, "settle_elsewhere", believe)
    with pytest.raises(AssertionError):
        test_a_receipt_of_what_is_here_needs_its_proof()


def test_readings_come_through_the_nodes_of_the_registration() -> None:
    owner, thief, third = make_registries("a", "c", "d")
    owner = site.add_device(owner, "wd1", nodes=["a", "d"])
    owner = site.add_device(owner, "wd2", make_node_keys(1).sign_secret)  # a key for here only
    owner = site.add_device(owner, "wd3")
    assert replace(read_registrations(write_registrations(owner)), own=owner.own) == owner
    speaker, liar, hearer = Keyring(owner), Keyring(thief), Keyring(third)
    tell(speaker, liar, hearer)
    for ring in (speaker, liar, hearer):
        said = {wd: [n for n in "acd" if ring.may_speak(wd, n)] for wd in ("wd1", "wd2", "wd3")}
        assert said == {"wd1": ["a", "d"], "wd2": ["a"], "wd3": ["a", "c", "d"]}
    assert liar.kind_of("wd1") is None  # it has no key of it either
    assert hearer.kind_of("wd1") == "device"
    # Only the device's node says so, and its last word counts.
    hearer.apply_notice("c", cbor.encode([5, 9, "wd1", ["c"]]))
    assert not hearer.may_speak("wd1", "c")
    tell(Keyring(site.change_nodes(owner, "wd1", ["d"])), hearer)
    tell(speaker, hearer)
    assert [node for node in "acd" if hearer.may_speak("wd1", node)] == ["d"]
    with pytest.raises(SecurityError, match='no node "x"'):
        site.change_nodes(owner, "wd1", ["x"])


def test_a_stolen_node_publishes_no_readings_of_a_device_that_speaks_elsewhere() -> None:
    network = Network("abc")
    host = network.hosts["b"]
    assert isinstance(host.keys, HmacKeys)
    host.keys.places["device"] = {"a"}
    honest, _ = network.hosts["a"].notify(network.now, 1)
    network.hosts["c"].notify(network.now, 2)
    for other in "ac":
        network.link(other, "b")
    network.run()
    assert host.list_dots(NOTIFICATION) == {honest.dot}
    assert "does not speak through its node" in str(host.counted)


def test_a_stolen_node_kills_nothing_that_does_not_exist_yet() -> None:
    network = Network("abc")
    host, origin = network.hosts["b"], network.hosts["a"]
    run = ("a", origin.item_store.epoch)
    log = host.peers._change_log

    def lie() -> None:
        host.act(
            lambda transaction: log.accept_dead(transaction, run, ((1, 900),), "c"), network.now
        )

    lie()
    network.link("a", "b")
    made = [origin.notify(network.now, number)[0].dot for number in range(1, 4)]
    network.heal()
    assert host.list_dots(NOTIFICATION) == set(made)
    lie()  # the dots that exist are here; a lie about later ones still does not count
    network.tick(2 * network.settings.grace)
    network.tick(2 * network.settings.grace)
    made.append(origin.notify(network.now, 4)[0].dot)
    network.heal()
    assert host.list_dots(NOTIFICATION) == set(made)


def test_what_is_dead_is_learnt_from_others_when_it_is_sure_to_be_made() -> None:
    network = Network("abc")
    host, origin = network.hosts["b"], network.hosts["a"]
    dead = [origin.subscribe(network.now, "m")[0].dot for _ in range(3)]
    for dot in dead:
        origin.remove(network.now, dot)
    run = dead[0].run
    network.link("a", "c")
    network.run()
    network.cut("a", "c")
    network.link("b", "c")
    network.run()
    assert run not in host.item_store.context.runs  # nobody but the origin can know that
    network.cut("b", "c")
    network.link("a", "c")
    later = origin.notify(network.now, 1)[0].dot
    network.run()
    network.cut("a", "c")
    network.link("b", "c")
    network.run()
    assert host.list_dots(NOTIFICATION) == {later}
    for _ in range(2):
        network.tick(network.settings.grace)
        network.run()
    assert host.item_store.context.runs[run].base == later.sequence


def test_any_member_may_say_that_a_subscription_was_removed() -> None:
    network = Network("abc")
    dot = network.hosts["a"].subscribe(network.now, "m")[0].dot
    network.heal()
    network.hosts["c"].remove(network.now, dot)  # its subscriber may have been there
    network.heal()
    assert all(dot not in host.list_dots(SUBSCRIPTION) for host in network.hosts.values())


def test_a_member_reads_what_it_carries_and_drops_what_only_it_has() -> None:
    network = Network("abc")
    dot = network.hosts["a"].notify(network.now, 1)[0].dot
    network.link("a", "c")
    network.run()
    host = network.hosts["c"]
    item = host.item_store.get(host.store, NOTIFICATION, dot)
    assert item is not None
    assert decode_body(NotificationBody, item.body).device == "device"
    network.cut("a", "c")
    host.remove(network.now, dot, NOTIFICATION)
    network.link("b", "c")
    network.run()
    assert not network.hosts["b"].list_dots(NOTIFICATION)
    network.heal()  # its origin still has it
    assert network.hosts["b"].list_dots(NOTIFICATION) == {dot}


def test_a_member_may_say_that_a_subscriber_is_with_it() -> None:
    node = make_node()
    node.bring(make_receipts("m", [], Dot("c", 1, 1), START + DAY))
    assert node.subscribers.wanted(node.store, FUTURE) == {}
    assert silence(node) != []  # who listens here is served here all the same
