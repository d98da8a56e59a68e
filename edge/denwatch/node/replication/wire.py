"""Every message between two nodes as bytes, and its tag. Pure.

The only file that knows the layout. A frame is a head (kind and flags, two bytes that hint at the
sender's name, the frame's number in its exchange), a body and a tag. The tag covers both names and
their direction, and the salts that both sides chose for this exchange: a frame cannot be turned
around, passed to a third node, or used in another exchange. The two frames of a contact without
news have tags of 8 bytes (HMAC 256/64, as on the radio), all others of 16.

| kind | from | body |
|---|---|---|
| digest | who begins | salt 8, fingerprint 16, time 6 |
| equal | the other | time 6 |
| groups | the other | 6 bytes for each group of runs |
| pick | who begins | one bit for each group: it differs |
| summary | the other | salt 8, time 6, token 4, table length, entries |
| answer | who begins | time 6, lag, token 4, differences to the entries, table length, entries |
| completion | the other | time 6, lag, differences to the answer's entries |
| items | both | dead sets, clocks, items |
| ack | both | how many items frames are committed |
| reset | the other | nothing: begin again, in full |
| ask, tell | both | destinations (2-byte hashes); reach 2, one byte for each destination |
| ask, tell, with the flag | both | reach 2, hash of a list of nodes 4, one byte for each; even |

An *entry* is a run, the set of what was seen of it, and the set of what is dead. The second side
to speak of a run sends only how its set differs from the first's, which is mostly nothing: one
byte. A run that was named in an earlier exchange is a number (its place in the *table* that both
sides keep) instead of a name. README.md shows an exchange byte by byte.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import cbor2
from denwatch.node.core.items import Dot, Item, check_item, check_run
from denwatch.node.replication.dot_sets import (
    FINGERPRINT,
    GROUP,
    SALT,
    FrameReader,
    Run,
    Spans,
    decode_spans,
    encode_number,
    encode_spans,
)
from denwatch.protocol.errors import ProtocolError

DIGEST, EQUAL, SUMMARY, ANSWER, COMPLETION, ITEMS, ACK, RESET = range(1, 9)
ASK, TELL, GROUPS, PICK = range(9, 13)
NAMES = {
    DIGEST: "digest",
    EQUAL: "equal",
    SUMMARY: "summary",
    ANSWER: "answer",
    COMPLETION: "completion",
    ITEMS: "items",
    ACK: "ack",
    RESET: "reset",
    ASK: "ask",
    TELL: "tell",
    GROUPS: "groups",
    PICK: "pick",
}
FLAG = 0x80  # digest: in full; items: the last of this exchange; ask, tell: with ways
TOKEN = 4  # bytes, as all below
NO_TOKEN = bytes(TOKEN)
PEER_TAG = 16
SHORT_TAG = 8
_TIME = 6
_HINT = 2
DESTINATION_HASH = 2
_WAYS_HEAD = 6
_UNNUMBERED = (DIGEST, EQUAL)
MAX_ASKED = 1_024  # destinations in one question
_MAX_COPIES = 0xFFFF
_MAX_LAG = 1 << 50  # ms; more than any clock shows


@lru_cache(maxsize=4096)
def hint_at(name: str) -> bytes:
    """Return two bytes that distinguish most names, for links that do not name the sender."""
    return hashlib.blake2b(name.encode(), digest_size=_HINT).digest()


def hash_name(name: str) -> bytes:
    """Return two bytes that stand for a destination in a question: a mix-up costs a bad guess."""
    return hashlib.blake2b(
        name.encode(), digest_size=DESTINATION_HASH, person=b"destination"
    ).digest()


def derive_token(salts: bytes, sender: str) -> bytes:
    """Return the name of one side's state at the end of an exchange."""
    return hashlib.blake2b(salts + sender.encode(), digest_size=TOKEN, person=b"token").digest()


def tag_peer(secret: bytes, sender: str, receiver: str, head: bytes, body: bytes) -> bytes:
    """Return the tag of a frame from one node to another."""
    # Names and bytes have one encoding in CBOR, so that the plain encoder gives the canonical one.
    covered = cbor2.dumps(["denwatch peer", sender, receiver, head])
    # The body is behind a part that says its own length, so no byte can change sides.
    return hmac.digest(secret, covered + body, "sha256")[:PEER_TAG]


