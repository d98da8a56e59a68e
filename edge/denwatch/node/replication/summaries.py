"""The messages by which two nodes find out what the other lacks, as bytes. Pure.

The only file that lays out digest, summary, answer and completion (the table is in wire.py). An
entry is a run, the set of what was seen of it, and the set of what is dead; the second side to
speak of a run says only how its set differs from the first's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from denwatch.node.replication.context import Run
from denwatch.node.replication.sets import Cursor, Spans, decode_spans, encode_number, encode_spans
from denwatch.node.replication.wire import (
    GROUP,
    HASH,
    PRINT,
    SALT,
    TOKEN,
    decode_time,
    encode_run,
    encode_signed,
    encode_time,
    hash_name,
    take_run,
    take_signed,
)
from denwatch.protocol.errors import ProtocolError


@dataclass(frozen=True)
class Entry:
    """What one node knows of one run. On the link a run is an index, if it was named before."""

    run: Run | int
    seen: Spans
    dead: Spans


@dataclass(frozen=True)
class Change:
    """The same, as the difference to what the other side said."""

    differs: Spans
    dead: Spans


@dataclass(frozen=True)
class Summary:
    """What changed at the answering side since the other's acknowledgement `token`."""

    salt: bytes
    time: int
    token: bytes
    table: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Answer:
    """What the beginning side has to say to that, and what changed there."""

    time: int
    lag: int  # how much later than its time the summary came, by this side's clock
    token: bytes
    changes: tuple[Change, ...]
    table: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Completion:
    """What the answering side has to say to the answer's own entries."""

    time: int
    lag: int
    changes: tuple[Change, ...]


# Bodies -------------------------------------------------------------------------------------


def encode_digest(salt: bytes, fingerprint: bytes, time: int) -> bytes:
    """Return the body of a digest."""
    return salt + fingerprint + encode_time(time)


def decode_digest(body: bytes) -> tuple[bytes, bytes, int]:
    """Return salt, print and time."""
    cursor = Cursor(body)
    digest = cursor.take(SALT), cursor.take(PRINT), decode_time(cursor)
    cursor.finish()
    return digest


def encode_summary(summary: Summary) -> bytes:
    """Return the body of a summary."""
    head = summary.salt + encode_time(summary.time) + summary.token
    return head + encode_number(summary.table) + _encode_entries(summary.entries)


def decode_summary(body: bytes) -> Summary:
    """Return a summary."""
    cursor = Cursor(body)
    summary = Summary(
        cursor.take(SALT),
        decode_time(cursor),
        cursor.take(TOKEN),
        cursor.take_number(),
        _decode_entries(cursor),
    )
    cursor.finish()
    return summary


def encode_answer(answer: Answer) -> bytes:
    """Return the body of an answer."""
    head = encode_time(answer.time) + encode_signed(answer.lag) + answer.token
    tail = encode_number(answer.table) + _encode_entries(answer.entries)
    return head + _encode_changes(answer.changes) + tail


def decode_answer(body: bytes) -> Answer:
    """Return an answer."""
    cursor = Cursor(body)
    answer = Answer(
        decode_time(cursor),
        take_signed(cursor),
        cursor.take(TOKEN),
        _decode_changes(cursor),
        cursor.take_number(),
        _decode_entries(cursor),
    )
    cursor.finish()
    return answer


def encode_completion(completion: Completion) -> bytes:
    """Return the body of a completion."""
    head = encode_time(completion.time) + encode_signed(completion.lag)
    return head + _encode_changes(completion.changes)


def decode_completion(body: bytes) -> Completion:
    """Return a completion."""
    cursor = Cursor(body)
    completion = Completion(decode_time(cursor), take_signed(cursor), _decode_changes(cursor))
    cursor.finish()
    return completion


def encode_groups(hashes: list[bytes]) -> bytes:
    """Return the body that lists the hashes of groups."""
    return b"".join(hashes)


def decode_groups(body: bytes) -> list[bytes]:
    """Return the hashes of groups."""
    if not body or len(body) % GROUP or len(body) > 255 * GROUP:
        raise ProtocolError(f"groups of {len(body)} bytes")
    return [body[at : at + GROUP] for at in range(0, len(body), GROUP)]


def encode_pick(picked: frozenset[int], count: int) -> bytes:
    """Return the body that says which of so many groups differ."""
    return sum(1 << group for group in picked).to_bytes((count + 7) // 8, "little")


def decode_pick(body: bytes) -> frozenset[int]:
    """Return which groups differ."""
    if len(body) > 32:
        raise ProtocolError(f"a choice among {8 * len(body)} groups")
    bits = int.from_bytes(body, "little")
    return frozenset(group for group in range(8 * len(body)) if bits >> group & 1)


def encode_ask(names: Iterable[str]) -> bytes:
    """Return the body of a question about destinations."""
    return b"".join(hash_name(name) for name in names)


def decode_ask(body: bytes) -> list[bytes]:
    """Return the hashes of the destinations."""
    if len(body) % HASH:
        raise ProtocolError("a question with half a destination")
    return [body[at : at + HASH] for at in range(0, len(body), HASH)]


def encode_ack(count: int) -> bytes:
    """Return the body of an acknowledgement."""
    return encode_number(count)


def decode_ack(body: bytes) -> int:
    """Return how many items frames are committed."""
    cursor = Cursor(body)
    count = cursor.take_number()
    cursor.finish()
    return count


def _encode_entries(entries: Iterable[Entry]) -> bytes:
    """Known runs first, rising by index; each is the step from the one before, which is never 0."""
    out = []
    count = 0
    last = -1
    for entry in entries:
        count += 1
        if isinstance(entry.run, int):
            out.append(encode_number((entry.run - last) << 1 | bool(entry.dead)))
            last = entry.run
        else:
            out.append(encode_number(bool(entry.dead)) + encode_run(entry.run))
        out.append(encode_spans(entry.seen))
        if entry.dead:
            out.append(encode_spans(entry.dead))
    return encode_number(count) + b"".join(out)


def _decode_entries(cursor: Cursor) -> tuple[Entry, ...]:
    entries = []
    last = -1
    for _ in range(cursor.take_count(2)):
        head = cursor.take_number()
        run: Run | int
        if head >> 1:
            run = last = last + (head >> 1)
        else:
            run = take_run(cursor)
        seen = decode_spans(cursor)
        entries.append(Entry(run, seen, decode_spans(cursor) if head & 1 else ()))
    return tuple(entries)


def _encode_changes(changes: tuple[Change, ...]) -> bytes:
    """The count is known from what was said before, and only checked."""
    out = [encode_number(len(changes))]
    flags = 0
    for at, change in enumerate(changes):
        flags |= bool(change.dead) << at
        out.append(encode_spans(change.differs))
        if change.dead:
            out.append(encode_spans(change.dead))
    out.insert(1, flags.to_bytes((len(changes) + 7) // 8, "little"))
    return b"".join(out)


def _decode_changes(cursor: Cursor) -> tuple[Change, ...]:
    count = cursor.take_count()
    flags = int.from_bytes(cursor.take((count + 7) // 8), "little")
    if flags >> count:
        raise ProtocolError("dead sets of entries that are not there")
    return tuple(
        Change(decode_spans(cursor), decode_spans(cursor) if flags >> at & 1 else ())
        for at in range(count)
    )
