"""The way of one notification: from the reading over every hop to each subscriber, and its waits.

A *step* is a record of a node's log that names the notification, in the common timeline. Between
two steps at a node it waited; the log says for what: if the link over which it left came up after
it had arrived, it waited for that contact, and the rest of the time in the send queue; the same for
a subscriber who attached later. What no record explains is not explained.

Two queries, whatever the size of the logs: the records of one id, and the contacts and stays of the
nodes and subscribers among them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import reduce
from typing import Any, NamedTuple

from denwatch.spark.analytics.timeline import Logs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

# Which column of a kind has the notification's id, which others are kept. In the order in which
# they happen where times are equal.
_KINDS = {
    "note": ("item", "source", "device", "at", "doubt", "expires", "event"),
    "duplicate": ("item", "source"),
    "match": ("note", "subscriber", "subscription", "possible", "certain"),
    "suppress": ("note", "subscriber", "reason"),
    "transfer": ("item", "peer", "is_out", "bytes", "copies"),
    "send": ("note", "subscriber", "attempt"),
    "deliver": ("note", "subscriber"),
    "learn_delivered": ("notes", "subscriber", "source"),
    "drop": ("item", "why"),
    "purge": ("item", "why"),
}
_BEFORE = {"contact": "peer", "attach": "subscriber"}  # what somebody waits for, and who that is
_ID_BITS = 1 << 64
SHOWN = 20  # notifications of a list


class Wait(NamedTuple):
    """A time before a step in which nothing could happen, or nothing did."""

    since: int
    until: int
    what: str  # it waited for


class Step(NamedTuple):
    """What happened to the notification at a node."""

    time: int  # ms
    node: str
    kind: str
    fields: dict[str, Any]
    waits: tuple[Wait, ...] = ()


def read_id(text: str) -> int:
    """Return the id that people see as Spark has it; ValueError if it is none."""
    if len(text) != 16:
        raise ValueError(f"{text!r} is no id of a notification: 16 hexadecimal digits")
    try:
        number = int(text, 16)
    except ValueError:
        raise ValueError(f"{text!r} is no id: it has others than hexadecimal digits") from None
    return number - _ID_BITS if number >= _ID_BITS // 2 else number


def write_id(number: int) -> str:
    """Return an id as people see it."""
    return f"{number % _ID_BITS:016x}"


def list_latest(logs: Logs, count: int = SHOWN) -> DataFrame:
    """Return the latest notifications and how many nodes have received each."""
    notes = logs.get("note").groupBy("item", "device", "event", "at")
    found = notes.agg(F.countDistinct("node").alias("nodes")).orderBy(F.desc("at"), "item")
    return found.limit(count)


def trace_notification(logs: Logs, note: int) -> list[Step]:
    """Return the steps of a notification in their order, [] if no log has it."""
    found = [_select(logs.get(kind), kind, note) for kind in _KINDS]
    order = list(_KINDS)
    rows = [
        (Step(row["time"], row["node"], row["kind"], json.loads(row["fields"])), row["number"])
        for row in reduce(DataFrame.unionByName, found).collect()
    ]
    rows.sort(key=lambda each: (each[0].time, order.index(each[0].kind), each[0].node, each[1]))
    steps = [step for step, _ in rows]
    return explain_waits(steps, _find_arrivals(logs, steps)) if steps else []


def _select(frame: DataFrame, kind: str, note: int) -> DataFrame:
    column, *others = _KINDS[kind]
    is_this = F.array_contains(column, note) if column == "notes" else F.col(column) == note
    fields = F.to_json(F.struct(*others))
    return frame.where(is_this).select(
        "time", "node", "number", F.lit(kind).alias("kind"), fields.alias("fields")
    )


Arrivals = dict[tuple[str, str, str], list[int]]  # by kind, node and who: when they came


def _find_arrivals(logs: Logs, steps: list[Step]) -> Arrivals:
    """Return when peers and subscribers came to the nodes that had the notification."""
    nodes = sorted({step.node for step in steps})
    names = {
        "contact": sorted({str(step.fields["peer"]) for step in steps if step.kind == "transfer"}),
        "attach": sorted({str(step.fields["subscriber"]) for step in steps if step.kind == "send"}),
    }
    frames = []
    for kind, who in _BEFORE.items():
        frame = logs.get(kind).where(F.col("node").isin(nodes) & F.col(who).isin(names[kind]))
        if kind == "attach":
            frame = frame.where("is_up")
        frame = frame.where(F.col("time") <= steps[-1].time)
        frames.append(
            frame.select(F.lit(kind).alias("kind"), "node", F.col(who).alias("who"), "time")
        )
    arrivals: Arrivals = {}
    for row in reduce(DataFrame.unionByName, frames).collect():
        arrivals.setdefault((row["kind"], row["node"], row["who"]), []).append(row["time"])
    return arrivals


def explain_waits(steps: Iterable[Step], arrivals: Arrivals) -> list[Step]:
    """Return the steps with what the notification waited for before it was sent on."""
    here: dict[str, int] = {}  # since when each node has it
    explained = []
    for step in steps:
        if step.kind == "note":
            here.setdefault(step.node, step.time)
        since = here.get(step.node)
        waits: tuple[Wait, ...] = ()
        if since is not None and step.kind == "transfer" and step.fields["is_out"]:
            peer = str(step.fields["peer"])
            met = arrivals.get(("contact", step.node, peer), [])
            waits = _split_wait(since, step.time, met, f"a contact with {peer}")
        elif since is not None and step.kind == "send":
            subscriber = str(step.fields["subscriber"])
            came = arrivals.get(("attach", step.node, subscriber), [])
            waits = _split_wait(since, step.time, came, f"{subscriber} to connect to {step.node}")
        explained.append(step._replace(waits=waits))
    return explained


def _split_wait(since: int, until: int, arrivals: list[int], what: str) -> tuple[Wait, ...]:
    """Return the wait for an arrival and the wait after it; without the parts that took no time."""
    came = max((time for time in arrivals if since < time <= until), default=since)
    waits = (Wait(since, came, what), Wait(came, until, "its turn in the send queue"))
    return tuple(wait for wait in waits if wait.until > wait.since)


# For people ---------------------------------------------------------------------------------


def describe_step(step: Step) -> str:
    """Return a sentence."""
    fields = step.fields
    if step.kind == "note":
        if fields.get("source"):
            return f"received it from {fields['source']}"
        age = step.time - fields["at"]
        late = f", {_write_span(age)} after the reading" if age >= 1_000 else ""
        return f"received it from the device {fields['device']}{late}"
    if step.kind == "duplicate":
        return f"received it again from {fields.get('source') or 'its device'}"
    if step.kind == "match":
        degrees = f"possible {fields['possible'] / 255:.2f}, certain {fields['certain'] / 255:.2f}"
        return f"it matches a subscription of {fields['subscriber']} ({degrees})"
    if step.kind == "suppress":
        return f"withheld it from {fields['subscriber']}: {fields['reason']}"
    if step.kind == "transfer":
        way = "sent it to" if fields["is_out"] else "acknowledged it to"
        return f"{way} {fields['peer']} ({fields['bytes']} bytes)"
    if step.kind == "send":
        again = f", attempt {fields['attempt']}" if fields["attempt"] > 1 else ""
        return f"sent it to {fields['subscriber']}{again}"
    if step.kind == "deliver":
        return f"{fields['subscriber']} acknowledged it: delivered"
    if step.kind == "learn_delivered":
        return f"learned from {fields['source'] or 'itself'} that {fields['subscriber']} has it"
    return f"deleted its copy: {fields['why']}"


def describe_trace(note: int, steps: list[Step]) -> list[str]:
    """Return the way of a notification as lines, with times since the reading."""
    first = next((step for step in steps if step.kind == "note"), steps[0])
    read = int(first.fields.get("at", first.time))
    when = datetime.fromtimestamp(read / 1000, UTC).isoformat(" ", "milliseconds")
    device = first.fields.get("device", "?")
    lines = [f"{write_id(note)}: {first.fields.get('event') or 'a reading'} of {device}, {when}"]
    width = max(len(step.node) for step in steps)
    for step in steps:
        for wait in step.waits:
            span = _write_span(wait.until - wait.since)
            lines.append(f"{'':12}  {'':{width}}  waited {span} for {wait.what}")
        since = f"+{(step.time - read) / 1000:.3f} s"
        lines.append(f"{since:>12}  {step.node:{width}}  {describe_step(step)}")
    subscribers = sorted({step.fields["subscriber"] for step in steps if step.kind == "match"})
    got = {step.fields["subscriber"] for step in steps if step.kind == "deliver"}
    got |= {step.fields["subscriber"] for step in steps if step.kind == "learn_delivered"}
    missing = [subscriber for subscriber in subscribers if subscriber not in got]
    lines.append(f"delivered to {', '.join(sorted(got)) or 'nobody'}")
    if missing:
        lines.append(f"not delivered to {', '.join(missing)}, as far as these logs say")
    return lines


def _write_span(ms: int) -> str:
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms / 60_000:.1f} min"


# For other tools ----------------------------------------------------------------------------


def build_otlp(note: int, steps: list[Step]) -> dict[str, Any]:
    """Return the trace as OTLP JSON, which OpenTelemetry collectors and Jaeger read.

    A node is a service; its root span is the time in which it had the notification, with the waits
    as spans below and the steps as events.
    """
    trace = write_id(note) * 2
    by_node: dict[str, list[Step]] = {}
    for step in steps:
        by_node.setdefault(step.node, []).append(step)
    resources = []
    for node, mine in by_node.items():
        root = _make_span_id(note, node, 0)
        giver = next((str(s.fields["source"]) for s in mine if s.fields.get("source")), "")
        parent = _make_span_id(note, giver, 0) if giver in by_node else ""
        events = [
            {
                "timeUnixNano": str(step.time * 1_000_000),
                "name": describe_step(step),
                "attributes": [_build_attribute(name, v) for name, v in step.fields.items()],
            }
            for step in mine
        ]
        spans = [
            _build_span(trace, root, parent, f"at {node}", mine[0].time, mine[-1].time)
            | {"events": events}
        ]
        waits = [wait for step in mine for wait in step.waits]
        for number, wait in enumerate(waits, 1):
            name = f"waits for {wait.what}"
            own = _make_span_id(note, node, number)
            spans.append(_build_span(trace, own, root, name, wait.since, wait.until))
        service = {"attributes": [_build_attribute("service.name", node)]}
        scope = {"scope": {"name": "denwatch"}, "spans": spans}
        resources.append({"resource": service, "scopeSpans": [scope]})
    return {"resourceSpans": resources}


def _make_span_id(note: int, node: str, number: int) -> str:
    return hashlib.sha256(f"{note} {node} {number}".encode()).hexdigest()[:16]


def _build_span(
    trace: str, own: str, parent: str, name: str, since: int, until: int
) -> dict[str, Any]:
    return {
        "traceId": trace,
        "spanId": own,
        "parentSpanId": parent,
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(since * 1_000_000),
        "endTimeUnixNano": str(until * 1_000_000),
    }


def _build_attribute(key: str, value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    return {"key": key, "value": {"stringValue": str(value)}}
