"""Who can do what somebody needs: exact search among all that devices and people announced (SVDS).

A need names attributes that a service must have, and others that it must not have ("against"). A
service is a device, or a person who reported such things here, at the nodes through which it
speaks. Of two services the better one, in this order, lacks fewer of the wanted attributes, is near
what was named (or here), has less that nobody asked for (the paper's nearest neighbour), and comes
first by name. What has anything that the need is against is not found. A region is a node: near a
person is where that person was last known to be, near a device is where it speaks.

EXACT. Services are kept by what they have, as one bit mask; a site has far fewer masks than
devices. A search rates each mask once, keeps those that lack least until there are enough services,
and sorts only these. `node.services` has the paper's heuristics, for directories whose services are
all different; Spark uses them over all nodes' logs.

On the disk: `sub.find`, subscriber: the need that is watched here; `sub.able`, person and event:
what that person has reported.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from denwatch.client.errors import LanguageError
from denwatch.client.language.everyday_items import find_paths
from denwatch.client.syntax import Name
from denwatch.node.core.device_directory import DeviceDirectory
from denwatch.node.core.events import Reader
from denwatch.node.core.item_store import Transaction
from denwatch.node.core.notifications import Vocabularies
from denwatch.node.core.subscriptions import Roles, encode_row, join_name, split_name

WATCHED = "sub.find"
ABLE = "sub.able"
MAX_NAMES = 32
MAX_FOUND = 100
FEW = 10


class ServiceNeed(msgspec.Struct, array_like=True):
    """What somebody looks for, by names as they were written."""

    find: list[str]
    against: list[str] = []
    near: str = ""  # a node, a person or a device; here if empty
    limit: int = FEW


class FoundService(NamedTuple):
    """One answer; as tuples, the better one is less."""

    lacking: int
    is_elsewhere: bool
    extras: int
    name: str
    mask: int


@dataclass(frozen=True)
class WantedService:
    """A need as masks: for each name the attributes that it may mean."""

    names: tuple[str, ...]
    masks: tuple[int, ...]
    against: int

    def count_lacking(self, mask: int) -> int:
        """Return how many of the wanted are not there; all if it has what must not be."""
        if mask & self.against:
            return len(self.masks)
        return sum(not mask & each for each in self.masks)


class DeviceFinder:
    """All services that this node knows of."""

    def __init__(
        self,
        own: str,
        directory: DeviceDirectory,
        vocabularies: Vocabularies,
        roles: Roles,
        find_place: Callable[[str], str],
    ) -> None:
        """`find_place`: the node where a person was last known to be, "" if that is not known."""
        self._own = own
        self._find_place = find_place
        self._directory = directory
        self._vocabularies = vocabularies
        self._roles = roles
        self._bits: dict[str, int] = {}  # of event.attribute
        self._paths: list[str] = []
        self._masks: dict[tuple[bytes, int, int], int] = {}  # vocabulary, event, features
        self._services: dict[int, dict[str, set[str]]] = {}  # by mask: names with their nodes
        self._known: dict[str, int] = {}  # masks by name
        self._people: dict[str, dict[tuple[bytes, int], int]] = {}  # what they reported
        self._watched: dict[str, ServiceNeed] = {}
        self._best: dict[str, tuple[list[str], set[str]]] = {}  # so far, and what was near

    def restore(self, reader: Reader) -> None:
        """Load what is watched, and what people have reported."""
        for key, row in reader.scan(ABLE):
            name, rest = split_name(key)
            known = self._people.setdefault(name, {})
            known[rest[:8], rest[8]] = int.from_bytes(row, "big")
            self._directory.changed.add(name)
        self.refresh()
        for key, row in reader.scan(WATCHED):
            need = _need_decoder.decode(row)
            name = split_name(key)[0]
            self._watched[name] = need
            self._best[name] = self._list_best(need, name), self._list_near(need)

    # People -----------------------------------------------------------------------------------

    def note_report(
        self, transaction: Transaction, name: str, vocabulary: bytes, event: int, features: int
    ) -> None:
        """Note that a person can say such things, from a report of theirs that was made here."""
        kind = vocabulary, event
        known = self._people.setdefault(name, {})
        features |= known.get(kind, 0)
        if features != known.get(kind):
            known[kind] = features
            key = join_name(name, vocabulary + bytes([event]))
            transaction.write(ABLE, key, features.to_bytes(2, "big"))
            self._directory.changed.add(name)

    # Searching --------------------------------------------------------------------------------

    def find(self, need: ServiceNeed, who: str) -> dict[str, Any]:
        """Return the best services for somebody; LanguageError or a refusal if they may not ask."""
        wanted = self._understand(need, who)
        found = self._search(need, wanted)
        able = sum(
            len(services)
            for mask, services in self._services.items()
            if not wanted.count_lacking(mask)
        )
        rows = [self._describe(each, wanted) for each in found]
        return {
            "find": list(wanted.names),
            "found": rows,
            "able": able,
            "words": _put_in_words(rows, able),
            "node": self._own,
        }

    def _understand(self, need: ServiceNeed, who: str) -> WantedService:
        self.refresh()
        names, masks = [], []
        for name in need.find:
            paths = self._look_up(name, who)
            names.append(paths[0] if len(paths) == 1 else name)
            masks.append(self._join_bits(paths))
        against = self._join_bits(
            path for name in need.against for path in self._look_up(name, who)
        )
        for name, mask in zip(names, masks, strict=True):
            if mask & against:
                raise LanguageError(f'"{name}" is wanted and not wanted')
        return WantedService(tuple(names), tuple(masks), against)

    def _look_up(self, name: str, who: str) -> list[str]:
        """Return the attributes that a name may mean, and that somebody's role may see."""
        role, own = self._roles.role_of(who), self._vocabularies.own
        try:
            found = own.find_attributes(Name(name))
        except LanguageError:
            paths = find_paths(name, own)
            found = [each for each in own.iterate_attributes() if each.path in paths]
            if not found:
                raise
        seen = [each for each in found if self._roles.check(role, each.event, (each.name,)) is None]
        if not seen:
            raise LanguageError(str(self._roles.check(role, found[0].event, (found[0].name,))))
        return [each.path for each in seen]

    def _search(self, need: ServiceNeed, wanted: WantedService) -> list[FoundService]:
        near = self._list_near(need)
        by_lacking: dict[int, list[int]] = {}
        for mask in self._services:
            lacking = wanted.count_lacking(mask)
            if lacking < len(wanted.masks):
                by_lacking.setdefault(lacking, []).append(mask)
        asked = 0
        for each in wanted.masks:
            asked |= each
        found: list[FoundService] = []
        for lacking in sorted(by_lacking):
            services = (
                FoundService(lacking, near.isdisjoint(nodes), extras, name, mask)
                for mask in by_lacking[lacking]
                for extras in ((mask & ~asked).bit_count(),)
                for name, nodes in self._services[mask].items()
            )
            found += heapq.nsmallest(need.limit - len(found), services)
            if len(found) >= need.limit:
                break
        return found

    def _list_near(self, need: ServiceNeed) -> set[str]:
        """Return the nodes that are near what a need names."""
        mask = self._known.get(need.near)
        if mask is not None:
            return self._services[mask][need.near]
        return {self._find_place(need.near) or need.near} if need.near else {self._own}

    def _describe(self, found: FoundService, wanted: WantedService) -> dict[str, Any]:
        pairs = list(zip(wanted.names, wanted.masks, strict=True))
        return {
            "name": found.name,
            "person": found.name in self._people,
            "nodes": sorted(self._services[found.mask][found.name]),
            "has": [
                path
                for _, mask in pairs
                for bit, path in enumerate(self._paths)
                if found.mask & mask & 1 << bit
            ],
            "lacks": [name for name, mask in pairs if not found.mask & mask],
            "also": found.extras,
        }

    # Watching ---------------------------------------------------------------------------------

    def watch(self, transaction: Transaction, who: str, need: ServiceNeed | None) -> None:
        """Remember what somebody looks for, to tell them when something better appears."""
        row = None if need is None else encode_row(need)
        transaction.write(WATCHED, join_name(who), row)
        self._watched.pop(who, None)
        if need is not None:
            self._watched[who] = need
            self._best[who] = self._list_best(need, who), self._list_near(need)

    def list_better(self, *, is_moved: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield who is to be told of a better service than all that were known, and the answer.

        With `is_moved` only those are looked at whose person or device is elsewhere than before.
        """
        for who, need in list(self._watched.items()):
            before, near = self._best[who]
            if is_moved and near == self._list_near(need):
                continue
            best = self._list_best(need, who)
            self._best[who] = best or before, set(self._list_near(need))
            if best and best != before:
                yield who, self.find(need, who)

    def _list_best(self, need: ServiceNeed, who: str) -> list[str]:
        try:
            return [each.name for each in self._search(need, self._understand(need, who))[:1]]
        except LanguageError:  # a name or a role that is no longer there
            return []

    # What services have -----------------------------------------------------------------------

    def refresh(self) -> None:
        """Work out what those services have that have changed, before somebody asks."""
        changed = self._directory.changed
        while changed:
            name = changed.pop()
            before = self._known.pop(name, 0)
            if before:
                del self._services[before][name]
                if not self._services[before]:
                    del self._services[before]
            mask, nodes = 0, set()
            for dot, body in self._directory.list_announced(name):
                nodes.add(dot.origin)
                for event, features in body.senses:
                    mask |= self._find_mask(body.vocabulary, event, features)
            for (vocabulary, event), features in self._people.get(name, {}).items():
                nodes.add(self._own)
                mask |= self._find_mask(vocabulary, event, features)
            if mask:
                self._known[name] = mask
                self._services.setdefault(mask, {})[name] = nodes

    def _find_mask(self, vocabulary: bytes, event: int, features: int) -> int:
        """Return the bits of what is sensed, by the names that its vocabulary has for it."""
        key = vocabulary, event, features
        mask = self._masks.get(key)
        if mask is None:
            kind = self._vocabularies.find_event(vocabulary, event)
            if kind is None:
                return 0  # until that vocabulary comes
            attributes = kind.attributes.values()
            mask = self._join_bits(each.path for each in attributes if features >> each.bit & 1)
            self._masks[key] = mask
        return mask

    def _join_bits(self, paths: Iterable[str]) -> int:
        mask = 0
        for path in paths:
            bit = self._bits.get(path)
            if bit is None:
                bit = self._bits[path] = len(self._paths)
                self._paths.append(path)
            mask |= 1 << bit
        return mask


_need_decoder = msgspec.msgpack.Decoder(ServiceNeed)


def _put_in_words(rows: list[dict[str, Any]], able: int) -> str:
    if not rows:
        return "nobody can"
    if not able:
        return f"nobody can do all of it; {rows[0]['name']} lacks {', '.join(rows[0]['lacks'])}"
    best = rows[0]
    return f"{able} can; the best is {best['name']} at {', '.join(best['nodes'])}"
