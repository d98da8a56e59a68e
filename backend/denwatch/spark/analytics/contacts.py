"""Who could reach whom and when, and the earliest delivery that was possible: the oracle.

THEORY. A contact is a span of time in which two nodes can exchange anything at once. The earliest
arrival of an item at every node is a shortest path over contacts that come and go: Dijkstra's
algorithm, where a node that has the item at t passes it on in every contact that ends at t or later
(`ContactGraph`; compiled). Many notifications and subscriptions share a node and a time, so workers
keep the answers they have found, and get contacts and stays as one file (`SharedContacts`). A
subscriber gets it where the notification, a matching subscription and the subscriber are at one
node (`find_meeting`). With no limit of bandwidth or copies and every contact
known in advance, nothing could have been faster: replication is measured against this.
EXAMPLE    north meets middle 0..10 s, middle meets south 30..40 s. A reading at north at 5 s is at
           middle at 5 s and at south at 30 s. A medic at south from 35 s on can have it at 35 s;
           it waited for the person.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from denwatch.node.matching.compiling import Array, compiled
from denwatch.protocol.frames import FUZZY
from denwatch.protocol.matching import rate_age
from denwatch.protocol.subscription import decode
from denwatch.protocol.timecode import decode_duration
from denwatch.spark.analytics.timeline import Logs
from denwatch.spark.cluster_bundle import make_scratch
from denwatch.spark.session import is_local
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

NEVER = (1 << 63) - 1
Times = npt.NDArray[np.int64]


class ContactSpan(NamedTuple):
    """Two nodes with a link between them from `begin` to `end`, both included; ms."""

    first: str
    second: str
    begin: int
    end: int


class Stay(NamedTuple):
    """A subscriber at a node from `begin` to `end`, both included; ms."""

    node: str
    begin: int
    end: int


@compiled
def spread_item(
    starts: Array, ends: Array, begins: Array, others: Array, arrivals: Array, until: int
) -> None:
    """Fill in when nodes can have an item, from the one node that has it: Dijkstra's algorithm.

    The contacts of node n are those from starts[n] to before starts[n + 1], in the order of their
    ends; a node that has the item at t hands it over in each that ends at t or later.
    """
    waiting = arrivals.copy()
    while True:
        node = 0
        for other in range(len(waiting)):
            if waiting[other] < waiting[node]:
                node = other
        now = waiting[node]
        if now == NEVER:
            return
        waiting[node] = NEVER
        first, last = starts[node], starts[node + 1]
        low, high = first, last
        while low < high:
            middle = (low + high) // 2
            if ends[middle] < now:
                low = middle + 1
            else:
                high = middle
        for place in range(low, last):
            time = max(begins[place], now)
            other = others[place]
            if time < arrivals[other] and time <= until:
                arrivals[other] = waiting[other] = time


class ContactGraph:
    """The contacts of a network, by node, in the order in which they end."""

    def __init__(self, contacts: Iterable[ContactSpan], names: Iterable[str] = ()) -> None:
        contacts = list(contacts)
        found = {name for contact in contacts for name in contact[:2]} | set(names)
        self.names = sorted(found)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        rows = sorted(
            (self.numbers[one], contact.end, contact.begin, self.numbers[other])
            for contact in contacts
            for one, other in (contact[:2], contact[1::-1])
        )
        table = np.array(rows, np.int64).reshape(-1, 4)
        self._starts = np.searchsorted(table[:, 0], np.arange(len(self.names) + 1))
        self._ends = np.ascontiguousarray(table[:, 1])
        self._begins = np.ascontiguousarray(table[:, 2])
        self._others = np.ascontiguousarray(table[:, 3])

    def find_arrivals(self, origin: str, time: int, until: int = NEVER) -> Times:
        """Return when each node can have an item that `origin` has at `time`, NEVER if it cannot.

        Nothing moves after `until`.
        """
        arrivals = np.full(len(self.names), NEVER, np.int64)
        if origin in self.numbers and time <= until:
            arrivals[self.numbers[origin]] = time
            spread_item(self._starts, self._ends, self._begins, self._others, arrivals, until)
        return arrivals

    def read(self, arrivals: Times, node: str) -> int:
        """Return when a node has it."""
        number = self.numbers.get(node)
        return NEVER if number is None else int(arrivals[number])


class Meeting(NamedTuple):
    """Where and when somebody can have something at the earliest, and what that waited for."""

    time: int
    node: str
    awaited: str  # nothing, contact, subscription or person


def find_meeting(
    graph: ContactGraph,
    note: Times,
    subscriptions: Iterable[Times],
    stays: Iterable[Stay],
    until: int,
) -> Meeting | None:
    """Return when a subscriber can have a notification at the earliest; None if at no time.

    It takes the notification, one of the matching subscriptions and the subscriber at one node.
    """
    asked = list(subscriptions)
    born = int(note.min(initial=NEVER))
    best: Meeting | None = None
    for stay in stays:
        here = graph.read(note, stay.node)
        known = min((graph.read(times, stay.node) for times in asked), default=NEVER)
        time = max(here, known, stay.begin)
        if time > min(stay.end, until) or time == NEVER or (best and best.time <= time):
            continue
        if time == born:
            awaited = "nothing"
        elif time == here:
            awaited = "contact"
        else:
            awaited = "subscription" if time == known else "person"
        best = Meeting(time, stay.node, awaited)
    return best


# Contacts and stays from the logs -------------------------------------------------------
# Both ends log a link; each may see it come and go a little sooner or later, crash before its end,
# or lose its log. A span is the time in which either end reports the link; a transfer or a delivery
# proves it as well. A span lasts from `begin` until just before `end`.


def find_contacts(logs: Logs) -> DataFrame:
    """Return the contacts: first, second (by name), begin, end; no two of a pair overlap."""
    key = ["node", "epoch", "peer", "contact"]
    ended = logs.get("contact_end").select(*key, F.col("time").alias("end"))
    began = logs.get("contact").select(*key, F.col("time").alias("begin"))
    sides = (
        began.join(ended, key, "full")
        .join(logs.runs.select("node", "epoch", "ends"), ["node", "epoch"], "left")
        .selectExpr("node", "peer", "nvl(begin, contact) as begin", "nvl(end, ends) as end")
    )
    proven = logs.get("transfer").where("not is_out")
    proven = proven.selectExpr("node", "peer", "time as begin", "time + 1 as end")
    spans = sides.unionByName(proven.distinct()).select(
        F.least("node", "peer").alias("first"),
        F.greatest("node", "peer").alias("second"),
        "begin",
        F.greatest("begin", "end").alias("end"),
    )
    return join_spans(spans, ["first", "second"])


def find_stays(logs: Logs) -> DataFrame:
    """Return where subscribers were: subscriber, node, begin, end; no two of a pair overlap.

    Who came and did not leave stays until the run is over, or the logs are.
    """
    last = F.when(F.col("is_over"), F.col("ends")).otherwise(F.lit(logs.end))
    moves = Window.partitionBy("node", "epoch", "subscriber").orderBy("number")
    stays = (
        logs.get("attach")
        .withColumn("end", F.lead("time").over(moves))
        .where("is_up")
        .join(logs.runs.select("node", "epoch", last.alias("last")), ["node", "epoch"], "left")
        .selectExpr("subscriber", "node", "time as begin", "nvl(end, last) as end")
    )
    proven = logs.get("deliver")
    proven = proven.selectExpr("subscriber", "node", "time as begin", "time + 1 as end")
    return join_spans(stays.unionByName(proven), ["subscriber", "node"])


def join_spans(spans: DataFrame, key: list[str]) -> DataFrame:
    """Return spans (begin, end) of each key, with those that touch or overlap made one."""
    order = Window.partitionBy(*key).orderBy("begin", "end")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    reached = F.max("end").over(before)
    return (
        spans.withColumn("is_new", (reached.isNull() | (F.col("begin") > reached)).cast("int"))
        .withColumn("island", F.sum("is_new").over(order))
        .groupBy(*key, "island")
        .agg(F.min("begin").alias("begin"), F.max("end").alias("end"))
        .drop("island")
    )


def collect_shared(
    contacts: DataFrame, stays: DataFrame, windows: DataFrame, end: int
) -> SharedContacts:
    """Return contacts, stays and homes for the workers; they come to the driver in one pass.

    Of contacts and stays, `end` becomes the last moment in which they exist. `windows` are the
    subscriptions.
    """
    last = "greatest(begin, end - 1) as last"
    first = "min(begins) as begin", "min(begins) as last", "min_by(origin, begins) as second"
    homes = windows.groupBy(F.col("subscriber").alias("first")).agg(*map(F.expr, first))
    parts = (
        contacts.selectExpr("'contact' as what", "first", "second", "begin", last),
        stays.selectExpr("'stay'", "subscriber", "node", "begin", last),
        homes.selectExpr("'home'", "first", "second", "begin", "last"),
    )
    rows = sorted(map(tuple, parts[0].union(parts[1]).union(parts[2]).collect()))
    spans = [ContactSpan(*row[1:]) for row in rows if row[0] == "contact"]
    found: dict[str, list[Stay]] = {}
    for what, subscriber, *span in rows:
        if what == "stay":
            found.setdefault(subscriber, []).append(Stay(*span))
    return share_contacts(
        contacts.sparkSession,
        sorted(spans, key=lambda span: (span.begin, span.end, *span[:2])),
        {subscriber: sorted(each, key=lambda stay: stay[1:]) for subscriber, each in found.items()},
        {row[1]: (row[3], row[2]) for row in rows if row[0] == "home"},
        end,
    )


def summarise_links(logs: Logs, contacts: DataFrame) -> DataFrame:
    """Return the contact graph: one row a pair of nodes that ever met.

    Columns: first, second, contacts, up_ms, longest_gap_ms, bytes, notifications, subscriptions,
    marks. The bytes are those that each side says it sent.
    """
    order = Window.partitionBy("first", "second").orderBy("begin")
    spans = contacts.withColumn("gap", F.col("begin") - F.lag("end").over(order))
    sums = "count(*) as contacts", "sum(end - begin) as up_ms", "max(gap) as longest_gap_ms"
    pairs = spans.groupBy("first", "second").agg(*map(F.expr, sums))
    pair = (F.least("node", "peer").alias("first"), F.greatest("node", "peer").alias("second"))
    total = F.expr("sum(digest_out + known_out + items_out) as bytes")
    sent = logs.get("contact_end").groupBy(*pair).agg(total)
    kinds = {"notifications": "notification", "subscriptions": "subscription", "marks": "delivered"}
    counts = (F.expr(f"count_if(what = '{what}') as {name}") for name, what in kinds.items())
    items = logs.get("transfer").where("not is_out").groupBy(*pair).agg(*counts)
    joined = pairs.join(sent, ["first", "second"], "left").join(items, ["first", "second"], "left")
    return joined.fillna(0, ["bytes", *kinds])


# The oracle on Spark --------------------------------------------------------------------
# For each notification and subscriber, the earliest delivery possible. Notifications are handled
# one by one, so the answer does not depend on how they are distributed.

_KEPT_BYTES = 64 << 20  # of answers that a worker keeps


class KnownContacts(NamedTuple):
    """Contacts and stays in a worker: `find` is `ContactGraph.find_arrivals` up to the end."""

    graph: ContactGraph
    contacts: list[ContactSpan]
    stays: dict[str, list[Stay]]
    homes: dict[str, tuple[int, str]]
    end: int
    find: Callable[[str, int], Times]


class SharedContacts(NamedTuple):
    """The file with contacts, stays and homes, which every worker reads once."""

    path: str
    is_shipped: bool  # executors received it from Spark

    def load(self) -> KnownContacts:
        """Return what is in it."""
        return load_contacts(SparkFiles.get(Path(self.path).name) if self.is_shipped else self.path)


def share_contacts(
    spark: SparkSession,
    contacts: Sequence[ContactSpan],
    stays: Mapping[str, Sequence[Stay]],
    homes: Mapping[str, tuple[int, str]],
    end: int,
) -> SharedContacts:
    """Write the file for the workers; `end` is where the logs end.

    `homes` says where and since when each subscriber is known to be before it comes anywhere: where
    it subscribed first.
    """
    folder = make_scratch()
    path = folder / f"contacts-{folder.name}.json"
    text = json.dumps({"contacts": contacts, "stays": stays, "homes": homes, "end": end})
    path.write_text(text, encoding="utf-8")
    shared = SharedContacts(str(path), not is_local(str(spark.sparkContext.master)))
    if shared.is_shipped:
        spark.sparkContext.addFile(str(path))
    return shared


@lru_cache(maxsize=2)
def load_contacts(path: str) -> KnownContacts:
    """Return what a file of `share_contacts` has."""
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    contacts = [ContactSpan(*row) for row in stored["contacts"]]
    stays = {
        subscriber: [Stay(*row) for row in rows] for subscriber, rows in stored["stays"].items()
    }
    homes = {
        subscriber: (int(time), str(node)) for subscriber, (time, node) in stored["homes"].items()
    }
    graph = ContactGraph(contacts, {stay.node for rows in stays.values() for stay in rows})
    size = max(64, _KEPT_BYTES // (8 * len(graph.names) + 64))
    find = lru_cache(maxsize=size)(partial(graph.find_arrivals, until=stored["end"]))
    return KnownContacts(graph, contacts, stays, homes, stored["end"], find)


ORACLE = (
    "notification_id bigint, subscriber string, best bigint, best_node string, awaited string, "
    "open_best bigint, is_present boolean"
)
NEEDED = ("notification_id", "subscriber", "origin", "born", "until", "asked")


def find_earliest(pairs: DataFrame, shared: SharedContacts) -> DataFrame:
    """Return, for (notification, subscriber) pairs, when it could have been delivered.

    `pairs` has notification_id, subscriber, origin (where it was read), born (since when it is
    there), until (from when it is worth nothing; null for no end) and asked, an array of (origin,
    begins) of the matching subscriptions.

    Columns: best (null: at no time), best_node, awaited (what the best still waits for: nothing,
    contact, subscription, person), open_best (if it were worth something for ever), is_present
    (whether the subscriber was anywhere while it was worth something).
    """

    def work(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        graph, _, stays, _, end, find = shared.load()

        def judge(row: Any) -> tuple[object, ...]:
            limit, here = limit_time(row.until, end), stays.get(row.subscriber, ())
            note = find(row.origin, int(row.born))
            known = [find(each["origin"], int(each["begins"])) for each in row.asked]
            best = find_meeting(graph, note, known, here, limit)
            free = find_meeting(graph, note, known, here, NEVER)
            is_present = any(stay.begin <= limit and stay.end >= row.born for stay in here)
            found = best or (None, None, None)
            return row.notification_id, row.subscriber, *found, free and free.time, is_present

        for batch in batches:
            rows = [judge(row) for row in batch.itertuples(index=False)]
            columns = [column.split()[0] for column in ORACLE.split(", ")]
            found = pd.DataFrame(rows, columns=columns)
            yield found.astype({"best": "Int64", "open_best": "Int64"})

    return pairs.select(*NEEDED).repartition("origin", "notification_id").mapInPandas(work, ORACLE)


def limit_time(until: Any, end: int) -> int:
    """Return the last moment in which something counts; null, in any of its forms: of the logs."""
    return end if pd.isna(until) else min(end, int(until) - 1)


def find_news_life(language: int, vector: bytes) -> int | None:
    """Return for how many ms a reading is recent enough for a subscription; None: for ever.

    As a node judges it: the age in whole seconds, against the thresholds.
    """
    if language != FUZZY:
        return None
    wanted = decode(bytes(vector))
    if wanted.recent is None:
        return None
    least = max(wanted.threshold, wanted.certain, 1)
    low, high = 0, decode_duration(wanted.recent[1])  # recent enough, and surely not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if rate_age(middle, wanted.recent) >= least else (low, middle)
    return 1000 * (low + 1)


def describe_pairs(matches: DataFrame, notes: DataFrame, windows: DataFrame) -> DataFrame:
    """Return one row a (notification, subscriber) that match, with what the oracle needs.

    `notes` has notification_id, origin, at, doubt, born and expires; `windows` is what
    `spark.matching.find_windows` returns. Further columns: at, degree, certain, subscriptions,
    withdrawn (when the last of them was taken back, if all were).
    """
    # What expired or was replaced is still delivered for what it matched before.
    is_gone = F.col("end_reason").isNotNull() & ~F.col("end_reason").isin("expired", "replaced")
    asked = windows.select(
        "subscription_id",
        F.struct("origin", "begins").alias("asked"),
        F.when(is_gone, F.col("ends")).alias("gone"),
        F.udf(find_news_life, "bigint", useArrow=True)("language", "vector").alias("life"),
    )
    fresh = F.col("at") + F.col("doubt") + F.col("life")
    return (
        matches.join(asked, "subscription_id")
        .join(notes, "notification_id")
        .groupBy("notification_id", "subscriber")
        .agg(
            *(F.first(name).alias(name) for name in ("origin", "born", "at", "expires")),
            F.max("possible").alias("degree"),
            F.max("certain").alias("certain"),
            F.sort_array(F.collect_set("subscription_id")).alias("subscriptions"),
            F.sort_array(F.collect_set("asked")).alias("asked"),
            # Only if all have an end there is one; the last one counts.
            F.when(F.count("gone") == F.count("*"), F.max("gone")).alias("withdrawn"),
            F.when(F.count("life") == F.count("*"), F.max(fresh)).alias("stale"),
        )
        .withColumn("expires", F.expr("least(nullif(expires, 0), stale)"))
        .withColumn("until", F.least("expires", "withdrawn"))
        .drop("stale")
    )
