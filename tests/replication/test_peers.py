"""The peers' protocol at work: what it costs, what it refuses, how it resumes, what it logs."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import PEERS, Count, Message, PeerUp, Tick
from denwatch.node.core.item_store import ItemStore
from denwatch.node.core.items import (
    DELIVERED,
    NEVER,
    NOTIFICATION,
    SUBSCRIPTION,
    Dot,
    Item,
    NotificationBody,
    encode_body,
)
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.peers.knowledge import ChangeLog
from denwatch.node.log.records import encode_record
from denwatch.node.replication.dot_sets import SeenRange
from denwatch.node.replication.wire import (
    FLAG,
    ITEMS,
    NAMES,
    ItemBatch,
    SentItem,
    decode_item_batch,
    encode_item_batch,
    read_frame,
    seal,
)

from simulator.keys import HmacKeys
from tests.replication.checks import check_all, check_rest, check_subscriptions
from tests.replication.network import START, Network, PeerNode
from tests.replication.oracle import Truth


def list_kinds(network: Network) -> list[str]:
    return [NAMES[frame[0] & ~FLAG] for _, _, frame in network.sent]


def count_refused(host: PeerNode) -> list[str]:
    return [each.label for each in host.counted if each.name.endswith("_refused")]


def test_a_contact_without_news_is_two_frames_and_58_bytes() -> None:
    network = Network("ab")
    for number in range(50):
        network.hosts["a"].notify(network.now, number)
    network.heal()
    network.cut("a", "b")
    network.sent.clear()
    network.link("a", "b")
    network.run()
    assert list_kinds(network) == ["digest", "equal"]
    assert sum(len(frame) for _, _, frame in network.sent) == 58


def test_marks_go_first_then_subscriptions_then_notifications() -> None:
    network = Network("ab")
    host = network.hosts["a"]
    for number in range(8):
        note, _ = host.notify(network.now, number)
        host.subscribe(network.now, "medic")
        host.deliver(network.now, "medic", note.dot)
    network.link("a", "b")
    network.run()
    kinds = [
        sent.item.kind
        for sender, _, frame in network.sent
        if sender == "a" and frame[0] & ~FLAG == ITEMS
        for sent in decode_item_batch(read_frame(frame, 1 << 20).body).items
    ]
    assert kinds == [DELIVERED] * 8 + [SUBSCRIPTION] * 8 + [NOTIFICATION] * 8


def test_a_broken_contact_resumes_where_it_stopped() -> None:
    """After each cut the rest is sent, and what was committed is not sent again."""
    network = Network("ab")
    for number in range(60):
        network.hosts["a"].notify(network.now, number)
    there = network.hosts["b"]
    progress = [0]
    for _ in range(40):
        network.link("a", "b")
        for _ in range(5):
            network.deliver("a", "b")
            network.deliver("b", "a")
        network.cut("a", "b")
        progress.append(len(there.list_dots(NOTIFICATION)))
        if progress[-1] == 60:
            break
    assert progress[-1] == 60
    assert len(progress) >= 4
    assert progress == sorted(progress)
    taken = [log for log in there.logs if log.kind == "transfer"]
    assert len(taken) == 60
    assert not [each for each in there.counted if each.name == "peer_items_known"]


def test_frames_of_items_are_bounded_and_windowed() -> None:
    network = Network("ab", PeerSettings(strategy="epidemic", chunk=2_048, window=2))
    for number in range(100):
        network.hosts["a"].notify(network.now, number)
    network.link("a", "b")
    most = 0
    while network.deliver("a", "b") or network.deliver("b", "a"):
        waiting = [f for f in network.queues["a", "b"] if f[0] & ~FLAG == ITEMS]
        most = max(most, len(waiting))
    assert most == 2
    sizes = [len(frame) for sender, _, frame in network.sent if sender == "a"]
    assert max(sizes) <= 2_048 + 400
    assert len(network.hosts["b"].list_dots(NOTIFICATION)) == 100


def test_a_lost_store_is_told_everything_again() -> None:
    network, truth = Network("ab"), Truth()
    for _ in range(5):
        truth.subscriptions.add(network.hosts["a"].subscribe(network.now, "medic")[0].dot)
    network.heal()
    check_rest(network)
    network.cut("a", "b")
    network.hosts["b"].lose_disk()
    network.restart("b")
    network.heal()
    check_all(network, truth)


@pytest.mark.parametrize("loser", ["a", "b"])
def test_a_lost_store_at_either_end_converges(loser: str) -> None:
    network, truth = Network("ab"), Truth()
    other = network.hosts["b" if loser == "a" else "a"]
    for _ in range(5):
        truth.subscriptions.add(other.subscribe(network.now, "medic")[0].dot)
    network.heal()
    check_rest(network)
    network.hosts[loser].lose_disk()
    network.restart(loser)
    truth.subscriptions.add(network.hosts[loser].subscribe(network.now, "x")[0].dot)
    network.heal()
    check_all(network, truth)


def test_an_expired_subscription_is_not_removed_from_others() -> None:
    """One node's clock says it is over; the other's decides for itself."""
    network = Network("ab")
    item, _ = network.hosts["a"].subscribe(network.now, "medic", life=60_000)
    network.link("a", "b")
    network.run()
    network.cut("a", "b")
    network.hosts["a"].handle(Tick(), network.now + 62_000)
    assert not network.hosts["a"].list_dots(SUBSCRIPTION)
    network.now += 1_000
    a = network.hosts["a"]
    network.links.add(frozenset("ab"))
    for name, other in ("ab", "ba"):
        time = network.now + (61_500 if name == "a" else 0)
        network.post(name, network.hosts[name].handle(PeerUp(other), time))
    network.run()
    assert item.dot in network.hosts["b"].list_dots(SUBSCRIPTION)
    assert not a.list_dots(SUBSCRIPTION)


def test_holes_close_when_the_grace_is_over() -> None:
    """b never got the notification; once it is long dead, b's context is whole all the same."""
    settings = PeerSettings(strategy="spray:1", chunk=1_024, retry=1_000, grace=10_000)
    network = Network("ab", settings)
    network.hosts["a"].notify(network.now, 1, life=20_000)
    network.hosts["a"].subscribe(network.now, "medic")
    network.heal()
    run = ("a", 1)
    assert network.hosts["b"].item_store.context.runs[run] == (0, 2)
    network.tick(40_000)
    network.tick(40_000)
    network.cut("a", "b")
    network.heal()
    assert network.hosts["b"].item_store.context.runs[run] == (2, 0)


