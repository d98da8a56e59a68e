"""A story that was told: the row that keeps it, and the notification that a subscriber gets.

A told story is no item: it follows from its parts, and every node that has them tells the same one.
So that it is delivered once all the same, it has a dot that follows from the subscription and from
the reading that closes it (`name_story`): the same at every node, and receipts travel under it. No
node makes items under such a dot: it has epoch 0, and runs count from 1. Whoever says that somebody
has a story proves that it had the reading that closes it, as with any notification.

The row has all that is shown, so that the parts may expire before the story does. On the disk:

  sub.story   dot of a told story: its row
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from denwatch.client.compiler.stories import ABSENCE, KINDS, decode_story
from denwatch.node.core.items import NOTIFICATION, Dot, Item, name_story, read_dot
from denwatch.node.core.notifications import (
    Notification,
    Vocabularies,
    describe_values,
    format_time,
    name_attribute,
)
from denwatch.node.core.subscriptions import ItemClock
from denwatch.node.matching.story_join import BEGINNING
from denwatch.protocol.vectors import NotificationVector

TOLD = "sub.story"


class ToldPart(msgspec.Struct, array_like=True):
    """One reading of a story, as its item says it; the degrees are those of its part."""

    part: int
    key: bytes  # of its dot
    body: bytes
    possible: int
    certain: int


class ToldRow(msgspec.Struct, array_like=True):
    """A story that was told. Times are in our timeline."""

    subscription: int
    story: bytes
    vocabulary: bytes
    possible: int
    certain: int
    closing: int  # the reading's id; BEGINNING: none
    at: int
    expires: int
    heard: int  # when it was told
    parts: list[ToldPart]


encode_told = msgspec.msgpack.Encoder().encode
decode_told = msgspec.msgpack.Decoder(ToldRow).decode


def find_prefix(subscription: int) -> bytes:
    """Return how the keys of all stories of a subscription begin."""
    return name_story(subscription, BEGINNING).key[:-8]


class StoryPart(NamedTuple):
    """One reading of a told story."""

    part: int
    notification: Notification
    possible: int
    certain: int


class ToldStory(NamedTuple):
    """What a notification knows of the story that it tells."""

    row: ToldRow
    parts: list[StoryPart]
    asks: tuple[tuple[str, tuple[str, ...]], ...]  # events and attributes: roles must allow them

    def explain(self) -> str:
        """Return why it is told, in words."""
        story = decode_story(self.row.story)
        share = round(self.row.possible / 255, 3)
        if story.kind == ABSENCE:
            since = "the last one" if self.parts else "the subscription began"
            return (
                f"nothing arrived since {since} that fits, to {share:g};"
                " what is still on its way is not known"
            )
        count = f" of {len(self.parts)} devices" if story.count else ""
        return f"{KINDS[story.kind]}{count} fits to {share:g}"


def build_notification(
    row: ToldRow, dot: Dot, code: int, vocabularies: Vocabularies
) -> Notification:
    """Return the notification that tells a story; ProtocolError if a part cannot be read."""
    story = decode_story(row.story)
    parts = [_read_part(part, vocabularies) for part in row.parts]
    asks = tuple(
        (event.name, tuple(a.name for a in event.attributes.values() if v.features >> a.bit & 1))
        for v in story.vectors
        if (event := vocabularies.find_event(row.vocabulary, v.event)) is not None
    )
    closing = next((p.notification for p in parts if p.notification.id == row.closing), None)
    told = Notification.__new__(Notification)
    told.dot, told.run, told.code, told.id = dot, dot.run, code, dot.id
    told.device = "" if closing is None else closing.device
    told.device_epoch, told.device_sequence = dot.epoch, dot.sequence
    told.at, told.doubt, told.expires = row.at, 0, row.expires
    told.parts = {}
    told.story = ToldStory(row, parts, asks)
    if closing is not None:
        told.vector, told.frame = closing.vector, closing.frame
        told.vocabulary, told.event = closing.vocabulary, closing.event
    else:
        number = story.vectors[0].event
        nothing = NotificationVector.__new__(NotificationVector)
        nothing.event, nothing.readings, nothing.features = number, [], 0
        nothing.sequence = nothing.age = nothing.faults = 0
        nothing.why = None
        told.vector, told.frame, told.vocabulary = nothing, b"", row.vocabulary
        told.event = vocabularies.find_event(row.vocabulary, number)
    return told


def _read_part(part: ToldPart, vocabularies: Vocabularies) -> StoryPart:
    notification = Notification(Item(read_dot(part.key), NOTIFICATION, 0, part.body), -1)
    notification.event = vocabularies.find_event(notification.vocabulary, notification.vector.event)
    return StoryPart(part.part, notification, part.possible, part.certain)


def describe_story(told: ToldStory, visible: list[int], clock: ItemClock) -> dict[str, Any]:
    """Return what a message says of a story; `visible` are the attributes shown of each part."""
    story = decode_story(told.row.story)
    rows = []
    for (number, n, possible, certain), mask in zip(told.parts, visible, strict=True):
        row: dict[str, Any] = {
            "part": number + 1,
            "id": f"{n.id:016x}",
            "reading": f"{n.device}/{n.device_epoch}/{n.device_sequence}",
            "event": n.event.name if n.event else None,
            "device": n.device,
            "values": _list_values(n, mask),
            "degree": round(possible / 255, 3),
            "certain": round(certain / 255, 3),
            "at": format_time(clock.show(n.dot, n.at)),
        }
        if n.doubt:
            row["doubt_s"] = round(n.doubt / 1000, 1)
        rows.append(row)
    return {"kind": KINDS[story.kind], "parts": rows}


def _list_values(notification: Notification, mask: int) -> list[str]:
    """Return the values that may be shown, in words."""
    if notification.event is None:
        return []
    vector = notification.vector
    names = {name_attribute(notification.event, bit) for bit in range(16) if mask >> bit & 1}
    said = describe_values(notification.event, vector)
    return [words for words in said if words.split(" ", 1)[0] in names]
