"""Which vectors devices are requested to match, which of them need not be sent, and which fit.

THEORY. A *requested vector* is a subscription's vector without handle and validity; equal ones of
many subscribers are one, so that a device hears it once. That also keeps equal vectors from being
told apart by covering, which cannot see that two inexact vectors are the same.

Devices that sense the same attributes of an event share one `Coverage`: a thousand devices cost one
decision a subscription. A vector that the *active* ones cover is *passive*: it is not sent, since
whatever matches it matches an active one, and the node matches again. When what covered it goes,
it becomes active.

DOUBT      a reading with doubt can match a covered vector and none of those that cover it for
           exact readings. So devices whose readings of an event may be uncertain share a coverage
           of their own, which covers less: see "Doubt" in `covering/README.md`. A hello says which
           attributes have an accuracy; a device that does not say so may have doubt everywhere.
           One that promised exact readings and sends another is remembered for it.
LEASES     an active vector must stay on the device as long as any vector that it stands for, also
           where nobody can reach the device when its own subscription ends. So all active ones are
           leased for as long as the passive ones live. What had to be extended once gets twice the
           time that it needs: who subscribes to the same day by day shall not cost a frame each.
EXAMPLE    "temperature above 38" is active, valid for a day; "above 39, for a week" comes: passive,
           and the first is leased for a week. The first is removed: "above 39" becomes active.

ROOM       a `DeviceKind` is all devices that sense the same and have the same room. As long as all
           active vectors fit, they get all. Otherwise those come first that serve most
           subscriptions, their own and the ones they cover, then those with the highest scores; the
           rest is counted, and the log reports it. Choosing anew is work for a tick, not for every
           subscription.

NAMES      a device sends the attributes that its vectors name, and no others. A passive vector's
           must not be missing from what an active one lets it send, nor the old readings that its
           restrictors ask for. So where the installed vectors do not name all that is requested,
           a device gets a *naming vector* too: it names the attributes and matches nothing. It is
           all attributes if a subscription asks for the whole reading, or the node does.

Nothing is written here: the subscriptions are items, and covering is worked out anew at a start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from denwatch.node.core.items import SubscriptionBody
from denwatch.node.core.languages import StoredSubscription
from denwatch.node.covering import Covering, Domains, Policy
from denwatch.node.covering.boxes import ATTRIBUTES_PER_EVENT, box_doubtful, box_vector
from denwatch.protocol import subscription
from denwatch.protocol.errors import ProtocolError
from denwatch.protocol.subscription import MORE, RESTRICTORS, decode, encode
from denwatch.protocol.vectors import Predicate, SubscriptionVector

Masks = tuple[int, int]  # features, and those of them with 16 bits
Sensed = Mapping[int, Masks]  # by event
FOREVER = 1 << 62  # ms; later than any time
_DEADLINE = 2  # bytes beside a vector that has a validity
_MEMORY = 8  # bytes beside a vector that has a significance, and two for each attribute
HEAD = 6  # bytes before the vectors of one event and feature mask


class RequestedVector:
    """One vector that devices shall match; `ids` are the subscriptions that request it.

    Nearly all are requested by one, and there may be many: so one alone is kept without a list.
    """

    __slots__ = (
        "_others",
        "body",
        "expires",
        "features",
        "first",
        "score",
        "vocabulary",
        "wholes",
        "wides",
    )

    def __init__(self, vocabulary: bytes, body: bytes, masks: Masks) -> None:
        self.vocabulary = vocabulary
        self.body = body
        self.features, self.wides = masks
        self.first: int | None = None
        self._others: list[int] | None = None  # who came after the first
        self.expires = 0  # when the last of them does, in our timeline
        self.score = 0.0
        self.wholes = 0  # how many of them ask for the whole reading

    @property
    def ids(self) -> list[int]:
        """The subscriptions that request it, in order."""
        return [] if self.first is None else [self.first, *(self._others or ())]

    def add_id(self, id: int) -> None:
        """Let one more subscription request it."""
        if self.first is None:
            self.first = id
        elif self._others is None:
            self._others = [id]
        else:
            self._others.append(id)

    def remove_id(self, id: int) -> bool:
        """Let a subscription request it no more; return whether it did."""
        others = self._others or []
        if self.first == id:
            self.first = others.pop(0) if others else None
        elif id in others:
            others.remove(id)
        else:
            return False
        self._others = others or None
        return True

    @property
    def event(self) -> int:
        """The event that it asks about."""
        return self.body[0] & 63

    def fits(self, masks: Masks) -> bool:
        """Return whether a device with these features can evaluate it."""
        return not self.features & ~masks[0] and self.wides == masks[1] & self.features


def strip_vector(vector: bytes) -> bytes:
    """Return a vector without handle and validity: itself, if it has none."""
    if vector[2:4] == b"\0\0" and vector[5:6] == b"\0":
        return vector
    return vector[:2] + bytes(2) + vector[4:5] + bytes(1) + vector[6:]


def address_vector(body: bytes, handle: int, validity: int) -> bytes:
    """Return a requested vector as a device gets it."""
    return body[:2] + handle.to_bytes(2, "big") + body[4:5] + bytes([validity]) + body[6:]


def read_masks(body: bytes) -> Masks:
    """Return the features of a vector, and the wide ones; ProtocolError if it is none."""
    s = subscription.decode(body)
    wides = 0
    for p in s.predicates:
        wides |= (1 << p.attribute) if p.wide else 0
    return s.features, wides


@lru_cache(maxsize=8192)
def list_names(body: bytes) -> tuple[tuple[int, int], ...]:
    """Return the attributes that a vector names, each with its restrictor (0: it has none)."""
    features = int.from_bytes(body[6:8], "big")
    bits = [bit for bit in range(16) if features >> bit & 1]
    has_restrictors = body[1] & 8 and body[8] & MORE and body[9] & RESTRICTORS
    codes = decode(body).restrictors if has_restrictors else bytes(len(bits))
    return tuple(zip(bits, codes, strict=True))


def name_head(body: bytes) -> bytes:
    """Return event and required features: vectors that share them share a head on the device."""
    required = sum(1 << bit for bit, code in list_names(body) if not code)
    return bytes([body[0] & 63]) + required.to_bytes(2, "big")


class NamedAttributes:
    """The attributes that some vectors name, and how old their readings may be at most."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, int]] = Counter()

    def add(self, body: bytes) -> None:
        """Count a vector's attributes."""
        self._counts.update(list_names(body))

    def remove(self, body: bytes) -> None:
        """Count them no longer."""
        for name in list_names(body):
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]

    def find(self) -> dict[int, int]:
        """Return the highest restrictor of each attribute that is named."""
        return dict(sorted(self._counts))


