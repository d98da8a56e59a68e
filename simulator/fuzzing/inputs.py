"""Millions of inputs made from the forms of messages: `python -m simulator.fuzzing.inputs`.

A script of `targets.py` has a node of its own, which takes longer than the script. Here a node
lives for `_LIFE` inputs, with all that it accepted, and outlives a restart in the end. Inputs are
of four kinds: bytes of MQTT clients, requests of subscribers, items that a member of the site has
signed, and frames that a device has sealed. They follow from the seed, are nearly right (see
`generated_lies.py`), and come with good keys, so that they are not refused at the first look.

No exception may leave an event; a node that raised one is replaced, and the input is reported. The
memory of the process is measured after the first lives and at the end: it must not grow with the
number of inputs.

A *round* is one life of each kind, and follows from the seed and its number. What came of all
rounds so far is in a file (`--state`), written after each: a run that was ended goes on there.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import resource
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import cbor2
import msgspec
from denwatch.cli.common import build_parser
from denwatch.node.core.events import DEVICES, OPERATORS, REQUESTS, Listening, Message, Tick
from denwatch.node.core.items import KINDS, Dot, Item
from denwatch.node.core.notifications import shorten_hash
from denwatch.node.mqtt.interface import LinkLost, LinkOpened, LinkReceived
from denwatch.protocol import frames

from simulator.client_packets import (
    DISCONNECT,
    PINGREQ,
    PROPERTIES,
    write_connect,
    write_publish,
    write_publish_v5,
    write_subscribe,
)
from simulator.device import seal_as_device
from simulator.fuzzing.engine import is_ours, name_finding
from simulator.fuzzing.targets import (
    DEVICE,
    NODE,
    PEER,
    START,
    SUBSCRIBERS,
    MqttTarget,
    load_words,
    make_node,
    outlive,
)
from simulator.generated_lies import (
    Facts,
    draw_dot,
    draw_expiry,
    make_body,
    make_hello,
    make_request,
    make_vector,
)
from simulator.keys import HmacKeys

COUNT = 10_000_000
_LIFE = 400  # inputs; a node that holds more takes longer for each
_STEP = 50  # ms between two
_TICK = 64  # inputs between two ticks
_ROOM = 64 << 20  # bytes that a process may grow by after its first lives
_ITEMS = 8  # in one message
_SHOW_EVERY = 60  # s between two lines of progress


class InputKind(ABC):
    """One kind of input, and the node that gets it."""

    name: str

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._node = make_node(NODE)
        self._now = START
        self.count = 0

    @abstractmethod
    def feed(self) -> int:
        """Bring the next inputs to the node; return how many."""

    def live(self) -> int:
        """Bring some inputs; return how many."""
        self._now += _STEP
        fed = self.feed()
        if self.count % _TICK + fed >= _TICK:
            self._node.handle(Tick(), self._now)
        self.count += fed
        return fed

    def end(self) -> None:
        """Let everything happen to the node that may come later."""
        outlive(self._node, self._now)


class RequestInputs(InputKind):
    """Requests in words, JSON and CBOR."""

    name = "requests"

    def feed(self) -> int:
        """Send a request."""
        name = self._rng.choice(SUBSCRIBERS)
        request = make_request(self._rng)
        self._node.handle(Message(name, REQUESTS + name, request), self._now)
        return 1


class ItemInputs(InputKind):
    """Items that another node has signed, brought by an operator."""

    name = "items"

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._keys = HmacKeys(PEER)

    def feed(self) -> int:
        """Send a few items."""
        rng, rows = self._rng, []
        for number in range(_ITEMS):
            sequence = 100 + self.count + number
            facts = Facts(
                *(PEER, 1, sequence, self._now, shorten_hash(load_words()), DEVICE, SUBSCRIBERS[0]),
                *((NODE,), (1,)),
            )
            kind = rng.choice(tuple(KINDS))
            dot = draw_dot(rng, facts) if rng.random() < 0.2 else Dot(PEER, 1, sequence)
            body = make_body(rng, facts, kind)
            item = Item(dot, kind, draw_expiry(rng, facts), body)
            rows.append([*dot, kind, item.expires, body, self._keys.sign(item.signed)])
        payload = cbor2.dumps(["items", rows])
        self._node.handle(Message("operator", OPERATORS + NODE, payload), self._now)
        return _ITEMS


class DeviceInputs(InputKind):
    """Frames that a device has sealed."""

    name = "devices"

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        link = HmacKeys(NODE).link_for(DEVICE, 1)
        assert link is not None
        self._link = link
        words = (b"heart rate is high", b"gas is high")
        for name, text in zip(SUBSCRIBERS, words, strict=False):
            self._node.handle(Message(name, REQUESTS + name, text), START)
        self._node.handle(Listening(f"{DEVICES}{DEVICE}/sv", True), START)

    def feed(self) -> int:
        """Send a hello, readings, or anything else."""
        rng = self._rng
        epoch = rng.choice((1, 2, 3, 3, 3, 0xFFFFFFFF))
        sequence = rng.choice((1, 2, self.count & 0xFFFF, self.count, 0xFFFFFFFF))
        facts = Facts(NODE, 1, 1, self._now, shorten_hash(load_words()), DEVICE, SUBSCRIBERS[0])
        choice = rng.random()
        what, kind, body = "nv", frames.NOTIFICATIONS, b""
        if choice < 0.3:
            what, kind, body = "hello", frames.MESSAGE, make_hello(rng, facts, epoch)
        elif choice < 0.9:
            vectors = [make_vector(rng, sequence) for _ in range(rng.randrange(1, 4))]
            body = frames.join_vectors(vectors)
        else:
            what = rng.choice(("hello", "nv", "sv", "ack"))
            kind, body = rng.randrange(1, 4), rng.randbytes(rng.randrange(40))
        body = body[: frames.MAX_LENGTH - frames.OVERHEAD]
        answer = self._node.find_answer(DEVICE)
        payload = seal_as_device(self._link, answer, kind, (epoch, sequence), body)
        self._node.handle(Message(DEVICE, f"{DEVICES}{DEVICE}/{what}", payload), self._now)
        return 1


class MqttInputs(InputKind):
    """Bytes of clients: packets that are right, changed, cut, joined, or no packets."""

    name = "mqtt"

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self._target = MqttTarget()
        self._target.begin(self._node)
        self._links: dict[int, int] = {}
        self._levels: dict[int, bool] = {}  # whether a client speaks MQTT 5
        self._last = 0

    def feed(self) -> int:
        """Let a client connect, send something, or go."""
        rng, durable = self._rng, self._target.durable
        client = rng.randrange(len(SUBSCRIBERS))
        link = self._links.get(client)
        if link is None:
            self._last += 1
            link = self._links[client] = self._last
            user = rng.choice(SUBSCRIBERS)
            self._levels[client] = rng.random() < 0.5
            properties = self._make_properties() if self._levels[client] else None
            hello = write_connect(
                f"c{client}",
                user,
                is_clean=rng.random() < 0.5,
                will="w" * client,
                properties=properties,
            )
            durable.receive_input(LinkOpened(link), self._now)
            durable.receive_input(LinkReceived(link, self._bend(hello, 0.1)), self._now)
        elif rng.random() < 0.02:
            del self._links[client]
            durable.receive_input(LinkLost(link), self._now)
        else:
            packet = self._make_packet(self._levels[client])
            durable.receive_input(LinkReceived(link, packet), self._now)
        for output in durable.commit().outputs:
            if type(output).__name__ == "Close":
                gone = [each for each, open_ in self._links.items() if open_ == output[0]]
                for each in gone:
                    del self._links[each]
        self._target.check_bounds()
        if self.count % _TICK == 0:
            durable.tick(self._now)
            durable.commit()
        return 1

    def _make_properties(self) -> bytes:
        """Return properties: now and then such that this packet may not have."""
        rng = self._rng
        return b"".join(rng.choice(PROPERTIES) for _ in range(rng.choice((0, 0, 1, 1, 2, 4))))

    def _make_packet(self, is_new: bool) -> bytes:
        rng = self._rng
        name = rng.choice(SUBSCRIBERS)
        topics = (f"dens/1/sub/{name}", f"dens/1/note/{name}", "shared/a", "#", "+/x", "$SYS/x", "")
        number = rng.choice((0, 1, 2, 3, 0xFFFF))
        choice = rng.randrange(6)
        if choice < 2:
            body = make_request(rng) if choice else rng.randbytes(rng.randrange(60))
            topic, qos, retain = rng.choice(topics), rng.randrange(3), rng.random() < 0.2
            if is_new:
                own = self._make_properties()
                packet = write_publish_v5(topic, body, qos, number, own, retain=retain)
            else:
                packet = write_publish(topic, body, qos, number, retain=retain)
        elif choice == 2:
            share = "$share/g/" if rng.random() < 0.2 else ""
            qos, topic = rng.randrange(64 if is_new else 4), share + rng.choice(topics)
            own_or_none = self._make_properties() if is_new else None
            packet = write_subscribe(number, topic, qos=qos, properties=own_or_none)
        elif choice == 3:
            head = rng.choice((0x40, 0x50, 0x62, 0x70, 0xA2))
            packet = bytes([head, 2]) + number.to_bytes(2, "big")
        elif choice == 4:
            packet = rng.choice((PINGREQ, PINGREQ, DISCONNECT))
        else:
            packet = rng.randbytes(rng.randrange(1, 30))
        return self._bend(packet, 0.3)

    def _bend(self, packet: bytes, share: float) -> bytes:
        rng = self._rng
        if rng.random() > share:
            return packet
        changed = bytearray(packet)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(
            changed[: rng.randrange(1, len(changed) + 1)] if rng.random() < 0.3 else changed
        )

    def end(self) -> None:
        """Let time pass over server and node, and start again."""
        for later in (1_000, 120_000):
            self._target.durable.tick(self._now + later)
            self._target.durable.commit()
        self._node.restart(self._now + 200_000)


KIND_CLASSES: tuple[type[InputKind], ...] = (MqttInputs, RequestInputs, ItemInputs, DeviceInputs)
KIND_NAMES = tuple(kind.name for kind in KIND_CLASSES)


@dataclass
class InputReport:
    """What came of the inputs."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KIND_NAMES, 0))
    rounds: int = 0
    seconds: float = 0.0
    grown: int = 0  # bytes, after the first lives of a process; the most
    findings: dict[str, int] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether nothing left an event, and memory is bounded."""
        return not self.findings and self.grown <= _ROOM

    @property
    def inputs(self) -> int:
        """How many there were."""
        return sum(self.counts.values())


def play_inputs(
    count: int,
    seed: int,
    life: int = _LIFE,
    seconds: float = math.inf,
    report: InputReport | None = None,
    tell: Callable[[InputReport], None] = lambda _: None,
) -> InputReport:
    """Bring inputs to nodes, a quarter of each kind, up to so many or as many as time permits.

    `report` is of a run to go on with; `tell` is called with it after each round.
    """
    report = report or InputReport()
    ended = time.monotonic() + seconds
    first = 0
    while report.inputs < count and time.monotonic() < ended:
        began = time.monotonic()
        rng = Random(f"{seed} {report.rounds}")
        for kind in KIND_CLASSES:
            limit = min(life, -(-count // len(KIND_CLASSES)) - report.counts[kind.name])
            report.counts[kind.name] += _play_life(kind, rng, limit, report.findings)
            gc.collect()  # a node is a knot of references
        first = first or measure_memory()
        report.rounds += 1
        report.seconds += time.monotonic() - began
        report.grown = max(report.grown, measure_memory() - first)
        tell(report)
    return report


def _play_life(kind: type[InputKind], rng: Random, limit: int, findings: dict[str, int]) -> int:
    """Bring inputs to one node, a new one after each finding; return how many."""
    done = 0
    player = kind(rng)
    while done < limit:
        try:
            done += player.live()
            if done >= limit:
                player.end()
        except Exception as error:  # noqa: BLE001 - whatever leaves the node is what we look for
            if isinstance(error, RecursionError) and not is_ours(error):
                continue  # of the generator, which nests what is nested already
            found = f"{kind.name}: {name_finding(error)}"
            findings[found] = findings.get(found, 0) + 1
            done += 1
            player = kind(rng)
    return done


def measure_memory() -> int:
    """Return the most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


