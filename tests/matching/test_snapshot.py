"""A snapshot is the index: in another process, in many at once, and after changes."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from denwatch.node.matching.index import FuzzyIndex, SnapshotError, load_index, save_index
from denwatch.node.matching.records import pack_subscriptions
from denwatch.protocol.vectors import NotificationVector, Reading

from tests.matching.samples import make_notification, make_subscription

_READER = """
import sys
from pathlib import Path
from denwatch.node.matching.index import load_index
from denwatch.protocol.vectors import NotificationVector, Reading
index = load_index(Path(sys.argv[1]))
n = NotificationVector(0, [Reading(a, (x, x, x, x)) for a, x in ((0, 90), (1, 140))])
print(len(index), [tuple(hit) for hit in index.match(n)])
"""


def make_index(seed: int) -> FuzzyIndex:
    """Return an index with packed boxes, blocks, merges and spare regions."""
    rng = random.Random(seed)
    index = FuzzyIndex(attributes=64)
    index.add_batch(pack_subscriptions((id, make_subscription(rng, 2, 2)) for id in range(600)))
    for id in range(600, 1500):
        index.add(id, make_subscription(rng, 2, 5))
    for id in range(0, 1500, 7):
        index.remove(id)
    return index


def test_a_loaded_index_answers_the_same(tmp_path: Path) -> None:
    index = make_index(1)
    size = save_index(index, tmp_path / "index")
    assert (tmp_path / "index").stat().st_size == size
    loaded = load_index(tmp_path / "index")
    rng = random.Random(2)
    for _ in range(40):
        n = make_notification(rng)
        assert loaded.match(n, 9) == index.match(n, 9)


def test_another_process_answers_the_same(tmp_path: Path) -> None:
    index = make_index(3)
    save_index(index, tmp_path / "index")
    n = NotificationVector(0, [Reading(a, (x, x, x, x)) for a, x in ((0, 90), (1, 140))])
    command = [sys.executable, "-c", _READER, str(tmp_path / "index")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{len(index)} {[tuple(hit) for hit in index.match(n)]}"


def test_changes_to_a_loaded_index_stay_its_own(tmp_path: Path) -> None:
    index = make_index(4)
    path = tmp_path / "index"
    save_index(index, path)
    before = path.read_bytes()
    loaded, other = load_index(path), load_index(path)
    rng = random.Random(5)
    for id in range(1400, 2400):
        s = make_subscription(rng, 2, 3)
        loaded.add(id, s)
        index.add(id, s)
    for id in range(1, 1400, 7):
        loaded.remove(id)
        index.remove(id)
    notes = [make_notification(rng, 2, 4) for _ in range(20)]
    assert [loaded.match(n) for n in notes] == [index.match(n) for n in notes]
    fresh = load_index(path)
    assert [other.match(n) for n in notes] == [fresh.match(n) for n in notes]
    assert path.read_bytes() == before


def test_an_empty_index_can_be_saved(tmp_path: Path) -> None:
    save_index(FuzzyIndex(), tmp_path / "index")
    loaded = load_index(tmp_path / "index")
    assert len(loaded) == 0
    loaded.add(3, make_subscription(random.Random(1)))
    assert 3 in loaded


def test_a_file_that_is_not_a_whole_snapshot_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index"
    save_index(make_index(6), path)
    content = path.read_bytes()
    for size in (0, 8, 15, 40, len(content) // 2):
        path.write_bytes(content[:size])
        with pytest.raises(SnapshotError):
            load_index(path)
    path.write_bytes(b"x" + content[1:])
    with pytest.raises(SnapshotError, match="not a snapshot"):
        load_index(path)
