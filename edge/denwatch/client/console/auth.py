"""Access to the console: an ASGI layer in front of the app, and logins with their sessions.

`AccessGuard` checks every request before the app sees it:
- it must name a host of ours (so that a foreign page cannot point its own name at us);
- a request from a page must come from our own page (Origin), WebSockets above all;
- without a login, only the login page is served;
- headers forbid the browser to load anything from elsewhere.

`ConsoleUsers`: a console belongs either to one subscriber, who opens it with a secret link, or to
several, who log in with the name and key that their node knows. A login is a random cookie for one
name; it gives access to the session of that subscriber and no other. It ends when a node refuses
the subscriber's key: it was revoked, or rotated.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from denwatch.client.console.drawing import PlanPicture
from denwatch.client.console.user_session import (
    NodeServers,
    UserSession,
    check_key,
    load_settings,
    remember_key,
)
from denwatch.client.subscriber.link import Identity, StatusReader
from denwatch.client.subscriber.messages import SubscriberError, check_name
from denwatch.client.vocabulary import Vocabulary

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
SendMessage = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, SendMessage], Awaitable[None]]

OPEN = ("/login", "/enter", "/health", "/console.css")
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"same-origin"),  # with none, a browser hides whose form it sends
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"geolocation=(), microphone=(), camera=()"),
)


class AccessGuard:
    """Passes valid requests on to an app, and answers the others."""

    def __init__(
        self, app: App, hosts: Iterable[str], cookie: str, is_known: Callable[[str | None], bool]
    ) -> None:
        self._app = app
        self._hosts = {host.casefold() for host in hosts}
        self._cookie = cookie
        self._is_known = is_known

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        refusal = self._find_refusal(headers)
        cookie = read_cookie(headers.get("cookie", ""), self._cookie)
        if refusal is None and scope["path"] not in OPEN and not self._is_known(cookie):
            if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/":
                await _answer(send, 303, b"", ((b"location", b"/login"),))
                return
            refusal = (401, b"Log in first.\n")
        if refusal is None:
            await self._app(scope, receive, _add_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _answer(send, *refusal)

    def _find_refusal(self, headers: dict[str, str]) -> tuple[int, bytes] | None:
        host = headers.get("host", "")
        if split_host(host) not in self._hosts:
            return 421, b"This console does not have that name.\n"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.casefold() != host.casefold():
            return 403, b"Requested by another page.\n"
        return None


def split_host(host: str) -> str:
    """Return the name of a Host header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").casefold()
    except ValueError:
        return ""


def read_cookie(header: str, name: str) -> str | None:
    """Return one cookie."""
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return None
    return None if found is None else found.value


def _add_headers(send: SendMessage) -> SendMessage:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *((name, value) for name, value in _HEADERS if name not in known),
            ]
        await send(message)

    return wrapped


