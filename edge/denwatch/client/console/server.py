"""The web server: the login's routes, the page's files, and a socket for each open tab.

FastAPI behind `AccessGuard`, uvicorn around both. It listens only on the loopback unless told
otherwise, and then only with TLS. The page is one static file with its scripts, so that a phone
can keep it (`parts/worker.js`); what it shows comes over the socket. Vue is the file that NiceGUI
ships; nothing else of NiceGUI is used.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs

import uvicorn
from denwatch.client.console.auth import AccessGuard, ConsoleUsers, LoginError
from denwatch.client.console.page import PERIOD, ConsolePage
from denwatch.client.language.localisation import choose_locale, list_locales, load_locale
from denwatch.client.subscriber import SubscriberError
from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

# The server ----------------------------------------------------------------------------------

PARTS = Path(__file__).parent / "parts"
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

    def refuse(request: Request, error: str, status: int, name: str = "") -> Response:
        return show_login_page(users, find_language(request), error, status, name)

    @app.get("/enter")
    def enter(request: Request, token: str = "") -> Response:
        try:
            session = users.enter(token)
        except LoginError as error:
            return refuse(request, str(error), 403)
        if session is None:
            words = "This link does not belong to this console, or is out of date."
            return refuse(request, words, 403)
        return admit(session)

    @app.get("/login")
    def show_login(request: Request) -> Response:
        return refuse(request, users.find_refusal(request.cookies.get(cookie)), 200)

    @app.post("/login")
    async def log_in(request: Request) -> Response:
        body = await read_body(request)
        if body is None:
            return PlainTextResponse("Too large.\n", 413)
        form = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
        name, key = (form.get(field, [""])[0].strip() for field in ("name", "key"))
        if not name or not key:
            return refuse(request, "Enter a name and a key.", 400, name)
        try:
            session = await asyncio.to_thread(users.login, name, key)
        except LoginError as error:
            return refuse(request, str(error), 403, name)
        return admit(session)

    @app.post("/logout")
    def log_out(request: Request) -> Response:
        users.leave(request.cookies.get(cookie))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(cookie)
        return answer

    @app.get("/login/state")
    def report_login() -> Response:
        return PlainTextResponse("logged in\n")  # the guard answers 401 to others

    @app.get("/health")
    def report_health() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/plan")
    def send_plan() -> Response:
        if users.plan is None:
            return PlainTextResponse("There is no plan.\n", 404)
        return Response(users.plan.path.read_bytes(), media_type=users.plan.kind)

    for name in PAGE_FILES:
        _add_file(app, name)

    @app.websocket("/live")
    async def live(socket: WebSocket) -> None:
        session = socket.cookies.get(cookie)
        user = users.find(session)
        if user is None:  # the login ended between the guard and here
            await socket.close(1008)
            return
        await socket.accept()
        page = ConsolePage(user, users.single is None, socket.send_json, users.plan)
        ticking = asyncio.create_task(
            _keep_current(page, socket, lambda: users.find(session) is user)
        )
        try:
            with suppress(WebSocketDisconnect, RuntimeError):  # of a socket that closes
                while True:
                    await page.handle(_read_message(await socket.receive_text()))
        finally:
            ticking.cancel()

    app.add_middleware(GZipMiddleware, minimum_size=500)
    return app


async def _keep_current(page: ConsolePage, socket: WebSocket, is_valid: Callable[[], bool]) -> None:
    """Send what changes, until the tab is closed or its login ends."""
    with suppress(WebSocketDisconnect, RuntimeError, SubscriberError):
        while is_valid():
            await asyncio.sleep(PERIOD)
            await page.tick()
        await socket.send_json({"leave": True})
        await socket.close(1008)


def _read_message(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


PAGE_FILES = {
    "/": ("page.html", "text/html"),
    "/manifest.json": ("manifest.json", "application/manifest+json"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{
        f"/{name}": (name, "image/png")
        for name in ("icon-192.png", "icon-512.png", "icon-maskable.png")
    },
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript")
        for name in ("vue", "strings", *(path.stem for path in sorted(PARTS.glob("*.js"))))
    },
    "/console.css": ("console.css", "text/css"),
}


def _add_file(app: FastAPI, path: str) -> None:
    name, kind = PAGE_FILES[path]

    @app.get(path, name=name)
    def send_file() -> Response:
        body = (PARTS / name).read_bytes() if kind == "image/png" else read_file(name)
        return Response(body, media_type=kind, headers={"cache-control": "no-cache"})


@cache
def read_file(name: str) -> str:
    """Return a file of the page."""
    match name:
        case "console.css":  # the files in the order of their numbers
            files = sorted((PARTS / "style").glob("*.css"))
            return "\n".join(file.read_text(encoding="utf-8") for file in files)
        case "strings.js":
            tables = {code: load_locale(code).tables.get("console", {}) for code in list_locales()}
            return f"globalThis.denwatchStrings = {json.dumps(tables, ensure_ascii=False)};"
        case "vue.js":
            return find_vue().read_text(encoding="utf-8")
    return (PARTS / name).read_text(encoding="utf-8")


def find_vue() -> Path:
    """Return the file of Vue, with its compiler of templates."""
    spec = find_spec("nicegui")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        path = Path(folder) / "static" / "vue.esm-browser.prod.js"
        if path.is_file():
            return path
    raise ImportError(
        "the installed NiceGUI has no Vue: pip install 'denwatch[console]'", name="nicegui"
    )


def show_login_page(
    users: ConsoleUsers, language: str, error: str = "", status: int = 200, name: str = ""
) -> Response:
    """Return the login page, or where to find the link of a single user's console."""
    locale = load_locale(language)
    words = escape(locale.translate(error))
    shown = f'<p class="login-error" role="alert">{words}</p>' if error else ""
    part = "login-single.html" if users.single is not None else "login.html"
    fields = {"error": shown, "name": escape(name, quote=True), "language": language}
    return HTMLResponse(locale.fill(read_file(part), fields), status)


def find_language(request: Request) -> str:
    """Return the language that was chosen on the page, or that the browser prefers."""
    chosen = request.cookies.get("denwatch_language", "")
    return choose_locale(chosen, request.headers.get("accept-language", ""))


async def read_body(request: Request) -> bytes | None:
    """Return a small body; None for one that is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_FORM:
            return None
    return body


def build_server(
    users: ConsoleUsers, listen: ListenAddress, report: Callable[[str], None]
) -> uvicorn.Server:
    """Return the server, to `run`; `report` is called with the address once it listens."""
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
    return server


class _ConsoleServer(uvicorn.Server):
    """Reports where it listens: the port may be chosen by the system."""

    on_listening: Callable[[int], None]

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            self.on_listening(self.servers[0].sockets[0].getsockname()[1])
