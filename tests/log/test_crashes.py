"""The log is cut at every operation; and without each of its rules, the cuts find a loss."""

from __future__ import annotations

import re

import pytest
from denwatch.node.log import OutboxBatch, Writer, writer
from denwatch.node.log.writer import Recovered, recover

from simulator.memory_store import MemoryStore
from tests.log.crashes import Broken, make_writer, run_campaign, run_life
from tests.log.disk import CrashingFiles


@pytest.mark.parametrize("seed", range(4))
def test_cut_at_every_operation_no_record_is_lost_or_doubled(seed: int) -> None:
    assert run_campaign(seed) > 250


@pytest.mark.slow
def test_cut_at_every_operation_over_many_lives() -> None:
    for seed in range(100, 200):
        run_campaign(seed)


def find_breach(make: object, first: int = 0) -> str:
    """Run campaigns until one breaks a promise; return which, or nothing."""
    for seed in range(first, first + 6):
        try:
            run_campaign(seed, make)  # type: ignore[arg-type]
        except Broken as broken:
            return str(broken)
    return ""


class DropsFirst(Writer):
    """Without rule 1: rows are dropped before the segment that has them is synced."""

    def move(self, now: int, limit: int = 20_000) -> int:
        batch = self.take(limit)
        if batch.rows:
            self._store.drop_outbox(batch.rows[-1].first + batch.rows[-1].length)
            self._store.commit()
        return self.write(batch, now)


class ClosesEarly(Writer):
    """Without rule 2: a segment is closed while its rows are still in the outbox."""

    def take(self, limit: int = 20_000) -> OutboxBatch:
        return super().take(limit)._replace(settled=self.next_number)


def test_without_syncing_before_dropping_records_are_lost() -> None:
    def make(store: MemoryStore, files: CrashingFiles) -> Writer:
        return DropsFirst(store, files, segment_bytes=900, segment_age=20_000)

    assert re.search("lost|damage", find_breach(make))


def test_without_dropping_before_closing_records_are_doubled() -> None:
    def make(store: MemoryStore, files: CrashingFiles) -> Writer:
        return ClosesEarly(store, files, segment_bytes=900, segment_age=20_000)

    # Rare: the crash must come between the closing and the commit, and the operator even sooner.
    assert "twice" in find_breach(make, first=6)


def test_without_looking_how_far_segments_reach_records_are_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forget(files: CrashingFiles, node: str, settled: int, end: int) -> Recovered:
        return recover(files, node, settled, end)._replace(next=settled)

    monkeypatch.setattr(writer, "recover", forget)
    assert re.search("twice|repeats", find_breach(make_writer))


def test_without_syncing_segments_a_power_cut_loses_records() -> None:
    def make(store: MemoryStore, files: CrashingFiles) -> Writer:
        files.sync = files.read  # type: ignore[method-assign,assignment]
        return make_writer(store, files)

    assert re.search("lost|damage", find_breach(make))


def test_a_life_without_a_crash_is_not_empty() -> None:
    files, store = run_life(0)
    assert files > 30
    assert store > 50