async def _answer(
    send: SendMessage, status: int, body: bytes, more: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# Users and their logins ----------------------------------------------------------------------

_PATIENCE = 6.0  # s for a node's answer to a login
_MOST_SESSIONS = 500
_LIFE = 12 * 3600.0  # s of a session that nobody uses
_ATTEMPTS, _PER = 10, 60.0  # wrong keys for a name in so many seconds


REFUSED = "A node refuses this name with this key: the key is wrong, was changed, or was revoked."


class LoginError(Exception):
    """Why a login failed, as shown to the user."""


@dataclass
class _Login:
    name: str
    used: float


@dataclass
class ConsoleUsers:
    """All users of this console. `single` is set if it belongs to one; `plan` is what all see."""

    nodes: NodeServers
    folder: Path
    vocabulary: Vocabulary
    single: UserSession | None = None
    plan: PlanPicture | None = None
    _users: dict[str, UserSession] = field(default_factory=dict)
    _logins: dict[str, _Login] = field(default_factory=dict)
    _failures: dict[str, list[float]] = field(default_factory=dict)
    _expelled: list[str] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def open_single(self, name: str, password: str | None, store: Path) -> str:
        """Make this the console of one subscriber; return the secret that opens it.

        The secret is stored beside the store, so that a link still works after a restart.
        """
        user = UserSession(name, password, self.nodes, store, self.vocabulary)
        user.start()
        self._users[name] = self.single = user
        if not user.settings.token:
            user.save(replace(user.settings, token=secrets.token_urlsafe(24)))
        return user.settings.token

    def close(self) -> None:
        """Close all sessions."""
        with self._lock:
            users, self._users = list(self._users.values()), {}
            self._logins.clear()
        for user in users:
            user.close()

    # Logins --------------------------------------------------------------------------------

    def enter(self, token: str) -> str | None:
        """Return a login for whoever has the secret of a single user's console.

        LoginError if a node refuses this console's own name or key.
        """
        user = self.single
        if user is None or not hmac.compare_digest(
            user.settings.token.encode(), token.encode("utf-8", "replace")
        ):
            return None
        if user.is_denied:
            raise LoginError(REFUSED)
        return self._begin(user.name)

    def find_refusal(self, session: str | None) -> str:
        """Return why a login has ended, "" if it has not, or for no reason worth telling."""
        with self._lock:
            is_denied = self.single.is_denied if self.single is not None else False
            return REFUSED if is_denied or session in self._expelled else ""

    def login(self, name: str, key: str) -> str:
        """Return a login for a name whose key a node accepts. Waits: not for an event loop.

        While no node answers, a key that a node accepted here before is enough.
        """
        if self.single is not None:
            raise LoginError("This console belongs to one user: open it with its link.")
        try:
            check_name(name)
        except SubscriberError:
            raise LoginError(
                "This is not a name: 1 to 64 characters, without / + # and $."
            ) from None
        self._check_attempts(name)
        store = self.folder / f"{name}.db"
        settings_path = store.with_suffix(".console.json")
        refusal = ask_nodes(self.nodes.identify(name, key), self.nodes)
        message = ""
        if refusal is not None and refusal.startswith("refused"):
            message = "The node does not accept this name with this key."
        elif refusal is not None and not check_key(load_settings(settings_path), key):
            message = "No node answers, so this key cannot be checked; it was not used here before."
        if message:
            self._failures.setdefault(name, []).append(time.monotonic())
            raise LoginError(message)
        try:
            user = self._open_user(name, key, store)
        except SubscriberError as error:
            raise LoginError(f"{error}") from None
        if refusal is None:
            settings = replace(user.settings)
            remember_key(settings, key)
            user.save(settings)
        return self._begin(name)

    def find(self, session: str | None) -> UserSession | None:
        """Return the session of a login; None if it is not valid, or has ended."""
        with self._lock:
            found = self._logins.get(session or "")
            if found is None:
                return None
            if time.monotonic() - found.used > _LIFE:
                self._logins.pop(session or "")
                return None
            found.used = time.monotonic()
            user = self._users.get(found.name)
            if user is None or not user.is_denied:
                return user
            self._expel(user)
            return None

    def _expel(self, user: UserSession) -> None:
        """End all logins of a subscriber whose key a node refuses, and forget the key."""
        ended = [key for key, each in self._logins.items() if each.name == user.name]
        self._expelled = [*self._expelled, *ended][-_MOST_SESSIONS:]
        self._logins = {key: each for key, each in self._logins.items() if each.name != user.name}
        user.save(replace(user.settings, salt="", hash=""))
        if self.single is None:  # a single user's may be accepted again: its link works then
            del self._users[user.name]
            threading.Thread(target=user.close, daemon=True).start()  # it waits for its threads

    def leave(self, session: str | None) -> None:
        """End a login; a subscriber's session is closed with the last one."""
        with self._lock:
            found = self._logins.pop(session or "", None)
            if found is None or self.single is not None:
                return
            is_last = all(other.name != found.name for other in self._logins.values())
            user = self._users.pop(found.name, None) if is_last else None
        if user is not None:
            user.close()

    def _begin(self, name: str) -> str:
        session = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._logins) >= _MOST_SESSIONS:
                oldest = min(self._logins, key=lambda key: self._logins[key].used)
                del self._logins[oldest]
            self._logins[session] = _Login(name, time.monotonic())
        return session

    def _open_user(self, name: str, key: str, store: Path) -> UserSession:
        with self._lock:
            user = self._users.get(name)
            if user is not None and user.password == key:
                return user
            if user is not None:  # the key was rotated
                self._users.pop(name).close()
            user = UserSession(name, key, self.nodes, store, self.vocabulary)
            user.start()
            self._users[name] = user
            return user

    def _check_attempts(self, name: str) -> None:
        now = time.monotonic()
        with self._lock:
            recent = [at for at in self._failures.get(name, []) if now - at < _PER]
            if len(self._failures) > 10 * _MOST_SESSIONS:
                self._failures.clear()
            self._failures[name] = recent
        if len(recent) >= _ATTEMPTS:
            raise LoginError("Too many wrong keys for this name: wait a minute.")


def ask_nodes(identity: Identity, nodes: NodeServers) -> str | None:
    """Return None if a node accepts a login, else why none does; a refusal takes precedence."""
    reader = StatusReader(identity, nodes.servers, "login")
    until = time.monotonic() + _PATIENCE
    try:
        while not reader.listening and not reader.is_settled and time.monotonic() < until:
            reader.step(0.5)
    finally:
        reader.close()
    if reader.listening:
        return None
    reasons = [*reader.failures.values(), "no answer"]
    return next((reason for reason in reasons if reason.startswith("refused")), reasons[0])
