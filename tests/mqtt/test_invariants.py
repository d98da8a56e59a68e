"""Random clients on a small server: whatever they do, what must hold holds after every step."""

from __future__ import annotations

from denwatch.node.mqtt.interface import Limits
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.mqtt import wire
from tests.mqtt.checks import check_all, hear
from tests.mqtt.wire import Got, TokenBucket, World

SMALL = Limits(
    window=2,
    queue=3,
    queue_bytes=2_000,
    total_queue_bytes=4_000,
    retained=2,
    wills=1,
    inbound=2,
    subscriptions=3,
    sessions=4,
    waiting=3,
    hold_ms=3_000,
    slow_ms=4_000,
    session_ms=20_000,
)
NOTE = "dens/1/note/medic7"
TOPICS = st.sampled_from(["a", "a/b", "$x", NOTE])
FILTERS = st.sampled_from(["a", "a/b", "a/#", "+", "#", NOTE, "dens/1/note/+"])
NUMBERS = st.integers(1, 5)
QOS = st.integers(0, 2)
PAYLOADS = st.sampled_from([b"", b"x", bytes(300)])
WHICH = st.integers(0, 3)


class Clients(RuleBasedStateMachine):
    """Links by index; acknowledgements of what really came, of other ids, and of nothing."""

    @initialize(paced=st.booleans())
    def start(self, paced: bool) -> None:
        self.world = World(limits=SMALL, pace=TokenBucket(1, 5) if paced else None)
        self.heard: dict[str, bool] = {}
        self.links: list[int] = [0, 0, 0, 0]
        self.token = 0

    def send(self, which: int, data: bytes) -> None:
        self.world.send(self.links[which], data)

    @rule(
        which=WHICH,
        client=st.sampled_from(["", "p", "q", "r"]),
        clean=st.booleans(),
        keep_alive=st.sampled_from([0, 1]),
        will=st.none() | st.tuples(TOPICS, PAYLOADS, QOS, st.booleans()),
    )
    def connect(
        self,
        which: int,
        client: str,
        clean: bool,
        keep_alive: int,
        will: tuple[str, bytes, int, bool] | None,
    ) -> None:
        self.links[which] = self.world.open()
        self.send(which, wire.connect(client, clean, keep_alive, will))

    @rule(which=WHICH, name=FILTERS, qos=QOS, other=FILTERS)
    def subscribe(self, which: int, name: str, qos: int, other: str) -> None:
        self.send(which, wire.subscribe(1, (name, qos), (other, 1)))

    @rule(which=WHICH, name=FILTERS)
    def unsubscribe(self, which: int, name: str) -> None:
        self.send(which, wire.unsubscribe(1, name))

    @rule(
        which=WHICH, topic=TOPICS, payload=PAYLOADS, qos=QOS, number=NUMBERS, retain=st.booleans()
    )
    def publish(
        self, which: int, topic: str, payload: bytes, qos: int, number: int, retain: bool
    ) -> None:
        self.send(which, wire.publish(topic, payload, qos, number, retain))

    @rule(which=WHICH, topic=TOPICS, count=st.integers(1, 8))
    def publish_many(self, which: int, topic: str, count: int) -> None:
        self.send(which, b"".join(wire.publish(topic, b"%d" % n, 1, n + 1) for n in range(count)))

    @rule(topic=TOPICS, payload=PAYLOADS, qos=QOS, retain=st.booleans())
    def publish_as_node(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self.token += 1
        retain = retain and topic != NOTE
        self.world.publish(topic, payload, qos, retain=retain, token=self.token)

    @rule(which=WHICH)
    def acknowledge(self, which: int) -> None:
        answers = {"pubrec": wire.pubrel, "pubrel": wire.pubcomp}
        for got in self.world.take(self.links[which]):
            answer = self.answer(got) or (
                answers[got.kind](got.id) if got.kind in answers else None
            )
            if answer:
                self.send(which, answer)

    def answer(self, got: Got) -> bytes | None:
        if got.kind != "publish" or not got.qos:
            return None
        return wire.puback(got.id) if got.qos == 1 else wire.pubrec(got.id)

    @rule(which=WHICH, number=NUMBERS, first=st.sampled_from([0x40, 0x50, 0x62, 0x70]))
    def acknowledge_anything(self, which: int, number: int, first: int) -> None:
        self.send(which, wire.short(first, number))

    @rule(which=WHICH, data=st.binary(max_size=6) | st.just(wire.DISCONNECT))
    def send_noise(self, which: int, data: bytes) -> None:
        self.send(which, data)

    @rule(which=WHICH)
    def lose(self, which: int) -> None:
        self.world.lose(self.links[which])

    @rule(which=WHICH, is_blocked=st.booleans())
    def block(self, which: int, is_blocked: bool) -> None:
        outputs = self.world.server.block(self.links[which], is_blocked, self.world.now)
        self.world.perform(outputs)

    @rule(later=st.sampled_from([0, 1_000, 5_000, 30_000]))
    def tick(self, later: int) -> None:
        self.world.tick(later)

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.world.events.clear()
        self.heard.clear()

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "world"):
            hear(self.world, self.heard)
            check_all(self.world, self.heard)


Clients.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestClients = Clients.TestCase
