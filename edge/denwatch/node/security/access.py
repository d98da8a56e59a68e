"""Who may connect, publish and subscribe, and what each role may see. No clock, no I/O.

`Access` implements the MQTT server's `Rules`. The user name is the name of a device, subscriber or
node; the password is derived from the device's key, or is the subscriber's own, or is a node's card
with its proof. Everybody is limited to their own topics (`Grant`). Grants are cached per user until
the keyring changes, so that a message costs one look-up in a set.

A filter with wildcards matches many topics: it is allowed only if *every* topic that it can match
is allowed. `covers` decides that from the levels alone.

Roles are checked twice: when a subscription is made, which is refused with the reason, and again
wherever a notification is delivered, whose values are reduced to what the role may see. The role
travels with the subscription, signed by the node that accepted it; the node that delivers uses its
own table. So where the tables of two nodes differ the stricter one wins, and a role that a node
does not know sees nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from denwatch.node.security.credentials import Refusal, SecurityError, VerifiedPasswords, check_name
from denwatch.node.security.keyring import Keyring

_KEPT_ANSWERS = 4096  # of each kind
_Answer = TypeVar("_Answer")

# CONNACK's return codes, MQTT 3.1.1, table 3.1.
ACCEPTED, BAD_PASSWORD, NOT_AUTHORISED = 0, 4, 5


class Access:
    """The MQTT server's `Rules` for one node.

    `anonymous_role` admits clients without a name, under names that nobody is registered with.
    `besides` is what some subscribers may do in addition to their own topics.
    `shared` are filters outside `dens/` on which every client may publish and subscribe, unless
    they are among `unshared`, which nobody may.
    `memory_key` is random bytes for this run of the process.
    """

    def __init__(
        self,
        keyring: Keyring,
        memory_key: bytes,
        anonymous_role: str | None = None,
        shared: Iterable[str] = (),
        unshared: Iterable[str] = (),
        besides: Mapping[str, Grant] | None = None,
    ) -> None:
        self._keyring = keyring
        self._passwords = VerifiedPasswords(memory_key)
        self._anonymous_role = anonymous_role
        self._shared = tuple(shared)
        self._unshared = tuple(unshared)
        self._besides = dict(besides or {})
        for pattern in self._shared:
            if not is_sharable(pattern):
                raise SecurityError(f'shared topics: "{pattern}" includes topics of {ROOT} or $SYS')
        self._grants: dict[str, Grant] = {}
        self._roles: dict[str, str | None] = {}  # by name, as found since the last change of keys
        self._is_shared_topic: dict[str, bool] = {}  # topics and filters that were asked for
        self._generation = keyring.generation

    def authenticate(self, user: str, password: bytes | None, client: str) -> int:  # noqa: ARG002
        """Return CONNACK's code: 0 accepts the client."""
        if not user:
            return NOT_AUTHORISED if self._anonymous_role is None else ACCEPTED
        if self._keyring.is_revoked(user):
            return NOT_AUTHORISED
        if password is None:
            return BAD_PASSWORD
        kind = self._keyring.kind_of(user)
        if kind == "subscriber":
            return self._check_subscriber(user, password)
        if kind == "device":
            is_right = self._keyring.check_device_password(user, password)
        else:  # a node that we never met has its card in the password
            is_right = self._keyring.check_credentials(user, password)
        return ACCEPTED if is_right else BAD_PASSWORD

    def _check_subscriber(self, user: str, password: bytes) -> int:
        """Compare with each valid hash; the server rations how often (mqtt/budgets.py)."""
        for text in self._keyring.list_password_hashes(user):
            secret = self._passwords.open(text, password)
            if secret is not None:
                self._keyring.note_person(user, secret)
                return ACCEPTED
        return BAD_PASSWORD

    def recognises(self, user: str, password: bytes | None) -> bool:
        """Return whether a subscriber's password was right before in this run."""
        if password is None or self._keyring.kind_of(user) != "subscriber":
            return False
        hashes = self._keyring.list_password_hashes(user)
        return any(self._passwords.is_known(text, password) for text in hashes)

    def may_publish(self, user: str, topic: str) -> bool:
        """Return whether a user may publish to a topic."""
        if topic in self._find_grant(user).publish or self._is_shared(topic):
            return True
        return not user and self._is_free(topic, ("sub",))

    def may_subscribe(self, user: str, name: str) -> bool:
        """Return whether a user may subscribe to a filter: to all that it can match."""
        if any(covers(allowed, name) for allowed in self._find_grant(user).subscribe):
            return True
        return self._is_shared(name) or (not user and self._is_free(name, ("reply", "note")))

    def is_welcome(self, user: str) -> bool:
        """Return whether a connected user may stay connected: False after a revocation."""
        return self._find_grant(user) is not NOTHING

    def role_of(self, name: str) -> str | None:
        """Return the role of whoever subscribes under a name, None if nobody may."""
        self._note_changes()
        try:
            return self._roles[name]
        except KeyError:
            role = self._keyring.role_of(name)
            if role is None and not self._is_taken(name):
                role = self._anonymous_role
            _remember(self._roles, name, role)
            return role

    def _is_shared(self, name: str) -> bool:
        known = self._is_shared_topic.get(name)
        if known is None:
            known = self._find_shared(name)
            _remember(self._is_shared_topic, name, known)
        return known

    def _find_shared(self, name: str) -> bool:
        # A wider filter than an unshared one is allowed: nobody can publish there.
        return any(covers(allowed, name) for allowed in self._shared) and not any(
            covers(refused, name) for refused in self._unshared
        )

    def _is_free(self, topic: str, branches: tuple[str, ...]) -> bool:
        """Return whether a topic is of a name that nobody is registered with."""
        if self._anonymous_role is None:
            return False
        for branch in branches:
            name = topic.removeprefix(f"{ROOT}{branch}/")
            if name != topic:
                try:
                    return not self._is_taken(check_name(name))
                except SecurityError:
                    return False
        return False

    def _is_taken(self, name: str) -> bool:
        return self._keyring.registrations.kind_of(name) is not None or self._keyring.is_revoked(
            name
        )

    def _find_grant(self, user: str) -> Grant:
        self._note_changes()
        grant = self._grants.get(user)
        if grant is None:
            grant = self._make_grant(user)
            self._grants[user] = grant
        return grant

    def _note_changes(self) -> None:
        """Forget what was found if keys or revocations have changed since."""
        if self._generation != self._keyring.generation:
            self._generation = self._keyring.generation
            self._grants.clear()
            self._roles.clear()

    def _make_grant(self, user: str) -> Grant:
        if not user:
            return NOTHING if self._anonymous_role is None else grant_anonymous()
        match self._keyring.kind_of(user):
            case "device":
                return grant_device(user)
            case "subscriber":
                return self._grant_subscriber(user)
            case "node":
                return grant_node(user, self._keyring.name)
        return NOTHING

    def _grant_subscriber(self, user: str) -> Grant:
        grants = [grant_subscriber(user), self._besides.get(user, NOTHING)]
        if self._keyring.role_of(user) == OPERATOR:
            grants.append(grant_operator(self._keyring.name))
        return Grant(
            frozenset().union(*(grant.publish for grant in grants)),
            tuple(name for grant in grants for name in grant.subscribe),
        )


