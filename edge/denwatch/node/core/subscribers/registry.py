"""All subscriptions that a node knows, in the matchers of their languages.

Only this file gives subscriptions their numbers in a matcher, and says which of those that a
matcher finds are in force for a notification.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from denwatch.node.core.items import Item
from denwatch.node.core.subscribers.notes import Note, describe_content_values
from denwatch.node.core.subscribers.people import Owner, Sub, read_subscription
from denwatch.node.core.subscribers.settings import Clock
from denwatch.node.core.subscribers.tables import Hit
from denwatch.node.core.vocabularies import Vocabularies
from denwatch.node.matching.batch import pack_notifications, pack_subscriptions
from denwatch.node.matching.plugins import FUZZY, Matcher, MatcherPlugins
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.vectors import SubscriptionVector

_AGE = 0  # a notification matches as it was when it was read


class Registry:
    """Subscriptions by id, by number and by owner."""

    def __init__(self, vocabularies: Vocabularies, clock: Clock, plugins: MatcherPlugins) -> None:
        self.owners: dict[str, Owner] = {}
        self.by_id: dict[int, Sub] = {}  # live ones, and ended ones that matches wait for
        self._vocabularies = vocabularies
        self._clock = clock
        self._plugins = plugins
        self._matchers: dict[int, Matcher[Any, Any]] = {}
        self._numbers: list[Sub | None] = []
        self._free: list[int] = []

    def find_owner(self, name: str) -> Owner:
        """Return a subscriber, who is new at the first time."""
        owner = self.owners.get(name)
        if owner is None:
            owner = self.owners[name] = Owner(name)
        return owner

    @property
    def count(self) -> int:
        """How many are live."""
        return len(self._numbers) - len(self._free)

    def read(self, item: Item) -> tuple[Sub, Any]:
        """Return the subscription of an item and what its matcher takes; ProtocolError if none."""
        body, content = read_subscription(item)
        sub = Sub(item, body, self.find_owner(body.owner))
        if isinstance(content, SubscriptionVector):
            sub.adopt(content)
        return sub, content

    def add(self, item: Item) -> Sub:
        """Put a subscription in force; ProtocolError for an item that is none."""
        sub, content = self.read(item)
        number = self._take_number()
        try:
            self._find_matcher(sub.language).add(number, content)
        except (ValueError, KeyError) as error:
            self._free.append(number)
            raise ProtocolError(f"no matcher takes this subscription: {error}") from None
        self._enter(sub, number)
        sub.owner.assign_levels()
        return sub

    def add_many(self, items: Iterable[Item]) -> list[Sub]:
        """Put many in force at once, as after a restart; what is no subscription is passed over."""
        added: list[Sub] = []
        pairs: list[tuple[int, SubscriptionVector]] = []
        for item in items:
            try:
                sub, content = self.read(item)
            except ProtocolError:
                continue
            number = self._take_number()
            if sub.language == FUZZY:
                pairs.append((number, content))
            else:
                self._find_matcher(sub.language).add(number, content)
            self._enter(sub, number)
            added.append(sub)
        if pairs:
            index: Any = self._find_matcher(FUZZY)
            index.add_batch(pack_subscriptions(pairs))
        for owner in {id(sub.owner): sub.owner for sub in added}.values():
            owner.assign_levels()
        return added

    def keep_ended(self, item: Item) -> Sub:
        """Know a subscription that is not in force, for what it matched before it ended."""
        sub, _ = self.read(item)
        sub.is_live = False
        self.by_id[sub.id] = sub
        return sub

    def withdraw(self, sub: Sub, *, is_kept: bool) -> None:
        """Take a subscription out of force; one that is kept is still known by its id."""
        if sub.is_live:
            self._find_matcher(sub.language).remove(sub.number)
            self._numbers[sub.number] = None
            self._free.append(sub.number)
            sub.is_live = False
            sub.owner.leave(sub)
            sub.owner.assign_levels()
        if not is_kept:
            self.by_id.pop(sub.id, None)

    def match(self, note: Note, now: int) -> list[Hit]:
        """Return the hits of a notification among all that are in force for it, by rising id."""
        return self.match_many((note,), now)[0]

    def match_many(self, notes: Sequence[Note], now: int) -> list[list[Hit]]:
        """Return the hits of each notification."""
        found: list[list[Hit]] = [[] for _ in notes]
        for language, matcher in self._matchers.items():
            if language == FUZZY:
                self._match_fuzzy(matcher, notes, now, found)
            elif len(matcher):
                for note, hits in zip(notes, found, strict=True):
                    rows = matcher.match(describe_content_values(note))
                    self._add_valid(note, now, rows, hits)
        for hits in found:
            hits.sort()
        return found

    def _match_fuzzy(
        self, index: Any, notes: Sequence[Note], now: int, found: list[list[Hit]]
    ) -> None:
        readings = pack_notifications([note.vector for note in notes], [_AGE] * len(notes))
        hits = index.match_batch(readings)
        if not len(hits.ids):
            return
        rows = list(
            zip(
                hits.ids.tolist(),
                hits.possible.tolist(),
                hits.certain.tolist(),
                (hits.attributes & 15).tolist(),
                strict=True,
            )
        )
        starts = hits.starts.tolist()
        for place, note in enumerate(notes):
            self._add_valid(note, now, rows[starts[place] : starts[place + 1]], found[place])

    def _add_valid(
        self, note: Note, now: int, rows: Iterable[tuple[int, int, int, int]], hits: list[Hit]
    ) -> None:
        for number, possible, certain, attribute in rows:
            sub = self._numbers[number]
            assert sub is not None, "a matcher knows what is not in force"
            if self.is_valid(sub, note, now):
                hits.append((sub.id, possible, certain, attribute))

    def is_valid(self, sub: Sub, note: Note, now: int) -> bool:
        """Return whether a subscription is in force for a notification.

        It was there when the reading was made, as far as clocks can tell, and had not ended; and
        the vocabularies of both mean the same by the codes that it asks for.
        """
        begin, end, earliest, latest = sub.created, sub.expires, note.at, note.at
        if sub.run != note.run:  # times of two timelines: whatever is possible counts
            localise, doubt = self._clock.localise, self._clock.doubt
            begin = localise(sub.dot, begin) - 2 * doubt(*sub.run, now)
            end = localise(sub.dot, end) if end else 0
            latest = localise(note.dot, note.at)
            earliest = latest - 2 * doubt(*note.run, now)
        if begin - note.doubt > latest or (end and earliest >= end):
            return False
        if sub.vocabulary == note.vocabulary or sub.event < 0:
            return True
        return self._vocabularies.agree(sub.vocabulary, note.vocabulary, sub.event, sub.features)

    def list_hits(self, owner: Owner, hits: Iterable[Hit]) -> list[tuple[Sub, int, int, int]]:
        """Return those hits that are one owner's and still known."""
        by_id = self.by_id
        found = []
        for id, possible, certain, attribute in hits:
            sub = by_id.get(id)
            if sub is not None and sub.owner is owner:
                found.append((sub, possible, certain, attribute))
        return found

    def _enter(self, sub: Sub, number: int) -> None:
        sub.number = number
        self._numbers[number] = sub
        self.by_id[sub.id] = sub
        sub.owner.enter(sub)

    def _take_number(self) -> int:
        if self._free:
            return self._free.pop()
        self._numbers.append(None)
        return len(self._numbers) - 1

    def _find_matcher(self, language: int) -> Matcher[Any, Any]:
        matcher = self._matchers.get(language)
        if matcher is None:
            matcher = self._matchers[language] = self._plugins.make_matcher(language)
        return matcher
