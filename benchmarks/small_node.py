"""A small DENS node as a process: stands for the real one, and keeps its promise.

    python -m benchmarks.small_node PORT DATABASE SUBSCRIPTIONS

It commits to SQLite (WAL, synchronous=FULL) before it acknowledges. On a hello it sends the
subscription vectors of a file (hexadecimal, one a line). Its epoch grows by one at each start.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
import time
from pathlib import Path

from denwatch.protocol import frames
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.frames import decode_message, encode_message
from denwatch.protocol.notification import decode
from denwatch.protocol.timecode import decode_age
from denwatch.watchdog.link import DeviceLink, LinkSettings, NodeAddress

DEVICE = "dog-1"
NODE = "node-a"
KEY_ID = 7
SECRET = bytes(range(32))
BATCH = 20  # vectors in a frame: kind to a small memory
TOPIC = f"dens/1/wd/{DEVICE}/"

_TABLES = """
pragma journal_mode=wal;
pragma synchronous=full;
create table if not exists notes
    (epoch integer, sequence integer, value integer, at real, primary key (epoch, sequence));
create table if not exists starts (epoch integer primary key);
create table if not exists hellos (epoch integer, dropped integer);
create table if not exists events (what text);
"""


class Node:
    def __init__(self, port: int, database: str, subscriptions: str) -> None:
        self.database = sqlite3.connect(database, isolation_level=None)
        self.database.executescript(_TABLES)
        self.epoch = self.database.execute("select count(*) + 1 from starts").fetchone()[0]
        self.database.execute("insert into starts values (?)", (self.epoch,))
        self.sequence = 0
        self.answer: frames.HelloAnswer | None = None  # to the last hello
        self.subscriptions = subscriptions
        self.key = frames.Link(DEVICE, NODE, KEY_ID, SECRET)
        self.outbox: list[tuple[str, bytes]] = []
        self.name = NODE
        self.topics = [TOPIC + "hello", TOPIC + "nv"]
        self.will: tuple[str, bytes] | None = None
        self.link = DeviceLink(
            self,
            [NodeAddress("broker", "127.0.0.1", port)],
            lambda: time.monotonic_ns() // 1_000_000,
            random.randrange,
            LinkSettings(keep_alive=2, timeout=2, first_delay=0, longest_delay=1),
        )

    def connect(self, node: str) -> None:
        pass

    def receive(self, topic: str, payload: bytes, _now: int) -> None:
        if not payload:
            self.database.execute("insert into events values ('gone')")
            return
        try:
            frame = frames.open_frame(self.key, frames.UP, payload, self.answer)
        except ProtocolError:
            return  # of an answer that another run gave: it says hello again
        if topic.endswith("hello"):
            hello = decode_message(frame.body)[1]
            self.database.execute(
                "insert into hellos values (?, ?)", (hello["epoch"], hello["dropped"])
            )
            self.acknowledge(hello=[frame.epoch, frame.sequence])
            self.answer = frames.HelloAnswer(frame.epoch, self.epoch, self.sequence)
            self.subscribe()
            return
        self.commit(frames.unpack_batch(frame))
        self.acknowledge()

    def acknowledge(self, **fields: object) -> None:
        highest = self.database.execute(
            "select epoch, sequence from notes order by epoch desc, sequence desc limit 1"
        ).fetchone() or (0, 0)
        fields |= {"epoch": highest[0], "sequence": highest[1]}
        self.send("ack", frames.MESSAGE, encode_message("acknowledge", fields))

    def commit(self, batch: frames.DeviceBatch) -> None:
        """Write what is new, and wait until the disk has it."""
        highest = self.database.execute(
            "select coalesce(max(epoch * 4294967296 + sequence), 0) from notes"
        ).fetchone()[0]
        self.database.execute("begin immediate")
        for vector in batch.vectors:
            note = decode(vector)
            sequence = batch.last - ((batch.last - note.sequence) & 0xFFFF)
            if batch.epoch * 4294967296 + sequence > highest:
                taken = time.time() - decode_age(note.age) / 16
                value = note.readings[0].points[0] if note.readings else -1
                self.database.execute(
                    "insert into notes values (?, ?, ?, ?)", (batch.epoch, sequence, value, taken)
                )
        self.database.execute("commit")

    def subscribe(self) -> None:
        vectors = [bytes.fromhex(line) for line in Path(self.subscriptions).read_text().split()]
        for start in range(0, len(vectors), BATCH):
            body = frames.join_vectors(vectors[start : start + BATCH])
            self.send("sv", frames.SUBSCRIPTIONS, body)

    def send(self, topic: str, kind: int, body: bytes) -> None:
        self.sequence += 1
        frame = frames.Frame(kind, self.epoch, self.sequence, body)
        self.outbox.append((TOPIC + topic, frames.seal(self.key, frames.DOWN, frame)))

    async def run(self) -> None:
        task = asyncio.create_task(self.link.run())
        while not task.done():
            if self.outbox and self.link.server:
                if await self.link.publish(*self.outbox[0]):
                    del self.outbox[0]
            else:
                await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(Node(int(sys.argv[1]), sys.argv[2], sys.argv[3]).run())
