"""The web server and the page. The only file that imports NiceGUI.

PAGE. Each open tab has a `ConsolePage`; all tabs of a subscriber share one `UserSession`. An
element gets plain JSON, sent when it has changed; the scripts in `parts/` put it into text nodes,
so nothing that a sensor sends is ever interpreted as markup.
SERVER. NiceGUI behind `AccessGuard`, uvicorn around both. It listens only on the loopback unless
told otherwise, and then only with TLS.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from denwatch.client.console.auth import AccessGuard, ConsoleUsers, LoginError
from denwatch.client.console.completion import complete
from denwatch.client.console.drawing import draw_map
from denwatch.client.console.preview import MOST_CHARACTERS, preview, set_top
from denwatch.client.console.status_monitor import build_sources
from denwatch.client.console.user_session import Situation, UserSession, describe_subscription
from denwatch.client.errors import LanguageError
from denwatch.client.subscriber import ConnectionState, SubscriberError
from denwatch.client.subscriber.servers import DENIED
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from nicegui import ui
from nicegui.element import Element
from nicegui.events import GenericEventArguments

_PERIOD = 0.5  # s
EXAMPLES = (
    "patient_temperature is very high and heart_rate is not normal",
    "oxygen_saturation is critical, top 5",
    "smoke is dense and visibility is bad",
    "wind_gust is dangerous, expires after 10 min",
)


class PageElement(Element):
    """One element of the page. `show` sends what has changed."""

    def show(self, **values: Any) -> None:
        """Show other values."""
        changed = {key: value for key, value in values.items() if self._props.get(key) != value}
        if changed:
            for key, value in changed.items():
                self._props[key] = value
            self.update()


class Bar(PageElement, component="parts/bar.js"):
    """The bar: the user, the connection, themes, help."""


class Composer(PageElement, component="parts/composer.js"):
    """The text field for subscriptions, with completion and preview."""


class SubscriptionList(PageElement, component="parts/subscriptions.js"):
    """The subscriptions."""


class FeedList(PageElement, component="parts/feed.js"):
    """The notifications."""


class NodeMap(PageElement, component="parts/nodes.js"):
    """The map of nodes."""


class SourceList(PageElement, component="parts/sources.js"):
    """The devices."""


class ConsolePage:
    """One tab of a browser."""

    def __init__(self, user: UserSession, is_shared: bool, is_valid: Callable[[], bool]) -> None:
        """`is_shared`: several users have this console; `is_valid`: whether the login still is."""
        self._user = user
        self._is_valid = is_valid
        self._situation: Situation | None = None
        self._reports = 0
        self._bar = Bar()
        with ui.element("div").props('id="main"'):
            with ui.element("div").classes("side"):
                self._composer = Composer()
                self._subscriptions = SubscriptionList()
            self._feed = FeedList()
            with ui.element("div").classes("side"):
                self._nodes = NodeMap()
                self._sources = SourceList()
        self._bar.show(user=user.name, shared=is_shared)
        texts = [text for text in EXAMPLES if preview(text, user.vocabulary).problem is None]
        self._composer.show(examples=texts, limit=MOST_CHARACTERS)
        self._composer.on("typed", self._type)
        self._composer.on("send", self._send)
        self._subscriptions.on("mute", self._mute)
        self._subscriptions.on("top", self._set_top)
        self._subscriptions.on("end", self._end)
        self._timer = ui.timer(_PERIOD, self._tick, immediate=True)

    # To the browser ------------------------------------------------------------------------------

    async def _tick(self) -> None:
        if not self._is_valid():
            self._timer.cancel()
            ui.navigate.to("/login")
            return
        try:
            situation = await asyncio.to_thread(self._user.read)
        except SubscriberError:  # the session was closed meanwhile: the next tick handles it
            return
        before, self._situation = self._situation, situation
        status, feed = situation.status, situation.feed
        self._bar.show(
            online=situation.is_online,
            link=describe_link(status.state, status.server, status.reason, situation.network.nodes),
            since=self._user.since,
            now=self._bar._props.get("now") or situation.now,
        )
        self._composer.show(online=situation.is_online)
        self._feed.show(
            rows=list(feed.rows),
            hidden=feed.hidden,
            beyond=feed.beyond,
            subscribed=len(situation.subscriptions),
            now=self._feed._props.get("now") or situation.now,
        )
        muted = self._user.settings.muted
        self._subscriptions.show(
            subscriptions=[
                describe_subscription(s, feed, s.name in muted) for s in situation.subscriptions
            ],
            online=situation.is_online,
        )
        self._nodes.show(network=situation.network.to_dict(), map=draw_map(situation.network))
        if before is None or _differs(before, situation):
            vocabulary = self._user.vocabulary
            found = build_sources(situation.announcements, vocabulary, situation.notifications)
            self._sources.show(sources=found, more=situation.uncounted)

    # From the browser --------------------------------------------------------------------------

    def _type(self, event: GenericEventArguments) -> None:
        text, caret = _read_text(event.args.get("text")), event.args.get("caret", 0)
        self._answer(text, caret if isinstance(caret, int) else 0)

    def _answer(self, text: str, caret: int) -> None:
        user, situation = self._user, self._situation
        announcements = situation.announcements if situation is not None else ()
        names = [s.name for s in situation.subscriptions] if situation is not None else []
        understood = preview(text, user.vocabulary, announcements)
        found = complete(text, caret, user.vocabulary, names)
        replaces = understood.name in names and understood.problem is None
        self._composer.show(
            answer={
                "text": text,
                "caret": caret,
                "completions": [asdict(one) for one in found],
                "preview": asdict(understood),
                "replaces": understood.name if replaces else "",
            }
        )

    async def _send(self, event: GenericEventArguments) -> None:
        text = _read_text(event.args.get("text"))
        problem = preview(text, self._user.vocabulary).problem
        if problem is not None or not text.strip():
            self._answer(text, len(text))
            return
        changes = event.args.get("changes")
        old = next((s.name for s in self._list_subscriptions() if s.name == changes), None)
        try:
            await asyncio.to_thread(self._user.replace, text, old)
        except SubscriberError as error:
            self._report(str(error), is_wrong=True)
            return
        is_online = self._situation is not None and self._situation.is_online
        words = "Subscribed. Matching readings appear in the feed."
        self._report(words if is_online else "Stored here. It is sent when a node is in range.")
        await self._tick()

    async def _mute(self, event: GenericEventArguments) -> None:
        name = self._find_name(event)
        if name is not None:
            await self._change(self._user.mute, name, bool(event.args.get("muted")))

    async def _set_top(self, event: GenericEventArguments) -> None:
        name, top = self._find_name(event), event.args.get("top")
        text = next((s.text for s in self._list_subscriptions() if s.name == name), None)
        if name is not None and text is not None and (top is None or isinstance(top, int)):
            await self._change(lambda: self._user.subscribe(set_top(text, top), name))

    async def _end(self, event: GenericEventArguments) -> None:
        name = self._find_name(event)
        if name is not None:
            await self._change(self._user.unsubscribe, name)

    async def _change(self, work: Callable[..., object], *arguments: object) -> None:
        """Change the user's subscriptions, on another thread, and show the outcome."""
        try:
            await asyncio.to_thread(work, *arguments)
        except (LanguageError, SubscriberError) as error:
            self._report(str(error), is_wrong=True)
        await self._tick()

    def _find_name(self, event: GenericEventArguments) -> str | None:
        """Return the name of the subscription, if it is one of this user."""
        wanted = event.args.get("name")
        return next((s.name for s in self._list_subscriptions() if s.name == wanted), None)

    def _list_subscriptions(self) -> tuple[Any, ...]:
        return self._situation.subscriptions if self._situation is not None else ()

    def _report(self, words: str, is_wrong: bool = False) -> None:
        self._reports += 1
        self._composer.show(result={"words": words, "wrong": is_wrong, "count": self._reports})


