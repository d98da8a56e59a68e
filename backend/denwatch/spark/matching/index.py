"""The index of all subscriptions as files: built once by the driver, mapped by every worker.

A folder contains `rows.npy` (for each subscription its id, begin, end, subscriber, and which
vocabularies it agrees with), `names.json` (the names behind those numbers) and one or more
snapshots of the node's own index. If one snapshot would exceed the memory limit of an executor, the
subscriptions are split by event and feature mask: every group of the index stays whole, and the
answers are the same.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from denwatch.node.backend_api import load_languages
from denwatch.node.matching.index import FuzzyIndex, load_index, save_index
from denwatch.node.matching.records import EVENT_ATTRIBUTES, SubscriptionBatch
from denwatch.protocol.frames import FUZZY
from denwatch.spark.matching.kernels import decode_subscriptions, find_restricted
from denwatch.spark.matching.value_index import build_value_index, load_value_index
from denwatch.spark.matching.windows import Meanings
from denwatch.spark.session import is_local
from numpy.typing import NDArray
from pyspark import SparkFiles
from pyspark.sql import SparkSession

MAX_VOCABULARIES = 62
ROWS, NAMES, CONTENTS = "rows.npy", "names.json", "content.json"


class TooManyError(ValueError):
    """More vocabularies than an index can tell apart."""


@dataclass(frozen=True)
class Shard:
    """One snapshot of the node's index, and the events of its subscriptions.

    Where that is faster there are also lists by value (`value_index`), and a second index (`rest`)
    of the subscriptions that are not in them.
    """

    file: str
    by_value: str  # empty: none
    rest: str  # empty: none
    events: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class SharedIndex:
    """Where the index is; a small object that is sent with every task."""

    folder: str  # on the driver, and where executors share its disk
    is_shipped: bool  # executors received the files from Spark
    shards: tuple[Shard, ...]
    subscriptions: int
    content: int  # how many of them match typed content, or have restrictors
    vocabularies: int  # known ones; with two or more, notifications are matched by vocabulary
    errors: dict[int, str]  # by id: subscriptions that cannot be matched, and why

    def find(self, name: str) -> Path:
        """Return where a file of the index is, on this machine."""
        if self.is_shipped:
            return Path(SparkFiles.get(f"{Path(self.folder).name}-{name}"))
        return Path(self.folder) / name


@dataclass(frozen=True)
class Names:
    """The names behind the numbers in the rows."""

    subscribers: pa.Array
    vocabularies: dict[bytes, int]  # the bit of each


def build_index(
    spark: SparkSession,
    subscriptions: pa.Table,
    *,
    folder: str | Path | None = None,
    limit: int = 1 << 30,
    max_list: int | None = None,
    meanings: Meanings | None = None,
) -> SharedIndex:
    """Build the index of a table of subscriptions, and make it available to the executors.

    The columns are subscription_id, subscriber, begins, ends (ms; see `windows`), vector, and if
    there are several, language and vocabulary. No shard takes more than `limit` bytes, unless one
    mask alone does. A shard is also filed by value (`value_index`) where that is faster, or where
    lists have at most `max_list` entries on average. Without `meanings` all vocabularies are taken
    to mean the same.
    """
    folder = Path(folder or tempfile.mkdtemp(prefix="denwatch-index-"))
    folder.mkdir(parents=True, exist_ok=True)
    table = subscriptions.combine_chunks()
    size = table.num_rows
    has_languages = "language" in table.column_names
    languages = table["language"].to_numpy() if has_languages else np.zeros(size, np.int64)
    chunks = table["vector"].cast(pa.large_binary()).chunks
    vectors = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())
    ids = table["subscription_id"].to_numpy().astype(np.int64)
    fuzzy = np.flatnonzero(languages == FUZZY)
    batch, errors = decode_subscriptions(vectors.take(pa.array(fuzzy)))
    batch.subs["id"] = fuzzy[batch.subs["id"]]
    failed = {int(ids[fuzzy[row]]): why for row, why in errors.items()}
    known_here = np.isin(languages, [language.id for language in load_languages()])
    for row in np.flatnonzero(~known_here).tolist():
        failed[int(ids[row])] = f"the language {languages[row]} is not known to this version"
    meanings = meanings or Meanings({})
    rows = _build_rows(table, ids, batch, folder, meanings)
    np.save(folder / ROWS, rows)
    shards = tuple(_save_shards(batch, folder, limit, max_list))
    # Fuzzy ones with restrictors are in a shard too, for notifications whose readings are all new.
    joined = fuzzy[find_restricted(vectors.take(pa.array(fuzzy)))]
    others = np.union1d(np.flatnonzero(known_here & (languages != FUZZY)), joined)
    content = _save_content(folder, vectors, languages, others, meanings)
    master = str(spark.sparkContext.master)
    known = len(meanings.known)
    index = SharedIndex(str(folder), not is_local(master), shards, size, content, known, failed)
    if index.is_shipped:
        _ship(spark, index)
    return index


def _build_rows(
    table: pa.Table,
    ids: NDArray[np.int64],
    batch: SubscriptionBatch,
    folder: Path,
    meanings: Meanings,
) -> NDArray[np.int64]:
    """Write the names; return for every subscription what `keep_hits` needs."""
    subscribers = pa.array(table["subscriber"].to_pylist(), pa.string()).dictionary_encode()
    rows = np.empty((len(ids), 5), np.int64)  # a subscription's numbers stand in one cache line
    rows[:, 0] = ids
    rows[:, 1] = table["begins"].to_numpy()
    rows[:, 2] = table["ends"].to_numpy()
    rows[:, 3] = subscribers.indices.to_numpy(zero_copy_only=False)
    rows[:, 4] = -1
    known = meanings.known
    if len(known) > MAX_VOCABULARIES:
        raise TooManyError(f"{len(known)} vocabularies; an index knows {MAX_VOCABULARIES}")
    if len(known) > 1 and "vocabulary" in table.column_names:
        _mark_agreement(rows[:, 4], table["vocabulary"].to_pylist(), batch, meanings)
    names = {
        "subscribers": subscribers.dictionary.to_pylist(),
        "vocabularies": [word.hex() for word in known],
    }
    (folder / NAMES).write_text(json.dumps(names), encoding="utf-8")
    return rows


def _mark_agreement(
    bits: NDArray[np.int64], mine: list[bytes], batch: SubscriptionBatch, meanings: Meanings
) -> None:
    """Clear, for each subscription, the bits of vocabularies whose codes mean something else."""
    events, masks = _list_masks(batch)
    answers: dict[tuple[bytes, int, int], int] = {}
    rows = batch.subs["id"].tolist()
    for row, event, mask in zip(rows, events.tolist(), masks.tolist(), strict=True):
        key = mine[row], event, mask
        if key not in answers:
            gone = 0
            for bit, other in enumerate(meanings.known):
                gone |= (not meanings.agree(key[0], other, event, mask)) << bit
            answers[key] = ~gone
        bits[row] = answers[key]


def _list_masks(batch: SubscriptionBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the event and the features of every subscription."""
    attributes = batch.preds["attribute"].astype(np.int64)
    places = np.cumsum(batch.subs["count"], dtype=np.int64) - batch.subs["count"]
    if not len(places):
        return places, places
    masks = np.bitwise_or.reduceat(1 << attributes % EVENT_ATTRIBUTES, places)
    return attributes[places] // EVENT_ATTRIBUTES, masks