class PeerFrame(NamedTuple):
    """A frame whose tag is not yet checked."""

    kind: int
    is_flagged: bool
    hint: bytes
    number: int
    head: bytes
    body: bytes
    tag: bytes

    def is_from(self, secrets: Iterable[bytes], sender: str, receiver: str, salts: bytes) -> bool:
        """Return whether the tag is right, under any of two nodes' secrets."""
        right = False
        for secret in secrets:
            tag = tag_peer(secret, sender, receiver, salts + self.head, self.body)
            right |= hmac.compare_digest(tag[: len(self.tag)], self.tag)
        return right


def seal(
    secret: bytes,
    sender: str,
    receiver: str,
    salts: bytes,
    kind: int,
    number: int,
    body: bytes,
    *,
    is_flagged: bool = False,
) -> bytes:
    """Return a frame with its tag."""
    head = bytes([kind | (FLAG if is_flagged else 0)]) + hint_at(sender)
    if kind not in _UNNUMBERED:
        head += encode_number(number)
    tag = tag_peer(secret, sender, receiver, salts + head, body)
    return head + body + tag[: _measure_tag(kind)]


def read_frame(data: bytes, limit: int) -> PeerFrame:
    """Return a frame, taken apart; ProtocolError if the bytes are none."""
    if len(data) > limit:
        raise ProtocolError(f"a frame of {len(data)} bytes, {limit} are allowed")
    reader = FrameReader(data)
    first = reader.take(1)[0]
    kind = first & ~FLAG
    if kind not in NAMES:
        raise ProtocolError(f"no frame has the kind {kind}", 0)
    hint = reader.take(_HINT)
    number = 0 if kind in _UNNUMBERED else reader.take_number()
    end = len(data) - _measure_tag(kind)
    if end < reader.at:
        raise ProtocolError("a frame without a tag")
    return PeerFrame(
        kind, first >= FLAG, hint, number, data[: reader.at], data[reader.at : end], data[end:]
    )


def _measure_tag(kind: int) -> int:
    return SHORT_TAG if kind in _UNNUMBERED else PEER_TAG


# Numbers, runs, times ------------------------------------------------------------------------


def encode_signed(number: int) -> bytes:
    """Return a number with its sign in the lowest bit: 0, -1, 1, -2 are 0, 1, 2, 3."""
    return encode_number(number << 1 if number >= 0 else (-number << 1) - 1)


def take_signed(reader: FrameReader) -> int:
    """Return the next number of `encode_signed`."""
    number = reader.take_number()
    return -(number + 1 >> 1) if number & 1 else number >> 1


def encode_run(run: Run) -> bytes:
    """Return a run as the length of its name, the name, the epoch."""
    name = run[0].encode()
    return encode_number(len(name)) + name + encode_number(run[1])


def take_run(reader: FrameReader) -> Run:
    """Return the next run; ProtocolError if no node can have that name."""
    try:
        name = reader.take(reader.take_count()).decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"a name that is no text, before byte {reader.at}") from None
    epoch = reader.take_number()
    fault = check_run(name, epoch)
    if fault:
        raise ProtocolError(fault)
    return name, epoch


def encode_time(time: int) -> bytes:
    """Return a time in ms as six bytes."""
    return min(max(time, 0), (1 << 48) - 1).to_bytes(_TIME, "big")


def decode_time(reader: FrameReader) -> int:
    """Return the next time."""
    return int.from_bytes(reader.take(_TIME), "big")


def _take_lag(reader: FrameReader) -> int:
    lag = take_signed(reader)
    if abs(lag) > _MAX_LAG:
        raise ProtocolError(f"lag: {lag} ms are more than any clock shows")
    return lag


# What each side knows: digest, groups, summary, answer, completion ---------------------------


@dataclass(frozen=True)
class SummaryEntry:
    """What one node knows of one run, which is a number if it was named before."""

    run: Run | int
    seen: Spans
    dead: Spans


@dataclass(frozen=True)
class EntryDifference:
    """How one node's entry differs from the entry that the other side sent."""

    differs: Spans
    dead: Spans


@dataclass(frozen=True)
class Summary:
    """What changed at the answering side since the other's acknowledgement `token`."""

    salt: bytes
    time: int
    token: bytes
    table: int
    entries: tuple[SummaryEntry, ...]


@dataclass(frozen=True)
class Answer:
    """How the beginning side differs from the summary, and what changed there."""

    time: int
    lag: int  # how much later than its time the summary came, by this side's clock
    token: bytes
    differences: tuple[EntryDifference, ...]
    table: int
    entries: tuple[SummaryEntry, ...]


@dataclass(frozen=True)
class SummaryCompletion:
    """How the answering side differs from the answer's own entries."""

    time: int
    lag: int
    differences: tuple[EntryDifference, ...]


