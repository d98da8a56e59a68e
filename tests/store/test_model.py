"""Both stores against a model of plain dictionaries, under any order of calls, by hypothesis."""

from __future__ import annotations

import tempfile
from pathlib import Path

from denwatch.node.store import Storage
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.store.places import DiskPlace, MemoryPlace, Place

SPACES = st.sampled_from(["a", "b.c", "item"])
KEYS = st.binary(max_size=3)
CHANGES = st.lists(st.tuples(SPACES, KEYS, st.none() | st.binary(max_size=5)), max_size=8)
RECORDS = st.lists(st.binary(min_size=1, max_size=4), max_size=3)
Model = dict[tuple[str, bytes], bytes]


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to the model, and compares."""

    place: Place
    store: Storage

    def __init__(self) -> None:
        super().__init__()
        self.seen: Model = {}
        self.safe: Model = {}
        self.logs: list[bytes] = []  # applied
        self.safe_logs: list[bytes] = []  # committed
        self.settled = 1
        self.dropped = 1  # with the next commit
        self.ends = {1}  # numbers at which an outbox row ends
        self.epoch = 0

    @initialize(is_disk=st.booleans())
    def begin(self, is_disk: bool) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.place = DiskPlace(Path(self.directory.name)) if is_disk else MemoryPlace()
        self.reopen()

    def reopen(self) -> None:
        self.store = self.place.open()
        self.epoch += 1
        assert self.store.epoch == self.epoch
        self.forget()

    def forget(self) -> None:
        self.seen = dict(self.safe)
        self.logs = list(self.safe_logs)
        self.dropped = self.settled

    @rule(changes=CHANGES, records=RECORDS)
    def apply(self, changes: list[tuple[str, bytes, bytes | None]], records: list[bytes]) -> None:
        self.store.apply(changes, records)
        self.logs += records
        for space, key, value in changes:
            if value is None:
                self.seen.pop((space, key), None)
            else:
                self.seen[space, key] = value

    @rule()
    def commit(self) -> None:
        self.store.commit()
        self.safe = dict(self.seen)
        self.safe_logs = list(self.logs)
        self.settled = self.dropped
        self.ends.add(len(self.logs) + 1)

    @rule(choice=st.randoms(use_true_random=False))
    def drop(self, choice: object) -> None:
        before = choice.choice(sorted(self.ends))  # type: ignore[attr-defined]
        self.store.drop_outbox(before)
        self.dropped = max(self.dropped, before)

    @rule()
    def roll_back(self) -> None:
        self.store.rollback()
        self.forget()

    @rule()
    def crash(self) -> None:
        self.place.crash(self.store)
        self.reopen()

    @rule()
    def close(self) -> None:
        self.store.close()
        self.reopen()

    @rule(space=SPACES, key=KEYS)
    def get(self, space: str, key: bytes) -> None:
        assert self.store.get(space, key) == self.seen.get((space, key))

    @rule(space=SPACES, prefix=st.binary(max_size=2))
    def scan(self, space: str, prefix: bytes) -> None:
        expected = sorted(
            (key, value)
            for (held, key), value in self.seen.items()
            if held == space and key.startswith(prefix)
        )
        assert list(self.store.scan(space, prefix)) == expected

    @invariant()
    def outbox_is_what_was_committed_and_not_dropped(self) -> None:
        if self.epoch:
            rows = self.store.read_outbox(1 << 60)
            assert b"".join(row.records for row in rows) == b"".join(
                self.safe_logs[self.dropped - 1 :]
            )
            assert self.store.next_number == len(self.logs) + 1
            assert self.store.settled == self.settled

    def teardown(self) -> None:
        if self.epoch:
            self.place.clean()
            self.directory.cleanup()


TestStores = StoreMachine.TestCase
TestStores.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
