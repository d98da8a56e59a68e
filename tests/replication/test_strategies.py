"""Strategies: which notifications go, how many copies, and what stays; over links and on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.items import NOTIFICATION, Dot
from denwatch.node.core.peers import PeerSettings
from denwatch.node.core.peers.item_exchange import SendQueue
from denwatch.node.replication.strategies import (
    LINKED,
    MET,
    NEVER,
    Candidate,
    Copy,
    CopyChoice,
    Encounters,
    Epidemic,
    MetPeer,
    SprayAndWait,
    Utility,
    build_strategy,
    grade,
    read_grade,
)
from denwatch.node.replication.wire import (
    ASK,
    FLAG,
    TELL,
    Ways,
    decode_ask,
    encode_ask,
    encode_ways,
)
from denwatch.protocol.errors import ProtocolError
from hypothesis import given
from hypothesis import strategies as st

from simulator.memory_store import MemoryStore
from tests.replication.network import Network

NOBODY = MetPeer("peer", {}, 0)


def make_candidate(
    number: int, copies: int = 0, *, degree: int = 0, expires: int = 0, at: str = "", made: int = 0
) -> Candidate:
    wanted = {"medic": degree} if degree else {}
    places = (at,) if at else ()
    return Candidate(Dot("a", 1, number), Copy(copies, 0), expires, wanted, places, made)


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


def meet_often(encounters: Encounters, count: int, *nodes: str, gap: int = 600_000) -> int:
    """Let a node meet others, each so often, and return the time after that."""
    now = 1_000_000
    for _ in range(count):
        for node in nodes:
            encounters.meet(save, node, now, True)
            encounters.meet(save, node, now + 1_000, False)
        now += gap
    return now


def tell(**ways: tuple[int, bool]) -> dict[str, int]:
    """Return what a peer tells: minutes, and whether it met the node itself."""
    return {node: grade(60_000 * far) | (MET if met else 0) for node, (far, met) in ways.items()}


def choose(
    candidate: Candidate, encounters: Encounters, now: int, **ways: tuple[int, bool]
) -> list[CopyChoice]:
    peer = MetPeer("peer", tell(**ways), encounters.reach)
    return Utility(9).choose([candidate], peer, encounters, now)


def test_a_lone_copy_waits_for_its_destination() -> None:
    assert not SprayAndWait(4).choose([make_candidate(1, 1, at="far")], NOBODY, Encounters(), 0)
    encounters = Encounters()
    now = meet_often(encounters, 20, "far")
    assert not choose(make_candidate(1, 1, at="far"), encounters, now, far=(5, True))
    for strategy in (SprayAndWait(4), Utility(4)):
        there = make_candidate(1, copies=1, at="peer")
        (choice,) = strategy.choose([there], NOBODY, encounters, now)
        assert choice.given == 1


def test_those_who_get_around_get_more_and_those_who_sit_get_nothing() -> None:
    encounters = Encounters()
    for number in range(99):
        encounters.meet(save, f"node{number}", 1_000, True)
        encounters.meet(save, f"node{number}", 2_000, False)
    candidate, ours = make_candidate(1, copies=12), encounters.reach
    (same,) = Utility(12).choose([candidate], MetPeer("peer", {}, ours), encounters, 3_000)
    (more,) = Utility(12).choose([candidate], MetPeer("peer", {}, 3 * ours), encounters, 3_000)
    assert (same.given, more.given) == (6, 9)
    assert not Utility(12).choose([candidate], MetPeer("peer", {}, ours // 4), encounters, 3_000)


def test_with_few_copies_left_only_the_best_get_one() -> None:
    encounters = Encounters()
    for number in range(400):
        encounters.meet(save, f"node{number}", 1_000, True)
    peer = MetPeer("peer", {}, 4 * encounters.reach // 5)
    assert Utility(12).choose([make_candidate(1, copies=6)], peer, encounters, 3_000)
    assert not Utility(12).choose([make_candidate(1, copies=5)], peer, encounters, 3_000)


def test_what_few_meetings_say_of_reach_refuses_nobody() -> None:
    encounters = Encounters()
    encounters.meet(save, "node", 1_000, True)
    peer = MetPeer("peer", {}, encounters.reach // 4)
    assert Utility(12).choose([make_candidate(1, copies=12)], peer, encounters, 3_000)


def test_copies_go_to_those_who_met_the_destination_once_enough_is_known() -> None:
    encounters = Encounters()
    now = meet_often(encounters, 15, "near")
    several = make_candidate(1, copies=8, at="far")
    encounters.hear("near", ["far"], bytes([grade(60_000)]), now)
    assert choose(several, encounters, now, far=(500, False))
    now = meet_often(encounters, 20, "near")
    assert not choose(several, encounters, now, far=(500, False))
    assert choose(several, encounters, now, far=(500, True))


def test_without_any_way_copies_are_free() -> None:
    encounters = Encounters()
    now = meet_often(encounters, 20, "near")
    (choice,) = choose(make_candidate(1, 1, at="far"), encounters, now)
    assert (choice.given, choice.kept.copies) == (1, 1)


def test_a_lone_copy_goes_on_to_who_is_nearer_by_a_wait() -> None:
    """Our way is 10 minutes to meet `near`, and 60 that it told."""
    encounters = Encounters()
    now = meet_often(encounters, 20, "near")
    encounters.hear("near", ["far"], bytes([grade(3_600_000)]), now)
    lone = make_candidate(1, copies=1, at="far")
    assert not choose(lone, encounters, now, far=(65, False))
    (choice,) = choose(lone, encounters, now, far=(50, False))
    assert choice.given == choice.kept.copies == 1
    # The copy goes on to nobody who is no nearer than that.
    again = replace(lone, copy=choice.kept)
    assert not choose(again, encounters, now, far=(52, False))
    assert choose(again, encounters, now, far=(20, False))


def test_what_is_overdue_doubles_and_goes_to_anybody() -> None:
    encounters = Encounters()
    now = meet_often(encounters, 20, "far", "near")
    life = 30 * 60_000
    fresh = make_candidate(1, 2, at="far", made=now, expires=now + life)
    slow = MetPeer("peer", {}, 0)
    assert not Utility(9).choose([fresh], slow, encounters, now)
    # After a third of its life reach does not count any more, after two thirds ways do not.
    encounters.meet(save, "far", now + life // 3, True)
    encounters.meet(save, "far", now + life // 3, False)
    (choice,) = Utility(9).choose(
        [fresh], MetPeer("peer", tell(far=(99, True)), 0), encounters, now + life // 3
    )
    assert choice.given + choice.kept.copies == 4
    (choice,) = Utility(9).choose([fresh], slow, encounters, now + 2 * life // 3)
    assert choice.given + choice.kept.copies == 8
    kept = replace(fresh, copy=choice.kept)
    (choice,) = Utility(9).choose([kept], slow, encounters, now + 2 * life // 3 + 1)
    assert choice.given + choice.kept.copies == kept.copy.copies


def test_what_is_late_goes_to_all_who_are_no_farther() -> None:
    encounters = Encounters()
    now = meet_often(encounters, 20, "near")
    encounters.hear("near", ["far"], bytes([grade(3_600_000)]), now)
    late = make_candidate(1, 1, at="far", made=now, expires=now + 3_600_000)
    assert not choose(late, encounters, now, far=(65, False))
    for _ in range(50):
        encounters.learn_age(3_600_000)
    assert choose(late, encounters, now, far=(65, False))
    assert not choose(late, encounters, now, far=(300, False))
    in_time = replace(late, expires=now + 9 * 3_600_000)
    assert not choose(in_time, encounters, now, far=(65, False))


def test_the_usual_age_is_that_of_nineteen_in_twenty() -> None:
    encounters = Encounters()
    for number in range(4_000):
        encounters.learn_age(60_000 * (1 + 37 * number % 100))
    assert 85 <= encounters.usual_age / 60_000 <= 100


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
    encounters = Encounters()
    now = meet_often(encounters, 20, "far")
    lone = make_candidate(1, copies=1, at="far")
    peer = MetPeer("peer", {"far": MET | LINKED}, 3)
    (choice,) = Utility().choose([lone], peer, encounters, now)
    assert choice.kept.level == LINKED
    assert not Utility().choose([replace(lone, copy=choice.kept)], peer, encounters, now)


@given(st.integers(0, 40 * 24 * 3_600_000))
def test_delays_survive_being_seven_bits(delay: int) -> None:
    byte = grade(delay)
    assert 0 <= byte < LINKED
    if byte:
        assert read_grade(byte) <= max(1_000, delay) <= read_grade(byte) * 1.13 + 1


def test_ways_lead_over_the_next_node_and_not_back() -> None:
    """a meets b every 10 minutes, b meets c every 20."""
    a, b, c = Encounters(), Encounters(), Encounters()
    now = meet_often(a, 30, "b")
    meet_often(b, 30, "a")
    meet_often(b, 15, "c", gap=1_200_000)
    nodes = ["a", "b", "c"]
    a.hear("b", nodes, b.tell(nodes, "a", now), now)
    delay = a.find_delay("c", now)
    assert not delay.is_met
    assert 15 <= delay.beyond / 60_000 <= 25 < delay.whole / 60_000 <= 40
    # b's only way to d goes through a: it tells others of it, and not a.
    a.meet(save, "d", now, True)
    b.hear("a", [*nodes, "d"], a.tell([*nodes, "d"], "b", now), now)
    assert b.tell(["d"], "a", now) == b"\0"
    (told,) = b.tell(["d"], "c", now)
    assert told
    assert not told & MET
    c.hear("b", ["d"], bytes([told]), now)
    assert c.find_delay("d", now).whole > c.find_delay("d", now).beyond > 0


def test_a_way_that_one_peer_alone_claims_is_not_believed_where_others_know_better() -> None:
    encounters = Encounters()
    now = meet_often(encounters, 20, "liar", "one", "two")
    lie, truth = bytes([MET | LINKED]), bytes([grade(3_600_000)])
    encounters.hear("one", ["far"], truth, now)
    encounters.hear("liar", ["far"], lie, now)
    assert encounters.find_delay("far", now).beyond == read_grade(truth[0])
    encounters.hear("two", ["far"], truth, now)
    assert encounters.find_delay("far", now).beyond == read_grade(truth[0])
    # Nor is it told to those who said otherwise.
    assert read_grade(encounters.tell(["far"], "one", now)[0]) > 3_600_000
    encounters.hear("two", ["far"], lie, now)
    assert encounters.find_delay("far", now).beyond == 0


def test_who_is_not_met_for_long_is_far() -> None:
    encounters = Encounters()
    now = meet_often(encounters, 20, "gone")
    assert encounters.find_delay("gone", now).whole < 1_000_000
    later = now + 5 * 3_600_000
    assert encounters.find_delay("gone", later).whole >= 5 * 3_600_000


def test_contacts_are_remembered_over_a_restart() -> None:
    encounters, disk = Encounters(), MemoryStore("a")

    def keep(space: str, key: bytes, value: bytes | None) -> None:
        disk.apply([(space, key, value or b"")])

    encounters.learn_age(3_600_000)
    encounters.meet(keep, "b", 10_000, True)
    assert encounters.find_delay("b", 60_000).whole == 0
    encounters.meet(keep, "b", 60_000, False)
    again = Encounters()
    again.restore(disk)
    assert again.find_delay("b", 90_000) == encounters.find_delay("b", 90_000)
    assert again.reach == encounters.reach > 0
    assert again.usual_age == 3_600_000


@pytest.mark.parametrize(
    ("text", "kind", "copies"),
    [("epidemic", Epidemic, 0), ("spray:6", SprayAndWait, 6), ("utility", Utility, 9)],
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


# What nodes tell each other of ways ------------------------------------------------------------


def make_line() -> Network:
    """c, who has a subscriber, has met b, who meets a."""
    network = Network("abc", PeerSettings(strategy="utility", chunk=1_024, retry=1_000))
    network.hosts["c"].subscribe(network.now, "medic")
    network.link("b", "c")
    network.run()
    network.cut("b", "c")
    return network


def count_frames(network: Network, kind: int, *, is_flagged: bool) -> int:
    kinds = [frame[0] for _, _, frame in network.sent]
    return kinds.count(kind | (FLAG if is_flagged else 0))


def test_ways_are_told_once_in_a_contact() -> None:
    network = make_line()
    network.link("a", "b")
    network.run()
    network.sent.clear()
    for number in range(3):
        item, published = network.hosts["a"].notify(network.now, number)
        network.hosts["a"].pending.by_dot[item.dot] = {"medic": 200}
        network.post("a", published)
        network.run()
    assert count_frames(network, ASK, is_flagged=True) == 1
    assert count_frames(network, TELL, is_flagged=True) == 1
    assert count_frames(network, ASK, is_flagged=False) == 2
    delay = network.hosts["a"].peers.forwarding.encounters.find_delay("c", network.now)
    assert delay.whole < NEVER
    assert not delay.is_met


def make_queue(network: Network, name: str, peer: str) -> SendQueue:
    """A queue that no session empties."""
    host = network.hosts[name]
    protocol = host.peers
    return SendQueue(
        host.item_store, protocol._change_log, protocol.forwarding, host.clocks, peer, 1_024
    )


def test_who_has_other_nodes_is_asked_for_those_that_matter() -> None:
    network = make_line()
    a, b = network.hosts["a"], network.hosts["b"]
    network.link("a", "b")
    network.run()
    network.cut("a", "b")
    a.subscribe(network.now, "nurse")  # which b does not know
    item, _ = a.notify(network.now, 1)
    a.pending.by_dot[item.dot] = {"medic": 200}
    asking, answering = make_queue(network, "a", "b"), make_queue(network, "b", "a")
    asking.add_item(item)
    seen: list[tuple[bytes, bool]] = []
    for is_answered in (False, True):
        a.act(lambda turn: seen.append(asking.ask(turn) or (b"", False)), network.now)
        b.act(lambda turn: seen.append(answering.answer(turn, *seen[-1])), network.now)
        a.act(lambda turn: asking.receive_answer(turn, *seen[-1]), network.now)
        assert asking.is_answered == is_answered
    assert [has_ways for _, has_ways in seen] == [True, False, False, False]
    assert seen[2] == (encode_ask(["c"]), False)


def test_of_a_peer_of_the_first_version_links_are_believed_and_ages_are_not() -> None:
    network = make_line()
    network.link("a", "b")
    network.run()
    a = network.hosts["a"]
    item, _ = a.notify(network.now, 1)
    a.pending.by_dot[item.dot] = {"medic": 200}
    for byte, is_believed in ((200, False), (255, True)):
        a.peers.forwarding.encounters = Encounters()
        queue = make_queue(network, "a", "b")

        def ask(turn: Transaction, queue: SendQueue = queue, byte: int = byte) -> None:
            queue.add_item(item)
            question, _ = queue.ask(turn) or (b"", False)
            queue.receive_answer(turn, bytes(2 + len(decode_ask(question))), has_ways=False)
            assert queue.ask(turn) == (encode_ask(["c"]), False)
            queue.receive_answer(turn, bytes([0, 9, byte]), has_ways=False)

        a.act(ask, network.now)
        found = a.peers.forwarding.encounters.find_delay("c", network.now)
        assert (found.whole < NEVER) == is_believed


def test_answers_to_no_question_change_nothing() -> None:
    network = make_line()
    network.link("a", "b")
    network.run()
    queue = network.hosts["a"].peers.sessions["b"].queue
    body = encode_ways(Ways(9, b"\xff"), ["c"])
    for has_ways in (False, True):
        with pytest.raises(ProtocolError):
            network.hosts["a"].act(
                lambda turn, has_ways=has_ways: queue.receive_answer(turn, body, has_ways),
                network.now,
            )


def test_ages_of_what_travelled_are_learned_when_it_is_delivered_or_expires() -> None:
    network = make_line()
    a = network.hosts["a"]
    item, _ = a.notify(network.now, 1)
    a.pending.by_dot[item.dot] = {"medic": 200}
    network.link("a", "b")
    network.run()
    network.cut("a", "b")
    stays, _ = a.notify(network.now, 2)
    network.now += 600_000
    for host in (a, network.hosts["b"]):
        for dot in (item.dot, stays.dot):
            if dot in host.list_dots(NOTIFICATION):
                host.act(
                    lambda turn, host=host, dot=dot: host.item_store.remove(
                        turn, NOTIFICATION, dot, "delivered"
                    ),
                    network.now,
                )
        # One age is known: `stays` never left.
        assert host.peers.forwarding.encounters.usual_age == 600_000
