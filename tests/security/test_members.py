"""What a stolen member of the site can do to others, and what it cannot."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from denwatch.node.core import subscriber_protocol, subscriptions, trust
from denwatch.node.core.delivery import Delivery
from denwatch.node.core.device_directory import DeviceDirectory
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import (
    ANNOUNCEMENT,
    BY,
    CLAIM,
    NOTIFICATION,
    REMOVAL,
    REVOCATION,
    SUBSCRIPTION,
    VOCABULARY,
    AnnouncementBody,
    ClaimBody,
    Dot,
    Item,
    NotificationBody,
    RemovalBody,
    SubscriptionBody,
    VocabularyBody,
    decode_body,
    encode_body,
    prove_item,
)
from denwatch.node.core.peers import item_exchange, knowledge
from denwatch.node.core.peers.item_exchange import REFUSED
from denwatch.node.core.pending import DONE
from denwatch.node.security import site
from denwatch.node.security.cards import make_node_keys
from denwatch.node.security.credentials import SecurityError
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.registrations import read_registrations, write_registrations
from denwatch.protocol import cbor

from simulator.keys import HmacKeys, Roster
from tests.replication.network import Network
from tests.security.sites import make_registries, tell
from tests.subscribers.subscriber_node import (
    DAY,
    START,
    SubscriberNode,
    list_ids,
    make_notification,
    make_receipts,
    make_subscription,
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
    owner = site.add_device(owner, "wd3", nodes=())
    owner = site.add_device(owner, "wd4")
    assert replace(read_registrations(write_registrations(owner)), own=owner.own) == owner
    speaker, liar, hearer = Keyring(owner), Keyring(thief), Keyring(third)
    tell(speaker, liar, hearer)
    for ring in (speaker, liar, hearer):
        devices = ("wd1", "wd2", "wd3", "wd4")
        said = {wd: [n for n in "acd" if ring.may_speak(wd, n)] for wd in devices}
        assert said == {"wd1": ["a", "d"], "wd2": ["a"], "wd3": ["a", "c", "d"], "wd4": ["a"]}
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


def subscribe(network: Network) -> Dot:
    """Let m, who logged in at a and b, subscribe at a, and everybody hear of it."""
    for name in "ab":
        network.hosts[name].keys.people.add("m")
    dot = network.hosts["a"].subscribe(network.now, "m")[0].dot
    network.heal()
    return dot


def list_holders(network: Network, dot: Dot) -> str:
    hosts = network.hosts.items()
    return "".join(name for name, host in hosts if dot in host.list_dots(SUBSCRIPTION))


def pass_on(network: Network, *route: str) -> None:
    """Let neighbours on a route meet, one pair after the other."""
    for one, other in pairwise(route):
        network.link(one, other)
        network.run()
        network.cut(one, other)


def test_a_stolen_node_removes_no_subscription_of_a_person_who_was_never_there() -> None:
    network = Network("abcd")
    dot = subscribe(network)
    assert not network.hosts["c"].unsubscribe(network.now, "m", dot)  # m never logged in there
    network.heal()
    network.restart("b")
    network.heal()
    assert list_holders(network, dot) == "abd"


def test_who_walks_to_another_node_unsubscribes_there() -> None:
    network = Network("abcd")
    dot = subscribe(network)
    network.isolate()
    assert network.hosts["b"].unsubscribe(network.now, "m", dot)
    pass_on(network, "b", "c", "d", "a")  # nobody but c meets the node where that was
    assert list_holders(network, dot) == ""
    network.heal()
    digests = {host.peers._change_log.fingerprint(b"s" * 16) for host in network.hosts.values()}
    assert len(digests) == 1


def test_what_its_origin_removed_ends_where_nobody_meets_the_origin() -> None:
    network = Network("abcd")
    dot = subscribe(network)
    network.isolate()
    network.hosts["a"].remove(network.now, dot)
    pass_on(network, "a", "b", "c", "d")
    assert list_holders(network, dot) == ""


@pytest.mark.parametrize("kind", [VOCABULARY, REVOCATION, ANNOUNCEMENT])
def test_a_stolen_node_makes_nobody_forget_what_another_node_announced(kind: int) -> None:
    bodies = {
        VOCABULARY: encode_body(VocabularyBody(b"12345678", "{}")),
        REVOCATION: b"a notice",
        ANNOUNCEMENT: encode_body(AnnouncementBody("wd1", b"12345678", [[1, 1]])),
    }
    network = Network("abcd")
    dot = network.hosts["a"].originate(network.now, kind, bodies[kind]).dot
    network.heal()
    network.hosts["c"].remove(network.now, dot, kind)
    network.heal()
    holders = [name for name in "abcd" if dot in network.hosts[name].list_dots(kind)]
    assert holders == ["a", "b", "d"]
    network.isolate()
    network.hosts["a"].remove(network.now, dot, kind)
    pass_on(network, "a", "c", "b", "d")
    assert not any(network.hosts[name].list_dots(kind) for name in "abd")


def test_a_subscription_that_comes_later_than_its_removal_ends_at_once() -> None:
    network = Network("ab")
    origin, host = network.hosts["a"], network.hosts["b"]
    origin.keys.people.add("m")
    subscription, _ = origin.subscribe(network.now, "m")
    origin.remove(network.now, subscription.dot)
    (removal,) = origin.item_store.iterate(origin.store, REMOVAL)
    host.accept(network.now, removal)
    network.restart("b")
    host.accept(network.now, subscription)
    assert not host.list_dots(SUBSCRIPTION)


def test_removals_and_subscriptions_that_no_person_signed_are_refused() -> None:
    network = Network("abc")
    dot = subscribe(network)
    victim, thief = network.hosts["b"], network.hosts["c"]
    real = thief.item_store.get(thief.store, SUBSCRIPTION, dot)
    assert real is not None
    by = decode_body(SubscriptionBody, real.body).options[BY]
    bodies = [
        (REMOVAL, encode_body(RemovalBody([list(dot)], ""))),  # of another node
        (
            REMOVAL,
            encode_body(RemovalBody([list(dot)], by)),
        ),  # with what was signed for another use
        (REMOVAL, encode_body(RemovalBody([list(dot)], "A" * 128))),
        (SUBSCRIPTION, real.body),  # repeated, to be removed or replaced by its new origin
    ]
    for number, (kind, body) in enumerate(bodies, 500):
        item = Item(Dot("c", thief.item_store.epoch, number), kind, 0, body)
        item = replace(item, signature=thief.keys.sign(item.signed))
        verdict, why = victim.judge(network.now, item)
        assert (verdict, "person" in why or "another node" in why) == (REFUSED, True), why
    thief.keys.people.add("thief")
    mine = thief.proofs._sign_for("thief", trust._cover_removal([dot]))
    item = Item(
        Dot("c", thief.item_store.epoch, 600),
        REMOVAL,
        0,
        encode_body(RemovalBody([list(dot)], mine)),
    )
    item = replace(item, signature=thief.keys.sign(item.signed))
    victim.accept(network.now, item)  # well signed, with a key that is not the subscription's
    assert dot in victim.list_dots(SUBSCRIPTION)


def test_without_a_key_any_member_may_say_that_a_subscription_was_removed() -> None:
    network = Network("abc")
    dot = network.hosts["a"].subscribe(network.now, "m")[0].dot  # as behind somebody's broker
    network.heal()
    network.hosts["c"].remove(network.now, dot)  # its subscriber may have been there
    network.heal()
    assert list_holders(network, dot) == ""


def list_subscriptions(node: SubscriberNode) -> list[str]:
    return [each["id"] for each in node.ask("m", "list")["subscriptions"]]


def test_a_member_replaces_no_subscription_by_one_of_the_same_name() -> None:
    roster = Roster()
    roster.roles["m"] = "all"
    node, other = SubscriberNode(roster=roster), SubscriberNode(roster=roster, name="b")
    asked = {"subscribe": "heart_rate is high", "name": "pulse"}
    mine = node.ask("m", asked)
    vector = bytes.fromhex(mine["vector"])
    theirs = make_subscription(node, "m", vector, Dot("c", 1, 1), created=START + DAY, name="pulse")
    node.bring(theirs)
    node.tick()
    assert list_subscriptions(node) == [mine["id"], f"{theirs.id:016x}"]
    # The same words do not become those of the thief, who could remove them then.
    known = node.ask("m", asked)
    assert (known["known"], known["id"]) == (True, mine["id"])
    # The person does replace it, at another node.
    other.now = node.now + DAY + 1000
    newer = other.ask("m", {"subscribe": "heart_rate is very high", "name": "pulse"})
    (item,) = other.item_store.iterate(other.store, SUBSCRIPTION)
    node.bring(item)
    node.tick()
    assert list_subscriptions(node) == [newer["id"]]
    # A subscription without a key is replaced by any: nobody knows whose it is.
    loose = SubscriberNode()
    reply = loose.ask("m", asked)
    loose.bring(
        make_subscription(
            loose, "m", vector, Dot("c", 1, 2), created=START + DAY, name="pulse", score=0.5
        )
    )
    loose.tick()
    assert reply["id"] not in list_subscriptions(loose)


def test_priorities_of_a_member_that_contradict_each_other_cost_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = SubscriberNode()
    vector = bytes.fromhex(
        node.ask("m", {"subscribe": "heart_rate is high", "name": "n0"})["vector"]
    )
    for number in range(1, 60):
        dot = Dot("c", 1, number)
        node.bring(make_subscription(node, "m", vector, dot, created=START, name=f"n{number}"))
    worked: list[object] = []
    real = subscriptions.assign_levels

    def count(items: Any, conditions: Any) -> dict[Any, int]:
        worked.append(conditions)
        return real(items, conditions)

    monkeypatch.setattr(subscriptions, "assign_levels", count)
    pairs = [[f"n{one}", f"n{other}"] for one in range(60) for other in range(60)]
    dot = Dot("c", 1, 100)
    node.bring(make_subscription(node, "m", vector, dot, created=START, name="x", prefer=pairs))
    assert len(worked) <= 2
    assert node.ask("m", "list")["ok"]


def test_a_member_makes_a_node_tell_people_only_so_much_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriber_protocol, "_TELLINGS", 60)
    node = SubscriberNode()
    for number in range(30):
        node.ask(f"p{number}", "heart_rate is high")
    words = node.vocabularies.own_hash
    looked: list[object] = []
    real = DeviceDirectory.can_answer

    def look(directory: DeviceDirectory, body: AnnouncementBody, need: Any) -> bool:
        looked.append(need)
        return real(directory, body, need)

    monkeypatch.setattr(DeviceDirectory, "can_answer", look)
    for number in range(1, 11):
        body = AnnouncementBody(f"wd{number}", words, [[1, 1 << number]])
        node.bring(Item(Dot("c", 1, number), ANNOUNCEMENT, 0, encode_body(body), b"signed"))
    assert len(looked) == 60
    claim = ClaimBody("wd1", "p1", "p1", START, START, 0)
    told = node.bring(Item(Dot("c", 1, 50), CLAIM, 0, encode_body(claim), b"signed"))
    assert not told
    told = node.tick()
    assert sum("wd1" in str(each.payload) for each in told) >= 29  # all but who has it, at once
    looked.clear()
    node.tick()
    assert 0 < len(looked) <= 90


def test_the_person_is_told_what_ends_at_this_node_only() -> None:
    roster = Roster()
    roster.roles["m"] = "all"
    node = SubscriberNode(roster=roster)
    stranger = Roster()
    stranger.roles["x"] = "all"
    other = SubscriberNode(roster=stranger, name="b")
    other.ask("x", "heart_rate is high")  # signed with a key that m does not have
    (item,) = other.item_store.iterate(other.store, SUBSCRIPTION)
    body = replace(decode_body(SubscriptionBody, item.body), owner="m")
    node.bring(Item(item.dot, SUBSCRIPTION, 0, encode_body(body), b"signed"))
    (found,) = list_subscriptions(node)
    answer = node.ask("m", {"unsubscribe": found})
    assert answer["removed"] == answer["only_here"] == [found]
    assert list_subscriptions(node) == []


@pytest.mark.parametrize("rule", ["is_open", "find_forgery", "twins"])
def test_without_a_rule_about_removals_a_person_is_silenced(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = test_removals_and_subscriptions_that_no_person_signed_are_refused
    if rule == "is_open":
        monkeypatch.setattr(knowledge, "is_open", lambda _: True)
        test = test_a_stolen_node_removes_no_subscription_of_a_person_who_was_never_there
    elif rule == "find_forgery":
        monkeypatch.setattr(item_exchange, "find_forgery", lambda *_: "")
    else:
        monkeypatch.setattr(subscriptions, "may_replace", lambda *_: True)
        test = test_a_member_replaces_no_subscription_by_one_of_the_same_name
    with pytest.raises(AssertionError):
        test()


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
