"""Logs of a made-up site for the benchmark of `analyze`: written as nodes write them, and quickly.

Nodes in a ring meet their neighbours in turn and pass on the newest notifications; each has a
subscriber who stays, and restarts some times. Subscriptions are intervals of one attribute, so that
what matches is plain: the files say who should have got what. Transfers are logged a few seconds
later by whom they were sent from, which is what leaves the clocks in doubt. Every third subscriber
wants the best few only: some of what matches is withheld.

A run is written as soon as time has passed it, so that memory has one run of each node.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cbor2
from denwatch.node.log import encode_record, write_name
from denwatch.node.log.segments import (
    Footer,
    Header,
    IndexEntry,
    count_kinds,
    pack_footer,
    pack_header,
    pack_records,
)
from denwatch.protocol import notification, subscription
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector

BEGIN = 1_790_000_000_000
_ROUND = 600_000  # ms between two meetings of a pair
_MEETING = 60_000
_SETTLED = 300_000  # ms after which nothing is logged into a run any more
_BLOCK = 500  # records
_VOCABULARY = b"\1" * 8
Fields = dict[str, Any]


@dataclass(frozen=True)
class Site:
    """How large a site is."""

    nodes: int = 6
    notes: int = 100  # that devices send, in all
    runs: int = 2  # of each node
    hours: float = 4.0
    subscriptions: int = 12
    carried: int = 40  # notifications that a meeting passes on, each way
    widths: tuple[int, int] = (5, 55)  # of subscriptions' intervals, from and to before


@dataclass(frozen=True)
class Note:
    """A notification."""

    id: int
    origin: str
    run: int
    at: int
    value: int
    vector: bytes
    sequence: int


class SiteLogs:
    """The records of all runs, and how they come about."""

    def __init__(self, site: Site, seed: int = 1) -> None:
        self.site = site
        self._rng = random.Random(seed)
        self._end = BEGIN + int(site.hours * 3_600_000)
        self._records: defaultdict[tuple[str, int], list[tuple[int, str, Fields]]]
        self._records = defaultdict(list)
        self._names = [f"node{n:03d}" for n in range(site.nodes)]
        self._had: dict[str, set[int]] = {name: set() for name in self._names}
        self._waiting: dict[tuple[str, str], list[Note]] = {}  # of one for a neighbour, in order
        self._neighbours: dict[str, set[str]] = {name: set() for name in self._names}
        for one, other in zip(self._names, self._names[1:] + self._names[:1], strict=True):
            self._waiting[one, other], self._waiting[other, one] = [], []
            self._neighbours[one].add(other)
            self._neighbours[other].add(one)
        self._fitting: dict[str, list[list[int]]]  # subscriptions of a node, by value
        self._fitting = {name: [[] for _ in range(256)] for name in self._names}
        self._written: dict[tuple[str, int], int] = {}

    def write(self, folder: Path) -> int:
        """Write all segments; return how many records."""
        self._begin()
        happenings: list[tuple[int, int, Note | tuple[str, str]]]
        happenings = [*self._plan_notes(), *self._plan_meetings()]
        written, over = 0, 1  # records; the first run that is not
        for time, _, what in sorted(happenings, key=lambda each: each[:2]):
            while over < self._find_run(time - _SETTLED):
                written += sum(self._write_run(folder, node, over) for node in self._names)
                over += 1
            if isinstance(what, Note):
                self._receive(what.origin, what, time, "")
            else:
                self._meet(*what, time)
        return written + sum(self._write_run(folder, *run) for run in sorted(self._records))

    def _log(self, node: str, time: int, kind: str, **fields: Any) -> None:
        self._records[node, self._find_run(time)].append((time, kind, fields))

    def _find_run(self, time: int) -> int:
        share = (time - BEGIN) * self.site.runs // max(1, self._end - BEGIN)
        return 1 + min(self.site.runs - 1, max(0, share))

    def _begin(self) -> None:
        step = (self._end - BEGIN) // self.site.runs
        for node in self._names:
            for run in range(self.site.runs):
                time = BEGIN + run * step + 1
                self._log(node, time, "start", software="made up", strategy="epidemic")
                self._log(node, time + 1, "attach", subscriber=f"at-{node}", is_up=True)
                if run:
                    self._log(node, BEGIN + run * step - 1, "stop", reason="restart")
            self._log(node, self._end, "stop", reason="the end")
        for number in range(self.site.subscriptions):
            node = self._names[number % len(self._names)]
            low = self._rng.randrange(200)
            high = low + self._rng.randrange(*self.site.widths)
            for value in range(low, high + 1):
                self._fitting[node][value].append(number + 1)
            vector = SubscriptionVector(1, [Predicate(0, low, high)], threshold=128)
            fields = {
                "item": number + 1, "origin": node, "run": 1, "sequence": number + 1,
                "owner": f"at-{node}", "role": "medical", "language": 0,
                "words": f"value between {low} and {high}", "vocabulary": _VOCABULARY,
                "vector": subscription.encode(vector), "created": BEGIN + 10, "expires": 0,
                "options": {"top": 3} if number % 3 == 0 else {}, "source": "",
            }  # fmt: skip
            self._log(node, BEGIN + 10, "subscribe", **fields)
            for other in self._names:  # who have heard of it from their neighbours
                if other != node:
                    self._log(other, BEGIN + 11, "subscribe", **fields | {"source": node})

    def _plan_notes(self) -> list[tuple[int, int, Note]]:
        span = self._end - BEGIN - 120_000
        planned = []
        for number in range(self.site.notes):
            at = BEGIN + 60_000 + span * number // self.site.notes
            origin = self._rng.choice(self._names)
            value = self._rng.randrange(256)
            vector = notification.encode(NotificationVector(1, [Reading(0, (value,) * 4)], number))
            id_ = 1_000_000_000 + number
            note = Note(id_, origin, self._find_run(at), at, value, vector, number + 1_000)
            planned.append((at + 5, number, note))
        return planned

    def _plan_meetings(self) -> list[tuple[int, int, tuple[str, str]]]:
        planned = []
        for number, node in enumerate(self._names):
            peer = self._names[(number + 1) % len(self._names)]
            first = BEGIN + 30_000 + _ROUND * number // len(self._names)
            for time in range(first, self._end - 2 * _MEETING, _ROUND):
                if self._find_run(time) == self._find_run(time + _MEETING + 10_000):
                    planned.append((time, number, (node, peer)))
        return planned

    def _receive(self, node: str, note: Note, time: int, source: str) -> None:
        """Let a node have a notification, and decide about its subscriber."""
        self._had[node].add(note.id)
        for other in self._neighbours[node]:
            self._waiting[node, other].append(note)
        self._log(
            node, time, "note", item=note.id, origin=note.origin, run=note.run,
            sequence=note.sequence, device=f"device-{note.origin}", device_epoch=1,
            device_sequence=note.sequence, at=note.at, doubt=0, expires=note.at + 86_400_000,
            vocabulary=_VOCABULARY, vector=note.vector, source=source, event="made-up",
        )  # fmt: skip
        owner = f"at-{node}"
        ids = self._fitting[node][note.value]
        if not ids:
            return
        for id_ in ids:
            self._log(
                node, time, "match", note=note.id, subscription=id_, owner=owner, possible=255,
                certain=255,
            )  # fmt: skip
        if all(id_ % 3 == 1 for id_ in ids) and note.sequence % 4:
            self._log(
                node, time, "suppress", note=note.id, owner=owner, reason="top-k", subscriptions=ids
            )
            return
        self._log(node, time, "send", note=note.id, owner=owner, subscriptions=ids, attempt=1)
        wait = 1 + note.sequence % 400
        self._log(
            node, time + wait, "deliver", note=note.id, owner=owner, subscriptions=ids, attempt=1
        )

    def _meet(self, one: str, other: str, time: int) -> None:
        moved = {one: 0, other: 0}
        for here, there in ((one, other), (other, one)):
            self._log(here, time, "contact", peer=there, contact=time)
        for here, there in ((one, other), (other, one)):
            for place, note in enumerate(self._take_newest(here, there)):
                came = time + 100 + 10 * place
                size = {"what": "notification", "bytes": 180, "contact": time}
                self._log(there, came, "transfer", item=note.id, peer=here, is_out=False, **size)
                self._receive(there, note, came, here)
                done = came + 500 + 40 * (place % 100)  # when the sender has the acknowledgement
                self._log(here, done, "transfer", item=note.id, peer=there, is_out=True, **size)
                moved[here] += 180
        for here, there in ((one, other), (other, one)):
            self._log(
                here, time + _MEETING, "contact_end", peer=there, contact=time, began=time,
                outcome="left", digest_out=300, digest_in=300, known_out=100, known_in=100,
                items_out=moved[here], items_in=moved[there],
            )  # fmt: skip

    def _take_newest(self, here: str, there: str) -> list[Note]:
        """Return what a meeting passes on: the newest that the other does not have, in order."""
        waiting, had = self._waiting[here, there], self._had[there]
        taken: list[Note] = []
        while waiting and len(taken) < self.site.carried:
            note = waiting.pop()
            if note.id not in had:
                taken.append(note)
        return taken[::-1]

    def _write_run(self, folder: Path, node: str, run: int) -> int:
        """Write the segment of one run."""
        records = sorted(self._records.pop((node, run)), key=lambda record: record[0])
        first = 1 + sum(self._written.get((node, earlier), 0) for earlier in range(run))
        data = pack_header(Header(node, run, first, records[0][0]))
        counts: dict[int, int] = {}
        index = []
        for start in range(0, len(records), _BLOCK):
            part = records[start : start + _BLOCK]
            encoded = [encode_record(kind, fields, time) for time, kind, fields in part]
            rows = [cbor2.loads(record) for record in encoded]
            block, head = pack_records(b"".join(encoded), rows, first + start)
            count_kinds(counts, rows)
            times = head.earliest, head.latest
            index.append(IndexEntry(len(data), first + start, len(rows), *times, head.kinds))
            data += block
        self._written[node, run] = len(records)
        path = folder / node / write_name(node, run, first, ".dlog")
        path.parent.mkdir(parents=True, exist_ok=True)
        footer = pack_footer(Footer(first + len(records), counts, index))
        path.write_bytes(data + footer)
        return len(records)
