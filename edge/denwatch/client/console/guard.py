"""The door of the console, in front of everything: an ASGI layer that NiceGUI runs behind.

- a request must name a host that is ours (a page elsewhere cannot point its own name at us);
- a request that a page made must be of our own page (Origin), WebSockets above all;
- without a session nothing is served but the door itself;
- the browser is told to load nothing from anywhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/login", "/enter", "/health", "/door.css")
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


class Guard:
    """Lets requests through to an app, or does not."""

    def __init__(
        self, app: App, hosts: Iterable[str], cookie: str, is_known: Callable[[str | None], bool]
    ) -> None:
        self._app = app
        self._hosts = {host.casefold() for host in hosts}
        self._cookie = cookie
        self._is_known = is_known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        complaint = self._find_complaint(headers)
        if complaint is None and not self._may_enter(scope["path"], headers):
            if scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/":
                await _answer(send, 303, b"", ((b"location", b"/login"),))
                return
            complaint = (401, b"Log in first.\n")
        if complaint is None:
            await self._app(scope, receive, _add_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _answer(send, *complaint)

    def _find_complaint(self, headers: dict[str, str]) -> tuple[int, bytes] | None:
        host = headers.get("host", "")
        if split_host(host) not in self._hosts:
            return 421, b"This console does not go by that name.\n"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.casefold() != host.casefold():
            return 403, b"Asked by another page.\n"
        return None

    def _may_enter(self, path: str, headers: dict[str, str]) -> bool:
        return path in OPEN or self._is_known(read_cookie(headers.get("cookie", ""), self._cookie))


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


def _add_headers(send: Send) -> Send:
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
    send: Send, status: int, body: bytes, more: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
