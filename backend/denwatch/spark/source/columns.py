"""The columns of `spark.read.format("denwatch")` as people read them, each with a comment.

Times are TIMESTAMP and ids are hexadecimal text, as everywhere a person sees them. The analysis
asks the same source for BIGINT instead (`decoding.build_schema`): the reader serves each column in
the type that the schema names.
"""

from __future__ import annotations

from functools import cache

from denwatch.node.log import kinds
from denwatch.node.log.kinds import KINDS
from denwatch.spark.source import decoding
from pyspark.sql import types as spark

TIMES = ("time", "at", "expires", "created", "began")
_TYPES: dict[str, spark.DataType] = {
    kinds.ID: spark.StringType(),
    kinds.IDS: spark.ArrayType(spark.StringType()),
}
_COMMENTS = {
    "node": "the node that wrote the record",
    "epoch": "which run of the node: it counts its starts",
    "number": "of the record; a node numbers its records without gaps over all runs",
    "time": "when it was written, by the clock of the node",
    "hybrid": "hybrid logical time: orders records of nodes that met",
    "kind": "the kind of record",
    "item": "id of the subscription or notification",
    "note": "id of the notification",
    "subscription": "id of the subscription",
    "subscriptions": "ids of the subscriptions that it matches",
    "notes": "ids of the notifications",
    "origin": "the node where the item entered the network",
    "run": "which run of the origin made the item",
    "sequence": "number of the item in that run",
    "owner": "the subscriber",
    "subscriber": "the subscriber",
    "role": "the subscriber's role",
    "words": "the subscription as it was written",
    "language": "id of the subscription language",
    "vocabulary": "hash of the vocabulary that the vector belongs to",
    "vector": "the subscription or notification vector",
    "created": "when the subscription was made",
    "expires": "when the item ends by itself",
    "options": "options of the subscription, as JSON",
    "source": "where it came from: empty for a subscriber or device, else the peer",
    "event": "the event of the vocabulary",
    "features": "mask of the attributes in the vector",
    "signature": "Ed25519 signature of the origin",
    "reason": "why, in words",
    "why": "why, in words",
    "what": "what it happened to",
    "who": "who was refused",
    "address": "network address of who was refused",
    "times": "how often",
    "device": "the device",
    "device_epoch": "which run of the device",
    "device_sequence": "number of the reading in that run",
    "at": "when the reading was taken, or the delivery acknowledged",
    "doubt": "by how many ms `at` may be wrong",
    "degree": "how well it fits, 0 to 255",
    "possible": "possibility of the match, 0 to 255",
    "certain": "necessity of the match, 0 to 255",
    "score": "rank of the notification for the subscriber",
    "attempt": "how often it has been sent, this time included",
    "detail": "more about it",
    "is_up": "true: came; false: left",
    "peer": "the other node",
    "contact": "number of the contact with that peer",
    "is_initiator": "whether this node opened the link",
    "began": "when the contact began",
    "outcome": "how the contact ended",
    "bytes": "size in bytes",
    "copies": "copies that may still be made of it",
    "is_out": "true: sent; false: received",
    "senses": "ids of the attributes that the device measures",
    "capacity": "subscriptions that the device has room for",
    "firmware": "version of the device's program",
    "settings": "settings in force, as JSON",
    "software": "version of the node's program",
    "strategy": "how notifications are replicated",
    "offset": "ms added to the clock; in quarantine: the first byte",
    "bound": "by how many ms the clock may be wrong",
    "sampled": "readings taken",
    "sent": "readings sent",
    "dropped": "readings dropped because the spool was full",
    "bytes_sent": "bytes of the readings sent",
    "bytes_saved": "bytes of the readings that nobody asked for",
    "link": "the device or peer",
    "is_active": "true: sent to the link; false: covered by others",
    "covered_by": "ids of the subscriptions that cover it",
    "hash": "hash of the vocabulary",
    "document": "the vocabulary",
    "name": "whose rights ended",
    "by": "who decided it",
    "is_followed": "whether the node follows it",
    "file": "the file that was not read, or not all of it",
    "class": "damage, duplicate or foreign",
    "size": "bytes that were not read",
    "first": "number of the first record that is lost, if known",
    "length": "how many records are lost, if known",
}
_COUNTED = {  # `digest_out`, `items_in` …: what a contact carried
    "digest": "bytes of fingerprints",
    "known": "bytes of lists of what is known",
    "items": "bytes of items",
    "subscriptions": "subscriptions",
    "notes": "notifications",
    "delivered": "receipts",
    "others": "other items",
}
_WAYS = {"out": "sent", "in": "received"}


def describe_column(name: str) -> str:
    """Return the comment of a column."""
    found = _COMMENTS.get(name)
    if found is None:
        what, _, way = name.rpartition("_")
        found = f"{_COUNTED[what]} {_WAYS[way]}"
    return found


@cache
def build_readable_schema(kind: str) -> spark.StructType:
    """Return the columns of a kind with the types and comments that a person expects."""
    types = {field.name: field.type for each in KINDS.values() for field in each.fields}
    fields = []
    for field in decoding.build_schema(kind):
        shown = _TYPES.get(types.get(field.name, ""), field.dataType)
        if field.name in TIMES:
            shown = spark.TimestampType()
        comment = {"comment": describe_column(field.name)}
        fields.append(spark.StructField(field.name, shown, metadata=comment))
    return spark.StructType(fields)