# Refusals -------------------------------------------------------------------------------------


def _open_link() -> Network:
    network = Network("ab")
    network.hosts["a"].subscribe(network.now, "x")
    network.link("a", "b")
    network.run()
    return network


def _send_items(network: Network, *items: Item) -> None:
    """Let a send items to b that it would never send by itself, with right tags."""
    contact = network.hosts["a"].peers.sessions["b"]
    secret = network.hosts["a"].keys.peer_secret("b")
    assert secret is not None
    sent = tuple(SentItem(item, 0, 1) for item in items)
    body = encode_item_batch(ItemBatch((), (), sent))
    network.hand(
        "a",
        "b",
        seal(secret, "a", "b", contact.channel.salts, ITEMS, contact.channel.next_out, body),
    )
    contact.channel.next_out += 1
    contact._sent += 1
    contact._flights.append([])


def _note(origin: str, sequence: int, at: int = START, expires: int = NEVER) -> Item:
    body = encode_body(NotificationBody("d", 1, 1, at, 0, bytes(8), b"nv"))
    item = Item(Dot(origin, 1, sequence), NOTIFICATION, expires, body)
    return Item(item.dot, item.kind, expires, body, HmacKeys(origin).sign(item.signed))


def _tamper(item: Item) -> Item:
    return Item(item.dot, item.kind, item.expires, item.body + b"!", item.signature)


