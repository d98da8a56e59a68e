"""The kinds of records in a node's log, and the fields of each. A table, nothing else.

The rules that keep old logs readable: an id is never used again; fields are only appended, and an
appended field is optional; a change of meaning is a new kind. Each addition raises `SCHEMA`.
The analysis needs everything to replay what a node knew: what was subscribed to, what was read,
what matched, what was decided, what was sent where and when.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

SCHEMA = 4

TEXT = "text"
INT = "int"  # 64 bits, signed; times are in ms
ID = "id"  # 64 bits, unsigned: the number of an item, or of a mask of features
BYTES = "bytes"
REAL = "real"
BOOL = "bool"
IDS = "ids"  # a list of ids
TEXTS = "texts"  # a list of text
MAP = "map"  # text to anything that CBOR has

TYPES = (TEXT, INT, ID, REAL, BYTES, BOOL, IDS, TEXTS, MAP)


class RecordField(NamedTuple):
    """One field of a kind of record."""

    name: str
    type: str
    is_optional: bool


class RecordKind(NamedTuple):
    """One kind of record."""

    id: int
    name: str
    meaning: str
    fields: tuple[RecordField, ...]


# Id, name and meaning of each kind; below it its fields as `name:type`, with a question mark after
# optional ones.
_TABLE = """
1 start: the node started
    software:text strategy:text? settings:map?
2 stop: the node stopped in order
    reason:text
3 clock: the clock was set, or its error bound changed
    offset:int bound:int? source:text?
4 subscribe: a subscription was received: from its subscriber (source empty) or from a peer
    item:id origin:text run:int sequence:int owner:text role:text words:text language:int
    vocabulary:bytes vector:bytes created:int expires:int options:map source:text event:text?
    features:id? signature:bytes?
5 unsubscribe: a subscription ended here: removed, expired, revoked, refused
    item:id owner:text reason:text source:text?
6 note: a notification was received: from its device (source empty) or from a peer
    item:id origin:text run:int sequence:int device:text device_epoch:int device_sequence:int
    at:int doubt:int expires:int vocabulary:bytes vector:bytes source:text degree:int? event:text?
    features:id? signature:bytes?
7 match: a notification matches a subscription, with possibility and necessity, 0 to 255
    note:id subscription:id owner:text possible:int certain:int
8 suppress: a match was not delivered: top-k, role, expired, quiet, muted, had, withdrawn
    note:id owner:text reason:text subscriptions:ids detail:text?
9 send: a notification was sent to its subscriber
    note:id owner:text subscriptions:ids attempt:int degree:int? score:real?
10 deliver: the subscriber acknowledged a notification
    note:id owner:text subscriptions:ids attempt:int at:int? degree:int?
11 duplicate: something was received again and changed nothing
    what:text source:text item:id? device_epoch:int? device_sequence:int?
12 drop: something was removed because there was no room
    what:text why:text item:id? owner:text? degree:int? source:text?
13 refuse: something was refused and changed nothing
    what:text why:text who:text bytes:int? times:int? address:text?
14 attach: a subscriber attached to this node, or left
    subscriber:text is_up:bool
15 contact: a link to another node came up
    peer:text contact:int is_initiator:bool?
16 contact_end: a link to another node ended: bytes by message, items by kind, both ways
    peer:text contact:int began:int outcome:text digest_out:int digest_in:int known_out:int
    known_in:int items_out:int items_in:int subscriptions_out:int? subscriptions_in:int?
    notes_out:int? notes_in:int? delivered_out:int? delivered_in:int? others_out:int?
    others_in:int?
17 transfer: an item was sent to a peer, or received from one, and its transaction is acknowledged
    item:id what:text peer:text is_out:bool bytes:int copies:int? contact:int?
18 purge: a copy was deleted: expired, delivered, removed, revoked, space
    item:id what:text why:text
19 device: a device sent a hello, or became silent
    device:text is_up:bool device_epoch:int? senses:ids? capacity:int? vocabulary:bytes?
    firmware:text? settings:map?
20 source: what a device counted: readings taken, sent, dropped, and the bytes of each
    device:text sampled:int? sent:int? dropped:int? bytes_sent:int? bytes_saved:int?
21 cover: a subscription became active (is sent) or passive (is covered) towards a link
    item:id link:text is_active:bool covered_by:ids?
22 vocabulary: a vocabulary became known
    hash:bytes document:text? source:text?
23 revoke: a name lost its rights
    name:text by:text reason:text?
24 learn_delivered: receipts were received: other nodes have delivered these notifications
    subscriber:text notes:ids source:text
25 trouble: a part of this node failed
    what:text detail:text
26 plan: an operator recommends another strategy
    strategy:text by:text is_followed:bool
27 story: several notifications tell a story that was subscribed to
    item:id subscription:id owner:text what:text parts:ids at:int expires:int possible:int
    certain:int
"""


def _read_table(table: str) -> Iterator[RecordKind]:
    """Yield the kinds of a table."""
    for id_, name, meaning, words in re.findall(r"^(\d+) (\w+): (.+)((?:\n .+)*)", table, re.M):
        fields = []
        for word in words.split():
            field, _, type_ = word.rstrip("?").partition(":")
            if type_ not in TYPES:
                raise ValueError(f"{name}: {word} has no type")
            fields.append(RecordField(field, type_, word.endswith("?")))
        yield RecordKind(int(id_), name, meaning, tuple(fields))


KINDS: dict[str, RecordKind] = {kind.name: kind for kind in _read_table(_TABLE)}
KINDS_BY_ID: dict[int, RecordKind] = {kind.id: kind for kind in KINDS.values()}
MAX_KINDS = 64  # a block has one bit for each kind, in 8 bytes
