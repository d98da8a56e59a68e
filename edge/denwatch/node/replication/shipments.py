"""Items on their way between two nodes, as bytes. Pure; the only file that lays out items frames.

A frame of items is one transaction at its receiver, and small enough to get through a short
contact. It names the runs it speaks of once, and tells what the sender knows of their clocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from denwatch.node.core.items import KINDS, MAX_BODY, Dot, Item
from denwatch.node.replication.context import Run
from denwatch.node.replication.sets import (
    MAX_VALUE,
    Cursor,
    Spans,
    decode_spans,
    encode_number,
    encode_spans,
)
from denwatch.node.replication.wire import encode_run, encode_signed, take_run, take_signed
from denwatch.protocol.errors import ProtocolError

_MAX_SIGNATURE = 128


@dataclass(frozen=True)
class Parcel:
    """An item on its way, with what travels beside it and is not signed."""

    item: Item
    copies: int  # how many the receiver may pass on; 0 for no limit
    hops: int


@dataclass(frozen=True)
class Shipment:
    """One items frame: one transaction at the receiver."""

    dead: tuple[tuple[Run, Spans], ...]
    clocks: tuple[tuple[Run, int, int], ...]  # offset of the sender's clock to the run's, bound
    parcels: tuple[Parcel, ...]


def encode_parcel(parcel: Parcel, run: int) -> bytes:
    """Return one item of an items frame whose run is the n-th of that frame."""
    item = parcel.item
    return b"".join(
        (
            encode_number(run),
            encode_number(item.dot.sequence),
            bytes([item.kind]),
            encode_number(item.expires),
            encode_number(parcel.copies),
            encode_number(parcel.hops),
            encode_number(len(item.body)),
            item.body,
            encode_number(len(item.signature)),
            item.signature,
        )
    )


def encode_shipment(shipment: Shipment) -> bytes:
    """Return the body of an items frame."""
    runs: dict[Run, int] = {}
    for run, _ in shipment.dead:
        runs.setdefault(run, len(runs))
    for run, _, _ in shipment.clocks:
        runs.setdefault(run, len(runs))
    for parcel in shipment.parcels:
        runs.setdefault((parcel.item.dot.origin, parcel.item.dot.epoch), len(runs))
    out = [encode_number(len(runs)), *(encode_run(run) for run in runs)]
    out.append(encode_number(len(shipment.dead)))
    for run, spans in shipment.dead:
        out += encode_number(runs[run]), encode_spans(spans)
    out.append(encode_number(len(shipment.clocks)))
    for run, offset, bound in shipment.clocks:
        out += encode_number(runs[run]), encode_signed(offset), encode_number(bound)
    out.append(encode_number(len(shipment.parcels)))
    for parcel in shipment.parcels:
        out.append(encode_parcel(parcel, runs[parcel.item.dot.origin, parcel.item.dot.epoch]))
    return b"".join(out)


def decode_shipment(body: bytes) -> Shipment:
    """Return what is in an items frame."""
    cursor = Cursor(body)
    runs = [take_run(cursor) for _ in range(cursor.take_count(2))]
    dead = [(_pick(runs, cursor), decode_spans(cursor)) for _ in range(cursor.take_count(2))]
    clocks = [
        (_pick(runs, cursor), take_signed(cursor), cursor.take_number())
        for _ in range(cursor.take_count(3))
    ]
    parcels = [_take_parcel(runs, cursor) for _ in range(cursor.take_count(8))]
    cursor.finish()
    return Shipment(tuple(dead), tuple(clocks), tuple(parcels))


def _pick(runs: list[Run], cursor: Cursor) -> Run:
    at = cursor.take_number()
    if at >= len(runs):
        raise ProtocolError(f"run {at} of {len(runs)}")
    return runs[at]


def _take_parcel(runs: list[Run], cursor: Cursor) -> Parcel:
    run = _pick(runs, cursor)
    sequence = cursor.take_number()
    kind = cursor.take(1)[0]
    expires, copies, hops = cursor.take_number(), cursor.take_number(), cursor.take_number()
    body = cursor.take(cursor.take_count())
    signature = cursor.take(cursor.take_count())
    if not 0 < sequence <= MAX_VALUE or kind not in KINDS:
        raise ProtocolError(f"an item of kind {kind} with the sequence {sequence}")
    if len(body) > MAX_BODY or len(signature) > _MAX_SIGNATURE:
        raise ProtocolError("an item that is too long")
    return Parcel(Item(Dot(*run, sequence), kind, expires, body, signature), copies, hops)
