"""What became of every notification for every person who wants it, and why: the field's own truth.

From what a witness saw, by definitions alone: who wants what is asked of every pair of a reading
and a subscription; what was possible is played forward (`flood.py`); a `top k` is PrefSIENA's
Definition 6 over all that came to the person's node. The words for outcomes and causes are those of
`denwatch analyze`, whose answers must be these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from denwatch.client.compiler import compile_subscription
from denwatch.client.language import parse
from denwatch.client.vocabulary import Vocabulary
from denwatch.protocol import notification
from denwatch.protocol.matching import match, rate_age

from simulator.device import EmulatedDevice
from simulator.flood import Flood, Meeting, Wanted
from simulator.population import PlannedSubscription
from simulator.witness import Asked, Span, Witness


class Verdict(NamedTuple):
    """What became of one notification for one person; times in ms."""

    outcome: str  # hit, late, missed or wrong
    cause: str | None
    delivered: int | None
    node: str | None  # where it was delivered
    best: int | None
    best_node: str | None


class Pair(NamedTuple):
    """A notification that a person wants: at which degree, by which subscriptions, until when."""

    note: int
    owner: str
    degrees: dict[int, int]  # by subscription
    until: int | None
    withdrawn: int | None


class Judge:
    """Judges one day. `delay` is how long a reading takes to its node: nobody there can know."""

    def __init__(
        self,
        witness: Witness,
        devices: Mapping[str, EmulatedDevice],
        vocabulary: Vocabulary,
        terms: Mapping[str, PlannedSubscription],
        *,
        delay: int,
        end: int,
        late: int,
    ) -> None:
        self._witness = witness
        self._devices = devices
        self._vocabulary = vocabulary
        self._terms = terms
        self._delay = delay
        self._end = end
        self._late = late
        self.read_at = {
            note: devices[taken.device].told[taken.epoch, taken.sequence].time + delay
            for note, taken in witness.taken.items()
        }

    def judge(self) -> dict[tuple[int, str], Verdict]:
        """Return the verdicts, by notification and person."""
        witness = self._witness
        pairs = {(pair.note, pair.owner): pair for pair in self._find_pairs()}
        births = {note: (taken.node, taken.time) for note, taken in witness.taken.items()}
        births |= {asked.id: (asked.node, asked.begin) for asked in witness.asked.values()}
        wanted: dict[str, list[Wanted]] = {}
        for pair in pairs.values():
            wanted.setdefault(pair.owner, []).append(Wanted(pair.note, tuple(pair.degrees)))
        possible = Flood(births).run(witness.contacts, witness.stays, wanted)
        held_back = self._replay_top_k(pairs)
        verdicts = {
            key: self._judge_pair(pair, possible.get(key), held_back) for key, pair in pairs.items()
        }
        for key, (time, node) in witness.delivered.items():
            if key not in verdicts:
                cause = self._explain_wrong(*key)
                verdicts[key] = Verdict("wrong", cause, time, node, None, None)
        return verdicts

    # Who wants what -------------------------------------------------------------------------

    def _find_pairs(self) -> list[Pair]:
        vectors = {
            asked.id: compile_subscription(parse(asked.words), self._vocabulary).vector
            for asked in self._witness.asked.values()
        }
        found: dict[tuple[int, str], dict[int, int]] = {}
        for note, taken in self._witness.taken.items():
            told = self._devices[taken.device].told[taken.epoch, taken.sequence]
            reading = notification.decode(told.vector)
            for asked in self._witness.asked.values():
                if self._is_in_force(asked, note):
                    answer = match(vectors[asked.id], reading)
                    if answer is not None and answer.matched:
                        found.setdefault((note, asked.owner), {})[asked.id] = answer.possible
        return [
            Pair(*key, degrees, *self._find_ends(key[0], degrees)) for key, degrees in found.items()
        ]

    def _is_in_force(self, asked: Asked, note: int) -> bool:
        at = self.read_at[note]
        return asked.begin <= at and (asked.end is None or at < asked.end)

    def _find_ends(self, note: int, degrees: Mapping[int, int]) -> tuple[int | None, int | None]:
        """Return until when it is worth something, and when the last subscription ended."""
        asked = [self._witness.asked[each] for each in degrees]
        ends = [each.end for each in asked if each.end is not None]
        withdrawn = max(ends) if len(ends) == len(asked) else None
        lives = [self._find_life(each.words) for each in asked if self._terms[each.words].recent]
        stale = self.read_at[note] + max(lives) if len(lives) == len(asked) else None
        expires = self._witness.taken[note].expires or None
        limits = [limit for limit in (withdrawn, stale, expires) if limit is not None]
        return min(limits, default=None), withdrawn

    def _find_life(self, words: str) -> int:
        """Return the age in ms from which a reading is not recent any more, second by second."""
        vector = compile_subscription(parse(words), self._vocabulary).vector
        assert vector.recent is not None, words
        age = 0
        while rate_age(age, vector.recent) >= vector.threshold:
            age += 1
        return 1000 * age

    # What a node decides --------------------------------------------------------------------

    def _replay_top_k(self, pairs: Mapping[tuple[int, str], Pair]) -> set[tuple[int, str]]:
        """Return what is held back by k better ones that came before and still count."""
        held_back: set[tuple[int, str]] = set()
        shown: dict[
            int, list[tuple[int, int]]
        ] = {}  # by subscription: degree, and until when it counts
        for (node, note), time in self._witness.carried.items():  # in the order of arrival
            for owner in self._list_present(node, time):
                pair = pairs.get((note, owner))
                subscription = next(iter(pair.degrees)) if pair else 0
                terms = (
                    self._terms[self._witness.asked[subscription].words] if subscription else None
                )
                if not pair or not terms or not terms.top or len(pair.degrees) > 1:
                    continue
                until = time + terms.life  # from the decision on
                degree = pair.degrees[subscription]
                better = [d for d, end in shown.get(subscription, ()) if end > time and d > degree]
                if len(better) >= terms.top:
                    held_back.add((note, owner))
                else:
                    shown.setdefault(subscription, []).append((degree, until))
        return held_back

    def _list_present(self, node: str, time: int) -> list[str]:
        return [
            stay.one
            for stay in self._witness.stays
            if stay.other == node and stay.begin <= time < stay.end
        ]

    # Judging --------------------------------------------------------------------------------

    def _judge_pair(
        self, pair: Pair, meeting: Meeting | None, held_back: set[tuple[int, str]]
    ) -> Verdict:
        key = pair.note, pair.owner
        delivered = self._witness.delivered.get(key)
        limit = self._end if pair.until is None else min(self._end, pair.until)
        best = meeting if meeting is not None and meeting.time < limit else None
        ends = (best.time, best.node) if best else (None, None)
        if delivered is None:
            cause = self._explain_missed(pair, meeting, best, limit, key in held_back)
            is_asked = cause in ("top-k", "withdrawn")
            return Verdict("withheld" if is_asked else "missed", cause, None, None, *ends)
        if delivered[0] - self.read_at[pair.note] <= self._late:
            return Verdict("hit", None, *delivered, *ends)
        return Verdict("late", self._explain_late(pair, best), *delivered, *ends)

    def _explain_late(self, pair: Pair, best: Meeting | None) -> str:
        if best is None or best.time - self.read_at[pair.note] <= self._late:
            return "replication"
        return "away" if best.awaited == "person" else "partition"

    def _explain_missed(
        self, pair: Pair, meeting: Meeting | None, best: Meeting | None, limit: int, is_worse: bool
    ) -> str:
        if is_worse:
            return "top-k"
        if self._came_too_late(pair):
            return "expired"
        if (pair.note, pair.owner) in self._witness.handed:
            return "unacknowledged"
        if best is not None:
            return "replication"
        if meeting is not None:
            return "withdrawn" if pair.withdrawn == pair.until else "expired"
        born = self._witness.taken[pair.note].time
        stays = [stay for stay in self._witness.stays if stay.one == pair.owner]
        if not any(stay.begin < limit and stay.end > born for stay in stays):
            return "away"
        return "partition"

    def _came_too_late(self, pair: Pair) -> bool:
        """Return whether it was with its person, but over: then the node holds it back."""
        if pair.until is None or pair.until == pair.withdrawn:
            return False
        return any(
            self._meets(stay, pair) for stay in self._witness.stays if stay.one == pair.owner
        )

    def _meets(self, stay: Span, pair: Pair) -> bool:
        came = self._witness.carried.get((stay.other, pair.note))
        return came is not None and came < stay.end

    def _explain_wrong(self, note: int, owner: str) -> str:
        """Return why something was delivered that its person does not want."""
        causes = []
        at = self.read_at[note]
        for asked in self._witness.asked.values():
            if asked.owner == owner:
                is_ended = asked.end is not None and at >= asked.end
                causes.append("early" if at < asked.begin else "ended" if is_ended else "no match")
        return min(causes, default="unknown")