def build_naming(event: int, names: Mapping[int, int], wides: int) -> bytes:
    """Return a vector that names attributes and matches nothing: its first predicate never holds.

    `names` has a restrictor for each attribute.
    """
    predicates: list[Predicate] = []
    for bit in sorted(names):
        is_wide = bool(wides >> bit & 1)
        last = 65535 if is_wide else 255
        predicates.append(Predicate(bit, 0, last, negated=not predicates, wide=is_wide))
    codes = bytes(names[bit] for bit in sorted(names))
    restrictors = codes if any(codes) else b""
    return encode(SubscriptionVector(event, predicates, threshold=255, restrictors=restrictors))


def measure_vector(body: bytes) -> int:
    """Return the bytes that a device needs for it, apart from the head that it may share."""
    size = len(body) + _DEADLINE
    if body[1] & 8 and body[8] & 0x80 and body[9] & 8:  # it has a significance
        size += _MEMORY + 2 * int.from_bytes(body[6:8], "big").bit_count()
    return size


class RequestedVectors:
    """All requested vectors, by event and vocabulary, then by vector."""

    def __init__(self, lower: Callable[[StoredSubscription], bytes | None]) -> None:
        """`lower` returns the vector that serves a subscription; None: devices have none for it."""
        self._lower = lower
        self._by_event: dict[int, dict[bytes, dict[bytes, RequestedVector]]] = {}

    def iterate(self, event: int) -> Iterator[RequestedVector]:
        """Yield the vectors about an event, in whatever vocabulary."""
        for vectors in self._by_event.get(event, {}).values():
            yield from vectors.values()

    def add(
        self,
        id: int,
        body: StoredSubscription,
        expires: int,
        score: float,
        masks: Masks | None = None,
        *,
        is_whole: bool = False,
    ) -> tuple[RequestedVector, bool] | None:
        """Add a subscription; return its vector and whether that is new, None: not for devices.

        `masks` are those of its vector, where they are at hand.
        """
        lowered = self._lower(body)
        if lowered is None:
            return None
        key = strip_vector(lowered)
        vectors = self._by_event.setdefault(key[0] & 63, {}).setdefault(body.vocabulary, {})
        vector = vectors.get(key)
        is_new = vector is None
        if vector is None:
            try:
                masks = masks or read_masks(key)
                vector = vectors[key] = RequestedVector(body.vocabulary, key, masks)
            except ProtocolError:
                return None
        vector.add_id(id)
        vector.expires = max(vector.expires, expires)
        vector.score = vector.score + score if vector.score else score
        vector.wholes += is_whole
        return vector, is_new

    def find_vector(self, body: StoredSubscription) -> bytes | None:
        """Return the vector that devices are asked to match for a subscription, if there is one."""
        lowered = self._lower(body)
        return None if lowered is None else strip_vector(lowered)

    def remove(self, id: int, body: SubscriptionBody) -> tuple[RequestedVector, bool] | None:
        """Remove a subscription; return its vector and whether nobody requests it any more."""
        lowered = self._lower(body)
        if lowered is None:
            return None
        key = strip_vector(lowered)
        vectors = self._by_event.get(key[0] & 63, {}).get(body.vocabulary, {})
        vector = vectors.get(key)
        if vector is None or not vector.remove_id(id):
            return None
        vector.score -= read_score(body)
        vector.wholes -= asks_whole(body)
        is_unrequested = vector.first is None
        if is_unrequested:
            del vectors[key]
        return vector, is_unrequested


