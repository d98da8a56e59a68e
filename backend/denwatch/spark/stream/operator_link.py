"""Results back to the nodes: after each evaluation, late matches and the replication plan.

What a node has acknowledged is stored beside the tables, so that it is not sent with every batch;
if that file is lost, only bytes are wasted, because a node accepts every item once. The only file
of the backend that talks to nodes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from denwatch.client.subscriber import link as mqtt
from denwatch.client.subscriber.link import Identity, MqttLink, Waker
from denwatch.client.subscriber.messages import SubscriberError
from denwatch.client.subscriber.servers import NodeUrl, parse_server
from denwatch.node.backend_api import OPERATORS, STATUS, Plan, encode_items, encode_plan
from denwatch.node.core import items as coded
from denwatch.node.core.items import Dot, Item
from denwatch.spark.record_tables import RecordTables, replace_file
from denwatch.spark.report.analysis import parse_ids
from denwatch.spark.stream.summary import Judged
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

_FRAME_ITEMS = 100
_FRAME_BYTES = 60_000  # below what any node takes in one packet
_REMEMBERED = 100_000  # items that were handed over
_SAME = {"direct": "spray:1"}  # what nodes call a strategy that only analysis has a name for


class OperatorLink:
    """Sends reachable nodes what the logs of all nodes show to be missing, and the plan."""

    def __init__(
        self,
        urls: Sequence[str],
        name: str,
        password: str | None,
        memory: Path,
        *,
        ca: str | None = None,
        is_insecure: bool = False,
    ) -> None:
        """`memory` is the file of what was sent; SubscriberError for a wrong address."""
        self._servers = [parse_server(url) for url in urls]
        self._identity = Identity(name, password, ca, is_insecure)
        for server in self._servers:
            self._identity.build_context(server)
        self._memory = memory
        self._handed = _load(memory)
        self._plans: dict[str, str] = {}
        self._troubles: dict[str, str] = {}
        self._count = 0

    def describe(self) -> dict[str, Any]:
        """Return what was sent, for the summary."""
        return {
            "handed": self._count,
            "plans": dict(sorted(self._plans.items())),
            "troubles": dict(self._troubles),
        }

    def publish(self, spark: SparkSession, version: Path, judged: Judged) -> None:
        """Send the reachable nodes what is new for them."""
        links = list(self._open_links())
        try:
            found = {node: link for link in links for node in link.nodes}
            now = int(time.time() * 1000)
            self._hand(found, find_handovers(spark, version, found, now))
            for node, link in sorted(found.items()):
                self._plan(node, link, judged)
        finally:
            for link in links:
                link.close()

    def _open_links(self) -> Iterator[NodeLink]:
        for server in self._servers:
            link = NodeLink(server, self._identity)
            try:
                link.open()
            except SubscriberError as error:
                link.close()
                self._troubles[server.url] = str(error).removeprefix(f"{server.url}: ")
                continue
            self._troubles.pop(server.url, None)
            yield link

    def _hand(self, links: dict[str, NodeLink], handovers: list[Handover]) -> None:
        for node, link in sorted(links.items()):
            known = self._handed.setdefault(node, {})
            items = [h.item for h in handovers if h.node == node and h.item.dot.id not in known]
            frames = list(split_frames(items))
            done = link.send(node, (encode_items(frame) for frame in frames))
            for item in (item for frame in frames[:done] for item in frame):
                known[item.dot.id] = None
                self._count += 1
            while len(known) > _REMEMBERED:
                del known[next(iter(known))]
        stored = {node: list(ids) for node, ids in self._handed.items() if ids}
        if stored:
            replace_file(self._memory, json.dumps(stored).encode())

    def _plan(self, node: str, link: NodeLink, judged: Judged) -> None:
        strategy = _SAME.get(judged.best, judged.best)
        if not strategy or self._plans.get(node) == strategy:
            return
        if link.send(node, [encode_plan(Plan(strategy, judged.advice, judged.end))]):
            self._plans[node] = strategy


def split_frames(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield items in frames that a node takes."""
    frame: list[Item] = []
    size = 0
    for item in items:
        weight = len(item.body) + len(item.signature) + 64
        if frame and (len(frame) >= _FRAME_ITEMS or size + weight > _FRAME_BYTES):
            yield frame
            frame, size = [], 0
        frame.append(item)
        size += weight
    if frame:
        yield frame


