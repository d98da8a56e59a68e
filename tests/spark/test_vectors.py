"""The compiled readers of vectors say what the protocol says, for whole and for broken bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from denwatch.node.matching.records import pack_subscriptions
from denwatch.node.matching.search import pack_notifications
from denwatch.protocol import notification, subscription
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import NotificationVector, Predicate, Reading, SubscriptionVector
from denwatch.spark.matching.kernels import decode_notes, decode_subscriptions
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.spark_work import Shape, draw_notes, draw_subscriptions


@st.composite
def notes(draw: st.DrawFn) -> NotificationVector:
    names = sorted(draw(st.sets(st.integers(0, 15), max_size=6)))
    readings = []
    for name in names:
        wide = draw(st.booleans())
        top = 65535 if wide else 255
        many = draw(st.booleans())
        drawn = st.lists(st.integers(0, top), min_size=4, max_size=4)
        points = sorted(draw(drawn)) if many else [draw(st.integers(0, top))] * 4
        readings.append(Reading(name, (points[0], points[1], points[2], points[3]), wide))
    for reading in readings[1:] if draw(st.booleans()) else ():
        reading.age = draw(st.sampled_from((0, 0, 1, 50, 0xB7)))
    free = [bit for bit in range(16) if bit not in names]
    faults = sum(1 << bit for bit in draw(st.sets(st.sampled_from(free), max_size=3)))
    if not names and not faults:
        faults = 1
    why = draw(st.none() | st.tuples(st.integers(0, 15), st.integers(0, 255)))
    return NotificationVector(draw(st.integers(0, 63)), readings, 7, 9, why, faults)


@st.composite
def subscriptions(draw: st.DrawFn) -> SubscriptionVector:
    names = sorted(draw(st.sets(st.integers(0, 15), min_size=1, max_size=5)))
    predicates = []
    for name in names:
        low, high = sorted((draw(st.integers(0, 255)), draw(st.integers(0, 255))))
        hedge = draw(st.sampled_from((0, 0, 0, 1)))
        gamma = draw(st.integers(0, 255))
        predicates.append(Predicate(name, low, high, gamma, gamma, draw(st.booleans()), hedge))
    kind, threshold = draw(st.integers(0, 5)), draw(st.integers(0, 255))
    return SubscriptionVector(draw(st.integers(0, 63)), predicates, kind, threshold)


@st.composite
def spoil(draw: st.DrawFn, frame: bytes) -> bytes:
    data = bytearray(frame)
    how = draw(st.integers(0, 3))
    if how == 1:
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    elif how == 2:
        del data[draw(st.integers(0, len(data) - 1)) :]
    elif how == 3:
        data += b"\x01"
    return bytes(data)


@settings(max_examples=200)
@given(st.data(), st.lists(notes(), min_size=1, max_size=6))
def test_notes_are_read_as_the_protocol_reads_them(
    data: st.DataObject, drawn: list[NotificationVector]
) -> None:
    frames = [data.draw(spoil(notification.encode(note))) for note in drawn]
    kept: list[NotificationVector] = []
    is_right: list[bool] = []
    for frame in frames:
        try:
            kept.append(notification.decode(frame))
            is_right.append(True)
        except ProtocolError:
            is_right.append(False)
    column = pa.array([b"x", *frames], pa.binary()).slice(1)  # as Arrow hands out a part
    readings, found = decode_notes(column)
    assert found.tolist() == is_right
    wanted = pack_notifications(kept, [0] * len(kept))
    assert np.diff(readings.starts)[found].tolist() == np.diff(wanted.starts).tolist()
    assert not np.diff(readings.starts)[~found].any()
    for name in ("attributes", "points", "wides"):
        assert getattr(readings, name).tolist() == getattr(wanted, name).tolist()


@settings(max_examples=200)
@given(st.data(), st.lists(subscriptions(), min_size=1, max_size=6))
def test_subscriptions_are_read_as_the_protocol_reads_them(
    data: st.DataObject, drawn: list[SubscriptionVector]
) -> None:
    frames = [data.draw(spoil(subscription.encode(item))) for item in drawn]
    pairs, errors = [], {}
    for row, frame in enumerate(frames):
        try:
            pairs.append((row, subscription.decode(frame)))
        except ProtocolError as error:
            errors[row] = str(error)
    batch, found = decode_subscriptions(pa.array(frames, pa.large_binary()))
    assert found == errors
    wanted = {row: pack_subscriptions([(row, item)]) for row, item in pairs}
    places = np.cumsum(batch.subs["count"]) - batch.subs["count"]
    assert sorted(batch.subs["id"].tolist()) == sorted(wanted)
    for sub, place in zip(batch.subs, places, strict=True):
        one = wanted[int(sub["id"])]
        assert sub == one.subs[0]
        assert (batch.preds[place : place + sub["count"]] == one.preds).all()


def test_nulls_and_nothing_are_no_notes() -> None:
    readings, found = decode_notes(pa.array([None, b""], pa.binary()))
    assert found.tolist() == [False, False]
    assert len(readings) == 2
    assert decode_notes(pa.array([], pa.binary()))[1].tolist() == []


def test_the_benchmarks_vectors_are_the_numbers_beside_them() -> None:
    """What SQL engines are given prepared is what our job decodes."""
    rng = np.random.default_rng(4)
    shape = Shape("a few", masks=30, core=5.0, steep=150)
    subs = draw_subscriptions(shape, 60, rng).to_pylist()
    for row in subs:
        sub = subscription.decode(row["vector"])
        assert sub.event == row["event"]
        assert sum(1 << p.attribute for p in sub.predicates) == row["features"]
        told = {row[f"a{i}"]: (row[f"low{i}"], row[f"high{i}"]) for i in range(row["width"])}
        assert {p.attribute: (p.low, p.high) for p in sub.predicates} == told
        spans = [row[f"last{i}"] - row[f"first{i}"] for i in range(row["width"])]
        assert spans == sorted(spans)
    for row in draw_notes(shape, 5, 65, rng, has_masks=True).to_pylist():
        note = notification.decode(row["vector"])
        values = {reading.attribute: reading.points[0] for reading in note.readings}
        assert {i: v for i, v in enumerate(row["vals"]) if v is not None} == values
        assert row["keys"] == [name * 256 + value for name, value in values.items()]
        words = row["values0"].to_bytes(8, "little", signed=True)
        words += row["values1"].to_bytes(8, "little", signed=True)
        assert {name: words[name] for name in values} == values
        masks = [key >> 4 & 0xFFFF for key in row["masks"]]
        assert len(set(masks)) == len(masks)
        assert all(mask & ~row["features"] == 0 for mask in masks)
        assert all(key >> 20 == note.event for key in row["masks"])