def encode_digest(salt: bytes, fingerprint: bytes, time: int) -> bytes:
    """Return the body of a digest."""
    return salt + fingerprint + encode_time(time)


def decode_digest(body: bytes) -> tuple[bytes, bytes, int]:
    """Return salt, fingerprint and time."""
    reader = FrameReader(body)
    digest = reader.take(SALT), reader.take(FINGERPRINT), decode_time(reader)
    reader.finish()
    return digest


def encode_summary(summary: Summary) -> bytes:
    """Return the body of a summary."""
    head = summary.salt + encode_time(summary.time) + summary.token
    return head + encode_number(summary.table) + _encode_entries(summary.entries)


def decode_summary(body: bytes) -> Summary:
    """Return a summary."""
    reader = FrameReader(body)
    summary = Summary(
        reader.take(SALT),
        decode_time(reader),
        reader.take(TOKEN),
        reader.take_number(),
        _decode_entries(reader),
    )
    reader.finish()
    return summary


def encode_answer(answer: Answer) -> bytes:
    """Return the body of an answer."""
    head = encode_time(answer.time) + encode_signed(answer.lag) + answer.token
    tail = encode_number(answer.table) + _encode_entries(answer.entries)
    return head + _encode_differences(answer.differences) + tail


def decode_answer(body: bytes) -> Answer:
    """Return an answer."""
    reader = FrameReader(body)
    answer = Answer(
        decode_time(reader),
        _take_lag(reader),
        reader.take(TOKEN),
        _decode_differences(reader),
        reader.take_number(),
        _decode_entries(reader),
    )
    reader.finish()
    return answer


def encode_completion(completion: SummaryCompletion) -> bytes:
    """Return the body of a completion."""
    head = encode_time(completion.time) + encode_signed(completion.lag)
    return head + _encode_differences(completion.differences)


def decode_completion(body: bytes) -> SummaryCompletion:
    """Return a completion."""
    reader = FrameReader(body)
    completion = SummaryCompletion(
        decode_time(reader), _take_lag(reader), _decode_differences(reader)
    )
    reader.finish()
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
    if len(body) % DESTINATION_HASH or len(body) > MAX_ASKED * DESTINATION_HASH:
        raise ProtocolError(f"a question of {len(body)} bytes")
    return [body[at : at + DESTINATION_HASH] for at in range(0, len(body), DESTINATION_HASH)]


class Ways(NamedTuple):
    """How many nodes one side meets, and how soon it may be at each of a list of nodes."""

    reach: int  # below 65,536
    told: bytes  # one for each node


def encode_ways(ways: Ways, nodes: Sequence[str]) -> bytes:
    """Return the body of a question or an answer that tells ways.

    Of even length: a node that knows nothing of ways reads a question about unknown destinations.
    """
    body = ways.reach.to_bytes(2, "big") + _hash_list(nodes) + ways.told
    return body + bytes(len(body) % 2)


def decode_ways(body: bytes, nodes: Sequence[str]) -> Ways | None:
    """Return what a peer told of a list of nodes; None if it speaks of another list."""
    told = body[_WAYS_HEAD : _WAYS_HEAD + len(nodes)]
    if body[2:_WAYS_HEAD] != _hash_list(nodes):
        return None
    if len(told) != len(nodes) or len(body) != _WAYS_HEAD + len(nodes) + len(nodes) % 2:
        raise ProtocolError(f"ways of {len(body)} bytes to {len(nodes)} nodes")
    return Ways(int.from_bytes(body[:2], "big"), told)


def _hash_list(nodes: Sequence[str]) -> bytes:
    listed = "\n".join(nodes).encode()
    return hashlib.blake2b(listed, digest_size=4, person=b"destinations").digest()


def encode_ack(count: int) -> bytes:
    """Return the body of an acknowledgement."""
    return encode_number(count)


def decode_ack(body: bytes) -> int:
    """Return how many items frames are committed."""
    reader = FrameReader(body)
    count = reader.take_number()
    reader.finish()
    return count


def _encode_entries(entries: Iterable[SummaryEntry]) -> bytes:
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


def _decode_entries(reader: FrameReader) -> tuple[SummaryEntry, ...]:
    entries = []
    last = -1
    for _ in range(reader.take_count(2)):
        head = reader.take_number()
        run: Run | int
        if head >> 1:
            run = last = last + (head >> 1)
        else:
            run = take_run(reader)
        seen = decode_spans(reader)
        entries.append(SummaryEntry(run, seen, decode_spans(reader) if head & 1 else ()))
    return tuple(entries)


