"""Who may see what: roles allow events and attributes, by pattern. Pure.

A rule is judged twice: when a subscription is made, which is refused with the reason, and again
wherever a notification is delivered, whose values are cut down to what the role may see. The role
travels with the subscription, signed by the node that took it; the node that delivers judges by
its own table. So where two nodes' tables differ, the stricter one wins, and a role that a node does
not know sees nothing there.

A pattern is a name with "*" for any part of it: events "patient", "*"; attributes
"patient.heart_rate", "patient.*", "*.east", or "*" for all. `deny` goes before everything: without
a dot it denies an event, with one an attribute.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from denwatch.node.security.errors import Refusal, SecurityError

_PATTERN = re.compile(r"[a-z0-9_*]+(\.[a-z0-9_*]+)?")


@dataclass(frozen=True)
class Role:
    """What one role may see."""

    events: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class _Judge:
    """A role with its patterns compiled, and its answers remembered."""

    def __init__(self, name: str, role: Role) -> None:
        where = f"roles.{name}"
        self._events = _compile(role.events, f"{where}.events", has_dot=False)
        # "*" alone means every attribute; a name alone would be an event by mistake.
        attributes = ["*.*" if pattern == "*" else pattern for pattern in role.attributes]
        self._attributes = _compile(attributes, f"{where}.attributes", has_dot=True)
        denied = [pattern for pattern in role.deny if "." in pattern]
        self._denied_attributes = _compile(denied, f"{where}.deny", has_dot=True)
        rest = [pattern for pattern in role.deny if "." not in pattern]
        self._denied_events = _compile(rest, f"{where}.deny", has_dot=False)
        self._known: dict[str, bool] = {}

    def sees_event(self, event: str) -> bool:
        return _fits(self._events, event) and not _fits(self._denied_events, event)

    def sees_attribute(self, path: str) -> bool:
        answer = self._known.get(path)
        if answer is None:
            answer = _fits(self._attributes, path) and not _fits(self._denied_attributes, path)
            if len(self._known) < 4096:  # vocabularies are far smaller
                self._known[path] = answer
        return answer


class Roles:
    """The table of roles of one node."""

    def __init__(self, roles: Mapping[str, Role]) -> None:
        self._judges = {name: _Judge(name, role) for name, role in roles.items()}

    def __contains__(self, role: str) -> bool:
        return role in self._judges

    def check(self, role: str, event: str, attributes: Iterable[str]) -> Refusal | None:
        """Return why a role may not see an event with these attributes, or None.

        `attributes` are names within the event: "heart_rate" of the event "patient".
        """
        judge = self._judges.get(role)
        if judge is None:
            return Refusal("role", f'role "{role}" is not known here and may see nothing')
        event = event.lower()
        if not judge.sees_event(event):
            return Refusal("role", f"role {role} may not see {event}")
        for attribute in attributes:
            path = f"{event}.{attribute.lower()}"
            if not judge.sees_attribute(path):
                return Refusal("role", f"role {role} may not see {path}")
        return None

    def keep_visible(self, role: str, event: str, attributes: Iterable[str]) -> list[str]:
        """Return those attributes of an event that a role may see, in the order given."""
        judge = self._judges.get(role)
        event = event.lower()
        if judge is None or not judge.sees_event(event):
            return []
        return [name for name in attributes if judge.sees_attribute(f"{event}.{name.lower()}")]


def _compile(patterns: Iterable[str], where: str, has_dot: bool) -> tuple[re.Pattern[str], ...]:
    return tuple(_compile_one(pattern, where, has_dot) for pattern in patterns)


def _compile_one(pattern: str, where: str, has_dot: bool) -> re.Pattern[str]:
    folded = pattern.lower()
    if not _PATTERN.fullmatch(folded):
        raise SecurityError(f'{where}: "{pattern}" is no name or pattern')
    if ("." in folded) != has_dot:
        wanted = '"event.attribute", "event.*" or "*"' if has_dot else 'an event, such as "patient"'
        raise SecurityError(f'{where}: "{pattern}" is not {wanted}')
    # "*" stays within its part: "pat*.age" must not reach over the dot.
    return re.compile(re.escape(folded).replace(r"\*", "[^.]*"))


def _fits(patterns: tuple[re.Pattern[str], ...], text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in patterns)
