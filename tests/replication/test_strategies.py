"""Strategies: which notifications go, how many copies, and what stays; over links and on paper."""

from __future__ import annotations

import pytest
from denwatch.node.core.items import NOTIFICATION, Dot
from denwatch.node.core.peers import PeerSettings
from denwatch.node.replication.strategies import (
    Candidate,
    Copy,
    Encounters,
    Epidemic,
    MetPeer,
    SprayAndWait,
    Utility,
    build_strategy,
    grade,
    read_grade,
)
from hypothesis import given
from hypothesis import strategies as st

from simulator.memory_store import MemoryStore
from tests.replication.network import Network

NOBODY = MetPeer("peer", {}, 0)


def make_candidate(
    number: int, copies: int = 0, level: int = 0, *, degree: int = 0, expires: int = 0, at: str = ""
) -> Candidate:
    wanted = {"medic": degree} if degree else {}
    places = (at,) if at else ()
    return Candidate(Dot("a", 1, number), Copy(copies, 0, level), expires, wanted, places)


def save(space: str, key: bytes, value: bytes | None) -> None:
    """A disk that nobody reads."""


def test_the_order_is_for_somebody_there_then_degree_then_life() -> None:
    given_ = [
        make_candidate(1, degree=9, expires=50),
        make_candidate(2, degree=200, expires=10),
        make_candidate(3, degree=200, expires=20),
        make_candidate(4, degree=1, at="peer"),
        make_candidate(5, degree=200),
        make_candidate(6),
    ]
    order = [choice.dot.sequence for choice in Epidemic().choose(given_, NOBODY, Encounters(), 0)]
    assert order == [4, 5, 3, 2, 1, 6]


@given(st.integers(2, 64))
def test_spraying_never_makes_copies(copies: int) -> None:
    """Whatever is given and kept together is what was there."""
    for strategy in (SprayAndWait(copies), Utility(copies)):
        (choice,) = strategy.choose([make_candidate(1, copies)], NOBODY, Encounters(), 0)
        assert choice.given + choice.kept.copies == copies
        assert choice.given >= 1
        assert choice.kept.copies >= 1


def test_a_lone_copy_waits_for_its_destination() -> None:
    for strategy in (SprayAndWait(4), Utility(4)):
        lone = make_candidate(1, copies=1, at="far")
        assert not strategy.choose([lone], NOBODY, Encounters(), 0)
        there = make_candidate(1, copies=1, at="peer")
        (choice,) = strategy.choose([there], NOBODY, Encounters(), 0)
        assert choice.given == 1


