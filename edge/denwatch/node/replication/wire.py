"""Frames between nodes: how each message of an exchange looks as bytes, and its tag.

The only file that knows the layout. A frame is a head (kind and flags, two bytes that hint at the
sender's name, the frame's number in its exchange), a body and a tag. The tag covers both names and
their direction, and the salts that both sides chose for this exchange: a frame cannot be turned
around, handed to a third node, or used in another exchange. The two frames of a contact without
news have tags of 8 bytes (HMAC 256/64, as on the radio), all others of 16.

| kind | from | body |
|---|---|---|
| digest | who begins | salt 8, print 16, time 6 |
| equal | the other | time 6 |
| groups | the other | 6 bytes a group of runs |
| pick | who begins | a bit a group: it differs |
| summary | the other | salt 8, time 6, token 4, table length, entries |
| answer | who begins | time 6, lag, token 4, differences to the entries, table length, entries |
| completion | the other | time 6, lag, differences to the answer's entries |
| items | both | dead sets, clocks, items |
| ack | both | how many items frames are committed |
| reset | the other | nothing: begin again, in full |
| ask, tell | both | destinations (2-byte hashes); reach 2, one byte for each |
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from denwatch.node.replication.context import Run
from denwatch.node.replication.sets import Cursor, encode_number
from denwatch.node.security.cards import PEER_TAG, tag_peer
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
FLAG = 0x80  # digest: in full; items: the last of this exchange
SALT = 8
PRINT = 16
TOKEN = 4
NO_TOKEN = bytes(TOKEN)
SHORT_TAG = 8
_TIME = 6
_HINT = 2
HASH = 2
GROUP = 6
_UNNUMBERED = (DIGEST, EQUAL)
MAX_NAME = 64
_MAX_EPOCH = (1 << 32) - 1
_NO_NAME = frozenset("/+#\0")


@lru_cache(maxsize=4096)
def hint_at(name: str) -> bytes:
    """Return two bytes that tell most names apart, for links that do not name the sender."""
    return hashlib.blake2b(name.encode(), digest_size=_HINT).digest()


def hash_name(name: str) -> bytes:
    """Return two bytes that stand for a destination in a question: a mix-up costs a bad guess."""
    return hashlib.blake2b(name.encode(), digest_size=HASH, person=b"destination").digest()


def derive_token(salts: bytes, sender: str) -> bytes:
    """Return what stands for one side's state at the end of an exchange."""
    return hashlib.blake2b(salts + sender.encode(), digest_size=TOKEN, person=b"token").digest()


class Frame(NamedTuple):
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


def read_frame(data: bytes, limit: int) -> Frame:
    """Return the parts of a frame; ProtocolError if it can be none."""
    if len(data) > limit:
        raise ProtocolError(f"a frame of {len(data)} bytes, {limit} are allowed")
    cursor = Cursor(data)
    first = cursor.take(1)[0]
    kind = first & ~FLAG
    if kind not in NAMES:
        raise ProtocolError(f"no frame has the kind {kind}", 0)
    hint = cursor.take(_HINT)
    number = 0 if kind in _UNNUMBERED else cursor.take_number()
    end = len(data) - _measure_tag(kind)
    if end < cursor.at:
        raise ProtocolError("a frame without a tag")
    return Frame(
        kind, first >= FLAG, hint, number, data[: cursor.at], data[cursor.at : end], data[end:]
    )


def _measure_tag(kind: int) -> int:
    return SHORT_TAG if kind in _UNNUMBERED else PEER_TAG


# Pieces -------------------------------------------------------------------------------------


def encode_signed(number: int) -> bytes:
    return encode_number(number << 1 if number >= 0 else (-number << 1) - 1)


def take_signed(cursor: Cursor) -> int:
    number = cursor.take_number()
    return -(number + 1 >> 1) if number & 1 else number >> 1


def encode_run(run: Run) -> bytes:
    name = run[0].encode()
    return encode_number(len(name)) + name + encode_number(run[1])


def take_run(cursor: Cursor) -> Run:
    try:
        name = cursor.take(cursor.take_count()).decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"a name that is no text, before byte {cursor.at}") from None
    epoch = cursor.take_number()
    if not name or len(name) > MAX_NAME or _NO_NAME & set(name) or epoch > _MAX_EPOCH:
        raise ProtocolError(f"no node has the name {name[:MAX_NAME]!r} and the epoch {epoch}")
    return name, epoch


def encode_time(time: int) -> bytes:
    """Return a time in ms as six bytes."""
    return min(max(time, 0), (1 << 48) - 1).to_bytes(_TIME, "big")


def decode_time(cursor: Cursor) -> int:
    """Return the next time."""
    return int.from_bytes(cursor.take(_TIME), "big")
