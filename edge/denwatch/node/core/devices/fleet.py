"""Who gets which wishes: senses, groups and installations, kept in step with the subscriptions.

The only file that knows how they hang together. It decides nothing about links and frames: it
returns the installations that may have something to tell their devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from denwatch.node.core.devices.contracts import DeviceSettings, Vocabularies
from denwatch.node.core.devices.groups import Group, GroupKey
from denwatch.node.core.devices.installation import Installation
from denwatch.node.core.devices.registry import Device
from denwatch.node.core.devices.senses import Change, Sense, SenseKey
from denwatch.node.core.devices.wishes import Wish, WishBook
from denwatch.node.core.transaction import Transaction

FUZZY_ON_DEVICES = 1  # the language's number in a hello; the node's matcher has its own


class Fleet:
    """All installations, and what they have in common."""

    def __init__(self, settings: DeviceSettings, vocabularies: Vocabularies) -> None:
        self.book = WishBook()
        self._vocabularies = vocabularies
        self._settings = settings
        self._senses: dict[SenseKey, Sense] = {}
        self._shelves: dict[int, list[Sense]] = {}  # by event
        self._users: dict[SenseKey, list[GroupKey]] = {}
        self._groups: dict[GroupKey, Group] = {}
        self._members: dict[GroupKey, dict[str, Installation]] = {}
        self._keys: dict[str, GroupKey] = {}
        self._omitted: dict[GroupKey, int] = {}

    def get(self, device: str) -> Installation | None:
        """Return what is known of a device's table."""
        key = self._keys.get(device)
        return None if key is None else self._members[key][device]

    def __iter__(self) -> Iterator[Installation]:
        for members in self._members.values():
            yield from members.values()

    def describe(self) -> dict[str, int]:
        """Return counts for the status."""
        active = sum(len(sense.active) for sense in self._senses.values())
        return {
            "vectors": active,
            "passive": sum(len(sense) for sense in self._senses.values()) - active,
            "omitted": sum(group.count_omitted() for group in self._groups.values()),
            "waiting": sum(len(sense.waiting) for sense in self._senses.values()),
        }

    # Devices ---------------------------------------------------------------------------------

    def assign(self, device: Device, preferred: Iterable[bytes] = ()) -> Installation:
        """Put a device where its hello says; what is `preferred` is placed before other wishes."""
        key = _make_key(device)
        installation = self.get(device.name)
        if installation is not None and self._keys[device.name] == key:
            return installation
        if key not in self._groups:
            senses = [self._find_sense(sense, preferred) for sense in key.senses]
            self._groups[key] = Group(key.capacity, senses)
            self._members[key] = {}
            for sense in key.senses:
                self._users[sense].append(key)
        if installation is None:
            installation = Installation(device.name, self._groups[key])
        else:
            self._leave(device.name)
            installation.move(self._groups[key])
        self._members[key][device.name] = installation
        self._keys[device.name] = key
        return installation

    def release(self, device: str) -> None:
        """Forget a device."""
        self._leave(device)

    def _leave(self, device: str) -> None:
        key = self._keys.pop(device)
        del self._members[key][device]
        if self._members[key]:
            return
        del self._members[key], self._groups[key]
        self._omitted.pop(key, None)
        for sense in key.senses:
            self._users[sense].remove(key)
            if not self._users[sense]:
                del self._users[sense]
                self._shelves[sense.event].remove(self._senses.pop(sense))

    def _find_sense(self, key: SenseKey, preferred: Iterable[bytes]) -> Sense:
        if key in self._senses:
            return self._senses[key]
        sense = self._senses[key] = Sense(key, self._settings.policy)
        self._shelves.setdefault(key.event, []).append(sense)
        self._users[key] = []
        first = frozenset(preferred)
        wishes = [wish for wish in self.book.iterate(key.event) if self._is_for(wish, sense)]
        for wish in sorted(wishes, key=lambda wish: wish.body not in first):
            sense.offer(wish)
        return sense

    # Wishes ----------------------------------------------------------------------------------

    def add_wish(self, transaction: Transaction, wish: Wish, is_new: bool) -> list[Installation]:
        """Take in a wish, or note that an old one has another subscription."""
        concerned: list[Installation] = []
        for sense in self._shelves.get(wish.event, []):
            if not self._is_for(wish, sense):
                continue
            backlog = len(sense.waiting)
            if not is_new or not sense.offer(wish):
                change = sense.renew(wish.body, transaction.now)
            else:
                change = sense.place(
                    0 if backlog else 1, transaction.now
                )  # a backlog is for the ticks
                _log_place(transaction, sense, wish)
            concerned += self._follow(sense, change)
        return concerned

    def remove_wish(self, transaction: Transaction, wish: Wish) -> list[Installation]:
        """Let go of a wish that nobody has any more."""
        concerned: list[Installation] = []
        for sense in self._shelves.get(wish.event, []):
            change = sense.withdraw(wish)
            _log_back(transaction, sense, change.added)
            concerned += self._follow(sense, change)
        return concerned

    def settle(self, transaction: Transaction, installation: Installation) -> list[Installation]:
        """Place what waits for the senses of a device that came, unless it is work for ticks."""
        concerned: list[Installation] = []
        for sense in installation.group.senses:
            if 0 < len(sense.waiting) <= self._settings.placing:
                change = sense.place(len(sense.waiting), transaction.now)
                concerned += self._follow(sense, change, must_tell=True)
        changed = installation.group.choose()
        return concerned + (self._tell(self._keys[installation.device], changed) if changed else [])

    def advance(self, transaction: Transaction) -> list[Installation]:
        """Do what can wait for a tick: place, build anew, choose."""
        concerned: list[Installation] = []
        for sense in self._senses.values():
            if sense.waiting:
                change = sense.place(self._settings.placing, transaction.now)
                # The last one placed: now it is known what devices need not have.
                concerned += self._follow(sense, change, must_tell=not sense.waiting)
            else:
                change = sense.rebuild(self._settings.rebuild)
                _log_back(transaction, sense, change.added)
                concerned += self._follow(sense, change)
        for key, group in self._groups.items():
            changed = group.choose()
            if changed:
                concerned += self._tell(key, changed)
            self._note_omitted(transaction, key, group)
        return concerned

    def _is_for(self, wish: Wish, sense: Sense) -> bool:
        """Return whether the devices of a sense can evaluate a wish, and mean the same by it."""
        key = sense.key
        return wish.fits(key.masks) and self._vocabularies.agree(
            key.vocabulary, wish.vocabulary, key.event, wish.features
        )

    def _follow(self, sense: Sense, change: Change, must_tell: bool = False) -> list[Installation]:
        concerned: list[Installation] = []
        if must_tell or any(change):
            for key in self._users[sense.key]:
                told = self._groups[key].follow(sense, change)
                if told or must_tell:
                    concerned += self._tell(key, told)
        return concerned

    def _tell(self, key: GroupKey, bodies: list[bytes]) -> list[Installation]:
        members = list(self._members[key].values())
        for installation in members:
            installation.look_at(bodies)
        return members

    def _note_omitted(self, transaction: Transaction, key: GroupKey, group: Group) -> None:
        """Say in the log how much finds no room, whenever that changes."""
        omitted = group.count_omitted()
        if omitted == self._omitted.get(key, 0):
            return
        self._omitted[key] = omitted
        devices = self._members[key]
        transaction.count("device_omitted", omitted)
        transaction.log(
            "drop",
            what="vectors",
            why=f"{omitted} have no room on {len(devices)} devices of {group.capacity} bytes",
            source=next(iter(devices)),
        )


def _make_key(device: Device) -> GroupKey:
    senses = []
    if FUZZY_ON_DEVICES in device.languages:
        for event, masks in sorted(device.senses.items()):
            senses.append(SenseKey(device.vocabulary, event, masks, device.is_doubtful))
    return GroupKey(tuple(senses), device.capacity)


def _log_place(transaction: Transaction, sense: Sense, wish: Wish) -> None:
    if wish.body in sense.waiting:
        return
    is_active = wish.body in sense.active
    by = sense.get_coverer(wish.body)
    transaction.log(
        "cover",
        item=wish.ids[0],
        link=sense.name,
        is_active=is_active,
        covered_by=None if by is None else [sense.name_item(by)],
    )


def _log_back(transaction: Transaction, sense: Sense, bodies: list[bytes]) -> None:
    for body in bodies:
        transaction.log("cover", item=sense.name_item(body), link=sense.name, is_active=True)
