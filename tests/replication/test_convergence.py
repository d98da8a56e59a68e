"""Any order, loss, duplication, truncation, interruption of exchanges: all nodes end the same."""

from __future__ import annotations

from denwatch.node.core.items import SUBSCRIPTION, Dot
from denwatch.node.core.peers import PeerSettings
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replication.checks import check_all, check_subscriptions
from tests.replication.network import Network
from tests.replication.oracle import Truth

NAMES = "abcde"
OPERATIONS = (
    "subscribe",
    "subscribe",
    "unsubscribe",
    "notify",
    "mark",
    "link",
    "link",
    "cut",
    "deliver",
    "deliver",
    "run",
    "lose",
    "repeat",
    "swap",
    "truncate",
    "flip",
    "restart",
    "tick",
)
STEPS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 4), st.integers(0, 4), st.integers(0, 7)),
    max_size=60,
)


def play(network: Network, truth: Truth, steps: list[tuple[str, int, int, int]]) -> None:
    """Do what the steps say; the truth is told alongside."""
    names = sorted(network.hosts)
    numbers = iter(range(10_000))
    for operation, first, second, amount in steps:
        one, other = names[first % len(names)], names[second % len(names)]
        host = network.hosts[one]
        if operation == "subscribe":
            item, published = host.subscribe(network.now, f"owner{amount}")
            truth.subscriptions.add(item.dot)
            network.post(one, published)
        elif operation == "unsubscribe":
            held = sorted(host.list_dots(SUBSCRIPTION))
            if held:
                dot = held[amount % len(held)]
                truth.remove(dot)
                network.post(one, host.remove(network.now, dot))
        elif operation == "notify":
            item, published = host.notify(network.now, next(numbers))
            truth.notes.add(item.dot)
            network.post(one, published)
        elif operation == "mark":
            item, published = host.deliver(network.now, f"owner{amount}", Dot(one, 1, amount + 1))
            truth.marks.add(item.dot)
            network.post(one, published)
        elif operation == "restart":
            network.restart(one)
        elif operation == "tick":
            network.tick(1_000 * (amount + 1))
        elif operation == "run":
            network.run()
        elif one != other:
            _disturb(network, operation, one, other, amount)


def _disturb(network: Network, operation: str, one: str, other: str, amount: int) -> None:
    queue = network.queues.get((one, other))
    if operation == "link":
        network.link(one, other)
    elif operation == "cut":
        network.cut(one, other)
    elif operation == "deliver":
        for _ in range(amount + 1):
            network.deliver(one, other)
            network.deliver(other, one)
    elif not queue:
        return
    elif operation == "lose":
        queue.popleft()
    elif operation == "repeat":
        queue.insert(amount % (len(queue) + 1), queue[0])
    elif operation == "swap":
        queue.rotate(1)
    elif operation == "truncate":
        queue[0] = queue[0][: len(queue[0]) * amount // 8]
    elif operation == "flip":
        frame = bytearray(queue[0])
        frame[len(frame) * amount // 8] ^= 1 << amount
        queue[0] = bytes(frame)


@settings(max_examples=150, deadline=None)
@given(count=st.integers(2, 5), group_from=st.sampled_from([1, 3, 64]), steps=STEPS)
def test_all_nodes_end_the_same(
    count: int, group_from: int, steps: list[tuple[str, int, int, int]]
) -> None:
    flooding = PeerSettings(strategy="epidemic", chunk=1_024, retry=1_000, group_from=group_from)
    network, truth = Network(NAMES[:count], flooding), Truth()
    play(network, truth, steps)
    network.heal()
    check_all(network, truth)


@settings(max_examples=40, deadline=None)
@given(strategy=st.sampled_from(["spray:2", "utility:3"]), count=st.integers(2, 4), steps=STEPS)
def test_subscriptions_converge_under_every_strategy(
    strategy: str, count: int, steps: list[tuple[str, int, int, int]]
) -> None:
    network = Network(NAMES[:count], PeerSettings(strategy=strategy, chunk=1_024, retry=1_000))
    truth = Truth()
    play(network, truth, steps)
    network.heal()
    check_subscriptions(network, truth)


def test_a_chain_without_full_mesh_converges() -> None:
    """Items go hop by hop; nobody ever meets everybody."""
    network, truth = Network("abcde"), Truth()
    for name in "abcde":
        for number in range(20):
            truth.subscriptions.add(network.hosts[name].subscribe(network.now, "x")[0].dot)
            truth.notes.add(network.hosts[name].notify(network.now, number)[0].dot)
    for _ in range(2):
        for first, second in ("ab", "bc", "cd", "de"):
            network.link(first, second)
            network.run()
            network.cut(first, second)
        for first, second in ("de", "cd", "bc", "ab"):
            network.link(first, second)
            network.run()
            network.cut(first, second)
    check_all(network, truth)


def test_news_travels_over_links_that_stay_up() -> None:
    """No new contact is needed: what is learnt goes on at once, also the news of a removal."""
    network, truth = Network("abc"), Truth()
    network.link("a", "b")
    network.link("b", "c")
    network.run()
    item, published = network.hosts["a"].subscribe(network.now, "medic")
    truth.subscriptions.add(item.dot)
    network.post("a", published)
    network.run()
    check_subscriptions(network, truth)
    truth.remove(item.dot)
    network.post("c", network.hosts["c"].remove(network.now, item.dot))
    network.run()
    check_subscriptions(network, truth)


def test_both_may_begin_at_the_same_time() -> None:
    """Two nodes with the same clock, epoch and count begin in the same moment: one goes on."""
    network, truth = Network("ab"), Truth()
    truth.subscriptions.add(network.hosts["a"].subscribe(network.now, "medic")[0].dot)
    network.link("a", "b")
    network.deliver("a", "b")
    network.deliver("b", "a")
    network.tick(1_000)
    network.run()
    check_subscriptions(network, truth)
