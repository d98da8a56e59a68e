"""Subscriptions to typed content: the node's own index of filters, in the workers.

Such subscriptions are few and written by programs; a notification is told to the index by the names
and values that its vocabulary gives it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from denwatch.node.core.subscribers.notes import Note, describe_content_values
from denwatch.node.core.subscribers.people import read_filter
from denwatch.node.matching.content_index import ContentIndex
from denwatch.protocol import notification
from denwatch.protocol.errors import ProtocolError
from denwatch.spark.matching.blocks import Batches
from denwatch.spark.matching.index import CONTENTS, ROWS, SharedIndex, load_owners, load_rows
from denwatch.spark.matching.meanings import Meanings

_NAMES = ("note_id", "subscription_id", "owner", "possible", "certain", "attribute")


@lru_cache(maxsize=2)
def load_content(path: Path) -> tuple[ContentIndex, Meanings]:
    """Return the filters by row, and the vocabularies that name values."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    index = ContentIndex()
    for row, vector in stored["filters"].items():
        index.add(int(row), read_filter(bytes.fromhex(vector)))
    documents = {bytes.fromhex(key): text for key, text in stored["documents"].items()}
    return index, Meanings(documents)


def match_content(index: SharedIndex, schema: pa.Schema) -> Callable[[Batches], Batches]:
    """Return what a task does with its batches; `schema` may have fewer columns than a match."""

    def match_batches(batches: Batches) -> Batches:
        filters, meanings = load_content(index.find(CONTENTS))
        rows = load_rows(index.find(ROWS))
        owners = load_owners(index).to_pylist()
        for batch in batches:
            found: list[dict[str, Any]] = []
            for note in batch.to_pylist():
                latest = note["at"] + (note["doubt"] or 0)
                for hit in filters.match(describe_note(note, meanings)):
                    id_, begins, ends, owner = rows[hit.id, :4].tolist()
                    if begins <= latest and note["at"] < ends:
                        degrees = hit.possible, hit.certain, hit.attribute
                        match = note["note_id"], id_, owners[owner], *degrees
                        found.append(dict(zip(_NAMES, match, strict=True)))
            columns = [pa.array([m[f.name] for m in found], f.type) for f in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return match_batches


def describe_note(note: dict[str, Any], meanings: Meanings) -> dict[str, Any]:
    """Return a notification as typed content; nothing of one that cannot be read."""
    try:
        vector = notification.decode(note["vector"] or b"")
    except ProtocolError:
        return {}
    event = meanings.find_event(note.get("vocabulary") or b"", vector.event)
    shown = SimpleNamespace(vector=vector, event=event, device=note.get("device") or "")
    return cast(dict[str, Any], describe_content_values(cast(Note, shown)))