def _encode_differences(differences: tuple[EntryDifference, ...]) -> bytes:
    """The count is known from what was said before, and only checked."""
    out = [encode_number(len(differences))]
    flags = 0
    for at, difference in enumerate(differences):
        flags |= bool(difference.dead) << at
        out.append(encode_spans(difference.differs))
        if difference.dead:
            out.append(encode_spans(difference.dead))
    out.insert(1, flags.to_bytes((len(differences) + 7) // 8, "little"))
    return b"".join(out)


def _decode_differences(reader: FrameReader) -> tuple[EntryDifference, ...]:
    count = reader.take_count()
    flags = int.from_bytes(reader.take((count + 7) // 8), "little")
    if flags >> count:
        raise ProtocolError("dead sets of entries that are not there")
    return tuple(
        EntryDifference(decode_spans(reader), decode_spans(reader) if flags >> at & 1 else ())
        for at in range(count)
    )


# Items frames --------------------------------------------------------------------------------
#
# An items frame is one transaction at its receiver, and small enough to get through a short
# contact. It names the runs it speaks of once, and says what the sender knows of their clocks.


@dataclass(frozen=True)
class SentItem:
    """An item in a frame, with what is sent beside it and is not signed."""

    item: Item
    copies: int  # how many the receiver may pass on; 0 for no limit
    hops: int


@dataclass(frozen=True)
class ItemBatch:
    """One items frame: one transaction at the receiver."""

    dead: tuple[tuple[Run, Spans], ...]
    clocks: tuple[tuple[Run, int, int], ...]  # offset of the sender's clock to the run's, bound
    items: tuple[SentItem, ...]


def encode_sent_item(sent: SentItem, run: int) -> bytes:
    """Return one item of an items frame whose run is the n-th of that frame."""
    item = sent.item
    return b"".join(
        (
            encode_number(run),
            encode_number(item.dot.sequence),
            bytes([item.kind]),
            encode_number(item.expires),
            encode_number(sent.copies),
            encode_number(sent.hops),
            encode_number(len(item.body)),
            item.body,
            encode_number(len(item.signature)),
            item.signature,
        )
    )


def encode_item_batch(batch: ItemBatch) -> bytes:
    """Return the body of an items frame."""
    runs: dict[Run, int] = {}
    for run, _ in batch.dead:
        runs.setdefault(run, len(runs))
    for run, _, _ in batch.clocks:
        runs.setdefault(run, len(runs))
    for sent in batch.items:
        runs.setdefault(sent.item.dot.run, len(runs))
    out = [encode_number(len(runs)), *(encode_run(run) for run in runs)]
    out.append(encode_number(len(batch.dead)))
    for run, spans in batch.dead:
        out += encode_number(runs[run]), encode_spans(spans)
    out.append(encode_number(len(batch.clocks)))
    for run, offset, bound in batch.clocks:
        out += encode_number(runs[run]), encode_signed(offset), encode_number(bound)
    out.append(encode_number(len(batch.items)))
    for sent in batch.items:
        out.append(encode_sent_item(sent, runs[sent.item.dot.run]))
    return b"".join(out)


def decode_item_batch(body: bytes) -> ItemBatch:
    """Return what is in an items frame."""
    reader = FrameReader(body)
    runs = [take_run(reader) for _ in range(reader.take_count(2))]
    dead = [(_pick(runs, reader), decode_spans(reader)) for _ in range(reader.take_count(2))]
    clocks = [
        (_pick(runs, reader), take_signed(reader), reader.take_number())
        for _ in range(reader.take_count(3))
    ]
    items = [_take_sent_item(runs, reader) for _ in range(reader.take_count(8))]
    reader.finish()
    return ItemBatch(tuple(dead), tuple(clocks), tuple(items))


def _pick(runs: list[Run], reader: FrameReader) -> Run:
    at = reader.take_number()
    if at >= len(runs):
        raise ProtocolError(f"run {at} of {len(runs)}")
    return runs[at]


def _take_sent_item(runs: list[Run], reader: FrameReader) -> SentItem:
    run = _pick(runs, reader)
    sequence = reader.take_number()
    kind = reader.take(1)[0]
    expires, copies, hops = reader.take_number(), reader.take_number(), reader.take_number()
    body = reader.take(reader.take_count())
    signature = reader.take(reader.take_count())
    item = Item(Dot(*run, sequence), kind, expires, body, signature)
    fault = check_item(item)
    if fault or max(copies, hops) > _MAX_COPIES:
        raise ProtocolError(fault or f"there are no {max(copies, hops)} copies or hops")
    return SentItem(item, copies, hops)
