"""Who may look: secrets, sessions, the guard in front; what the console keeps of a person."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from denwatch.client.console.auth import (
    AccessGuard,
    ConsoleUsers,
    LoginError,
    read_cookie,
    split_host,
)
from denwatch.client.console.user_session import (
    NodeServers,
    UserSettings,
    check_key,
    close_folder,
    load_settings,
    remember_key,
    save_settings,
)
from denwatch.client.subscriber import ConnectionState, ConnectionStatus, SubscriberError
from denwatch.client.subscriber.servers import DENIED
from denwatch.client.vocabulary import load_shipped

from simulator.site import Site, wait_for

RESCUE = load_shipped("rescue")
NOWHERE = NodeServers(("mqtt://127.0.0.1:1",))


@pytest.fixture
def users(tmp_path: Path) -> Iterator[ConsoleUsers]:
    found = ConsoleUsers(NOWHERE, tmp_path, RESCUE)
    yield found
    found.close()


# Sessions -----------------------------------------------------------------------------------


def test_a_console_of_one_person_opens_by_its_secret_alone(
    users: ConsoleUsers, tmp_path: Path
) -> None:
    token = users.open_single("medic7", "key", tmp_path / "medic7.db")
    for wrong in ("", "x", token[:-1], token + "x", "ü"):
        assert users.enter(wrong) is None
    session = users.enter(token)
    user = users.find(session)
    assert user is not None
    assert user.name == "medic7"
    assert users.find(None) is users.find("") is users.find("x") is None
    with pytest.raises(LoginError, match="one user"):
        users.login("medic7", "key")
    users.leave(session)
    assert users.find(session) is None


def test_the_secret_outlives_a_restart_and_is_kept_from_others(tmp_path: Path) -> None:
    tokens = []
    for _ in range(2):
        users = ConsoleUsers(NOWHERE, tmp_path, RESCUE)
        tokens.append(users.open_single("medic7", None, tmp_path / "medic7.db"))
        users.close()
    assert tokens[0] == tokens[1]
    kept = tmp_path / "medic7.console.json"
    assert kept.stat().st_mode & 0o077 == 0


def test_a_console_ends_with_the_right_to_it(users: ConsoleUsers, tmp_path: Path) -> None:
    settings = UserSettings()
    remember_key(settings, "key")
    save_settings(tmp_path / "medic7.console.json", settings)
    logins = [users.login("medic7", "key") for _ in range(2)]
    user = users.find(logins[0])
    assert user is not None
    user._follow_status(ConnectionStatus(ConnectionState.IDLE, "mqtt://north", DENIED))
    user._follow_status(ConnectionStatus(ConnectionState.OPENING, "mqtt://south"))
    assert users.find(logins[1]) is users.find(logins[0]) is None
    assert all("revoked" in users.find_refusal(login) for login in logins)
    assert users.find_refusal("x") == users.find_refusal(None) == ""
    with pytest.raises(LoginError, match="not used here before"):  # nor without a node
        users.login("medic7", "key")


def test_at_a_real_node_a_console_ends_when_the_name_is_revoked(tmp_path: Path) -> None:
    node = Site(tmp_path / "site").add_node("north")
    password = node.add_subscriber("medic7")
    node.start()
    users = ConsoleUsers(NodeServers((f"mqtt://127.0.0.1:{node.port}",)), tmp_path, RESCUE)
    try:
        session = users.login("medic7", password)
        user = users.find(session)
        assert user is not None
        wait_for("the connection", lambda: user.read().is_online)
        node.keys("revoke", "medic7")
        wait_for("the end of the session", lambda: users.find(session) is None)
        with pytest.raises(LoginError):
            users.login("medic7", password)
        node.check_running()
    finally:
        users.close()
        node.stop()


def test_a_single_users_link_works_while_a_node_accepts_the_key(
    users: ConsoleUsers, tmp_path: Path
) -> None:
    token = users.open_single("medic7", "key", tmp_path / "medic7.db")
    session, user = users.enter(token), users.single
    assert user is not None
    user._follow_status(ConnectionStatus(ConnectionState.IDLE, "mqtt://north", DENIED))
    assert users.find(session) is None
    with pytest.raises(LoginError, match="refuses this name"):
        users.enter(token)
    assert users.enter("x") is None  # strangers learn nothing
    assert "revoked" in users.find_refusal(session)
    user._follow_status(ConnectionStatus(ConnectionState.ONLINE, "mqtt://north"))
    assert users.find(session) is None
    assert users.find(users.enter(token)) is user
    assert user.outage.reason == ""


def test_nobody_else_can_read_what_a_console_keeps(users: ConsoleUsers, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        users.open_single("medic7", "key", tmp_path / "medic7.db")
    finally:
        os.umask(before)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"medic7.db", "medic7.db-lock", "medic7.console.json"} <= names
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_a_folder_that_others_can_read_is_closed_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "console"
    folder.mkdir(mode=0o755)
    (folder / "medic7.db").write_bytes(b"")
    (folder / "medic7.db").chmod(0o644)
    assert close_folder(folder) == [
        f"{folder}: other users could read it (mode 755)",
        f"{folder / 'medic7.db'}: other users could read it (mode 644)",
    ]
    assert (folder.stat().st_mode & 0o777, (folder / "medic7.db").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    assert close_folder(folder) == []


def test_a_folder_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    with pytest.raises(SubscriberError, match="another user"):
        close_folder(tmp_path)


@pytest.mark.parametrize("name", ["", "a/b", "#", "+", "$x", "x" * 65, "../medic7"])
def test_what_is_no_name_is_refused(users: ConsoleUsers, name: str) -> None:
    with pytest.raises(LoginError, match="not a name"):
        users.login(name, "key")


def test_while_no_node_answers_only_a_key_that_one_accepted_before_opens(
    users: ConsoleUsers, tmp_path: Path
) -> None:
    with pytest.raises(LoginError, match="cannot be checked"):
        users.login("medic7", "right")
    settings = UserSettings()
    remember_key(settings, "right")
    save_settings(tmp_path / "medic7.console.json", settings)
    with pytest.raises(LoginError, match="cannot be checked"):
        users.login("medic7", "wrong")
    first, second = users.login("medic7", "right"), users.login("medic7", "right")
    assert first != second
    user = users.find(first)
    assert user is not None
    assert user is users.find(second)  # two browsers, one user
    users.leave(first)
    assert users.find(second) is user
    users.leave(second)
    assert users.find(second) is None


def test_guessing_is_rationed(users: ConsoleUsers) -> None:
    for _ in range(10):
        with pytest.raises(LoginError, match="cannot be checked"):
            users.login("medic7", "guess")
    with pytest.raises(LoginError, match="wait a minute"):
        users.login("medic7", "guess")


def test_what_is_asked_without_a_node_waits_and_outlives_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        users = ConsoleUsers(NOWHERE, tmp_path, RESCUE)
        session = users.enter(users.open_single("medic7", None, tmp_path / "medic7.db"))
        user = users.find(session)
        assert user is not None
        assert user.subscribe("pain is severe, named ouch") == "ouch"
        user.mute("ouch", True)
        situation = user.read()
        assert [(s.name, s.state) for s in situation.subscriptions] == [("ouch", "pending")]
        assert not situation.is_online
        assert user.replace("pain is mild, named ouch", "ouch") == "ouch"
        assert user.replace("pain is mild, named low", "ouch") == "low"
        assert [s.name for s in user.read().subscriptions] == ["low"]
        assert user.replace("pain is severe, named ouch", "low") == "ouch"
        user.mute("ouch", True)
        users.close()
    assert load_settings(tmp_path / "medic7.console.json").muted == ["ouch"]


# Settings -----------------------------------------------------------------------------------


def test_settings_come_back_and_rubbish_is_a_new_beginning(tmp_path: Path) -> None:
    path = tmp_path / "x.console.json"
    assert load_settings(path) == UserSettings()
    settings = UserSettings(["a"], ["b"], token="t")
    remember_key(settings, "key")
    save_settings(path, settings)
    found = load_settings(path)
    assert found == settings
    assert check_key(found, "key")
    assert not check_key(found, "other")
    assert not check_key(UserSettings(), "")
    assert "key" not in path.read_text(encoding="utf-8").replace("hash", "").split('"')
    for rubbish in ("", "[]", "{", '{"salt": "xyz"}', '{"muted": 7}', "\x00"):
        path.write_text(rubbish, encoding="utf-8")
        assert load_settings(path) == UserSettings()


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
    guard = AccessGuard(app, ["127.0.0.1", "localhost"], "denwatch_8080", lambda s: s == "good")
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
@pytest.mark.parametrize("path", ["/", "/login", "/live"])
def test_another_pages_request_is_refused(path: str, origin: str) -> None:
    assert knock(path, origin=origin, method="POST")[0] == 403
    assert knock(path, "websocket", origin=origin) == (1008, {}, False)
    assert knock(path, origin="http://127.0.0.1:8080")[2]


@pytest.mark.parametrize("cookie", ["", "denwatch_8080=bad", "denwatch_9090=good", "denwatch_8080"])
def test_without_a_session_nothing_but_the_login_is_served(cookie: str) -> None:
    status, headers, reached = knock(cookie=cookie)
    assert (status, headers["location"], reached) == (303, "/login", False)
    assert knock("/shared.js", cookie=cookie)[::2] == (401, False)
    assert knock("/vue.js", cookie=cookie)[::2] == (401, False)
    assert knock("/live", "websocket", cookie=cookie)[::2] == (1008, False)
    for path in ("/login", "/enter", "/health", "/console.css"):
        assert knock(path, cookie=cookie)[2]


def test_hosts_and_cookies_are_read_with_care() -> None:
    assert split_host("LocalHost:80") == "localhost"
    assert split_host("[::1]:8080") == "::1"
    assert split_host("a@b:1") == "b"
    assert read_cookie("a=1; b=2", "b") == "2"
    assert read_cookie("\x00", "b") is None
