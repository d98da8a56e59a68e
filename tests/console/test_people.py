"""Who may look: secrets, sessions, the guard in front; what the console keeps of a person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from denwatch.client.console.desk import Place
from denwatch.client.console.guard import Guard, read_cookie, split_host
from denwatch.client.console.people import LoginError, People
from denwatch.client.console.settings import (
    Settings,
    check_key,
    load_settings,
    remember_key,
    save_settings,
)
from denwatch.client.vocabulary import load_shipped

RESCUE = load_shipped("rescue")
NOWHERE = Place(("mqtt://127.0.0.1:1",))


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    found = People(NOWHERE, tmp_path, RESCUE)
    yield found
    found.close()


# Sessions -----------------------------------------------------------------------------------


def test_a_console_of_one_person_opens_by_its_secret_alone(people: People, tmp_path: Path) -> None:
    token = people.open_single("medic7", "key", tmp_path / "medic7.db")
    for wrong in ("", "x", token[:-1], token + "x", "ü"):
        assert people.enter(wrong) is None
    session = people.enter(token)
    desk = people.find(session)
    assert desk is not None
    assert desk.name == "medic7"
    assert people.find(None) is people.find("") is people.find("x") is None
    with pytest.raises(LoginError, match="one person"):
        people.login("medic7", "key")
    people.leave(session)
    assert people.find(session) is None


def test_the_secret_outlives_a_restart_and_is_kept_from_others(tmp_path: Path) -> None:
    tokens = []
    for _ in range(2):
        people = People(NOWHERE, tmp_path, RESCUE)
        tokens.append(people.open_single("medic7", None, tmp_path / "medic7.db"))
        people.close()
    assert tokens[0] == tokens[1]
    kept = tmp_path / "medic7.console.json"
    assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "a/b", "#", "+", "$x", "x" * 65, "../medic7"])
def test_what_is_no_name_is_refused(people: People, name: str) -> None:
    with pytest.raises(LoginError, match="no name"):
        people.login(name, "key")


def test_while_no_node_answers_only_a_key_that_one_accepted_before_opens(
    people: People, tmp_path: Path
) -> None:
    with pytest.raises(LoginError, match="cannot be checked"):
        people.login("medic7", "right")
    settings = Settings()
    remember_key(settings, "right")
    save_settings(tmp_path / "medic7.console.json", settings)
    with pytest.raises(LoginError, match="cannot be checked"):
        people.login("medic7", "wrong")
    first, second = people.login("medic7", "right"), people.login("medic7", "right")
    assert first != second
    desk = people.find(first)
    assert desk is not None
    assert desk is people.find(second)  # two browsers, one desk
    people.leave(first)
    assert people.find(second) is desk
    people.leave(second)
    assert people.find(second) is None


def test_guessing_is_rationed(people: People) -> None:
    for _ in range(10):
        with pytest.raises(LoginError, match="cannot be checked"):
            people.login("medic7", "guess")
    with pytest.raises(LoginError, match="wait a minute"):
        people.login("medic7", "guess")


def test_what_is_asked_without_a_node_waits_and_outlives_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        people = People(NOWHERE, tmp_path, RESCUE)
        session = people.enter(people.open_single("medic7", None, tmp_path / "medic7.db"))
        desk = people.find(session)
        assert desk is not None
        assert desk.subscribe("pain is severe, named ouch") == "ouch"
        desk.mute("ouch", True)
        situation = desk.read()
        assert [(s.name, s.state) for s in situation.subscriptions] == [("ouch", "pending")]
        assert not situation.is_online
        assert desk.replace("pain is mild, named ouch", "ouch") == "ouch"
        assert desk.replace("pain is mild, named low", "ouch") == "low"
        assert [s.name for s in desk.read().subscriptions] == ["low"]
        assert desk.replace("pain is severe, named ouch", "low") == "ouch"
        desk.mute("ouch", True)
        people.close()
    assert load_settings(tmp_path / "medic7.console.json").muted == ["ouch"]


# Settings -----------------------------------------------------------------------------------


def test_settings_come_back_and_rubbish_is_a_new_beginning(tmp_path: Path) -> None:
    path = tmp_path / "x.console.json"
    assert load_settings(path) == Settings()
    settings = Settings(["a"], ["b"], token="t")
    remember_key(settings, "key")
    save_settings(path, settings)
    found = load_settings(path)
    assert found == settings
    assert check_key(found, "key")
    assert not check_key(found, "other")
    assert not check_key(Settings(), "")
    assert "key" not in path.read_text(encoding="utf-8").replace("hash", "").split('"')
    for rubbish in ("", "[]", "{", '{"salt": "xyz"}', '{"muted": 7}', "\x00"):
        path.write_text(rubbish, encoding="utf-8")
        assert load_settings(path) == Settings()


# The guard ----------------------------------------------------------------------------------


def knock(
    path: str = "/", kind: str = "http", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bool]:
    """Return what the guard answers, its headers, and whether the app was reached."""
    reached: list[str] = []
    sent: list[MutableMapping[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - ASGI
        reached.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    given = {"host": "127.0.0.1:8080", "cookie": "denwatch_8080=good", **headers}
    scope = {
        "type": kind,
        "path": path,
        "method": method,
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    guard = Guard(app, ["127.0.0.1", "localhost"], "denwatch_8080", lambda s: s == "good")
    asyncio.run(guard(scope, receive, send))
    first = sent[0]
    told = {name.decode(): value.decode() for name, value in first.get("headers", [])}
    return first.get("status", first.get("code", 0)), told, bool(reached)


def test_a_session_at_our_own_address_passes_and_is_told_to_stay_here() -> None:
    status, headers, reached = knock()
    assert (status, reached) == (200, True)
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    "host", ["evil.example:8080", "", "127.0.0.1.evil.example", "[::1", "10.0.0.1"]
)
def test_a_name_that_is_not_ours_is_refused(host: str) -> None:
    assert knock(host=host)[0] == 421
    assert knock("/login", host=host)[2] is False


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "file://"]
)
@pytest.mark.parametrize("path", ["/", "/login", "/_nicegui_ws/socket.io/"])
def test_another_pages_request_is_refused(path: str, origin: str) -> None:
    assert knock(path, origin=origin, method="POST")[0] == 403
    assert knock(path, "websocket", origin=origin) == (1008, {}, False)
    assert knock(path, origin="http://127.0.0.1:8080")[2]


@pytest.mark.parametrize("cookie", ["", "denwatch_8080=bad", "denwatch_9090=good", "denwatch_8080"])
def test_without_a_session_nothing_but_the_door_is_served(cookie: str) -> None:
    status, headers, reached = knock(cookie=cookie)
    assert (status, headers["location"], reached) == (303, "/login", False)
    assert knock("/shared.js", cookie=cookie)[::2] == (401, False)
    assert knock("/_nicegui/x.js", cookie=cookie)[::2] == (401, False)
    assert knock("/_nicegui_ws/socket.io/", "websocket", cookie=cookie)[::2] == (1008, False)
    for path in ("/login", "/enter", "/health", "/door.css"):
        assert knock(path, cookie=cookie)[2]


def test_hosts_and_cookies_are_read_with_care() -> None:
    assert split_host("LocalHost:80") == "localhost"
    assert split_host("[::1]:8080") == "::1"
    assert split_host("a@b:1") == "b"
    assert read_cookie("a=1; b=2", "b") == "2"
    assert read_cookie("\x00", "b") is None
