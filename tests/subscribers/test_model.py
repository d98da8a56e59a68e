"""Any order of events: each gets what the oracle says, once, in the order of rank; none is lost.

The node is stopped and started again anywhere, also between two events of one subscriber.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from denwatch.client.compiler import compile_subscription
from denwatch.client.language import parse
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.events import NOTES, Publish
from denwatch.node.core.items import NOTIFICATION, SUBSCRIPTION, Dot, prove_item
from denwatch.node.core.subscriptions import SubscriberSettings
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.subscribers.oracle import News, Oracle, OracleSubscription
from tests.subscribers.subscriber_node import (
    SubscriberNode,
    load,
    make_notification,
    make_receipts,
    make_subscription,
    patient,
)

OWNERS = ("m", "n", "o")
WORDS = (
    "heart_rate is high",
    "heart_rate is high, score 0.5",
    "heart_rate above 150 bpm, named a",
    "heart_rate is low or pain is severe, named a, score 0.7",
    "patient_temperature is high and heart_rate is high, by product, at least 0.3, named b",
    "pain is severe, valid for 60 s",
)
VALUES = st.fixed_dictionaries(
    {"heart_rate": st.sampled_from([40, 60, 125, 130, 140, 180])},
    optional={
        "pain": st.sampled_from([0, 6, 10]),
        "patient_temperature": st.sampled_from([36.0, 38.6, 41.0]),
    },
)
owners = st.sampled_from(OWNERS)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("subscribe"), owners, st.integers(0, len(WORDS) - 1)),
        st.tuples(st.just("unsubscribe"), owners, st.integers(0, 5)),
        st.tuples(st.just("read"), VALUES, st.integers(-2000, 100), st.sampled_from([20, 200])),
        st.tuples(st.just("read"), VALUES, st.just(0), st.just(500)),
        st.tuples(st.just("carry"), VALUES, st.integers(-90_000, 0)),
        st.tuples(st.just("learn"), owners, st.integers(0, len(WORDS) - 1), st.integers(-60, 0)),
        st.tuples(st.just("mark"), owners, st.integers(0, 30)),
        st.tuples(st.just("attach"), owners),
        st.tuples(st.just("detach"), owners),
        st.tuples(st.just("ack"), owners, st.integers(0, 9)),
        st.tuples(st.just("tick"), st.sampled_from([1, 1000, 30_000])),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)
SETTINGS = SubscriberSettings(window=3, catch_up=2, is_announcing=False, receipt_batch=4)


@dataclass
class Run:
    """A node, the oracle beside it, and what is on its way to each subscriber."""

    node: SubscriberNode = field(default_factory=lambda: SubscriberNode(settings=SETTINGS))
    oracle: Oracle = field(default_factory=Oracle)
    flight: dict[str, list[Publish]] = field(default_factory=lambda: {o: [] for o in OWNERS})
    dots: list[Dot] = field(default_factory=list)
    count: int = 0  # of items that other nodes made

    def take(self, published: list[Publish]) -> None:
        """Check what goes out."""
        for publish in published:
            if not publish.topic.startswith(NOTES):
                continue
            owner = publish.topic[len(NOTES) :]
            id = int(load(publish)["id"], 16)
            assert publish.topic in self.node.listening, "sent to somebody who is not there"
            assert id in self.oracle.list_due(owner, self.node.now), "not wanted, or once more"
            flying = [int(load(p)["id"], 16) for p in self.flight[owner]]
            assert id not in flying, "sent while it was on its way"
            self.flight[owner].append(publish)
            assert len(self.flight[owner]) <= SETTINGS.window

    def step(self, event: tuple[Any, ...]) -> None:
        kind, *rest = event
        getattr(self, f"do_{kind}")(*rest)

    def do_subscribe(self, owner: str, which: int) -> None:
        before = len(self.node.sent)
        reply = self.node.ask(owner, WORDS[which])
        assert reply["ok"]
        if not reply["known"]:
            for old in reply["replaced"]:
                self.oracle.unsubscribe(int(old, 16), is_kept=True)
            self.oracle.subscribe(
                self.make_asked(int(reply["id"], 16), owner, which, self.node.now)
            )
        self.take(self.node.sent[before:])

    def make_asked(self, id: int, owner: str, which: int, created: int) -> OracleSubscription:
        compiled = compile_subscription(parse(WORDS[which]), load_shipped("rescue"))
        end = created + 60_000 if compiled.vector.validity else 0
        return OracleSubscription(
            id, owner, compiled.data, created, end, compiled.options.score or 1.0
        )

    def do_unsubscribe(self, owner: str, which: int) -> None:
        rows = self.node.ask(owner, "list")["subscriptions"]
        if rows:
            reply = self.node.ask(owner, f"unsubscribe {rows[which % len(rows)]['id']}")
            for id in reply["removed"]:
                self.oracle.unsubscribe(int(id, 16), is_kept=False)

    def do_read(self, values: dict[str, Any], shift: int, life: int) -> None:
        at = self.node.now + shift
        vector = patient(**values)
        self.dots.append(Dot("a", self.node.store.epoch, self.node.item_store._sequence + 1))
        news = News(self.dots[-1].id, vector, at, at + 1000 * life)
        self.oracle.publish(news)
        item, published = self.node.read(vector, at=at, life=1000 * life)
        assert item.dot == self.dots[-1]
        self.take(published)

    def do_carry(self, values: dict[str, Any], shift: int) -> None:
        self.count += 1
        at = self.node.now + shift
        dot = Dot("b", 1, self.count)
        self.dots.append(dot)
        item = make_notification(self.node, patient(**values), dot, at=at, life=300_000)
        self.oracle.publish(News(item.id, patient(**values), at, item.expires))
        self.take(self.node.bring(item))

    def do_learn(self, owner: str, which: int, seconds: int) -> None:
        self.count += 1
        created = self.node.now + 1000 * seconds
        compiled = compile_subscription(parse(WORDS[which]), load_shipped("rescue"))
        options = {k: v for k, v in compiled.options.to_dict().items() if k != "name"}
        asked = self.make_asked(Dot("b", 1, self.count).id, owner, which, created)
        item = make_subscription(
            self.node, owner, compiled.data, Dot("b", 1, self.count), created=created,
            expires=asked.end, **options,
        )  # fmt: skip
        self.oracle.subscribe(asked)
        self.take(self.node.bring(item))

    def do_mark(self, owner: str, which: int) -> None:
        if not self.dots:
            return
        dot = self.dots[which % len(self.dots)]
        self.count += 1
        item = self.node.item_store.get(self.node.store, NOTIFICATION, dot)
        proof = bytes(8) if item is None else prove_item(self.node.item_store.sign(item).signature)
        end = self.node.now + 10_000_000
        marks = make_receipts(owner, [dot], Dot("b", 1, self.count), end, proof)
        self.oracle.deliver(owner, dot.id)
        self.take(self.node.bring(marks))

    def do_attach(self, owner: str) -> None:
        published = self.node.attach(owner)
        self.take(published)
        ranks = [self.find_rank(owner, int(load(p)["id"], 16)) for p in published]
        assert ranks == sorted(ranks), "not in the order of rank"
        known = partial(self.node.subscribers.wanted, self.node.store)
        sent = {int(load(p)["id"], 16) for p in published}
        waiting = [
            self.find_rank(owner, dot.id)
            for dot in self.dots
            if dot.id in self.oracle.list_due(owner, self.node.now) - sent and owner in known(dot)
        ]
        if published and waiting:
            assert max(ranks) <= min(waiting), "a better one has to wait"

    def find_rank(self, owner: str, id: int) -> Any:
        """Return the oracle's rank by the matches that the node has found so far."""
        pending = self.node.subscribers._pending
        dot = next(dot for dot in self.dots if dot.id == id)
        entry = pending.peek(self.node.store, pending.encode(dot))
        assert entry is not None, "sent, and not held"
        return self.oracle.find_rank(owner, id, {match[0] for match in entry.matches})

    def do_detach(self, owner: str) -> None:
        self.node.detach(owner)
        self.flight[owner].clear()

    def do_ack(self, owner: str, which: int) -> None:
        if self.flight[owner]:
            publish = self.flight[owner].pop(which % len(self.flight[owner]))
            self.oracle.deliver(owner, int(load(publish)["id"], 16))
            self.take(self.node.ack(publish))

    def do_tick(self, ms: int) -> None:
        self.oracle.expire(self.node.now + ms)
        self.take(self.node.tick(ms))

    def do_restart(self) -> None:
        self.node = self.node.reopen()
        for flying in self.flight.values():
            flying.clear()

    def finish(self) -> None:
        """Everybody comes and takes all there is: nothing may be left, nothing lost."""
        for _ in range(len(self.dots) + len(self.oracle.subscriptions) + 2):
            self.do_tick(1)  # late subscriptions are matched
        for owner in OWNERS:
            self.do_attach(owner)
            while self.flight[owner]:
                self.do_ack(owner, 0)
            assert self.oracle.list_due(owner, self.node.now) == set(), "lost"
        due = {dot: self.node.subscribers.wanted(self.node.store, dot) for dot in self.dots}
        assert not any(due.values())


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(
    [("read", {"heart_rate": 40, "pain": 10}, 0, 500), ("learn", "m", 5, -31), ("tick", 30_000)]
)  # it ends before it was matched with what is held
@example(
    [
        ("learn", "m", 0, 0),
        ("attach", "m"),
        ("read", {"heart_rate": 180}, 0, 500),
        ("learn", "m", 1, 0),
        ("tick", 1),
        ("tick", 1),
        ("tick", 1),
        ("unsubscribe", "m", 0),
        ("detach", "m"),
    ]
)  # what it was sent for is gone, and a second subscription wants it
@example(
    [
        ("subscribe", "o", 1),
        ("read", {"heart_rate": 125}, 0, 20),
        ("subscribe", "o", 0),
        ("read", {"heart_rate": 125}, 0, 500),
        ("attach", "o"),
    ]
)  # the second subscription has not met the first reading yet
@given(EVENTS)
def test_each_gets_what_is_theirs_once_and_in_order(events: list[tuple[Any, ...]]) -> None:
    run = Run()
    for event in events:
        run.step(event)
    run.finish()
    held = run.node.item_store
    assert len(run.node.medium.spaces.get("sub.want", {})) == held.count(NOTIFICATION)
    assert run.node.subscribers.count_subscriptions() == held.count(SUBSCRIPTION)