def _save_shards(
    batch: SubscriptionBatch, folder: Path, limit: int, max_list: int | None
) -> list[Shard]:
    """Write snapshots of at most `limit` bytes, cutting by event and mask."""
    if not len(batch):
        return []
    events, masks = _list_masks(batch)
    keys = events << EVENT_ATTRIBUTES | masks
    shards: list[Shard] = []
    waiting = [np.argsort(keys, kind="stable")]
    while waiting:
        chosen = waiting.pop()
        index = FuzzyIndex(EVENT_ATTRIBUTES * (int(events[chosen].max()) + 1))
        index.add_batch(_take_batch(batch, chosen))
        index.compact()
        cut = _find_cut(keys[chosen])
        if index.nbytes > limit and cut:
            waiting += [chosen[cut:], chosen[:cut]]
            continue
        held = tuple(np.unique(events[chosen]).tolist())
        files = _save_shard(batch, index, folder, len(shards), max_list)
        shards.append(Shard(*files, held, index.nbytes))
    return shards


def _save_shard(
    batch: SubscriptionBatch, index: FuzzyIndex, folder: Path, number: int, max_list: int | None
) -> tuple[str, str, str]:
    """Write the files of a shard; return their names, empty where there is no such file."""
    name, lists, rest = (f"shard-{number}.{end}" for end in ("index", "values.npy", "rest"))
    save_index(index, folder / name)
    built = build_value_index(index, max_list)
    if built is None:
        return name, "", ""
    built.lists.save(folder / lists)
    if not len(built.rest):
        return name, lists, ""
    others = FuzzyIndex(index.attributes)
    others.add_batch(_take_batch(batch, np.flatnonzero(np.isin(batch.subs["id"], built.rest))))
    save_index(others, folder / rest)
    return name, lists, rest


