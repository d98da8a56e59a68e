"""Budgets: who displaces whom, who waits, what a name pays, and what is written of refusals."""

from __future__ import annotations

import pytest
from denwatch.node.mqtt.budgets import (
    BURST,
    TURN_MS,
    LinkBudget,
    RateLimit,
    RefusalSums,
    WorkBudget,
    fit_files,
    shorten_address,
)
from denwatch.node.mqtt.interface import Limits, LinkRefused, ServerRefusal
from hypothesis import given
from hypothesis import strategies as st

from simulator.open_server import OpenRules
from tests.mqtt import wire
from tests.mqtt.hosting import Host
from tests.mqtt.test_listener import Peer
from tests.mqtt.wire import Got, World

FEW = Limits(links=16, links_per_name=3, half_open=6, half_open_per_address=4)


# Connections -----------------------------------------------------------------------------------


def test_a_stranger_displaces_itself() -> None:
    budget = LinkBudget(FEW)
    assert [budget.admit(link, "10.0.0.1") for link in (1, 2, 3, 4)] == [0] * 4
    assert budget.admit(5, "10.0.0.1") == 1
    budget.release(1)
    assert budget.admit(6, "10.0.0.2") == 0
    assert budget.admit(7, "10.0.0.3") == 0
    assert budget.admit(8, "10.0.0.4") == 2, "the oldest of the address that has most"
    assert budget.half_open == 7


def test_who_says_nothing_displaces_nobody_who_speaks() -> None:
    budget = LinkBudget(FEW)
    budget.admit(1, "10.0.0.1")
    assert budget.hear(1) == 0
    for link in range(2, 50):
        oldest = budget.admit(link, "10.0.0.1")
        assert oldest != 1
        budget.release(oldest)
    assert budget.name(1, "medic7") == ""


@given(st.lists(st.tuples(st.sampled_from("ahnr"), st.integers(1, 12), st.integers(0, 3))))
def test_every_connection_is_counted_once(steps: list[tuple[str, int, int]]) -> None:
    budget = LinkBudget(FEW, is_vital=lambda user: user == "user0")
    seen: dict[int, str] = {}
    for what, link, number in steps:
        if what == "a" and link not in seen:
            oldest = budget.admit(link, f"10.0.0.{number}")
            seen[link] = ""
            if oldest:
                assert seen.pop(oldest) == ""
                budget.release(oldest)
        elif what == "h":
            oldest = budget.hear(link)
            if oldest:
                assert seen.pop(oldest) == ""
                budget.release(oldest)
        elif what == "n" and seen.get(link) == "":
            if not budget.name(link, f"user{number}"):
                seen[link] = f"user{number}"
        elif what == "r":
            seen.pop(link, None)
            budget.release(link)
        named = [user for user in seen.values() if user]
        assert budget.named == len(named) <= FEW.links
        assert budget.half_open == len(seen) - len(named) <= 2 * FEW.half_open
        assert all(named.count(user) <= FEW.links_per_name for user in named)


def test_the_last_links_are_for_devices_and_peers() -> None:
    budget = LinkBudget(FEW, is_vital=lambda user: user.startswith("dog"))
    for link in range(1, 15):
        budget.admit(link, f"10.0.0.{link}")
        assert budget.name(link, f"person-{link}") == ""
    budget.admit(15, "10.0.0.15")
    assert budget.name(15, "person-15") == "too many links"
    assert budget.name(15, "dog-1") == ""


def test_a_network_of_ipv6_is_one_address() -> None:
    assert shorten_address("10.1.2.3") == "10.1.2.3"
    assert shorten_address("2001:db8::1") == shorten_address("2001:db8::ffff:1")
    assert shorten_address("2001:db8:0:1::1") != shorten_address("2001:db8::1")
    assert shorten_address("::ffff:10.1.2.3") == "10.1.2.3"
    assert shorten_address("fe80::1%eth0") == "fe80::/64"


@pytest.mark.parametrize("files", [20, 128, 256, 1_024, 4_096])
def test_however_few_files_some_are_left(files: int) -> None:
    limits = fit_files(Limits(), files)
    assert limits.links + 3 * limits.half_open <= max(8, files - 64)
    assert limits.links >= 5
    assert files < 4_096 or limits == Limits()


def test_one_name_cannot_have_all_links() -> None:
    world = World(limits=FEW)
    for number in range(3):
        world.connect(f"app-{number}", user="eve")
    link = world.open()
    world.send(link, wire.connect("app-3", user="eve"))
    assert world.take(link) == [Got("connack", payload=b"\0\3")]
    (refused,) = world.take_refusals()
    assert refused.why == "too many links of this name"
    world.connect("app-1", user="eve")  # which takes over its own session
    world.connect("app", user="ann")


