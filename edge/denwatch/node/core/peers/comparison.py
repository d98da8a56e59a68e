"""What two nodes say about their knowledge in one exchange, and what follows from it.

No frames, no link: this file makes and reads the contents of summary, answer and completion. It
also believes what a peer says is dead. One comparison belongs to one exchange.

With many runs changed, the other side first sends hashes of groups of runs, and only the groups
that differ are spoken of: two nodes in a busy network have mostly learnt the same from others.
"""

from __future__ import annotations

from math import isqrt

from denwatch.node.core.peers.intake import Intake
from denwatch.node.core.peers.kit import Kit
from denwatch.node.core.peers.records import PeerRecord
from denwatch.node.core.transaction import Transaction
from denwatch.node.replication.dot_sets import Run, Spans, differ, find_group, intersect, subtract
from denwatch.node.replication.wire import (
    Answer,
    Completion,
    EntryDifference,
    Summary,
    SummaryEntry,
)
from denwatch.protocol.errors import ProtocolError

_Told = tuple[Run, Spans, Spans]  # a run, what was seen of it, what is dead


class Comparison:
    """One side of it."""

    def __init__(self, kit: Kit, record: PeerRecord, intake: Intake) -> None:
        self.version = kit.ledger.version  # what we speak of
        self.named: list[Run] = []  # runs that we named, to be known by number later
        self.theirs: dict[Run, Spans] = {}  # what the peer has seen, of all runs spoken of
        self.their_table: tuple[int, list[Run]] = (0, [])
        self._said: list[tuple[Run, Spans]] = []  # what we said of runs, in order
        self._kit = kit
        self._record = record
        self._intake = intake
        self._count = 0  # of groups; 0 if all is spoken of
        self._picked: frozenset[int] = frozenset()

    # Groups ---------------------------------------------------------------------------------

    def choose_groups(self) -> int:
        """Return into how many groups to put the runs; 0 if there are too few to be worth it."""
        changed = len(self._list_changed())
        if changed < self._kit.settings.group_from:
            return 0
        return min(255, max(2, 2 * isqrt(changed)))

    def hash_groups(self, salt: bytes, count: int) -> list[bytes]:
        """Return the hash of each group."""
        self._count = count
        return self._kit.ledger.hash_groups(salt, count)

    def pick(self, differing: frozenset[int]) -> None:
        """Speak only of these groups from now on."""
        self._picked = differing

    # Saying ---------------------------------------------------------------------------------

    def summarise(self, salt: bytes, time: int) -> Summary:
        """Return what changed here since the peer's acknowledgement."""
        entries = self._list_entries({})
        return Summary(salt, time, self._record.told_token, len(self._record.indices), entries)

    def is_foreign(self, token: bytes, table: int) -> bool:
        """Return whether the peer speaks of a state, or of names, that we do not have."""
        return not self._record.knows(token) or table > len(self._record.names)

    def answer(self, transaction: Transaction, summary: Summary, time: int, lag: int) -> Answer:
        """Take a summary, and return how we differ and what changed here."""
        told = self._resolve(summary.entries, summary.table)
        self._believe(transaction, told)
        self.their_table = (summary.table, _list_named(summary.entries))
        self.theirs = {run: seen for run, seen, _ in told}
        entries = self._list_entries(self.theirs)
        record = self._record
        changes = self._compare(told)
        return Answer(time, lag, record.told_token, changes, len(record.indices), entries)

    def complete(self, transaction: Transaction, answer: Answer, time: int, lag: int) -> Completion:
        """Take an answer, and return how we differ from its own entries."""
        theirs = self._read_changes(answer.differences)
        told = self._resolve(answer.entries, answer.table)
        self._believe(transaction, theirs + told)
        self.their_table = (answer.table, _list_named(answer.entries))
        self.theirs = {run: seen for run, seen, _ in theirs + told}
        return Completion(time, lag, self._compare(told))

    def conclude(self, transaction: Transaction, completion: Completion) -> None:
        """Take a completion."""
        theirs = self._read_changes(completion.differences)
        self._believe(transaction, theirs)
        self.theirs |= {run: seen for run, seen, _ in theirs}

    def list_theirs(self) -> dict[Run, Spans]:
        """Return what the peer has seen, of all runs of which it may lack something.

        What was kept back earlier, of runs that changed at neither side, is remembered; in a group
        that is equal nothing is lacking."""
        kept = {
            run: seen
            for run, seen in self._record.withheld.items()
            if seen is not None and self._is_spoken_of(run)
        }
        return kept | self.theirs

    def _list_changed(self) -> list[Run]:
        changed = set(self._kit.ledger.list_changed(self._record.told_version))
        unclear = {run for run, seen in self._record.withheld.items() if seen is None}
        return [run for run in sorted(changed | unclear) if self._is_spoken_of(run)]

    def _is_spoken_of(self, run: Run) -> bool:
        return not self._count or find_group(run, self._count) in self._picked

    def _list_entries(self, known: dict[Run, Spans]) -> tuple[SummaryEntry, ...]:
        """Return what the peer is to hear of runs it did not speak of, known numbers first."""
        if not self._count:  # groups were compared earlier: that is what we speak of then
            self.version = self._kit.ledger.version
        dead = self._kit.ledger.list_dead(self._record.told_version)
        runs = [run for run in self._list_changed() if run not in known]
        indices = self._record.indices
        numbered = sorted((run for run in runs if run in indices), key=indices.__getitem__)
        self.named = [run for run in runs if run not in indices]
        entries = []
        for run in (*numbered, *self.named):
            seen = self._kit.ledger.list_seen(run)
            self._said.append((run, seen))
            entries.append(SummaryEntry(indices.get(run, run), seen, dead.get(run, ())))
        return tuple(entries)

    def _compare(self, told: list[_Told]) -> tuple[EntryDifference, ...]:
        died = self._kit.ledger.list_dead(self._record.told_version)
        return tuple(
            EntryDifference(
                differ(self._kit.ledger.list_seen(run), seen), subtract(died.get(run, ()), dead)
            )
            for run, seen, dead in told
        )

    # Reading --------------------------------------------------------------------------------

    def _read_changes(self, changes: tuple[EntryDifference, ...]) -> list[_Told]:
        if len(changes) != len(self._said):
            raise ProtocolError(f"{len(changes)} changes to {len(self._said)} entries")
        return [
            (run, differ(seen, change.differs), change.dead)
            for (run, seen), change in zip(self._said, changes, strict=True)
        ]

    def _resolve(self, entries: tuple[SummaryEntry, ...], table: int) -> list[_Told]:
        told = [
            (self._record.resolve(entry.run, table), entry.seen, entry.dead) for entry in entries
        ]
        if len({run for run, _, _ in told}) != len(told):
            raise ProtocolError("one run in two entries")
        return told

    def _believe(self, transaction: Transaction, told: list[_Told]) -> None:
        """Believe what is dead: all of it, or nothing if one set is impossible."""
        found = [(run, intersect(dead, seen)) for run, seen, dead in told if dead]
        for run, dead in found:
            self._kit.ledger.check(run, dead)
        for run, dead in found:
            self._intake.bury(transaction, run, dead)


def _list_named(entries: tuple[SummaryEntry, ...]) -> list[Run]:
    return [entry.run for entry in entries if not isinstance(entry.run, int)]