def _remember(answers: dict[str, _Answer], name: str, answer: _Answer) -> None:
    """Keep an answer; names are given by clients, so only so many are kept."""
    if len(answers) >= _KEPT_ANSWERS:
        answers.clear()
    answers[name] = answer


# Topics --------------------------------------------------------------------------------------

ROOT = "dens/1/"


class Grant(NamedTuple):
    """What one client may do: topics to publish to, filters that its subscriptions must be in."""

    publish: frozenset[str]
    subscribe: tuple[str, ...]


NOTHING = Grant(frozenset(), ())
_EVERYBODY = (f"{ROOT}status/+", f"{ROOT}plan/+", "$SYS/#")
OPERATOR = "operator"  # the role that may send items and plans to nodes


def grant_subscriber(name: str) -> Grant:
    """Return what an app may do."""
    return Grant(
        frozenset([f"{ROOT}sub/{name}", f"{ROOT}report/{name}"]),
        (f"{ROOT}reply/{name}", f"{ROOT}note/{name}", *_EVERYBODY),
    )


def grant_home(prefix: str) -> Grant:
    """Return what Home Assistant may do in addition: read discovery topics, publish its status."""
    return Grant(frozenset([f"{prefix}/status"]), (f"{prefix}/#", f"{ROOT}home/#"))