def _load(memory: Path) -> dict[str, dict[int, None]]:
    try:
        stored = json.loads(memory.read_text(encoding="utf-8"))
        return {node: dict.fromkeys(map(int, ids)) for node, ids in stored.items()}
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        return {}  # then a node receives again what it has


# Late matches ---------------------------------------------------------------------------
# Which items to send to which node, so that a subscriber still gets what was missed. A match is
# sent if it was missed, not withheld on purpose, and is still valid. It goes to the node where its
# subscriber was last, if that is reachable, else to any reachable node: nodes pass it on. What is
# sent are the notification and the subscription as their origins signed them, unless the logs show
# that the node has them. The node verifies both, accepts each once, and delivers as if a peer had
# sent them.

CAUSES = ("replication", "partition", "away", "space")  # misses that a hand-over can mend
Read = Callable[[Mapping[str, Any]], Item]
MOST = 10_000  # items found at a time: the others follow when these are there


class Handover(NamedTuple):
    """One item for one node."""

    node: str
    item: Item


def find_handovers(
    spark: SparkSession, version: Path, reachable: Iterable[str], now: int
) -> list[Handover]:
    """Return what the reachable nodes lack of what subscribers still wait for.

    `version` is one of the stream's with its outcomes; `now` (ms) leaves out what is over by now.
    """
    nodes = sorted(set(reachable))
    path = version / "tables" / "outcomes.parquet"
    if not nodes or not path.exists():
        return []
    waiting = (
        parse_ids(spark.read.parquet(str(path)))
        .where(F.col("is_open") & F.col("cause").isin(*CAUSES))
        .where(F.col("until").isNull() | (F.col("until") > now))
        .select("notification_id", "subscriber")
        .limit(MOST)
    )
    wanted = waiting.join(_find_places(spark, version, nodes), "subscriber", "left").withColumn(
        "target", F.coalesce("place", F.lit(nodes[0]))
    )
    notes = wanted.select(F.col("notification_id").alias("item"), "target").distinct()
    matches = parse_ids(spark.read.parquet(str(version / "tables" / "matches.parquet")))
    asked = (
        wanted.join(
            matches.select("notification_id", "subscriber", "subscription_id"),
            ["notification_id", "subscriber"],
        )
        .select(F.col("subscription_id").alias("item"), "target")
        .distinct()
    )
    records = RecordTables(version / "records")
    return [
        *_collect(asked, records.read(spark, "subscribe"), read_subscription),
        *_collect(notes, records.read(spark, "note"), read_note),
    ]


def _find_places(spark: SparkSession, version: Path, nodes: list[str]) -> DataFrame:
    """Return the reachable node where each subscriber was last."""
    stays = spark.read.parquet(str(version / "tables" / "stays.parquet"))
    last = F.max_by("node", F.struct("end", "begin", "node")).alias("place")
    here = stays.where(F.col("node").isin(*nodes))
    return here.groupBy("subscriber").agg(last)


def _collect(wanted: DataFrame, records: DataFrame, read: Read) -> list[Handover]:
    """Return the wanted items that are signed, and that their targets have not logged."""
    known = records.select("item", F.col("node").alias("target"))
    lacking = wanted.join(known, ["item", "target"], "left_anti")
    signed = records.where("signature is not null").dropDuplicates(["item"])
    rows = lacking.join(signed, "item").orderBy("target", "origin", "run", "sequence").collect()
    return [Handover(row["target"], read(row.asDict())) for row in rows]