def replay(events: list[tuple[Any, ...]], restarts: bool) -> list[list[tuple[str, bytes]]]:
    """Return what each event published; a restart is a real one, or only the loss of all links."""
    run = Run()
    published: list[list[tuple[str, bytes]]] = []
    for event in events:
        before = len(run.node.sent)
        if event[0] != "restart":
            run.step(event)
        elif restarts:
            sequence = run.node.item_store._sequence
            run.node.medium.epoch = 0
            node = SubscriberNode(run.node.medium, settings=SETTINGS)
            node.now = run.node.now
            node.item_store._sequence = sequence  # so that both runs make the same dots
            node.feeder.made = run.node.feeder.made
            run.node, before = node, 0
            for flying in run.flight.values():
                flying.clear()
        else:
            for topic in list(run.node.listening):
                run.node.leave(topic)
            for flying in run.flight.values():
                flying.clear()
        published.append([(p.topic, p.payload) for p in run.node.sent[before:]])
    return published


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EVENTS)
def test_a_restarted_node_behaves_as_if_only_its_links_were_lost(events: Any) -> None:
    assert replay(events, restarts=True) == replay(events, restarts=False)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EVENTS)
def test_the_same_events_give_the_same_actions(events: Any) -> None:
    traces = []
    for _ in range(2):
        run = Run()
        trace = []
        for event in events:
            before = len(run.node.trace)
            run.step(event)
            trace.append(run.node.trace[before:] if event[0] != "restart" else [])
        traces.append(trace)
    assert traces[0] == traces[1]