def test_those_who_get_around_get_more_and_those_who_sit_get_nothing() -> None:
    encounters = Encounters()
    for number in range(19):
        encounters.meet(save, f"node{number}", 1_000, True)
        encounters.meet(save, f"node{number}", 2_000, False)
    candidate, ours = make_candidate(1, copies=12), encounters.reach
    (same,) = Utility(12).choose([candidate], MetPeer("peer", {}, ours), encounters, 3_000)
    (more,) = Utility(12).choose([candidate], MetPeer("peer", {}, 3 * ours), encounters, 3_000)
    assert (same.given, more.given) == (6, 9)
    assert not Utility(12).choose([candidate], MetPeer("peer", {}, ours // 4), encounters, 3_000)


def test_with_few_copies_left_only_the_best_get_one() -> None:
    encounters = Encounters()
    encounters.meet(save, "node", 1_000, True)
    peer = MetPeer("peer", {}, 4 * encounters.reach // 5)
    assert Utility(12).choose([make_candidate(1, copies=6)], peer, encounters, 3_000)
    assert not Utility(12).choose([make_candidate(1, copies=5)], peer, encounters, 3_000)


def test_reach_does_not_become_the_same_for_all() -> None:
    """Who meets everybody every three hours gets around more than who meets them once a day."""
    busy, idle, hour = Encounters(), Encounters(), 3_600_000
    for time in range(1, 48):
        for node in range(10):
            if time % 3 == 0:
                busy.meet(save, f"node{node}", time * hour, True)
                busy.meet(save, f"node{node}", time * hour + 1_000, False)
                busy.meet(save, f"node{node}", time * hour + 9_000, True)  # the same meeting
            if time % 24 == 0:
                idle.meet(save, f"node{node}", time * hour, True)
    idle.meet(save, "node0", 47 * hour, True)
    assert 3 * idle.reach < busy.reach < 20 * idle.reach


def test_a_lone_copy_goes_to_a_node_that_is_linked_to_the_destination_once() -> None:
    lone = make_candidate(1, copies=1, at="far")
    peer = MetPeer("peer", {"far": 255}, 3)
    (choice,) = Utility().choose([lone], peer, Encounters(), 0)
    assert choice.kept.level == 255
    again = make_candidate(1, copies=1, level=255, at="far")
    assert not Utility().choose([again], peer, Encounters(), 0)


@given(st.integers(0, 40 * 24 * 3_600_000))
def test_ages_survive_being_one_byte(age: int) -> None:
    byte = grade(age)
    assert 0 <= byte <= 254
    if byte:
        assert age <= read_grade(byte) <= max(1_000, age) * 1.1 + 1_000


def test_encounters_are_remembered_and_passed_on_older() -> None:
    encounters, disk = Encounters(), MemoryStore("a")

    def keep(space: str, key: bytes, value: bytes | None) -> None:
        disk.apply([(space, key, value or b"")])

    encounters.meet(keep, "b", 10_000, True)
    assert encounters.judge("b", 60_000) == 255
    encounters.meet(keep, "b", 60_000, False)
    told = encounters.judge("b", 90_000)
    other = Encounters()
    other.hear(keep, "c", told, 90_000)
    assert 0 < other.judge("c", 90_000) < told
    again = Encounters()
    again.restore(disk)
    assert again.judge("b", 90_000) == told
    assert again.reach == encounters.reach > 0


@pytest.mark.parametrize(
    ("text", "kind", "copies"),
    [("epidemic", Epidemic, 0), ("spray:6", SprayAndWait, 6), ("utility", Utility, 12)],
)
def test_strategies_have_names(text: str, kind: type, copies: int) -> None:
    strategy = build_strategy(text)
    assert isinstance(strategy, kind)
    assert strategy.copies == copies


@pytest.mark.parametrize("text", ["", "flood", "spray:", "spray:0", "spray:x", "epidemic:3"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="strategy"):
        build_strategy(text)


@pytest.mark.parametrize("strategy", ["spray:4", "utility:4"])
def test_no_more_carriers_than_copies(strategy: str) -> None:
    """Everybody meets everybody, again and again, over links that break: still four carriers."""
    settings = PeerSettings(strategy=strategy, chunk=1_024, retry=1_000)
    network = Network("abcdefgh", settings)
    for number in range(5):
        network.hosts["a"].notify(network.now, number)
    for _ in range(2):
        for first in "abcdefgh":
            for second in "abcdefgh":
                if first < second:
                    network.link(first, second)
                    network.run()
                    network.cut(first, second)
    for number in range(1, 6):
        dot = Dot("a", 1, number)
        holders = [host for host in network.hosts.values() if dot in host.list_dots(NOTIFICATION)]
        assert len(holders) == 4


def test_a_destination_gets_it_from_a_lone_copy() -> None:
    """b carries it from a, who has a copy left for the subscriber's node and meets it never."""
    network = Network("abc", PeerSettings(strategy="spray:2", chunk=1_024, retry=1_000))
    network.hosts["c"].subscribe(network.now, "medic")
    for first, second in ("bc", "ab"):
        network.link(first, second)
        network.run()
        network.cut(first, second)
    item, _ = network.hosts["a"].notify(network.now, 1)
    for host in network.hosts.values():
        host.pending.by_dot[item.dot] = {"medic": 200}
    for first, second in ("ab", "bc"):
        network.link(first, second)
        network.run()
        network.cut(first, second)
    assert item.dot in network.hosts["c"].list_dots(NOTIFICATION)


def test_what_was_withheld_may_go_at_a_later_contact() -> None:
    """The run did not change at either side, but the peer has become a destination."""
    network = Network("ab", PeerSettings(strategy="spray:1", chunk=1_024, retry=1_000))
    item, _ = network.hosts["a"].notify(network.now, 1)
    network.link("a", "b")
    network.run()
    network.cut("a", "b")
    assert not network.hosts["b"].list_dots(NOTIFICATION)
    network.hosts["b"].subscribe(network.now, "medic")
    network.hosts["a"].pending.by_dot[item.dot] = {"medic": 200}
    for _ in range(2):
        network.link("a", "b")
        network.run()
        network.cut("a", "b")
    assert item.dot in network.hosts["b"].list_dots(NOTIFICATION)


def test_what_was_withheld_goes_over_a_link_that_stays_up() -> None:
    """The peer becomes a destination while the link is up: nobody has to meet again."""
    network = Network("ab", PeerSettings(strategy="spray:1", chunk=1_024, retry=1_000))
    item, _ = network.hosts["a"].notify(network.now, 1)
    network.hosts["a"].pending.by_dot[item.dot] = {"medic": 200}
    network.link("a", "b")
    network.run()
    assert not network.hosts["b"].list_dots(NOTIFICATION)
    _, published = network.hosts["b"].subscribe(network.now, "medic")
    network.post("b", published)
    network.run()
    network.tick()
    network.run()
    assert item.dot in network.hosts["b"].list_dots(NOTIFICATION)


def test_what_the_peer_got_elsewhere_is_not_sent_to_it_later() -> None:
    """What a node remembers of a peer keeps up with what the peer says."""
    network = Network("ab", PeerSettings(strategy="spray:1", chunk=1_024, retry=1_000))
    a, b = network.hosts.values()
    for number in range(2):
        item, _ = a.notify(network.now, number)
        a.pending.by_dot[item.dot] = {"medic": 200}

    def meet() -> None:
        network.link("a", "b")
        network.run()
        network.cut("a", "b")

    meet()
    assert not b.list_dots(NOTIFICATION)
    b.act(lambda turn: b.item_store.accept(turn, a.item_store.sign(item), "another"), network.now)
    meet()
    meet()
    b.subscribe(network.now, "medic")
    meet()
    meet()
    assert len(b.list_dots(NOTIFICATION)) == 2
    assert not [each for each in b.counted if each.name == "peer_items_known"]
