"""Shared subscriptions: the members of `$share/GROUP/FILTER` receive each message once, in turn.

In the index a group stands where a session would; `choose` replaces it by the member whose turn it
is. A member that reads comes before one that only could keep the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from denwatch.node.mqtt.packets import MqttSession, SharedMessage
from denwatch.node.mqtt.topics import FilterIndex, Grants, split_shared


class SharedGroup:
    """The members of one shared subscription, with their grants."""

    __slots__ = ("members", "name", "turn")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[MqttSession, int] = {}
        self.turn = 0


class Share(NamedTuple):
    """Who receives a message for a group, with its grant."""

    session: MqttSession
    grant: int
    group: str


class SharedGroups:
    """All shared subscriptions of a server."""

    def __init__(
        self,
        index: FilterIndex[MqttSession | SharedGroup],
        has_room: Callable[[MqttSession, int], bool],
    ) -> None:
        self._index = index
        self._has_room = has_room
        self._groups: dict[str, SharedGroup] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, session: MqttSession, name: str, grant: int) -> None:
        """Add a member, or change its grant."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = SharedGroup(name)
            self._index.add(split_shared(name)[1], group, grant)
        group.members[session] = grant

    def remove(self, session: MqttSession, name: str) -> None:
        """Remove a member; the last one ends the group."""
        group = self._groups[name]
        del group.members[session]
        if not group.members:
            del self._groups[name]
            self._index.remove(split_shared(name)[1], group)

    def choose(
        self,
        targets: Mapping[MqttSession | SharedGroup, Grants],
        message: SharedMessage,
        directed: bool,
    ) -> tuple[dict[MqttSession, Grants], list[Share]]:
        """Return the sessions among subscribers, and of each group whose turn it is."""
        sessions: dict[MqttSession, Grants] = {}
        shares: list[Share] = []
        for target, grants in targets.items():
            if isinstance(target, SharedGroup):
                shares.append(self._take_turn(target, message, directed))
            else:
                sessions[target] = grants
        return sessions, shares

    def choose_again(self, name: str, message: SharedMessage, directed: bool) -> Share | None:
        """Return who receives what a member that is gone did not; None: nobody can."""
        group = self._groups.get(name)
        if group is None:
            return None
        share = self._take_turn(group, message, directed)
        return share if self._has_room(share.session, message.size) else None

    def _take_turn(self, group: SharedGroup, message: SharedMessage, directed: bool) -> Share:
        group.turn += 1
        members = list(group.members)
        start = group.turn % len(members)
        members = members[start:] + members[:start]
        with_room = [m for m in members if self._has_room(m, message.size)]
        readers = [m for m in with_room if m.link and not m.is_blocked]
        keepers = [m for m in with_room if m.link or (message.qos and not directed)]
        chosen = (readers or keepers or members)[0]
        return Share(chosen, group.members[chosen], group.name)
