"""Feature masks: from the attributes of a notification to the groups whose mask is a subset.

A trie of attributes in rising order; a node that ends a mask names its group. Each node keeps the
set of attributes that it has children for, so a search is a walk over exactly those subsets of the
notification that begin some mask. With few masks, or a notification that carries nearly every
attribute, it is cheaper to look at each group in turn.

    nodes    rows of NODE_KEY (parent << 10 | attribute), NODE_GROUP, NODE_NEXT, the children's mask
    heads    the first node of each bucket of the table (node, attribute) -> child; see `records`
    groups   rows of 64 bytes, a cache line, with the columns WIDTH to LEVEL
    attrs    the attributes of all masks one after the other; groups[g, ATTRS] is where g's begin
    counts   how many rows of each kind there are

Example: masks {0} and {0, 1} are root -0-> n1 (group 0) -1-> n2 (group 1). A notification with
attributes 0, 1, 5 visits n1 and n2; one with 1 and 5 finds no child of the root and is done.
"""

# mypy: disable-error-code="no-any-return"
# (an element of a numba array is Any to mypy, an int to the compiler)

from __future__ import annotations

import numpy as np
from denwatch.node.matching.compiling import (
    Array,
    compiled,
    count_trailing_zeros,
    int64,
    prefetch,
)
from denwatch.node.matching.records import (
    ATTRIBUTES,
    HEADER,
    MAX_PREDICATES,
    find_bucket,
    get_attribute,
    get_count,
    open_bucket,
)

# A node of the trie of masks: key, group and next node of the bucket, then the children's mask.
NODE_KEY = 0
NODE_GROUP = 1
NODE_NEXT = 2
NODE_CHILDREN = 3


# One group: a row of 64 bytes, a cache line.
WIDTH = 0  # number of attributes
ATTRS = 1  # where they stand in the list of all groups' attributes
TAIL = 2  # where its packed boxes stand
ROOM = 3  # for how many there is room
PACKED = 4  # how many there are
BLOCK = 5  # its first block of bit rows, -1: none
FREE = 6  # a free slot in its blocks, -1: none
LEVEL = 7  # the lowest level that a box asks for

# How many there are of each: a counter for every kind of row that only grows.
COUNT_NODES = 0
COUNT_GROUPS = 1
COUNT_ATTRS = 2
COUNT_SEEN = 3  # different attributes
COUNT_DEPTH = 4  # nodes at each depth of the trie, from 0 on
COUNT_MASK = COUNT_DEPTH + MAX_PREDICATES + 1  # the set of attributes seen
COUNTERS = COUNT_MASK + ATTRIBUTES // 64


@compiled
def sort_attributes(recs: Array, r: int, found: Array) -> int:
    """Write a record's attributes, rising and each once; return how many. Insertion sort: few."""
    width = 0
    for i in range(get_count(recs[r + 1])):
        attribute = get_attribute(recs[r + HEADER + i])
        at = width
        while at > 0 and found[at - 1] > attribute:
            at -= 1
        if at > 0 and found[at - 1] == attribute:
            continue
        for j in range(width, at, -1):
            found[j] = found[j - 1]
        found[at] = attribute
        width += 1
    return width


@compiled
def find_child(nodes: Array, heads: Array, shape: Array, parent: int, attribute: int) -> int:
    """Return the node below `parent` for an attribute, or -1: one hash, then a short chain."""
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


@compiled
def find_group(
    mask: Array, width: int, nodes: Array, heads: Array, shape: Array, groups: Array, attrs: Array,
    counts: Array,
) -> int:  # fmt: skip
    """Return the group of a mask (rising attributes), new if need be; there must be room for it.

    mask[:width] is walked from the root; missing nodes are appended to `nodes` and entered in the
    table.
    """
    node = 0
    for i in range(width):
        attribute = mask[i]
        child = find_child(nodes, heads, shape, node, attribute)
        if child < 0:
            child = counts[COUNT_NODES]
            counts[COUNT_NODES] += 1
            nodes[child, :] = 0
            nodes[child, NODE_KEY] = node << 10 | attribute
            nodes[child, NODE_GROUP] = -1
            link_node(nodes, heads, shape, child)
            counts[COUNT_DEPTH + i + 1] += 1
            seen = COUNT_MASK + (attribute >> 6)
            if not (counts[seen] >> (attribute & 63)) & 1:
                counts[seen] |= int64(1) << (attribute & 63)
                counts[COUNT_SEEN] += 1
            nodes[node, NODE_CHILDREN + (attribute >> 6)] |= int64(1) << (attribute & 63)
        node = child
    group = nodes[node, NODE_GROUP]
    if group < 0:
        group = counts[COUNT_GROUPS]
        counts[COUNT_GROUPS] += 1
        nodes[node, NODE_GROUP] = group
        start = counts[COUNT_ATTRS]
        counts[COUNT_ATTRS] += width
        for i in range(width):
            attrs[start + i] = mask[i]
        row = groups[group]
        row[:] = 0
        row[WIDTH] = width
        row[ATTRS] = start
        row[BLOCK] = -1
        row[FREE] = -1
        row[LEVEL] = 255
    return group