def describe_link(state: ConnectionState, server: str, reason: str, nodes: tuple[Any, ...]) -> str:
    """Return the connection's state for people, with the node's name if it is known."""
    ours = next((node.name for node in nodes if node.is_ours), "")
    if state is ConnectionState.ONLINE:
        where = f"Connected to {ours or server}"
        return f"{where}: {reason}" if reason else where
    if state in (ConnectionState.OPENING, ConnectionState.LISTENING, ConnectionState.PROBING):
        return f"Connecting to {server}"
    if reason == DENIED:
        return f"{server} refuses your name or key; trying again"
    return f"No node in range ({reason}); trying again" if reason else "No node in range"


def _differs(before: Situation, after: Situation) -> bool:
    if before.announcements != after.announcements or before.uncounted != after.uncounted:
        return True
    return [one.key for one in before.notifications] != [one.key for one in after.notifications]


def _read_text(found: object) -> str:
    """Return the typed text; a browser may send anything."""
    text = found if isinstance(found, str) else ""
    return text[: MOST_CHARACTERS + 1].encode("utf-8", "replace").decode()


# The server ----------------------------------------------------------------------------------

PARTS = Path(__file__).parent / "parts"
TITLE = "denwatch console"
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
    '<rect width="32" height="32" rx="8" fill="#0b5fff"/>'
    '<path d="M6 22 C11 22 11 9 16 9 S21 22 26 22" fill="none" stroke="#fff" stroke-width="3"'
    ' stroke-linecap="round"/></svg>'
)
_MOST_FORM = 4_096  # bytes


