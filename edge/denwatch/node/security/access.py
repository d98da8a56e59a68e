"""The MQTT server's rules: who may connect, publish and subscribe. No clock, no I/O.

The user name is the name of a device, subscriber or node; the password is, in this order, derived
from the device's key, the subscriber's own, or a node's card with its proof. Everybody is limited
to their own topics. Answers are remembered per user until the keyring changes, so that a message
costs one look-up in a set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from denwatch.node.security.errors import SecurityError
from denwatch.node.security.keyring import Keyring
from denwatch.node.security.names import check_name
from denwatch.node.security.passwords import VerifiedPasswords
from denwatch.node.security.rates import RateLimit
from denwatch.node.security.topics import (
    NOTHING,
    OPERATOR,
    ROOT,
    Grant,
    covers,
    grant_anonymous,
    grant_device,
    grant_node,
    grant_operator,
    grant_subscriber,
    overlaps,
)

# CONNACK's return codes, MQTT 3.1.1, table 3.1.
ACCEPTED, UNAVAILABLE, BAD_PASSWORD, NOT_AUTHORISED = 0, 3, 4, 5
_ATTEMPTS_PER_SECOND, _ATTEMPTS_AT_ONCE = 0.5, 10


class Access:
    """`Rules` of the server for one node.

    `anonymous_role` lets clients without a name in, under names that nobody is registered with.
    `besides` is what single subscribers may do beyond their own topics.
    `shared` are filters outside `dens/` on which every client may publish and subscribe.
    `memory_key` is random bytes for this run of the process.
    """

    def __init__(
        self,
        keyring: Keyring,
        memory_key: bytes,
        anonymous_role: str | None = None,
        shared: Iterable[str] = (),
        besides: Mapping[str, Grant] | None = None,
    ) -> None:
        self._keyring = keyring
        self._passwords = VerifiedPasswords(memory_key)
        self._anonymous_role = anonymous_role
        self._shared = tuple(shared)
        self._besides = dict(besides or {})
        for pattern in self._shared:
            if overlaps(pattern, f"{ROOT}#") or pattern.startswith("$"):
                raise SecurityError(f'shared topics: "{pattern}" reaches into {ROOT} or $')
        self._grants: dict[str, Grant] = {}
        self._generation = keyring.generation
        self._attempts = RateLimit(_ATTEMPTS_PER_SECOND, _ATTEMPTS_AT_ONCE)
        self._now: int | None = None

    def note_time(self, now: int) -> None:
        """Say what time it is; from the first call on, wrong passwords of a user are rationed."""
        self._now = now

    def authenticate(self, user: str, password: bytes | None, client: str) -> int:  # noqa: ARG002
        """Return CONNACK's code: 0 lets the client in."""
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
        else:  # a node that we never heard of brings its card along
            is_right = self._keyring.check_credentials(user, password)
        return ACCEPTED if is_right else BAD_PASSWORD

    def _check_subscriber(self, user: str, password: bytes) -> int:
        """Compare with each good hash. Only scrypt is rationed: it costs us more than the guesser.

        Whoever was right before in this run gets in all the same while others guess.
        """
        hashes = self._keyring.list_password_hashes(user)
        if any(self._passwords.is_known(text, password) for text in hashes):
            return ACCEPTED
        if self._now is not None and self._attempts.take(user, self._now):
            return UNAVAILABLE
        if not any(self._passwords.verify(text, password) for text in hashes):
            return BAD_PASSWORD
        self._attempts.forget(user)
        return ACCEPTED

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
        """Return whether a connected user may stay: False after a revocation."""
        return self._find_grant(user) is not NOTHING

    def role_of(self, name: str) -> str | None:
        """Return the role of whoever subscribes under a name, None if nobody may."""
        role = self._keyring.role_of(name)
        if role is None and not self._is_taken(name):
            return self._anonymous_role
        return role

    def _is_shared(self, name: str) -> bool:
        return any(covers(allowed, name) for allowed in self._shared)

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
        return self._keyring.registry.kind_of(name) is not None or self._keyring.is_revoked(name)

    def _find_grant(self, user: str) -> Grant:
        if self._generation != self._keyring.generation:
            self._generation = self._keyring.generation
            self._grants.clear()
        grant = self._grants.get(user)
        if grant is None:
            grant = self._make_grant(user)
            self._grants[user] = grant
        return grant

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