def _find_cut(keys: NDArray[np.int64]) -> int:
    """Return the place near the middle where the key changes; 0 if it never does."""
    changes = np.flatnonzero(np.diff(keys)) + 1
    return int(changes[np.argmin(np.abs(changes - len(keys) // 2))]) if len(changes) else 0


def _take_batch(batch: SubscriptionBatch, chosen: NDArray[np.int64]) -> SubscriptionBatch:
    """Return some subscriptions of a batch, with their predicates, patterns and rules."""
    is_kept = np.zeros(len(batch), np.bool_)
    is_kept[chosen] = True
    count = batch.subs["count"].astype(np.int64)
    code = batch.subs["pattern"] + batch.subs["rules"] * (count * (count - 1) // 2)
    return SubscriptionBatch(
        batch.subs[is_kept],
        batch.preds[np.repeat(is_kept, count)],
        batch.code[np.repeat(is_kept, code)],
    )


def _save_content(
    folder: Path,
    vectors: pa.Array,
    languages: NDArray[np.int64],
    rows: NDArray[np.int64],
    meanings: Meanings,
) -> int:
    """Write what no shard answers alone: by row, its language and its bytes."""
    filters = {int(row): (int(languages[row]), vectors[int(row)].as_py().hex()) for row in rows}
    documents = {key.hex(): text for key, text in meanings.documents.items()} if filters else {}
    stored = {"filters": filters, "documents": documents}
    (folder / CONTENTS).write_text(json.dumps(stored), encoding="utf-8")
    return len(filters)


def list_parts(index: SharedIndex) -> Sequence[str]:
    """Return the names of an index's files."""
    shards = [name for shard in index.shards for name in (shard.file, shard.by_value, shard.rest)]
    return [ROWS, NAMES, CONTENTS, *filter(None, shards)]


def _ship(spark: SparkSession, index: SharedIndex) -> None:
    """Send the files to executors that do not share this machine's disk."""
    folder = Path(index.folder)
    for name in list_parts(index):
        copy = folder / f"{folder.name}-{name}"  # Spark knows a file by its last name
        if not copy.exists():
            copy.hardlink_to(folder / name)
        spark.sparkContext.addFile(str(copy))


# A worker keeps what it has mapped for its next task.
load_shard = lru_cache(maxsize=4)(load_index)
load_lists = lru_cache(maxsize=2)(load_value_index)


@lru_cache(maxsize=2)
def load_rows(path: Path) -> NDArray[np.int64]:
    """Return the rows, mapped. As copy-on-write: to the compiler an ordinary array."""
    return np.asarray(np.load(path, mmap_mode="c"))


@lru_cache(maxsize=2)
def load_names(path: Path) -> Names:
    """Return the names, kept for the next task."""
    names = json.loads(path.read_text(encoding="utf-8"))
    words = {bytes.fromhex(word): bit for bit, word in enumerate(names["vocabularies"])}
    return Names(pa.array(names["subscribers"], pa.string()), words)
