"""Messages over contacts: a replay of strategies against real cores, and against the oracle."""

from __future__ import annotations

from random import Random

from denwatch.node.replication.strategies import build_strategy

from benchmarks.replication_cores import run_cores
from simulator.mobility import find_contacts, walk_randomly
from simulator.oracle import find_arrivals
from simulator.replay import Direct, Replay
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
    cores, _ = run_cores(contacts, parcels, HOSTS, END, "epidemic")
    assert len(cores.latencies) >= 0.9 * len(replay.latencies) > 0
    late = [cores.latencies[name] - replay.latencies[name] for name in cores.latencies]
    assert min(late) >= 0
    assert sorted(late)[len(late) // 2] < 2_000


def test_real_cores_with_bounded_copies_relay_as_the_replay_does() -> None:
    contacts, parcels = make_work(4)
    replay = Replay(build_strategy("utility:4"), parcels, HOSTS).run(contacts)
    cores, _ = run_cores(contacts, parcels, HOSTS, END, "utility:4")
    assert abs(len(cores.latencies) - len(replay.latencies)) <= 3
    assert abs(cores.relays - replay.relays) <= 0.3 * replay.relays
