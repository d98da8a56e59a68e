"""Addresses, messages and views: the small pure parts."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from typing import Any

import cbor2
import pytest
from denwatch.client.subscriber.display import (
    RankedNotifications,
    describe_notification,
    describe_span,
)
from denwatch.client.subscriber.link import Identity
from denwatch.client.subscriber.messages import (
    ReceivedNotification,
    SubscriberError,
    Topics,
    derive_name,
    read_notification,
    read_reply,
    write_probe,
    write_text,
)
from denwatch.client.subscriber.servers import explain_choice, parse_server, read_offer
from denwatch.client.subscriber.session import find_name
from hypothesis import given
from hypothesis import strategies as st

from simulator.site import REPOSITORY
from tests.client.sites import build_note

# Addresses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "url", "is_local"),
    [
        ("mqtt://127.0.0.1", "mqtt://127.0.0.1:1883", True),
        ("localhost:1999", "mqtt://localhost:1999", True),
        ("mqtts://tent", "mqtts://tent:8883", False),
        ("mqtt://[::1]:5", "mqtt://[::1]:5", True),
        ("mqtt://10.1.2.3/", "mqtt://10.1.2.3:1883", False),
    ],
)
def test_addresses(text: str, url: str, is_local: bool) -> None:
    server = parse_server(text)
    assert server.url == url
    assert server.is_local == is_local
    assert parse_server(url) == server


@pytest.mark.parametrize(
    "text", ["http://x", "mqtt://", "mqtt://u:p@x", "mqtt://x:99999", "mqtt://x/y", "mqtt://x?a"]
)
def test_wrong_addresses_are_refused(text: str) -> None:
    with pytest.raises(SubscriberError):
        parse_server(text)


def test_a_password_does_not_go_in_the_clear_off_this_machine() -> None:
    far, near, safe = map(parse_server, ("mqtt://10.0.0.1", "mqtt://127.0.0.1", "mqtts://10.0.0.1"))
    with pytest.raises(SubscriberError, match="in the clear"):
        Identity("medic7", "secret").build_context(far)
    assert Identity("medic7", "secret", is_insecure=True).build_context(far) is None
    assert Identity("medic7", "secret").build_context(near) is None
    context = Identity("medic7", "secret").build_context(safe)
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    with pytest.raises(SubscriberError, match="not a certificate authority"):
        Identity("medic7", tls="/no/such/file").build_context(safe)


@pytest.mark.parametrize("name", ["", "a/b", "a+", "#", "$SYS", "x" * 65, "a\nb"])
def test_a_name_stands_in_a_topic(name: str) -> None:
    with pytest.raises(SubscriberError, match="not a name"):
        Topics(name)


# Messages ----------------------------------------------------------------------------------------


def take_note(**fields: Any) -> ReceivedNotification:
    found = read_notification(json.dumps(build_note(1, **fields)).encode())
    assert found is not None
    return found


def test_times_are_read_as_numbers_and_as_texts() -> None:
    assert take_note(at=1_700_000_000_123).at == 1_700_000_000_123
    assert take_note(at="2023-11-14T22:13:20.123Z").at == 1_700_000_000_123
    assert take_note(at="2023-11-14T22:13:20").at == 1_700_000_000_000
    assert take_note(at="yesterday", expires=None).at is None
    assert take_note(expires="2023-11-14T22:13:20Z").is_expired(1_700_000_000_000)
    assert not take_note(expires=None).is_expired(1 << 60)


def test_a_note_in_cbor_is_the_same_note() -> None:
    document = build_note(1)
    assert read_notification(cbor2.dumps(document)) == read_notification(
        json.dumps(document).encode()
    )


@pytest.mark.parametrize(
    ("possible", "certain", "is_certain"),
    [(0.9, 0.9, True), (0.3, 0.3, True), (0.9, 0.0, False), (1.0, 0.6, True), (0.4, 0.2, False)],
)
def test_certain_and_possible(possible: float, certain: float, is_certain: bool) -> None:
    assert take_note(possible=possible, certain=certain).is_certain is is_certain


@given(st.binary(max_size=60) | st.from_type(dict).map(repr).map(str.encode))
def test_foreign_bytes_are_no_message_and_no_error(payload: bytes) -> None:
    read_reply(payload)
    read_notification(payload)


_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


_KEYS = (
    *("event", "values", "degree", "possible", "certain", "why", "at", "expires", "score"),
    *("subscriptions", "subscription", "device"),
)


@given(
    st.fixed_dictionaries({"id": st.text() | st.integers()}, optional=dict.fromkeys(_KEYS, _VALUES))
)
def test_whatever_a_node_says_can_be_shown(document: dict[str, Any]) -> None:
    note = read_notification(json.dumps(document).encode())
    if note is not None:
        describe_notification(note, 1_000)
        RankedNotifications().add([note], 1_000)


def test_refusals_carry_column_and_hint() -> None:
    reply = read_reply(
        b'{"ok":false,"error":"no such word","at":5,"length":3,"hint":"say more","request":"1"}'
    )
    assert reply is not None
    error = reply.build_error()
    assert (error.at, error.length, error.hint) == (5, 3, "say more")
    assert error.point("the abc is high").splitlines()[:2] == ["the abc is high", "    ^^^"]


def test_names_are_said_or_written_or_derived() -> None:
    assert find_name("pain is severe", "pain")[0] == "pain"
    assert find_name('{"when": {}, "name": "inner"}', None)[0] == "inner"
    assert find_name({"when": {}, "name": "inner"}, None)[0] == "inner"
    assert find_name("{broken", None)[0] == derive_name("{broken")
    assert find_name("pain is severe", None) == find_name("pain is severe", None)
    assert find_name("pain is severe", None)[0] != find_name("pain is mild", None)[0]
    with pytest.raises(SubscriberError, match="empty"):
        find_name("  ", None)


def test_a_tree_is_sent_as_json() -> None:
    from denwatch.client.language import parse

    tree = parse("pain is severe and age is old")
    assert parse(write_text(tree)) == tree


def test_a_probe_asks_for_what_fits() -> None:
    asked = json.loads(write_probe("1", ["x" * 100] * 100, 1_000))["probe"]
    assert 8 <= len(asked) < 10
    assert len(json.loads(write_probe("1", ["x"] * 100, 1_000))["probe"]) == 16


# Views -------------------------------------------------------------------------------------------


def test_the_board_ranks_and_lets_go_of_what_has_expired() -> None:
    board = RankedNotifications(limit=3)
    notes = [
        take_note(id=name, score=score, degree=degree, at=at, expires=expires)
        for name, score, degree, at, expires in (
            ("low", 0.1, 0.9, 5, None),
            ("best", 0.9, 0.2, 5, 1_000),
            ("old", 0.5, 0.5, 5, None),
            ("new", 0.5, 0.5, 6, None),
        )
    ]
    board.add(notes, 10)
    assert [note.id for note in board.rank(10)] == ["best", "new", "old"]
    assert [note.id for note in board.rank(1_000)] == ["new", "old"]


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 s"), (999, "0 s"), (41_000, "41 s"), (60_000, "1 min"), (65_000, "1 min 5 s"),
     (7_500_000, "2 h 5 min"), (90_000_000, "1 d 1 h"), (86_400_000, "1 d")],
)  # fmt: skip
def test_spans(ms: int, text: str) -> None:
    assert describe_span(ms) == text


def test_a_row_tells_values_doubt_and_reason() -> None:
    note = take_note(
        values={
            "temperature": {"value": 40.1, "unit": "°C"},
            "pain": {"value": None, "among": ["mild", "severe"]},
            "pulse": {"value": 110, "low": 100, "high": 120, "unit": "/min"},
        },
        possible=0.9,
        certain=0.25,
        why={"words": "pulse fits to 0.25"},
        at=1_000,
        expires=70_000,
        device="bed3",
    )
    row = describe_notification(note, 10_000)
    assert row[:7] == (
        "possible",
        "0.25..0.90",
        "patient bed3",
        "temperature 40.1 °C, pain mild or severe, pulse 100..120 /min",
        "pulse fits to 0.25",
        "9 s",
        "1 min",
    )


def test_the_library_is_light() -> None:
    code = (
        "import sys, denwatch.client.subscriber, denwatch.cli.subscribe, denwatch.cli.status\n"
        "heavy = {'numpy', 'numba', 'pyspark', 'lxml', 'lark', 'rich'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_choice_goes_by_covering_then_what_waits_then_devices_then_nearness() -> None:
    offers = [
        ({"new_roots": 1, "nodes": 0, "waiting": 9, "devices": 9}, 0),
        ({"new_roots": 0, "nodes": 9, "waiting": 1, "devices": 0}, 0),
        ({"new_roots": 0, "nodes": 9, "waiting": 2, "devices": 1}, 900),
        ({"new_roots": 0, "nodes": 9, "waiting": 2, "devices": 2}, 900),
        ({"new_roots": 0, "nodes": 9, "waiting": 2, "devices": 2}, 90),
        (None, 0),
    ]
    made = [
        read_offer(parse_server(f"mqtt://node{number}"), fields, trip)
        for number, (fields, trip) in enumerate(offers)
    ]
    order = [offer.url[len("mqtt://node")] for offer in sorted(made)]
    assert order == ["4", "3", "2", "1", "0", "5"]
    lines = explain_choice(made)
    assert lines[0].endswith("; chosen: nearer")
    assert "0 of ours are not covered there, 2 wait for us, 2 devices can answer" in lines[0]
    assert lines[-1].endswith("it did not say what it has")
    assert explain_choice([]) == []
