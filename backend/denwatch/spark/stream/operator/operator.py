"""An operator's loop: after each judgement, late matches and the plan to whoever can be reached.

What a node has acknowledged is remembered beside the tables, so that it is not sent with every
batch; forgetting it costs nothing but bytes, because a node takes every item once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from denwatch.client.subscriber.errors import SubscriberError
from denwatch.client.subscriber.link import Identity
from denwatch.client.subscriber.servers import parse_server
from denwatch.node.core.items import Item
from denwatch.node.core.operators import Plan, encode_items, encode_plan
from denwatch.spark.report.tables import save_text
from denwatch.spark.stream.judging import Judged
from denwatch.spark.stream.operator.late import Handover, find_handovers
from denwatch.spark.stream.operator.links import NodeLink
from pyspark.sql import SparkSession

_FRAME_ITEMS = 100
_FRAME_BYTES = 60_000  # below what any node takes in one packet
_REMEMBERED = 100_000  # items that were handed over
_SAME = {"direct": "spray:1"}  # what nodes call a strategy that only analysis has a name for


class Operator:
    """Goes to nodes and tells them what all logs together say."""

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
        """`memory` is the file of what was handed over; SubscriberError for a wrong address."""
        self._servers = [parse_server(url) for url in urls]
        self._identity = Identity(name, password, ca, is_insecure)
        for server in self._servers:
            self._identity.build_context(server)
        self._memory = memory
        self._handed = _load(memory)
        self._plans: dict[str, str] = {}
        self._troubles: dict[str, str] = {}
        self._count = 0

    def close(self) -> None:
        """End; nothing is open between two judgements."""

    def describe(self) -> dict[str, Any]:
        """Return what went back, for the summary."""
        return {
            "handed": self._count,
            "plans": dict(sorted(self._plans.items())),
            "troubles": dict(self._troubles),
        }

    def publish(self, spark: SparkSession, version: Path, judged: Judged) -> None:
        """Tell the nodes that can be reached what is new for them."""
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
            save_text(self._memory, json.dumps(stored))

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
        return {}  # then a node is told once more what it has