@dataclass(frozen=True)
class ListenAddress:
    """Where the console listens. `names` are further host names for browsers."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        """The scheme of the console's address."""
        return "http" if self.certificate is None else "https"


def build_app(users: ConsoleUsers, cookie: str, is_tls: bool) -> FastAPI:
    """Return the app: the login's routes, and the page."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    def admit(session: str) -> Response:
        answer = RedirectResponse("/", 303)
        answer.set_cookie(cookie, session, httponly=True, samesite="lax", secure=is_tls)
        return answer

    @app.get("/enter")
    def enter(token: str = "") -> Response:
        session = users.enter(token)
        if session is None:
            return show_login_page(
                users, "This link does not belong to this console, or is out of date.", 403
            )
        return admit(session)

    @app.get("/login")
    def show_login() -> Response:
        return show_login_page(users)

    @app.post("/login")
    async def log_in(request: Request) -> Response:
        body = await read_body(request)
        if body is None:
            return PlainTextResponse("Too large.\n", 413)
        form = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
        name, key = (form.get(field, [""])[0].strip() for field in ("name", "key"))
        if not name or not key:
            return show_login_page(users, "Enter a name and a key.", 400, name)
        try:
            session = await asyncio.to_thread(users.login, name, key)
        except LoginError as error:
            return show_login_page(users, str(error), 403, name)
        return admit(session)

    @app.post("/logout")
    def log_out(request: Request) -> Response:
        users.leave(request.cookies.get(cookie))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(cookie)
        return answer

    @app.get("/health")
    def report_health() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/console.css")
    def send_style() -> Response:
        return Response(read_style(), media_type="text/css")

    @app.get("/shared.js")
    def send_script() -> Response:
        return Response(_read("shared.js"), media_type="text/javascript")

    _add_page(users, cookie)
    ui.run_with(
        app,
        title=TITLE,
        favicon=ICON,
        language="en-US",
        reconnect_timeout=30.0,
        binding_refresh_interval=None,
        tailwind=False,
        show_welcome_message=False,
    )
    return app


def _add_page(users: ConsoleUsers, cookie: str) -> None:
    @ui.page("/")
    def show_page(request: Request) -> Response | None:
        session = request.cookies.get(cookie)
        user = users.find(session)
        if user is None:  # the login ended between the guard and here
            return RedirectResponse("/login", 303)
        ui.add_head_html(
            '<link rel="stylesheet" href="/console.css"><script src="/shared.js"></script>'
        )
        ConsolePage(user, users.single is None, lambda: users.find(session) is user)
        return None


def read_style() -> str:
    """Return the whole style: the files in the order of their numbers."""
    files = sorted((PARTS / "style").glob("*.css"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def _read(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def show_login_page(
    users: ConsoleUsers, error: str = "", status: int = 200, name: str = ""
) -> Response:
    """Return the login page, or where to find the link of a single user's console."""
    shown = f'<p class="login-error" role="alert">{escape(error)}</p>' if error else ""
    part = "login-single.html" if users.single is not None else "login.html"
    body = _read(part).replace("{{error}}", shown).replace("{{name}}", escape(name, quote=True))
    return HTMLResponse(body, status)


async def read_body(request: Request) -> bytes | None:
    """Return a small body; None for one that is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_FORM:
            return None
    return body


def serve(users: ConsoleUsers, listen: ListenAddress, report: Callable[[str], None]) -> None:
    """Serve until stopped; `report` is called with the address once it listens."""
    # Browsers send cookies to every port of a host: another console's would replace ours.
    cookie = f"denwatch_{listen.port or secrets.token_hex(4)}"
    app = build_app(users, cookie, listen.certificate is not None)
    hosts = {listen.host, "localhost", "127.0.0.1", "::1", *listen.names}
    guard = AccessGuard(app, hosts, cookie, lambda session: users.find(session) is not None)
    config = uvicorn.Config(
        guard,
        host=listen.host,
        port=listen.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        ssl_certfile=listen.certificate,
        ssl_keyfile=listen.key,
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
        ws_max_size=1 << 20,
        timeout_graceful_shutdown=2,
    )
    server = _ConsoleServer(config)
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    server.on_listening = lambda port: report(f"{listen.scheme}://{host}:{port}")
    server.run()


class _ConsoleServer(uvicorn.Server):
    """Reports where it listens: the port may be chosen by the system."""

    on_listening: Callable[[int], None]

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            self.on_listening(self.servers[0].sockets[0].getsockname()[1])
