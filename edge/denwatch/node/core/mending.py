"""What follows when values are missing that changed on the disk by themselves.

A store puts such values into the space `damaged` and goes on without them. Some of them are only
missed (a retained message, a preference). But what a node has *seen* and does not *hold* it calls
dead, and tells others so: an item that is lost must therefore be forgotten as well. Then a peer
that has it sends it again.

RULES
  an item whose key is right          its dot counts as not seen;
  a run of the context                what is held of it counts as seen, nothing else;
  an item or run whose key is wrong   the same for all runs: anything may be missing;
  any of these, or a row of `peer.`   what peers acknowledged is forgotten: the next exchange with
                                      each compares everything;
  who waits for a notification        all subscriptions are matched again with what is held.

WHY ENOUGH  Too little counts as seen, never too much: what comes again is recognised by receipts
            and by apps, what would be skipped would be lost. Pure: rows in, changes out.

An item that was accepted and at which a tick fails later is set aside into the same space. Its dot
stays seen, so that no peer sends it again, and is spared, so that nobody is told that it is dead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from denwatch.node.core.events import Reader, Write
from denwatch.node.core.item_store import CONTEXT, SPACES, Removed
from denwatch.node.core.items import KINDS, SUBSCRIPTION, Dot, Item, read_dot
from denwatch.node.core.notifications import Notification
from denwatch.node.core.peers.knowledge import RECORDS, SPARED, TABLES, VERSIONS, WITHHELD
from denwatch.node.core.pending import LATE, ROWS
from denwatch.node.core.subscriptions import Subscription, make_id_key
from denwatch.node.replication.dot_sets import (
    EMPTY,
    MAX_SPAN,
    Run,
    Spans,
    build_range,
    build_spans,
    decode_range,
    list_spans,
    subtract,
    unite,
)

DAMAGED = "damaged"  # space, 0, key: whether it was mended and its key was right, time, bytes
_KEEP = 30 * 24 * 3_600_000  # ms that a damaged value is kept
_FRESH, _MENDED = b"\0", b"\1"
_NAMES = {space: kind for kind, space in SPACES.items()}
_PEERS = (RECORDS, TABLES, WITHHELD, VERSIONS)


class DamagedValue(NamedTuple):
    """A value in quarantine."""

    space: str
    key: bytes
    is_key_right: bool
    size: int

    def __str__(self) -> str:
        where = self.key.hex() if self.is_key_right else f"a key like {self.key.hex() or 'any'}"
        return f"{self.space} at {where}, {self.size} bytes"


def write_row(space: str, key: bytes, stored: bytes, *, is_key_right: bool) -> tuple[bytes, bytes]:
    """Return key and value of the row in quarantine for a damaged value."""
    head = _FRESH + bytes([is_key_right]) + bytes(8)
    return space.encode() + b"\0" + key, head + stored


def list_damage(reader: Reader, *, is_fresh: bool = False) -> Iterator[DamagedValue]:
    """Yield what is in quarantine, all or what is not mended yet."""
    for name, value in reader.scan(DAMAGED):
        if not is_fresh or value[:1] == _FRESH:
            space, _, key = name.partition(b"\0")
            yield DamagedValue(space.decode(), key, value[1] == 1, len(value) - 10)


def mend_damage(reader: Reader, now: int) -> list[Write]:
    """Return the changes that let a core go on from what is left; [] if nothing is missing."""
    changes = []
    for name, value in reader.scan(DAMAGED):
        if value[:1] == _FRESH:
            kept = _MENDED + value[1:2] + max(now, 0).to_bytes(8, "big") + value[10:]
            changes.append(Write(DAMAGED, name, kept))
        elif now - int.from_bytes(value[2:10], "big") > _KEEP:
            changes.append(Write(DAMAGED, name, None))
    damage = list(list_damage(reader, is_fresh=True))
    concerned = [each for each in damage if each.space in _NAMES or each.space == CONTEXT]
    if concerned:
        changes += _forget_seen(reader, concerned)
    if concerned or any(each.space in _PEERS for each in damage):
        changes += _forget_peers(reader)
    if any(each.space == ROWS for each in damage):
        for key, _ in reader.scan(SPACES[SUBSCRIPTION]):
            changes.append(Write(LATE, make_id_key(read_dot(key).id), b""))
    return changes


def find_culprit(error: BaseException, reader: Reader) -> tuple[int, Dot] | None:
    """Return kind and dot of the item that the core was at when it failed, if that can be found.

    It is the one stored item that the innermost function with exactly one was about.
    """
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if "denwatch" in trace.tb_frame.f_code.co_filename:
            frames.append(trace.tb_frame)
        trace = trace.tb_next
    for frame in reversed(frames):
        found = {
            (kind, dot)
            for dot in {_find_dot(value) for value in frame.f_locals.values()} - {None}
            for kind in KINDS
            if dot is not None and reader.get(SPACES[kind], dot.key) is not None
        }
        if len(found) == 1:
            return found.pop()
    return None


def _find_dot(value: object) -> Dot | None:
    if isinstance(value, Dot):
        return value
    if isinstance(value, Item | Notification):
        return value.dot
    if isinstance(value, Subscription):
        return Dot(*value.run, value.sequence)
    return value.item.dot if isinstance(value, Removed) else None


def set_aside(reader: Reader, kind: int, dot: Dot, now: int) -> list[Write]:
    """Return the changes that put an item into quarantine, for a core that is built after them."""
    space = SPACES[kind]
    stored = reader.get(space, dot.key)
    if stored is None:
        return []
    name, value = write_row(space, dot.key, stored, is_key_right=True)
    kept = _MENDED + value[1:2] + max(now, 0).to_bytes(8, "big") + stored
    end = max(now + _KEEP, 0).to_bytes(8, "big")
    return [
        Write(DAMAGED, name, kept),
        Write(space, dot.key, None),
        Write(SPARED, dot.key, end),
    ]


def _forget_seen(reader: Reader, damage: list[DamagedValue]) -> list[Write]:
    """Let too little count as seen rather than too much."""
    kept: dict[Run, set[int]] = {}
    for space in (*_NAMES, SPARED):
        for key, _ in reader.scan(space):
            dot = read_dot(key)
            kept.setdefault(dot.run, set()).add(dot.sequence)
    seen = {read_dot(key).run: decode_range(value) for key, value in reader.scan(CONTEXT)}
    new: dict[Run, Spans] = {}
    for each in damage:
        if not each.is_key_right:
            new = {run: build_spans(sorted(kept.get(run, ()))) for run in {*seen, *kept}}
            break
        dot = read_dot(each.key)
        if each.space == CONTEXT:
            new[dot.run] = build_spans(sorted(kept.get(dot.run, ())))
        else:
            lost = ((dot.sequence, dot.sequence),)
            before = new.get(dot.run, list_spans(seen.get(dot.run, EMPTY)))
            new[dot.run] = subtract(before, lost)
    return [
        Write(CONTEXT, Dot(*run, 0).key, _encode_seen(spans) if spans else None)
        for run, spans in new.items()
    ]


def _encode_seen(spans: Spans) -> bytes:
    far = spans[-1][1] - MAX_SPAN  # what is so old comes from nobody any more
    return build_range(unite(((1, far),), spans) if far > 0 else spans).encode()


def _forget_peers(reader: Reader) -> list[Write]:
    """Forget what peers acknowledged, and let every run be news."""
    changes = [Write(space, key, None) for space in _PEERS for key, _ in reader.scan(space)]
    runs = {key[:-8] for space in (CONTEXT, *_NAMES) for key, _ in reader.scan(space)}
    first = (1).to_bytes(8, "big")
    return [*changes, *(Write(VERSIONS, run + bytes(8), first) for run in sorted(runs))]
