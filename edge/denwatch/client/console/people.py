"""Who may look, and at whose notes: logins, sessions, and the desk of each person.

A console is either of one person, who started it and opens it by a link with a secret, or of
several, who log in with the name and the key that their node knows them by. A session is a random
cookie that stands for one name; whoever has it sees that name's desk and no other.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from denwatch.client.console.desk import Desk, Place
from denwatch.client.console.settings import check_key, load_settings, remember_key
from denwatch.client.subscriber.link import Identity, LinkConnected, LinkFailed, MqttLink, Waker
from denwatch.client.subscriber.messages import SubscriberError, check_name
from denwatch.client.subscriber.servers import parse_server
from denwatch.client.vocabulary import Vocabulary

_PATIENCE = 6.0  # s for a node's answer to a login
_MOST_SESSIONS = 500
_LIFE = 12 * 3600.0  # s of a session that nobody uses
_ATTEMPTS, _PER = 10, 60.0  # wrong keys for a name in so many seconds


class LoginError(Exception):
    """Why somebody is not let in, to be shown to them."""


@dataclass
class _Session:
    name: str
    used: float


@dataclass
class People:
    """Everybody at this console. `single` is set where it is of one person."""

    place: Place
    folder: Path
    vocabulary: Vocabulary
    organisation: str | None = None
    single: Desk | None = None
    _desks: dict[str, Desk] = field(default_factory=dict)
    _sessions: dict[str, _Session] = field(default_factory=dict)
    _failures: dict[str, list[float]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def open_single(self, name: str, password: str | None, store: Path) -> str:
        """Make this the console of one person; return the secret that opens it.

        The secret is kept beside the store, so that a link still works after a restart.
        """
        desk = Desk(name, password, self.place, store, self.vocabulary, self.organisation)
        desk.start()
        self._desks[name] = self.single = desk
        if not desk.settings.token:
            desk.save(replace(desk.settings, token=secrets.token_urlsafe(24)))
        return desk.settings.token

    def close(self) -> None:
        """Stop all desks."""
        with self._lock:
            desks, self._desks = list(self._desks.values()), {}
            self._sessions.clear()
        for desk in desks:
            desk.close()

    # Sessions --------------------------------------------------------------------------------

    def enter(self, token: str) -> str | None:
        """Return a session for whoever has the secret of a console of one person."""
        desk = self.single
        if desk is None or not hmac.compare_digest(
            desk.settings.token.encode(), token.encode("utf-8", "replace")
        ):
            return None
        return self._begin(desk.name)

    def login(self, name: str, key: str) -> str:
        """Return a session for a name whose key a node accepts. Waits: not on an event loop.

        While no node answers, a key that one has accepted here before is enough.
        """
        if self.single is not None:
            raise LoginError("This console is of one person: open it by its link.")
        try:
            check_name(name)
        except SubscriberError:
            raise LoginError("This is no name: 1 to 64 characters, without / + # and $.") from None
        self._check_attempts(name)
        store = self.folder / f"{name}.db"
        settings_path = store.with_suffix(".console.json")
        refusal = ask_nodes(Identity(name, key, self.place.tls, self.place.is_insecure), self.place)
        if refusal is not None and refusal.startswith("refused"):
            self._failures.setdefault(name, []).append(time.monotonic())
            raise LoginError("The node does not know this name with this key.")
        if refusal is not None and not check_key(load_settings(settings_path), key):
            self._failures.setdefault(name, []).append(time.monotonic())
            raise LoginError(
                "No node answers, so this key cannot be checked; it was not used here before."
            )
        try:
            desk = self._open_desk(name, key, store)
        except SubscriberError as error:
            raise LoginError(f"{error}") from None
        if refusal is None:
            settings = replace(desk.settings)
            remember_key(settings, key)
            desk.save(settings)
        return self._begin(name)

    def find(self, session: str | None) -> Desk | None:
        """Return the desk of a session; None if it is none, or no longer."""
        with self._lock:
            found = self._sessions.get(session or "")
            if found is None:
                return None
            if time.monotonic() - found.used > _LIFE:
                self._sessions.pop(session or "")
                return None
            found.used = time.monotonic()
            return self._desks.get(found.name)

    def leave(self, session: str | None) -> None:
        """End a session; the desk of a name without any is closed."""
        with self._lock:
            found = self._sessions.pop(session or "", None)
            if found is None or self.single is not None:
                return
            is_last = all(other.name != found.name for other in self._sessions.values())
            desk = self._desks.pop(found.name, None) if is_last else None
        if desk is not None:
            desk.close()

    def _begin(self, name: str) -> str:
        session = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._sessions) >= _MOST_SESSIONS:
                oldest = min(self._sessions, key=lambda key: self._sessions[key].used)
                del self._sessions[oldest]
            self._sessions[session] = _Session(name, time.monotonic())
        return session

    def _open_desk(self, name: str, key: str, store: Path) -> Desk:
        with self._lock:
            desk = self._desks.get(name)
            if desk is not None and desk.password == key:
                return desk
            if desk is not None:  # the key was rotated
                self._desks.pop(name).close()
            desk = Desk(name, key, self.place, store, self.vocabulary, self.organisation)
            desk.start()
            self._desks[name] = desk
            return desk

    def _check_attempts(self, name: str) -> None:
        now = time.monotonic()
        with self._lock:
            recent = [at for at in self._failures.get(name, []) if now - at < _PER]
            if len(self._failures) > 10 * _MOST_SESSIONS:
                self._failures.clear()
            self._failures[name] = recent
        if len(recent) >= _ATTEMPTS:
            raise LoginError("Too many wrong keys for this name: wait a minute.")


def ask_nodes(identity: Identity, place: Place) -> str | None:
    """Return None if a node lets somebody in, else why none does; a refusal goes first."""
    reasons = []
    for url in place.servers:
        waker = Waker()
        link = None
        try:
            link = MqttLink(
                parse_server(url), identity, f"login-{secrets.token_hex(6)}", is_temporary=True
            )
            link.open()
            until = time.monotonic() + _PATIENCE
            while time.monotonic() < until:
                for happening in link.poll(0.5, waker):
                    if isinstance(happening, LinkConnected):
                        return None
                    if isinstance(happening, LinkFailed):
                        reasons.append(happening.reason)
                        until = 0.0
        except SubscriberError as error:
            reasons.append(str(error))
        finally:
            if link is not None:
                link.close()
            waker.close()
    refused = [reason for reason in reasons if reason.startswith("refused")]
    return next(iter(refused + reasons), "no answer")