def test_silent_connections_displace_each_other_and_cost_no_more_than_a_socket() -> None:
    limits = Limits(half_open=8, half_open_per_address=4)
    with Host(limits=limits) as host:
        silent = [Peer(host, join=False) for _ in range(20)]
        host.wait_for(lambda: host.server.counts["connections_refused"] == 16)
        assert not host.listener.links
        assert host.server.budget.half_open == 4
        assert all(peer.is_closed() for peer in silent[:16])
        medic = Peer(host, "medic")  # kept: a socket that nobody refers to is closed
        host.wait_for(lambda: host.server.budget.named == 1)
        for peer in (medic, *silent):
            peer.socket.close()
        host.wait_for(lambda: host.server.budget.half_open == 0)


def test_a_connection_that_says_nothing_is_closed_in_time() -> None:
    with Host(limits=Limits(connect_ms=50)) as host:
        assert Peer(host, join=False).is_closed()
        host.wait_for(lambda: host.server.counts["connections_refused"] == 1)
        assert host.server.budget.half_open == 0


# Logins ----------------------------------------------------------------------------------------


class OneKey(OpenRules):
    """Everybody has the same password, and each check takes 50 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.cpu = 0.0
        self.known: set[str] = set()

    def authenticate(self, user: str, password: bytes | None, client: str) -> int:  # noqa: ARG002
        self.cpu += 50.0
        if password != b"right":
            return 4
        self.known.add(user)
        return 0

    def recognises(self, user: str, password: bytes | None) -> bool:
        return user in self.known and password == b"right"


def make_guarded() -> tuple[World, OneKey]:
    rules = OneKey()
    world = World(rules)
    world.server.budget.read_cpu = lambda: rules.cpu
    return world, rules


def guess(world: World, address: str, password: str = "wrong", user: str = "ann") -> int:
    world.last_link += 1
    link = world.last_link
    world.perform(world.server.open(link, world.now, address))
    world.send(link, wire.connect("c", user=user, password=password))
    return link


def test_wrong_guesses_wait_and_a_right_password_is_never_refused() -> None:
    world, _ = make_guarded()
    guesses = [guess(world, "10.0.0.1") for _ in range(20)]
    answered = [link for link in guesses if world.take(link)]
    assert 5 < len(answered) < 20, "the others wait"
    elsewhere = guess(world, "10.0.0.2", "right")
    assert world.take(elsewhere) == [Got("connack", payload=b"\0\0")]
    world.send(elsewhere, wire.DISCONNECT)
    assert world.server._rules.recognises("ann", b"right")
    there = guess(world, "10.0.0.1", "right")
    assert world.take(there) == [Got("connack", payload=b"\0\0")], "it was right before"


def test_a_right_password_waits_for_the_guesses_before_it_and_no_longer() -> None:
    world, _ = make_guarded()
    for _ in range(20):
        guess(world, "10.0.0.1")
    right = guess(world, "10.0.0.1", "right")
    assert world.take(right) == []
    other = guess(world, "10.0.0.1", "right", user="bob")
    assert world.take(other) == [Got("connack", payload=b"\0\0")], "another name pays for itself"
    ticks = 0
    while not (answer := world.take(right)):
        world.tick(250)
        ticks += 1
        assert ticks < 60
    assert answer == [Got("connack", payload=b"\0\0")]


def test_logins_that_wait_are_bounded() -> None:
    world, _ = make_guarded()
    links = [guess(world, "10.0.0.1") for _ in range(100)]
    codes = [got[0].payload[1] for link in links if (got := world.take(link))]
    assert 4 in codes
    assert 3 in codes
    assert world.server.budget.half_open == Limits().half_open_per_address
    world.tick(30_000)
    assert world.server.budget.half_open == 0


# The thread ------------------------------------------------------------------------------------


def test_a_long_request_is_dearer_than_many_short_ones() -> None:
    work = WorkBudget(100)
    for _ in range(160):
        work.charge("short", 1.0, False, 0)
    work.charge("long", 160.0, False, 0)
    assert work.delay("short", 1, 0) == 0
    work.charge("long", 1.0, False, 0)
    assert work.delay("long", 1, 0) > 0, "the same 160 ms"
    assert work.delay("other", 1, 0) == 0


def test_a_report_of_many_deliveries_is_many_short_events() -> None:
    work = WorkBudget(100)
    work.charge("app", 100.0, False, 0, parts=200)
    work.charge("eve", 100.0, False, 0)
    assert work.delay("app", 1, 0) == 0
    work.charge("eve", 1.0, False, 0)
    assert work.delay("eve", 1, 0) > 0


@given(st.lists(st.floats(0.01, 500), min_size=1, max_size=60), st.integers(10, 1000))
def test_whoever_waits_as_told_never_has_more_than_its_share(costs: list[float], rate: int) -> None:
    work, now, spent = WorkBudget(rate), 0, 0.0
    for cost in costs:
        while wait := work.delay("eve", 1, now):
            now += wait
            work.end_turn()
        work.charge("eve", cost, False, now)
        spent += min(cost, rate * BURST)
        work.end_turn()
    assert spent <= rate * (BURST * 2 + now / 1000) + 1


def test_peers_pay_less_unless_they_lie() -> None:
    work = WorkBudget(100, is_vital=lambda name: name == "south")
    for _ in range(50):
        work.charge("south", 50.0, False, 0)
    assert work.delay("south", 32_768, 0) == 0
    work.charge("south", 50.0, True, 0)
    assert work.delay("south", 32_768, 0) > 0


def test_messages_that_were_handled_together_are_expected_to_take_their_share_each() -> None:
    work = WorkBudget(1_000)
    work.charge("dog", 2 * TURN_MS, False, 0, 20, 20)
    assert [work.delay("dog", 1, 0) for _ in range(11)] == [0] * 10 + [1]
    work.end_turn()
    work.charge("dog", 2 * TURN_MS, False, 0)  # one message that took as long
    assert [work.delay("dog", 1, 0) for _ in range(2)] == [0, 1]
    for _ in range(3):  # what is expected falls with each message, not with each event
        work.charge("dog", 2.0, False, 0, 20, 20)
    work.end_turn()
    assert [work.delay("dog", 1, 0) for _ in range(20)] == [0] * 20


def test_a_turn_has_one_long_message_of_a_name_or_several_short_ones() -> None:
    work = WorkBudget(1_000)
    assert [work.delay("eve", 16_000, 0) for _ in range(2)] == [0, 1]
    assert work.is_turn_over
    assert work.delay("ann", 16_000, 0) == 0, "everybody has a turn"
    work.end_turn()
    assert not work.is_turn_over
    assert work.delay("eve", 16_000, 0) == 0
    for _ in range(100):
        work.charge("dog", TURN_MS / 10, False, 0)
    work.end_turn()
    assert [work.delay("dog", 50, 0) for _ in range(11)] == [0] * 10 + [1]


def test_the_rate_of_messages_counts_besides() -> None:
    work = WorkBudget(1_000, RateLimit(1, 2))
    assert [work.delay("eve", 1, 0) > 0 for _ in range(3)] == [False, False, True]
    assert not work.is_turn_over, "the next turn would not help"


def test_what_waits_for_a_turn_goes_on_in_the_next_one() -> None:
    work = WorkBudget(1_000)
    world = World(pace=work)
    eve, ann = world.connect("a", user="eve"), world.connect("b", user="ann")
    world.send(eve, *(wire.publish("t", bytes(16_000), 1, n) for n in (1, 2, 3)))
    world.send(ann, wire.publish("t", bytes(16_000), 1, 1))
    assert world.take(eve) == [Got("puback", 1)]
    assert world.take(ann) == [Got("puback", 1)]
    for number in (2, 3):
        work.end_turn()
        world.perform(world.server.resume(world.now))
        assert world.take(eve) == [Got("puback", number)]


# Refusals --------------------------------------------------------------------------------------


def test_refusals_are_summed_and_written_now_and_then() -> None:
    sums = RefusalSums()
    for _ in range(3):
        sums.add(ServerRefusal(1, "eve", "client c", "not allowed", "10.0.0.1"), 5)
    (first,) = sums.take_due(10)
    assert first.describe() == "refused eve at 10.0.0.1, client c: not allowed (3 times)"
    sums.add(ServerRefusal(1, "eve", "client c", "not allowed", "10.0.0.1"), 20)
    assert sums.take_due(5_000) == []
    assert [each.times for each in sums.take_due(10_010)] == [1]
    assert sums.take_due(100_000) == []


def test_strangers_with_many_names_fill_neither_memory_nor_the_log() -> None:
    sums = RefusalSums()
    for number in range(5_000):
        name = f"nobody-{number}\n"
        sums.add(ServerRefusal(1, name, "client c", "wrong", f"10.0.{number % 250}.1"), 5)
    found = sums.take_due(10)
    assert len(found) == 21
    assert sum(each.times for each in found) == 5_000
    assert all("\n" not in each.describe() for each in found)


def test_a_refused_connection_is_counted_and_summed() -> None:
    world = World()
    (refused,) = world.server.take(LinkRefused("10.0.0.1", "no CONNECT in time"), 0)
    assert refused == ServerRefusal(0, "", "a connection", "no CONNECT in time", "10.0.0.1")
    assert world.server.counts["connections_refused"] == 1