def grant_operator(listener: str) -> Grant:
    """Return what an operator may do at a node in addition to what every app may."""
    return Grant(frozenset([f"{ROOT}operator/{listener}"]), ())


def grant_device(name: str) -> Grant:
    """Return what a watchdog may do."""
    own = f"{ROOT}wd/{name}/"
    sent = frozenset(f"{own}{what}" for what in ("hello", "nv", "want"))
    return Grant(sent, (f"{own}sv", f"{own}ack"))


def grant_node(name: str, listener: str) -> Grant:
    """Return what a node may do at another one's server."""
    return Grant(frozenset([f"{ROOT}peer/{listener}"]), (f"{ROOT}peer/{name}", *_EVERYBODY))


def grant_anonymous() -> Grant:
    """Return what a client without a name may do, in addition to topics of free names."""
    return Grant(frozenset(), _EVERYBODY)


def covers(wide: str, narrow: str) -> bool:
    """Return whether every topic that `narrow` matches is matched by `wide`.

    Of topics that start with "$" (MQTT 3.1.1, section 4.7.2) or with "dens/" (mqtt/topics.py) a
    leading wildcard matches none, so "#" covers neither "$SYS/#" nor "dens/1/note/medic7".
    """
    if _is_reserved(narrow.partition("/")[0]) and wide[:1] in ("+", "#"):
        return False
    # A topic has at least one level: "#" alone is "+/#".
    wanted = ["+", "#"] if narrow == "#" else narrow.split("/")
    given = wide.split("/")
    for i, level in enumerate(given):
        if level == "#":
            return True
        if i >= len(wanted) or wanted[i] == "#":
            return False
        if level != wanted[i] and level != "+":
            return False
    # "a/#" also matches "a" itself, but no filter shorter than it is wider.
    return len(wanted) == len(given)


def is_sharable(pattern: str) -> bool:
    """Return whether a filter matches nothing that is the server's or the protocol's own."""
    return not any(overlaps(pattern, own) for own in (f"{ROOT}#", "$SYS/#", "$share/#"))


def _is_reserved(level: str) -> bool:
    """Return whether a wildcard in the first level does not match a topic that begins so."""
    return level.startswith("$") or level == "dens"


def overlaps(one: str, other: str) -> bool:
    """Return whether some topic is matched by both filters."""
    return _overlap(one.split("/"), other.split("/"), is_first=True)


def _overlap(one: list[str], other: list[str], is_first: bool) -> bool:
    if one[:1] == ["#"] or other[:1] == ["#"]:
        rest = other if one[:1] == ["#"] else one
        return not (is_first and _is_reserved(rest[0]))
    if not one or not other:
        # "a/#" matches "a", too.
        return one in ([], ["#"]) and other in ([], ["#"])
    if one[0] == other[0] or "+" in (one[0], other[0]):
        named = (one[0] + other[0]).replace("+", "", 1)
        if is_first and one[0] != other[0] and _is_reserved(named):
            return False
        return _overlap(one[1:], other[1:], is_first=False)
    return False


# Roles ---------------------------------------------------------------------------------------

_PATTERN = re.compile(r"[a-z0-9_*]+(\.[a-z0-9_*]+)?")


@dataclass(frozen=True)
class Role:
    """What one role may see, as patterns: names in which "*" stands for any part.

    Events: "patient", "*". Attributes: "patient.heart_rate", "patient.*", "*.east", or "*" for all.
    `deny` overrides both: without a dot it denies an event, with one an attribute.
    """

    events: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class _CompiledRole:
    """A role with its patterns compiled, and a cache of its answers."""

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


class RoleTable:
    """The table of roles of one node."""

    def __init__(self, roles: Mapping[str, Role]) -> None:
        self._judges = {name: _CompiledRole(name, role) for name, role in roles.items()}

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
        raise SecurityError(f'{where}: "{pattern}" is not a name or pattern')
    if ("." in folded) != has_dot:
        wanted = '"event.attribute", "event.*" or "*"' if has_dot else 'an event, such as "patient"'
        raise SecurityError(f'{where}: "{pattern}" is not {wanted}')
    # "*" does not match the dot: "pat*.age" must not match "patient.x.age".
    return re.compile(re.escape(folded).replace(r"\*", "[^.]*"))


def _fits(patterns: tuple[re.Pattern[str], ...], text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in patterns)
