"""The work of the Spark benchmark: subscriptions and notifications as vectors and as plain columns.

Everybody reads the same two Parquet tables. They hold the vectors as bytes, which our job decodes,
and beside them the same numbers already taken apart, in the ways that SQL engines want them: the
values of a notification by attribute, packed into two numbers, and as keys for each way to join;
the alpha-cut intervals, cores and slopes of a subscription, the most selective first, as columns
and packed. They are exact because every subscription is a min over plain sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from denwatch.node.matching.evaluation import SLOPE, reach
from denwatch.node.matching.records import EVENT_ATTRIBUTES
from numpy.typing import NDArray

Ints = NDArray[np.int64]
EVENTS = 8
WIDEST = 4  # attributes of a mask
FILES = 8  # of the notifications, so that every engine can share the work evenly
GROUPS = 2  # of rows in a file, so that two cores can share even one
BEGIN = 1_790_000_000_000  # ms
SPAN = 86_400_000
STEEPEST = (1 << 16) - 1  # a crisp set loses everything at the first step, as with any more


@dataclass(frozen=True)
class Shape:
    """What a workload looks like."""

    name: str
    masks: int
    core: float  # mean width of a core, in 1/255 of the domain
    steep: int  # the lowest gamma code; 255 is crisp
    narrowest: int = 1
    fewest: int = 4  # attributes of a notification
    most: int = 8


MANY = Shape("many small masks", masks=18_000, core=4.0, steep=170)
FEW = Shape("few large masks", masks=120, core=10.0, steep=150, narrowest=2)


@dataclass(frozen=True)
class Work:
    """Where the tables of a workload are, and how large."""

    shape: Shape
    subscriptions: int
    notes: int
    subscription_file: Path
    note_files: Path

    @property
    def note_glob(self) -> str:
        """The notifications' files as a pattern."""
        is_one = self.note_files.suffix == ".parquet"
        return str(self.note_files if is_one else self.note_files / "*.parquet")

    def take_first(self) -> Work:
        """Return the same work with the first file of notifications only."""
        return replace(self, notes=self.notes // FILES, note_files=self.note_files / "0.parquet")

    @property
    def pairs(self) -> int:
        """How many pairs the plain definition would look at."""
        return self.subscriptions * self.notes


def make_work(
    shape: Shape,
    subscriptions: int,
    notes: int,
    folder: Path,
    rng: np.random.Generator,
    has_masks: bool = False,
) -> Work:
    """Draw a workload and write its tables; `has_masks`: with keys for joins by mask."""
    folder.mkdir(parents=True, exist_ok=True)
    table = draw_subscriptions(shape, subscriptions, rng)
    subscription_file = folder / "subscriptions.parquet"
    pq.write_table(table, subscription_file)
    note_files = folder / "notes"
    note_files.mkdir(exist_ok=True)
    step = -(-notes // FILES)
    for i in range(FILES):
        part = draw_notes(shape, i * step, min(notes, (i + 1) * step), rng, has_masks)
        pq.write_table(part, note_files / f"{i}.parquet", row_group_size=-(-step // GROUPS))
    return Work(shape, subscriptions, notes, subscription_file, note_files)


def draw_masks(shape: Shape, rng: np.random.Generator) -> list[tuple[int, tuple[int, ...]]]:
    """Return distinct (event, attributes), evenly over the events."""
    masks: dict[tuple[int, tuple[int, ...]], None] = {}
    while len(masks) < shape.masks:
        width = int(rng.integers(shape.narrowest, WIDEST + 1))
        drawn = rng.choice(EVENT_ATTRIBUTES, width, replace=False)
        masks[int(rng.integers(EVENTS)), tuple(sorted(drawn.tolist()))] = None
    return list(masks)


def draw_subscriptions(shape: Shape, count: int, rng: np.random.Generator) -> pa.Table:
    """Return subscriptions whose masks follow a mild Zipf law, in force for a part of the day."""
    masks = draw_masks(shape, rng)
    share = 1 / np.arange(1, len(masks) + 1) ** 0.5
    chosen = rng.choice(len(masks), count, p=share / share.sum())
    events = np.array([event for event, _ in masks])[chosen]
    widths = np.array([len(names) for _, names in masks])[chosen]
    padded = np.array([names + (0,) * (WIDEST - len(names)) for _, names in masks])[chosen]
    features = np.array([sum(1 << name for name in names) for _, names in masks])[chosen]
    low = rng.integers(0, 256, (count, WIDEST))
    high = np.minimum(255, low + rng.geometric(1 / (shape.core + 1), low.shape) - 1)
    gamma = rng.integers(shape.steep, 256, low.shape)
    threshold = rng.integers(100, 230, count)
    begins = BEGIN + rng.integers(0, SPAN // 10, count)
    ends = begins + rng.integers(SPAN // 2, SPAN, count)
    vectors = _encode_subscriptions(events, features, widths, threshold, low, high, gamma)
    spread = np.vectorize(reach, otypes=[np.int64])(gamma, threshold[:, None], 0)
    first, last = np.maximum(low - spread, 0), np.minimum(high + spread, 255)
    is_there = np.arange(WIDEST) < widths[:, None]
    order = np.argsort(np.where(is_there, last - first, 999), axis=1, kind="stable")
    slope = np.minimum(SLOPE[gamma], STEEPEST)
    stems = {"a": padded, "first": first, "last": last, "low": low, "high": high, "slope": slope}
    sorted_ = {stem: np.take_along_axis(v, order, axis=1) for stem, v in stems.items()}
    columns: dict[str, Any] = {
        "subscription_id": rng.permutation(count).astype(np.int64) * 0x9E3779B97F4A7C1,
        "subscriber": [f"person{i % 997}" for i in range(count)],
        "begins": begins,
        "ends": ends,
        "language": np.zeros(count, np.int64),
        "vocabulary": pa.array([b"\x01" * 8] * count, pa.binary()),
        "vector": pa.array(vectors, pa.binary()),
        "event": events.astype(np.int32),
        "features": features.astype(np.int32),
        "width": widths.astype(np.int32),
    }
    packed = np.zeros_like(low)
    for shift, values in zip((0, 8, 16, 24, 32, 40), sorted_.values(), strict=True):
        packed |= values.astype(np.int64) << shift
    for i in range(WIDEST):
        columns |= {f"{stem}{i}": v[:, i].astype(np.int32) for stem, v in sorted_.items()}
        columns[f"word{i}"] = packed[:, i]
    second = np.where(widths > 1, 1, 0)  # a subscription to one attribute is its own second
    for stem in ("a", "first", "last"):
        chosen_ = sorted_[stem][np.arange(count), second]
        columns[f"{stem}_second"] = chosen_.astype(np.int32)
    lowest = np.argmin(np.where(is_there, padded, 99), axis=1)
    columns["first_lowest"] = first[np.arange(count), lowest].astype(np.int32)
    columns["last_lowest"] = last[np.arange(count), lowest].astype(np.int32)
    return pa.table(columns)


def _encode_subscriptions(
    events: Ints, features: Ints, widths: Ints, threshold: Ints, low: Ints, high: Ints, gamma: Ints
) -> list[bytes]:
    """Return plain subscription vectors; tests hold them against the protocol's encoder."""
    triples = np.stack((low, high, gamma), axis=2).astype(np.uint8)
    columns = (events, features, widths, threshold)
    rows = zip(*(column.tolist() for column in columns), triples, strict=True)
    return [
        bytes((0x40 | event, 0, 0, 0, least, 0, mask >> 8, mask & 255)) + triple[:width].tobytes()
        for event, mask, width, least, triple in rows
    ]


def draw_notes(
    shape: Shape, begin: int, end: int, rng: np.random.Generator, has_masks: bool
) -> pa.Table:
    """Return notifications of exact 8-bit values over one day, in no order of time."""
    count = end - begin
    events = rng.integers(0, EVENTS, count)
    carried = rng.integers(shape.fewest, shape.most + 1, count)
    ranks = np.argsort(rng.random((count, EVENT_ATTRIBUTES), np.float32), axis=1)
    present = np.zeros((count, EVENT_ATTRIBUTES), np.bool_)
    chosen = np.arange(EVENT_ATTRIBUTES) < carried[:, None]
    np.put_along_axis(present, ranks, chosen, axis=1)
    values = rng.integers(0, 256, (count, EVENT_ATTRIBUTES), np.uint8)
    features = (present << np.arange(EVENT_ATTRIBUTES)).sum(axis=1)
    numbers = np.arange(begin, end)
    head = np.zeros((count, 8), np.uint8)
    head[:, 0] = 0x80 | events
    head[:, 2] = numbers >> 8 & 255
    head[:, 3] = numbers & 255
    head[:, 6] = features >> 8
    head[:, 7] = features & 255
    frames = np.concatenate((head, values), axis=1)
    kept = np.concatenate((np.ones((count, 8), np.bool_), present), axis=1)
    ends = np.concatenate(([0], np.cumsum(8 + carried))).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(frames[kept])]
    # By attribute, null where there is none: what SQL indexes by position.
    full = pa.array(values.ravel().astype(np.int16), mask=~present.ravel())
    starts = np.arange(0, (count + 1) * EVENT_ATTRIBUTES, EVENT_ATTRIBUTES, dtype=np.int32)
    keys = (np.arange(EVENT_ATTRIBUTES) * 256 + values)[present].astype(np.int32)
    key_ends = np.concatenate(([0], np.cumsum(carried))).astype(np.int32)
    words = (values & -present.astype(np.uint8)).view(np.int64)
    columns: dict[str, Any] = {
        "notification_id": numbers.astype(np.int64) * 0x1E3779B97F4A7C1 + 11,
        "at": BEGIN + rng.integers(0, SPAN, count),
        "doubt": rng.integers(0, 2_000, count),
        "vocabulary": pa.array([b"\x01" * 8], pa.binary()).take(np.zeros(count, np.int32)),
        "vector": pa.Array.from_buffers(pa.binary(), count, buffers),
        "event": events.astype(np.int32),
        "features": features.astype(np.int32),
        "vals": pa.ListArray.from_arrays(starts, full),
        "keys": pa.ListArray.from_arrays(key_ends, keys),
        "values0": words[:, 0],
        "values1": words[:, 1],
    }
    if has_masks:
        columns["masks"] = _list_masks(events, present, values)
    return pa.table(columns)


def _list_masks(
    events: Ints, present: NDArray[np.bool_], values: NDArray[np.uint8]
) -> pa.ListArray:
    """Return, for each notification, the key of every mask that it has, up to the widest.

    A key is the event, the mask, and the cell (of 16 values) of the mask's lowest attribute.
    """
    found: list[Ints] = []
    for event, row, drawn in zip(events.tolist(), present, values.tolist(), strict=True):
        names = np.flatnonzero(row).tolist()
        keys = [
            (event << 16 | sum(1 << name for name in mask)) << 4 | drawn[mask[0]] >> 4
            for width in range(1, WIDEST + 1)
            for mask in combinations(names, width)
        ]
        found.append(np.array(keys, np.int64))
    ends = np.concatenate(([0], np.cumsum([len(keys) for keys in found]))).astype(np.int32)
    return pa.ListArray.from_arrays(ends, np.concatenate(found))
