"""Who can do what somebody needs: exact search among all that devices and people announced (SVDS).

A need names attributes that a service must have, and others that it must not have ("against"). A
service is a device, or a person who reported such things here, at the nodes through which it
speaks. Of two services the better one, in this order, lacks fewer of the wanted attributes, is near
what was named (or here), has less that nobody asked for (the paper's nearest neighbour), and comes
first by name. What has anything that the need is against is not found. A region is a node: near a
person is where that person was last known to be, near a device is where it speaks.

EXACT. Services are kept by what they have, as one bit mask; a site has far fewer masks than
devices. A search rates all masks at once, in columns of 64 bits (`MaskTable`), takes those that
lack least until there are enough services, and sorts only these. So the paper's heuristics are not
needed here, not even where 100,000 devices all differ (`benchmarks.find`); `node.services` has
them, and Spark uses them over all nodes' logs.

On the disk: `sub.find`, subscriber: the need that is watched here; `sub.able`, person and event:
what that person has reported.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
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


class MaskTable:
    """Masks of any width in columns of 64 bits, so that all of them are rated at once.

    A mask has a row; the row of one that was removed is zero, which lacks everything, until another
    mask gets it.
    """

    def __init__(self) -> None:
        self._columns: npt.NDArray[np.uint64] = np.zeros((1, 64), np.uint64)
        self._masks: list[int] = []  # by row
        self._rows: dict[int, int] = {}  # by mask
        self._free: list[int] = []

    def add(self, mask: int) -> None:
        """Add a mask that is not there."""
        row = self._free.pop() if self._free else len(self._masks)
        if row == len(self._masks):
            self._masks.append(mask)
        width, room = self._columns.shape
        wanted = -(-mask.bit_length() // 64)
        if wanted > width or row >= room:
            grown = np.zeros((max(wanted, width), room * 2 if row >= room else room), np.uint64)
            grown[:width, :room] = self._columns
            self._columns = grown
        self._masks[row], self._rows[mask] = mask, row
        for column, word in enumerate(_split(mask)):
            self._columns[column, row] = word

    def remove(self, mask: int) -> None:
        """Remove a mask."""
        row = self._rows.pop(mask)
        self._columns[:, row] = 0
        self._free.append(row)

    def list_lacking(self, wanted: WantedService) -> Iterator[list[int]]:
        """Yield the masks that lack nothing of what is wanted, then those that lack one of it, and
        so on to those that have one; without any that have what must not be."""
        count = len(wanted.masks)
        lacking = np.zeros(len(self._masks), np.uint8)
        for each in wanted.masks:
            lacking += ~self._has_any(each)
        lacking[self._has_any(wanted.against)] = count
        for number in range(count):
            yield [self._masks[row] for row in np.flatnonzero(lacking == number).tolist()]

    def _has_any(self, mask: int) -> npt.NDArray[np.bool_]:
        """Return of which rows a mask has a bit."""
        found = np.zeros(len(self._masks), np.bool_)
        for column, word in zip(self._columns, _split(mask), strict=False):
            if word:
                found |= (column[: len(found)] & np.uint64(word)) != 0
        return found


def _split(mask: int) -> list[int]:
    return [mask >> bit & 0xFFFF_FFFF_FFFF_FFFF for bit in range(0, mask.bit_length(), 64)]


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
        self._table = MaskTable()  # the same masks
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
        found, able = self._search(need, wanted)
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

    def _search(self, need: ServiceNeed, wanted: WantedService) -> tuple[list[FoundService], int]:
        """Return the best services, and how many lack nothing."""
        near = self._list_near(need)
        asked = able = 0
        for each in wanted.masks:
            asked |= each
        found: list[FoundService] = []
        for lacking, masks in enumerate(self._table.list_lacking(wanted)):
            if not lacking:
                able = sum(len(self._services[mask]) for mask in masks)
            services = (
                FoundService(lacking, near.isdisjoint(nodes), extras, name, mask)
                for mask in masks
                for extras in ((mask & ~asked).bit_count(),)
                for name, nodes in self._services[mask].items()
            )
            found += heapq.nsmallest(need.limit - len(found), services)
            if len(found) >= need.limit:
                break
        return found, able

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
            found, _ = self._search(need, self._understand(need, who))
        except LanguageError:  # a name or a role that is no longer there
            return []
        return [each.name for each in found[:1]]

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
                    self._table.remove(before)
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
                if mask not in self._services:
                    self._services[mask] = {}
                    self._table.add(mask)
                self._services[mask][name] = nodes

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
