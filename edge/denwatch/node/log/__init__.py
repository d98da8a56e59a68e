"""The log of a node: what happened, for the analysis of all nodes together.

Records go into the store with the change that they describe, and from there into segments:

    store.apply(changes, [encode_record("attach", {"subscriber": "medic7", "is_up": True}, now)])
    store.commit()
    writer = Writer(store, DiskFiles("log"))   # once; repairs what a crash left
    writer.move(now)                           # now and then; then store.commit()

They are read from the bytes of a segment, and every damage is reported:

    contents = read_segment(data, is_closed=name.endswith(".dlog"))
    for block in contents.blocks:
        records, damages = decode_records(block)

`kinds.py` has the table of records, `README.md` the bytes, `choose_segments` which files to read.
"""

from __future__ import annotations

from denwatch.node.log.kinds import KINDS, SCHEMA
from denwatch.node.log.reader import (
    Block,
    Columns,
    Contents,
    Damage,
    build_mask,
    decode_columns,
    decode_records,
    read_footer,
    read_header,
    read_segment,
)
from denwatch.node.log.records import LogRecord, LogRecordError, encode_record
from denwatch.node.log.segments import (
    Header,
    SegmentChoice,
    SegmentSpan,
    choose_segments,
    read_name,
    write_name,
)
from denwatch.node.log.writer import DiskFiles, LogError, OutboxBatch, Writer

__all__ = [
    "KINDS",
    "SCHEMA",
    "Block",
    "Columns",
    "Contents",
    "Damage",
    "DiskFiles",
    "Header",
    "LogError",
    "LogRecord",
    "LogRecordError",
    "OutboxBatch",
    "SegmentChoice",
    "SegmentSpan",
    "Writer",
    "build_mask",
    "choose_segments",
    "decode_columns",
    "decode_records",
    "encode_record",
    "read_footer",
    "read_header",
    "read_name",
    "read_segment",
    "write_name",
]
