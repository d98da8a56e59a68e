"""From id to record, and from (node, attribute) to child: chained tables that grow by one bucket.

Linear hashing: when entries outnumber buckets, one bucket is split. No insertion ever has to
rehash the whole table, so a node with a million subscriptions takes a new one without a pause.
Chains run through the records and the nodes themselves; a table is only the heads of its chains.

`shape` is (buckets, buckets at the start of this round, entries).
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

import numpy as np
from denwatch.node.matching.compiling import Array, compiled, int64
from denwatch.node.matching.records import get_next, set_next

# A node of the trie of masks: key, group and next node of the bucket, then the children's mask.
NODE_KEY = 0
NODE_GROUP = 1
NODE_NEXT = 2
NODE_CHILDREN = 3


@compiled
def scramble(key: int) -> int:
    """Return a hash of at least 0 whose low bits depend on the whole key."""
    key = (key ^ (key >> 32)) * 0x2545F4914F6CDD1D
    key = (key ^ ((key >> 29) & 0x7FFFFFFFF)) * 0x369DEA0F31A53F85
    return (key >> 20) & 0xFFFFFFFFFFF


@compiled
def find_bucket(shape: Array, key: int) -> int:
    """Return the bucket of a key."""
    number = scramble(key)
    bucket = number & (2 * shape[1] - 1)
    return bucket if bucket < shape[0] else number & (shape[1] - 1)


@compiled
def open_bucket(heads: Array, shape: Array) -> int:
    """Open one more bucket, empty; return the one whose entries it shares from now on."""
    if shape[0] == 2 * shape[1]:
        shape[1] *= 2
    heads[shape[0]] = -1
    shape[0] += 1
    return shape[0] - 1 - shape[1]


@compiled
def find_record(recs: Array, heads: Array, shape: Array, id: int) -> int:
    """Return where the record with this id stands, or -1."""
    r = int64(heads[find_bucket(shape, id)])
    while r >= 0 and recs[r] != id:
        r = get_next(recs, r)
    return r


@compiled
def find_known(recs: Array, heads: Array, shape: Array, ids: Array) -> Array:
    """Return which of the ids have a record."""
    known = np.empty(ids.size, np.bool_)
    for i in range(ids.size):
        known[i] = find_record(recs, heads, shape, ids[i]) >= 0
    return known


@compiled
def link_record(recs: Array, heads: Array, shape: Array, r: int) -> None:
    """Enter a record whose id is not yet in the table."""
    bucket = find_bucket(shape, recs[r])
    set_next(recs, r, int64(heads[bucket]))
    heads[bucket] = r
    shape[2] += 1
    if shape[2] > shape[0]:
        old = open_bucket(heads, shape)
        entry = int64(heads[old])
        heads[old] = -1
        while entry >= 0:
            following = get_next(recs, entry)
            bucket = find_bucket(shape, recs[entry])
            set_next(recs, entry, int64(heads[bucket]))
            heads[bucket] = entry
            entry = following


@compiled
def unlink_record(recs: Array, heads: Array, shape: Array, r: int) -> None:
    """Take a record out of the table."""
    bucket = find_bucket(shape, recs[r])
    following = get_next(recs, r)
    shape[2] -= 1
    entry = int64(heads[bucket])
    if entry == r:
        heads[bucket] = following
        return
    while get_next(recs, entry) != r:
        entry = get_next(recs, entry)
    set_next(recs, entry, following)


@compiled
def find_child(nodes: Array, heads: Array, shape: Array, parent: int, attribute: int) -> int:
    """Return the node below `parent` for an attribute, or -1."""
    key = parent << 10 | attribute
    node = int64(heads[find_bucket(shape, key)])
    while node >= 0 and nodes[node, NODE_KEY] != key:
        node = nodes[node, NODE_NEXT]
    return node


@compiled
def link_node(nodes: Array, heads: Array, shape: Array, node: int) -> None:
    """Enter a node whose key is not yet in the table."""
    bucket = find_bucket(shape, nodes[node, NODE_KEY])
    nodes[node, NODE_NEXT] = heads[bucket]
    heads[bucket] = node
    shape[2] += 1
    if shape[2] > shape[0]:
        old = open_bucket(heads, shape)
        entry = int64(heads[old])
        heads[old] = -1
        while entry >= 0:
            following = nodes[entry, NODE_NEXT]
            bucket = find_bucket(shape, nodes[entry, NODE_KEY])
            nodes[entry, NODE_NEXT] = heads[bucket]
            heads[bucket] = entry
            entry = following
