"""Messages over contacts: a replay of strategies against real cores, and against the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from denwatch.node.replication.strategies import LINKED, MET, Encounters, build_strategy

from benchmarks.replication_cores import run_cores
from simulator.mobility import find_contacts, plan_chain, plan_ferry, walk_randomly
from simulator.oracle import find_arrivals, find_bounded_arrivals
from simulator.replay import Direct, Limits, Replay
from simulator.traces import ContactEvent, Parcel

HOSTS, END = 10, 15 * 60_000


def make_work(seed: int) -> tuple[list[ContactEvent], list[Parcel]]:
    rng = Random(seed)
    paths = walk_randomly(HOSTS, END, rng, 400.0)
    contacts = find_contacts(paths, END, 50.0)
    parcels = []
    for number in range(20):
        source, target = rng.sample(range(HOSTS), 2)
        parcels.append(Parcel(20_000 * number, f"m{number}", 100, source, target, END))
    return contacts, parcels


def test_epidemic_replay_is_the_oracle() -> None:
    contacts, parcels = make_work(1)
    score = Replay(build_strategy("epidemic"), parcels, HOSTS).run(contacts)
    assert score.latencies == find_arrivals(contacts, parcels, END)


def test_nobody_is_faster_than_the_oracle_and_bounded_copies_are_bounded() -> None:
    contacts, parcels = make_work(2)
    oracle = find_arrivals(contacts, parcels, END)
    for strategy, most in ((Direct(), 1), (build_strategy("spray:3"), 3)):
        score = Replay(strategy, parcels, HOSTS, has_marks=False).run(contacts)
        assert all(latency >= oracle[name] for name, latency in score.latencies.items())
        assert score.relays <= most * len(parcels)


def test_real_cores_do_what_the_replay_says() -> None:
    """Contacts last seconds and frames milliseconds: the same messages arrive, a little later."""
    contacts, parcels = make_work(3)
    replay = Replay(build_strategy("epidemic"), parcels, HOSTS).run(contacts)
    cores = run_cores(contacts, parcels, HOSTS, END, "epidemic").score
    assert len(cores.latencies) >= 0.9 * len(replay.latencies) > 0
    late = [cores.latencies[name] - replay.latencies[name] for name in cores.latencies]
    assert min(late) >= 0
    assert sorted(late)[len(late) // 2] < 2_000


def test_real_cores_with_bounded_copies_relay_as_the_replay_does() -> None:
    contacts, parcels = make_work(4)
    replay = Replay(build_strategy("utility:4"), parcels, HOSTS).run(contacts)
    cores = run_cores(contacts, parcels, HOSTS, END, "utility:4").score
    assert abs(len(cores.latencies) - len(replay.latencies)) <= 3
    assert abs(cores.relays - replay.relays) <= 0.3 * replay.relays


def test_two_sites_with_a_ferry_get_nearly_all_at_a_part_of_the_cost() -> None:
    hosts, end, hour = 30, 4 * 3_600_000, 3_600_000
    rng = Random(5)
    contacts = find_contacts(plan_ferry(hosts, end, rng, hour), end, 40.0, 5_000)
    parcels = []
    for number in range(60):
        source, target = rng.sample(range(hosts), 2)
        parcels.append(Parcel(60_000 * number, f"m{number}", 100, source, target, 2 * hour))
    oracle = find_arrivals(contacts, parcels, end)
    ours, flood = (
        Replay(build_strategy(name), parcels, hosts).run(contacts)
        for name in ("utility", "epidemic")
    )
    assert len(ours.latencies) >= 0.9 * len(oracle) > 0
    assert ours.relays < 0.9 * flood.relays


class LyingEncounters(Encounters):
    """Of a member that claims to be linked with everybody."""

    def tell(self, nodes: Sequence[str], peer: str, now: int) -> bytes:  # noqa: ARG002
        return bytes([MET | LINKED]) * len(nodes)


class ReplayWithLiar(Replay):
    """The last node lies, and hands nothing on."""

    def _hand_over(self, one: int, other: int, now: int) -> list[int]:
        liar = len(self._places) - 1
        self._places[liar].encounters.__class__ = LyingEncounters
        return [] if one == liar else super()._hand_over(one, other, now)


def test_a_liar_wastes_copies_and_stops_nothing() -> None:
    hosts, end = 25, 4 * 3_600_000
    rng = Random(6)
    contacts = find_contacts(plan_chain(hosts, end, rng), end, 40.0, 5_000)
    parcels = []
    for number in range(60):
        source, target = rng.sample(range(hosts - 1), 2)
        parcels.append(Parcel(60_000 * number, f"m{number}", 100, source, target, end // 2))
    honest = Replay(build_strategy("utility"), parcels, hosts).run(contacts)
    lied = ReplayWithLiar(build_strategy("utility"), parcels, hosts).run(contacts)
    assert len(honest.latencies) >= 55
    assert len(lied.latencies) >= 0.85 * len(honest.latencies)


def test_limits_bind_and_the_bounded_oracle_keeps_to_them() -> None:
    """One contact of 10 s at 100 bytes a second has room for two messages of 500 bytes."""
    contacts = [ContactEvent(1_000, 0, 1, True), ContactEvent(11_000, 0, 1, False)]
    parcels = [Parcel(0, f"m{number}", 500, 0, 1, END) for number in range(5)]
    limits = Limits(rate=100, room=10_000)
    score = Replay(build_strategy("epidemic"), parcels, 2, limits=limits).run(contacts)
    assert len(score.latencies) == 2
    assert len(find_bounded_arrivals(contacts, parcels, END, 100)) == 2
    # A node with room for one message of others keeps the one that lives longest.
    parcels = [Parcel(0, f"m{number}", 500, 0, 2, END + number) for number in range(3)]
    contacts += [ContactEvent(20_000, 1, 2, True), ContactEvent(60_000, 1, 2, False)]
    small = Limits(rate=10_000, room=600)
    score = Replay(build_strategy("epidemic"), parcels, 3, limits=small).run(contacts)
    assert list(score.latencies) == ["m2"]


def test_the_bounded_oracle_is_the_oracle_where_there_is_room() -> None:
    contacts, parcels = make_work(5)
    bounded = find_bounded_arrivals(contacts, parcels, END, 1_000_000)
    assert bounded == find_arrivals(contacts, parcels, END)