def read_note(row: Mapping[str, Any]) -> Item:
    """Return a notification as its origin made it, from a record of the log."""
    names = ("device", "device_epoch", "device_sequence", "at", "doubt")
    fields = [*(row[name] for name in names), *_read_vectors(row)]
    body = coded.NotificationBody(*fields)
    return _make_item(row, coded.NOTIFICATION, coded.encode_body(body))


def read_subscription(row: Mapping[str, Any]) -> Item:
    """Return a subscription as its origin made it, from a record of the log."""
    names = ("subscriber", "role", "words", "created", "language")
    fields = [*(row[name] for name in names), *_read_vectors(row), json.loads(row["options"])]
    body = coded.SubscriptionBody(*fields)
    return _make_item(row, coded.SUBSCRIPTION, coded.encode_body(body))


def _read_vectors(row: Mapping[str, Any]) -> tuple[bytes, bytes]:
    return bytes(row["vocabulary"]), bytes(row["vector"])


def _make_item(row: Mapping[str, Any], kind: int, body: bytes) -> Item:
    dot = Dot(row["origin"], row["run"], row["sequence"])
    return Item(dot, kind, row["expires"], body, bytes(row["signature"]))


# MQTT connections -----------------------------------------------------------------------
# A node acknowledges after its commit, so everything that `send` counts is on the node's disk. A
# link that fails is tried again the next time there is something to send; nobody waits for it.

_PATIENCE = 5.0  # s for an answer
_QUIET = 1.0  # s after which no more nodes are behind a server


class NodeLink:
    """One connection, from `open` to `close`; `nodes` are those whose status is there."""

    def __init__(self, server: NodeUrl, identity: Identity) -> None:
        self.server = server
        self.nodes: list[str] = []
        client = f"operator-{identity.name}-{time.time_ns() % 1_000_000}"
        self._link = MqttLink(server, identity, client, is_temporary=True, timeout=_PATIENCE)
        self._waker = Waker()
        self._happened: list[object] = []

    def open(self) -> None:
        """Connect, and find out which nodes are there; SubscriberError if that is nobody."""
        link = self._link
        link.open()
        self._wait(mqtt.LinkConnected)
        link.listen((f"{STATUS}+",))
        self._wait(mqtt.TopicsSubscribed)
        found: dict[str, None] = {}
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and not (found and self._is_quiet()):
            for event in self._take():
                if isinstance(event, mqtt.MessageArrived):
                    link.acknowledge(event.mid)
                    name = event.topic.removeprefix(STATUS)
                    found |= {name: None} if event.payload else {}
        self.nodes = sorted(found)
        if not found:
            raise SubscriberError(
                f"{self.server.url}: connected, but no node publishes its status there"
            )

    def send(self, node: str, payloads: Iterable[bytes]) -> int:
        """Send frames to a node, one after the other; return how many it has on its disk."""
        done = 0
        for number, payload in enumerate(payloads, 1):
            self._link.send(OPERATORS + node, payload, number)
            try:
                self._wait(mqtt.MessageSent)
            except SubscriberError:
                return done
            done += 1
        return done

    def close(self) -> None:
        """Disconnect."""
        with suppress(OSError):
            self._link.close()
        self._waker.close()

    def _is_quiet(self) -> bool:
        self._happened += self._link.poll(_QUIET, self._waker)
        return not self._happened

    def _take(self) -> list[object]:
        if not self._happened:
            self._happened += self._link.poll(0.2, self._waker)
        found, self._happened = self._happened, []
        return found

    def _wait(self, kind: type) -> None:
        """Wait for something to happen; SubscriberError if it does not."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            for event in self._take():
                if isinstance(event, mqtt.LinkFailed):
                    raise SubscriberError(f"{self.server.url}: {event.reason}")
                if isinstance(event, kind):
                    return
        raise SubscriberError(f"{self.server.url}: no answer")
