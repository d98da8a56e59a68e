"""What an operator sends a node: items as their origins signed them, or a plan. Pure.

CBOR, deterministic: `["items", [[origin, epoch, sequence, kind, expires, body, signature], …]]` or
`["plan", strategy, why, at]`. An item says nothing that its signature does not cover, so the node
needs to trust the operator with nothing but the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import cbor2
from denwatch.node.core.items import KINDS, MAX_BODY, Dot, Item
from denwatch.protocol.errors import ProtocolError

ITEMS, PLAN = "items", "plan"
MAX_ITEMS = 1_000  # of one frame
_TYPES = (str, int, int, int, int, bytes, bytes)
_LONGEST = 2_000  # characters of a plan's texts


@dataclass(frozen=True)
class Plan:
    """What an operator recommends: a strategy with its copies, why, and as of when (ms)."""

    strategy: str
    why: str
    at: int


def encode_items(items: Iterable[Item]) -> bytes:
    """Return a frame of items."""
    rows = [[*item.dot, item.kind, item.expires, item.body, item.signature] for item in items]
    return cbor2.dumps([ITEMS, rows], canonical=True)


def encode_plan(plan: Plan) -> bytes:
    """Return a frame with a plan; also how a plan is stored."""
    return cbor2.dumps([PLAN, plan.strategy, plan.why, plan.at], canonical=True)


def decode_frame(data: bytes) -> list[Item] | Plan:
    """Return what a frame holds; ProtocolError if it is none."""
    try:
        values = cbor2.loads(data)
    except (cbor2.CBORDecodeError, ValueError, TypeError) as error:
        raise ProtocolError(f"a frame that is no CBOR: {error}") from None
    match values:
        case ["items", list(rows)] if 0 < len(rows) <= MAX_ITEMS:
            return [_read_item(row) for row in rows]
        case ["plan", str(strategy), str(why), int(at)] if not isinstance(at, bool):
            if max(len(strategy), len(why)) > _LONGEST:
                raise ProtocolError(f"a plan with more than {_LONGEST} characters")
            return Plan(strategy, why, at)
    raise ProtocolError("a frame has items or a plan")


def _read_item(row: object) -> Item:
    if not isinstance(row, list) or tuple(map(type, row)) != _TYPES:
        raise ProtocolError("an item is [origin, epoch, sequence, kind, expires, body, signature]")
    origin, epoch, sequence, kind, expires, body, signature = row
    numbers = epoch < 1 << 32 and sequence < 1 << 63 and expires < 1 << 63
    if not numbers or min(epoch, sequence, expires) < 0 or not 0 < len(origin.encode()) < 256:
        raise ProtocolError("an item whose dot or end cannot be")
    if kind not in KINDS or len(body) > MAX_BODY:
        raise ProtocolError("an item of a kind or a length that there is not")
    return Item(Dot(origin, epoch, sequence), kind, expires, body, signature)
