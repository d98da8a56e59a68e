"""The console as a server: routes of the door, NiceGUI behind the guard, uvicorn around all.

With `page`, the only file that imports NiceGUI. Nothing here listens beyond the loopback unless it
is told to, and then with TLS only.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import parse_qs

import uvicorn
from denwatch.client.console.guard import Guard
from denwatch.client.console.page import Page
from denwatch.client.console.people import LoginError, People
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from nicegui import ui

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
class Listen:
    """Where the console listens. `names` are further names that browsers may call it by."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        """What a browser says before the address."""
        return "http" if self.certificate is None else "https"


def list_hosts(listen: Listen) -> Iterable[str]:
    """Return the names by which the console may be asked."""
    return {listen.host, "localhost", "127.0.0.1", "::1", *listen.names}


def build_app(people: People, cookie: str, is_tls: bool) -> FastAPI:
    """Return the app: the door's routes, and the page."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    def let_in(session: str) -> Response:
        answer = RedirectResponse("/", 303)
        answer.set_cookie(cookie, session, httponly=True, samesite="lax", secure=is_tls)
        return answer

    @app.get("/enter")
    def enter(token: str = "") -> Response:
        session = people.enter(token)
        if session is None:
            return show_door(people, "This link is not of this console, or is an old one.", 403)
        return let_in(session)

    @app.get("/login")
    def show_login() -> Response:
        return show_door(people)

    @app.post("/login")
    async def log_in(request: Request) -> Response:
        body = await read_body(request)
        if body is None:
            return PlainTextResponse("Too much.\n", 413)
        form = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
        name, key = (form.get(field, [""])[0].strip() for field in ("name", "key"))
        if not name or not key:
            return show_door(people, "A name and a key are needed.", 400, name)
        try:
            session = await asyncio.to_thread(people.login, name, key)
        except LoginError as error:
            return show_door(people, str(error), 403, name)
        return let_in(session)

    @app.post("/logout")
    def log_out(request: Request) -> Response:
        people.leave(request.cookies.get(cookie))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(cookie)
        return answer

    @app.get("/health")
    def say_health() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/door.css")
    def send_style() -> Response:
        return Response(read_style(), media_type="text/css")

    @app.get("/shared.js")
    def send_script() -> Response:
        return Response(_read("shared.js"), media_type="text/javascript")

    _add_page(people, cookie)
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


def _add_page(people: People, cookie: str) -> None:
    @ui.page("/")
    def show_page(request: Request) -> Response | None:
        session = request.cookies.get(cookie)
        desk = people.find(session)
        if desk is None:  # the session ended between the guard and here
            return RedirectResponse("/login", 303)
        ui.add_head_html(
            '<link rel="stylesheet" href="/door.css"><script src="/shared.js"></script>'
        )
        Page(desk, people.single is None, lambda: people.find(session) is desk)
        return None


def read_style() -> str:
    """Return all of the style: the files in the order of their numbers."""
    files = sorted((PARTS / "style").glob("*.css"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def _read(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def show_door(people: People, complaint: str = "", status: int = 200, name: str = "") -> Response:
    """Return the page in front: the login, or where to find the link."""
    told = f'<p class="door-error" role="alert">{escape(complaint)}</p>' if complaint else ""
    part = "door-single.html" if people.single is not None else "door.html"
    body = _read(part).replace("{{complaint}}", told).replace("{{name}}", escape(name, quote=True))
    return HTMLResponse(body, status)


async def read_body(request: Request) -> bytes | None:
    """Return a small body; None for one that is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_FORM:
            return None
    return body


def serve(people: People, listen: Listen, tell: Callable[[str], None]) -> None:
    """Serve until stopped; `tell` is called with the address once it listens."""
    # Browsers send cookies to every port of a host: another console's would take the place of ours.
    cookie = f"denwatch_{listen.port or secrets.token_hex(4)}"
    app = build_app(people, cookie, listen.certificate is not None)
    guard = Guard(app, list_hosts(listen), cookie, lambda session: people.find(session) is not None)
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
    server = _Server(config)
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    server.on_listening = lambda port: tell(f"{listen.scheme}://{host}:{port}")
    server.run()


class _Server(uvicorn.Server):
    """Says when it listens, and where: the port may be chosen by the system."""

    on_listening: Callable[[int], None]

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            self.on_listening(self.servers[0].sockets[0].getsockname()[1])