@compiled
def prefer_list(attributes: int, widest: int, counts: Array) -> bool:
    """Return whether looking at every group costs less than walking the trie.

    A step of the walk is a hash and some jumps; it costs about as much as ten groups in a row. How
    many steps there are is estimated as if every attribute were as likely as every other.
    """
    share = min(1.0, attributes / max(1, counts[COUNT_SEEN]))
    steps = 0.0
    subsets = 1.0
    likely = 1.0
    for depth in range(1, min(attributes, widest) + 1):
        subsets *= (attributes - depth + 1) / depth
        likely *= share
        steps += min(subsets, likely * counts[COUNT_DEPTH + depth])
    return counts[COUNT_GROUPS] < 10 * steps


@compiled
def list_masks(
    present: Array, groups: Array, attrs: Array, counts: Array, found: Array
) -> tuple[Array, int]:
    """Return what `walk_masks` returns, by looking at every group.

    Every group is written to `found`, and the size grows only if all of its attributes are present:
    no branch that depends on data, so nothing is mispredicted.
    """
    if found.size < counts[COUNT_GROUPS]:
        found = np.empty(2 * counts[COUNT_GROUPS], np.int64)
    size = 0
    for group in range(counts[COUNT_GROUPS]):
        start = groups[group, ATTRS]
        held = int64(1)
        for j in range(start, start + groups[group, WIDTH]):
            attribute = int64(attrs[j])
            held &= present[attribute >> 6] >> (attribute & 63)
        found[size] = group
        size += held
    return found, size


@compiled
def grow(array: Array, size: int) -> Array:
    """Return a larger array with the same first elements."""
    larger = np.empty(max(2 * array.size, size), array.dtype)
    larger[: array.size] = array
    return larger


@compiled
def walk_masks(
    present: Array, words: Array, nodes: Array, heads: Array, shape: Array, groups: Array,
    found: Array,
) -> tuple[Array, int]:  # fmt: skip
    """Return the groups whose mask is a subset of the present attributes, and how many they are.

    `present` is the notification's attribute set, 64 to a word; `words` are the places of its words
    that are not 0; `found` is replaced by a larger array when it is full. The walk goes level by
    level and asks for the memory of a whole level (bucket heads, then nodes, then groups) before it
    looks at the first node of it, so that the latencies overlap. A key that is a child by the
    parent's mask is always in the table, so chains are followed without a test for their end.
    """
    level = np.zeros(1, np.int64)
    count = 1
    keys = np.empty(256, np.int64)
    size = 0
    while count:
        wanted = 0
        for i in range(count):
            node = level[i]
            if wanted + 64 * words.size > keys.size:
                keys = grow(keys, wanted + 64 * words.size)
            for w in words:
                common = nodes[node, NODE_CHILDREN + w] & present[w]
                while common:
                    keys[wanted] = node << 10 | w << 6 | count_trailing_zeros(common)
                    common &= common - 1
                    wanted += 1
        if wanted > level.size:
            level = np.empty(2 * wanted, np.int64)
        for i in range(wanted):
            level[i] = find_bucket(shape, keys[i])
            prefetch(heads, level[i])
        for i in range(wanted):
            level[i] = heads[level[i]]
            prefetch(nodes, level[i] * nodes.shape[1])
        if size + wanted > found.size:
            found = grow(found, size + wanted)
        for i in range(wanted):
            while nodes[level[i], NODE_KEY] != keys[i]:
                level[i] = nodes[level[i], NODE_NEXT]
            group = nodes[level[i], NODE_GROUP]
            if group >= 0:
                prefetch(groups, group * groups.shape[1])
                found[size] = group
                size += 1
        count = wanted
    return found, size


@compiled
def plant_root(nodes: Array, heads: Array, shape: Array, counts: Array) -> None:
    """Start an empty trie: the root has no key and stands in no bucket."""
    nodes[0, :] = 0
    nodes[0, NODE_KEY] = -1
    nodes[0, NODE_GROUP] = -1
    nodes[0, NODE_NEXT] = -1
    counts[COUNT_NODES] = 1
    heads[0] = -1
    shape[0] = 1
    shape[1] = 1
    shape[2] = 0