YEAR = 365 * 24 * 3_600_000
BAD = {
    "a wrong signature": _tamper(_note("c", 1)),
    "an item of ours that we never made": _note("b", 9),
    "a sequence far ahead of all others": _note("c", 1 << 40),
    "a reading from the future": _note("a", 9, at=START + 10 * YEAR),
    "an end too far ahead": _note("a", 9, expires=START + 10 * YEAR),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_item_is_refused_and_not_marked_as_seen(reason: str) -> None:
    network = _open_link()
    there = network.hosts["b"]
    before = dict(there.item_store.context.runs)
    _send_items(network, BAD[reason])
    assert count_refused(there) == [reason]
    assert there.item_store.context.runs == before
    assert not there.list_dots(NOTIFICATION)


def test_a_body_that_is_none_is_refused_and_the_rest_is_taken() -> None:
    network = _open_link()
    bad = Item(Dot("c", 1, 1), SUBSCRIPTION, NEVER, b"\x80")
    bad = Item(bad.dot, bad.kind, NEVER, bad.body, HmacKeys("c").sign(bad.signed))
    _send_items(network, bad, _note("c", 2))
    assert network.hosts["b"].list_dots(NOTIFICATION) == {Dot("c", 1, 2)}
    assert len(count_refused(network.hosts["b"])) == 1


def test_what_is_over_when_it_comes_is_noted_and_not_held() -> None:
    network = _open_link()
    _send_items(network, _note("a", 9, expires=START - 100))
    there = network.hosts["b"]
    assert not there.list_dots(NOTIFICATION)
    assert there.item_store.context.holds("a", 1, 9)


def test_items_of_an_unknown_origin_come_once_its_key_is_there() -> None:
    network, truth = Network("abc"), Truth()
    network.hosts["b"].keys.unknown.add("c")
    item, _ = network.hosts["c"].subscribe(network.now, "medic")
    truth.subscriptions.add(item.dot)
    network.link("a", "c")
    network.run()
    network.link("a", "b")
    network.run()
    assert count_refused(network.hosts["b"]) == ["an unknown origin"]
    network.hosts["b"].keys.unknown.clear()
    network.cut("a", "b")
    network.link("a", "b")
    network.run()
    check_subscriptions(network, truth)


def test_a_node_without_a_key_gets_no_frame() -> None:
    network = Network("ab")
    network.hosts["a"].keys.unknown.add("b")
    network.link("a", "b")
    network.run()
    assert not [frame for sender, _, frame in network.sent if sender == "a"]
    assert count_refused(network.hosts["a"])


@pytest.mark.parametrize(
    ("sender", "payload"),
    [("nobody", b"\x01abc"), ("a", b""), ("a", b"\x01"), ("a", bytes(41)), ("a", bytes(300_000))],
)
def test_nonsense_is_refused_and_changes_nothing(sender: str, payload: bytes) -> None:
    network = _open_link()
    there = network.hosts["b"]
    there.keys.unknown.add("nobody")
    spaces = {space: dict(keys) for space, keys in there.medium.spaces.items()}
    assert not there.handle(Message(sender, PEERS + "b", payload), network.now)
    assert there.medium.spaces == spaces
    assert len(count_refused(there)) == 1


def test_behind_a_broker_the_sender_is_found_by_its_tag() -> None:
    network = Network("ab")
    network.hosts["a"].subscribe(network.now, "medic")
    hand = network.hand
    network.hand = lambda _, receiver, payload: hand("", receiver, payload)  # type: ignore[method-assign]
    network.link("a", "b")
    network.run()
    assert network.hosts["b"].list_dots(SUBSCRIPTION)


def test_what_is_logged_fits_the_log() -> None:
    network = _open_link()
    network.hosts["b"].handle(Message("a", PEERS + "b", b"nonsense"), network.now)
    network.cut("a", "b")
    logs = [log for host in network.hosts.values() for log in host.logs]
    assert {log.kind for log in logs} == {"contact", "contact_end", "transfer", "refuse"}
    for log in logs:
        encode_record(log.kind, log.fields, network.now)
    ends = {log.fields["peer"]: log.fields for log in logs if log.kind == "contact_end"}
    for word in ("digest", "known", "items"):
        assert ends["a"][f"{word}_in"] == ends["b"][f"{word}_out"]
    assert isinstance(network.hosts["a"].counted[0], Count)


def test_a_push_after_a_long_rest_is_waited_for() -> None:
    """The clock of retries starts with the frame, not with the last thing that was said."""
    network = Network("ab")
    network.link("a", "b")
    network.run()
    network.tick(100_000)
    network.run()
    network.sent.clear()
    _, published = network.hosts["a"].subscribe(network.now, "medic")
    network.post("a", published)
    network.tick(500)
    assert list_kinds(network) == ["items"]
    network.run()
    assert list_kinds(network) == ["items", "ack"]


def test_names_that_a_peer_makes_up_leave_no_trace() -> None:
    network = _open_link()
    there = network.hosts["b"]
    there.keys.unknown.add("ghost")
    contact = network.hosts["a"].peers.sessions["b"]
    secret = network.hosts["a"].keys.peer_secret("b")
    assert secret is not None
    run = ("ghost", 7)
    body = encode_item_batch(ItemBatch(((run, ((1, 1 << 60),)),), ((run, 5, 5),), ()))
    spaces = {space: dict(keys) for space, keys in there.medium.spaces.items()}
    line = contact.channel
    network.hand("a", "b", seal(secret, "a", "b", line.salts, ITEMS, line.next_out, body))
    assert there.medium.spaces == spaces


def test_a_set_that_no_memory_holds_is_refused_with_its_whole_frame() -> None:
    network = _open_link()
    there = network.hosts["b"]
    channel = network.hosts["a"].peers.sessions["b"].channel
    secret = network.hosts["a"].keys.peer_secret("b")
    assert secret is not None
    dead = ((("a", 1), ((1, 1),)), (("a", 2), ((5, 5), (1 << 60, 1 << 60))))
    body = encode_item_batch(ItemBatch(dead, (), ()))
    before = there.list_dots(SUBSCRIPTION)
    network.hand("a", "b", seal(secret, "a", "b", channel.salts, ITEMS, channel.next_out, body))
    assert before
    assert there.list_dots(SUBSCRIPTION) == before
    assert len(count_refused(there)) == 1


@pytest.mark.parametrize("top", [9, 1 << 40])
def test_what_a_peer_lacks_is_found_in_a_run_without_end(top: int) -> None:
    """Whatever a disk or a member made us believe to have seen, only what is held is offered."""
    run = ("north", 7)
    store = ItemStore("south", 1, bytes, lambda _dot, at: at)
    store.context.runs[run] = SeenRange(top, 0)
    log = ChangeLog(store, grace=0)
    assert list(log.list_missing(run, ((1, 3),), {8, 2, 5})) == [5, 8]