def read_score(body: SubscriptionBody) -> float:
    """Return what a match of a subscription is worth to its subscriber."""
    return float(body.options.get("score", 1))


def asks_whole(body: SubscriptionBody) -> bool:
    """Return whether a subscriber wants all values of a reading."""
    return bool(body.options.get("whole"))


_LEAST_CHANGES = 32  # before a table is built anew
_WIDE = (0, 65535)


class CoverageKey(NamedTuple):
    """What devices have in common that share a table."""

    vocabulary: bytes
    event: int
    masks: Masks
    is_doubtful: bool


class CoverageChange(NamedTuple):
    """Vectors that devices must hear of: because they came, went, or must stay longer."""

    added: list[bytes]
    dropped: list[bytes]
    renewed: list[bytes]


class Coverage:
    """The requested vectors about one event that fit one set of features."""

    def __init__(self, key: CoverageKey, policy: Policy, is_whole: bool = False) -> None:
        """`is_whole`: devices shall send whole readings, whoever asks for them."""
        self.key = key
        self.is_renamed = False  # what is asked for, or who asks for the whole, has changed
        self._is_whole = is_whole
        self._wholes: set[bytes] = set()  # requested by somebody who wants the whole reading
        self._asked = NamedAttributes()
        self.active: dict[bytes, None] = {}
        self.waiting: dict[bytes, None] = {}  # to be placed
        # By vector. Several requested ones have the same if they are of several vocabularies.
        self._requested: dict[bytes, list[RequestedVector]] = {}
        base = ATTRIBUTES_PER_EVENT * key.event
        wides = {base + bit: _WIDE for bit in range(16) if key.masks[1] >> bit & 1}
        self._table: Covering[bytes] = Covering(Domains(special=wides), policy)
        self._make_boxes = box_doubtful if key.is_doubtful else box_vector
        self._by: dict[bytes, bytes] = {}  # passive ones that one active one covers alone
        self._covered: dict[bytes, dict[bytes, None]] = {}  # the reverse
        self._leases: dict[bytes, int] = {}  # of placed requested, for their own sake
        self._horizon = 0  # the lease of all active ones, for the sake of the passive ones
        self._changes = 0  # since the table was built anew

    @property
    def name(self) -> str:
        """What the log calls it."""
        doubt = "?" if self.key.is_doubtful else ""
        features, wides = self.key.masks
        vocabulary = self.key.vocabulary.hex()
        return f"{vocabulary}/{self.key.event}/{features:04x}/{wides:04x}{doubt}"

    def __len__(self) -> int:
        return len(self._leases)

    def find_lease(self, body: bytes) -> int:
        """Return until when an active vector must stay on a device."""
        return max(self._leases[body], self._horizon)

    def name_item(self, body: bytes) -> int:
        """Return the first subscription that requests a vector."""
        return self._requested[body][0].ids[0]

    def rate(self, body: bytes) -> tuple[int, float]:
        """Return how many subscriptions an active vector serves, covered ones too; its score."""
        served = [body, *self._covered.get(body, ())]
        count = sum(len(vector.ids) for one in served for vector in self._requested[one])
        return count, sum(vector.score for vector in self._requested[body])

    def get_coverer(self, body: bytes) -> bytes | None:
        """Return the active vector that covers a passive one alone, if that is known."""
        return self._by.get(body)

    def find_names(self) -> dict[int, int]:
        """Return the attributes that devices must send, with how old they may be."""
        names = self._asked.find()
        if names and (self._is_whole or self._wholes):
            features = self.key.masks[0]
            names = {bit: names.get(bit, 0) for bit in range(16) if features >> bit & 1}
        return names

    def explain(self, body: bytes) -> tuple[str, list[int]] | None:
        """Return whether a vector is active, passive or waits, and the subscriptions that cover it.

        None if it is not requested of these devices.
        """
        if body not in self._requested:
            return None
        if body in self.waiting:
            return "waiting", []
        if body in self.active:
            return "active", []
        return "passive", [self.name_item(each) for each in self._table.explain(body)]

    # Changing ---------------------------------------------------------------------------------

    def offer(self, vector: RequestedVector) -> bool:
        """Add a vector; return whether its bytes are new here, so that `place` decides on it."""
        is_new = vector.body not in self._requested
        self._requested.setdefault(vector.body, []).append(vector)
        self._note_whole(vector.body)
        if is_new:
            self.waiting[vector.body] = None
            self._asked.add(vector.body)
            self.is_renamed = True
        return is_new

    def _note_whole(self, body: bytes) -> None:
        """Note whether somebody who requests a vector asks for the whole reading."""
        is_whole = any(vector.wholes for vector in self._requested.get(body, ()))
        if is_whole != (body in self._wholes):
            self._wholes ^= {body}
            self.is_renamed = True

    def place(self, limit: int, now: int) -> CoverageChange:
        """Decide on at most so many of the vectors that wait."""
        change = CoverageChange([], [], [])
        for body in list(self.waiting)[:limit]:
            del self.waiting[body]
            self._leases[body] = self._find_end(body)
            self._changes += 1
            placement = self._table.subscribe(body, self._make_boxes(decode(body)))
            if placement.active:
                self._activate(body, change)
            else:
                if placement.by is not None:
                    self._by[body] = placement.by
                    self._covered.setdefault(placement.by, {})[body] = None
                self._reach(self._leases[body], now, change)
        return change

    def withdraw(self, vector: RequestedVector) -> CoverageChange:
        """Remove a vector, if it is here; passive ones that it covered become active."""
        change = CoverageChange([], [], [])
        body = vector.body
        requested = self._requested.get(body, [])
        if vector not in requested:
            return change
        requested.remove(vector)
        self._note_whole(body)
        if requested:
            return change
        del self._requested[body]
        self._asked.remove(body)
        self.is_renamed = True
        if body in self.waiting:
            del self.waiting[body]
            return change
        self._changes += 1
        del self._leases[body]
        self._uncover(body)
        if body in self.active:
            del self.active[body]
            change.dropped.append(body)
        back = self._table.unsubscribe(body)
        for other in self._covered.pop(body, ()):
            del self._by[other]
        for other in back:
            self._activate(other, change)
        return change

    def renew(self, body: bytes, now: int) -> CoverageChange:
        """Note that a vector which is here already may have to stay longer, or be sent whole."""
        change = CoverageChange([], [], [])
        self._note_whole(body)
        end = self._find_end(body)
        if body in self.active:
            is_short = end > self.find_lease(body)
            if end > self._leases[body]:
                self._leases[body] = _extend(end, now)
            if is_short:
                change.renewed.append(body)
        elif body not in self.waiting:
            self._reach(end, now, change)
        return change

    def rebuild(self, limit: int) -> CoverageChange:
        """Place all anew, the widest first, if much has changed and it is not too much work."""
        change = CoverageChange([], [], [])
        size = len(self)
        if self._changes < max(_LEAST_CHANGES, size // 2) or size > limit:
            return change
        self._changes = 0
        moved = self._table.rebuild()
        self._by.clear()
        self._covered.clear()
        for body in moved.activated:
            self._activate(body, change)
        longest = self._horizon
        for body in moved.silenced:
            del self.active[body]
            change.dropped.append(body)
            longest = max(longest, self._leases[body])
        if longest > self._horizon:
            self._horizon = longest
            self._list_short(change)
        return change

    def _find_end(self, body: bytes) -> int:
        """Return when the last subscription that asks for it ends."""
        return max(vector.expires for vector in self._requested[body])

    def _activate(self, body: bytes, change: CoverageChange) -> None:
        self._uncover(body)
        self._leases[body] = max(self._leases[body], self._find_end(body))
        self.active[body] = None
        change.added.append(body)

    def _uncover(self, body: bytes) -> None:
        by = self._by.pop(body, None)
        if by is not None:
            del self._covered[by][body]

    def _reach(self, expires: int, now: int, change: CoverageChange) -> None:
        """Lease the active ones for as long as a passive one lives."""
        if expires > self._horizon:
            self._horizon = _extend(expires, now) if self._horizon else expires
            self._list_short(change)

    def _list_short(self, change: CoverageChange) -> None:
        """Tell of the active ones that the horizon concerns."""
        change.renewed.extend(body for body in self.active if self._leases[body] < self._horizon)


def _extend(expires: int, now: int) -> int:
    """Return twice the time that is needed."""
    return expires if expires >= FOREVER else now + 2 * (expires - now)


# Kinds of devices ------------------------------------------------------------------------------


class DeviceKindKey(NamedTuple):
    """What devices have in common that get the same vectors."""

    coverages: tuple[CoverageKey, ...]
    capacity: int


class DeviceMemory:
    """The bytes that vectors take on a device: each its own, and a head for each feature set."""

    def __init__(self) -> None:
        self.used = 0
        self._heads: dict[bytes, int] = {}

    def measure(self, body: bytes) -> int:
        """Return what one more would take."""
        return measure_vector(body) + (0 if name_head(body) in self._heads else HEAD)

    def add(self, body: bytes) -> None:
        """Take room for a vector."""
        head = name_head(body)
        self.used += self.measure(body)
        self._heads[head] = self._heads.get(head, 0) + 1

    def remove(self, body: bytes) -> None:
        """Give its room back."""
        head = name_head(body)
        self._heads[head] -= 1
        if not self._heads[head]:
            del self._heads[head]
        self.used -= self.measure(body)


class DeviceKind:
    """What one kind of device shall have installed."""

    def __init__(self, capacity: int, coverages: Sequence[Coverage]) -> None:
        self.capacity = capacity
        self.coverages = tuple(coverages)
        self.selected: dict[bytes, Coverage] = {}
        self.is_stale = False  # a choice may have to be made
        self._room = DeviceMemory()
        self._named = [NamedAttributes() for _ in coverages]  # by what is selected
        self._namings = [b"" for _ in coverages]
        for coverage in coverages:
            for body in coverage.active:
                self._select(body, coverage)
        self._rename()

    @property
    def bodies(self) -> list[bytes]:
        """All that the devices shall have."""
        return [*self.selected, *filter(None, self._namings)]

    @property
    def is_settled(self) -> bool:
        """Whether no vector waits to be placed: only then is it known what can be removed."""
        return not any(coverage.waiting for coverage in self.coverages)

    def count_omitted(self) -> int:
        """Return how many active vectors find no room."""
        return sum(len(coverage.active) for coverage in self.coverages) - len(self.selected)

    def find_lease(self, body: bytes) -> int:
        """Return until when a vector must stay on the devices; 0: they shall not have it."""
        if body in self._namings:
            return FOREVER
        coverage = self.selected.get(body)
        return 0 if coverage is None else coverage.find_lease(body)

    def follow(self, coverage: Coverage, change: CoverageChange) -> list[bytes]:
        """Take over what changed in one of the coverages; return what devices must hear of."""
        told = [body for body in change.dropped if self._deselect(body)]
        if told and self.count_omitted():
            self.is_stale = True  # somebody else fits now
        told += [body for body in change.added if self._select(body, coverage)]
        told += [body for body in change.renewed if body in self.selected]
        return told + self._rename()

    def choose(self) -> list[bytes]:
        """Choose anew if that is due: the best first; return what devices must hear of."""
        if not self.is_stale:
            return []
        before, namings = self.selected, self._namings
        ranked = []
        for coverage in self.coverages:
            for body in coverage.active:
                served, score = coverage.rate(body)
                ranked.append((-served, -score, len(body), body, coverage))
        ranked.sort(key=lambda row: row[:4])
        for is_reserved in (False, True):  # what a naming vector needs is known afterwards
            self.selected = {}
            self._room = DeviceMemory()
            self._named = [NamedAttributes() for _ in self.coverages]
            self._namings = [b"" for _ in self.coverages]
            for place, coverage in enumerate(self.coverages if is_reserved else ()):
                self._set_naming(place, _name_all(coverage))
            for *_, body, coverage in ranked:
                self._select(body, coverage)
            self._rename()
            if self._room.used <= self.capacity:
                break
        for place in range(len(self.coverages)):
            if self._room.used > self.capacity:  # hardly any room at all
                self._set_naming(place, b"")
        for *_, body, coverage in ranked:  # what was reserved and not needed
            if body not in self.selected:
                self._select(body, coverage)
        self.is_stale = False
        changed = [body for body in before if body not in self.selected]
        changed += [body for body in self.selected if body not in before]
        return changed + [body for body in {*namings} ^ {*self._namings} if body]

    def _rename(self) -> list[bytes]:
        """Name what the selected vectors do not; return what devices must hear of."""
        changed: list[bytes] = []
        for place, coverage in enumerate(self.coverages):
            if coverage.waiting:
                continue  # who must be named is known when all are placed
            named = self._named[place].find()
            asked = coverage.find_names()
            is_named = all(named.get(bit, -1) >= code for bit, code in asked.items())
            changed += self._set_naming(place, b"" if is_named else _name_all(coverage))
        if self._room.used > self.capacity:
            self.is_stale = True
        return changed

    def _set_naming(self, place: int, body: bytes) -> list[bytes]:
        old = self._namings[place]
        if body == old:
            return []
        if old:
            self._room.remove(old)
        if body:
            self._room.add(body)
        self._namings[place] = body
        return [one for one in (old, body) if one]

    def _select(self, body: bytes, coverage: Coverage) -> bool:
        if self._room.used + self._room.measure(body) > self.capacity:
            self.is_stale = True
            return False
        self._room.add(body)
        self.selected[body] = coverage
        self._named[self.coverages.index(coverage)].add(body)
        return True

    def _deselect(self, body: bytes) -> bool:
        coverage = self.selected.pop(body, None)
        if coverage is None:
            return False
        self._room.remove(body)
        self._named[self.coverages.index(coverage)].remove(body)
        return True


def _name_all(coverage: Coverage) -> bytes:
    """Return the naming vector of all that is asked of a coverage; empty if nothing is."""
    names = coverage.find_names()
    return build_naming(coverage.key.event, names, coverage.key.masks[1]) if names else b""