_SUMMARY = "Millions of generated inputs into the real code of a node."
_DESCRIPTION = """
MQTT bytes, requests, signed items and sealed device frames, nearly right, a quarter of each. No
exception may leave its event, and memory is bounded: otherwise the exit status is 1. With --state
a run that was ended goes on where it was."""
_EXAMPLES = """
python -m simulator.fuzzing.inputs --state .cache/inputs.json
python -m simulator.fuzzing.inputs --count 20000 --seed 3 --json"""


def run(argv: Sequence[str]) -> int:
    """Run one command line; return the exit status."""
    parser = build_parser("", _SUMMARY, _DESCRIPTION, _EXAMPLES)
    parser.prog = "python -m simulator.fuzzing.inputs"
    parser.add_argument("--count", type=int, default=COUNT, metavar="N", help=f"inputs ({COUNT})")
    parser.add_argument("--seconds", type=float, default=math.inf, metavar="S", help="at most")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the inputs (1)")
    parser.add_argument("--state", type=Path, metavar="FILE", help="of the run to go on with")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(list(argv))
    logging.getLogger("denwatch").setLevel(logging.CRITICAL)  # it says what it refuses
    report = InputReport()
    if options.state is not None and options.state.exists():
        report = msgspec.json.decode(options.state.read_bytes(), type=InputReport)
    shown = [time.monotonic()]

    def tell(report: InputReport) -> None:
        if options.state is not None:
            options.state.parent.mkdir(parents=True, exist_ok=True)
            new = options.state.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(report))
            new.replace(options.state)
        if time.monotonic() - shown[0] >= _SHOW_EVERY:
            shown[0] = time.monotonic()
            print(_describe_progress(report, options.count), file=sys.stderr, flush=True)

    report = play_inputs(
        options.count, options.seed, seconds=options.seconds, report=report, tell=tell
    )
    figures = {
        "inputs": report.inputs,
        **report.counts,
        "seconds": round(report.seconds, 1),
        "memory_grown_mib": report.grown >> 20,
        "findings": report.findings,
    }
    if options.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:<17} {value}" for name, value in figures.items()))
    return 0 if report.is_good else 1


def _describe_progress(report: InputReport, count: int) -> str:
    rate = report.inputs / report.seconds
    left = (count - report.inputs) / rate / 3600
    return (
        f"{report.inputs:,} of {count:,} inputs, {rate:.0f} a second, {left:.1f} h left;"
        f" {len(report.findings)} findings, {report.grown >> 20} MiB grown"
    )


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
