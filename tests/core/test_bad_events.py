"""Bad events at a core: whatever a subscriber or a member sends, no exception leaves the core.

A member's items are well signed and have any value in any field; a subscriber's requests are any
JSON and CBOR. Both are refused with the name of the field, and change nothing; what follows is
served. That an exception which leaves the core is one refused event, too, is tested in
`tests/runtime/test_durable_node.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import cbor2
import pytest
from denwatch.node.core.events import REPLIES, REQUESTS, Listening, Message, Publish, Tick
from denwatch.node.core.items import (
    DELIVERED,
    KINDS,
    LATEST,
    NOTIFICATION,
    SUBSCRIPTION,
    VOCABULARY,
    DeliveredBody,
    Dot,
    Item,
    SubscriptionBody,
    VocabularyBody,
    check_item,
    check_options,
    decode_body,
    encode_body,
    load_cbor,
)
from denwatch.node.core.notifications import write_document
from denwatch.node.replication.wire import (
    Answer,
    ItemBatch,
    SentItem,
    SummaryCompletion,
    decode_answer,
    decode_ask,
    decode_completion,
    decode_item_batch,
    encode_answer,
    encode_completion,
    encode_item_batch,
)
from denwatch.protocol.errors import ProtocolError
from hypothesis import given
from hypothesis import strategies as st

from simulator.hosted_node import HostedNode, HostSettings
from simulator.keys import HmacKeys

NOW = 1_800_000_000_000
VECTOR = bytes.fromhex("410000008000000191ffab")


class Victim(HostedNode):
    """The node `south`, with all protocols, which gets requests of `eve` and items of `north`."""

    def __init__(self) -> None:
        super().__init__("south", HmacKeys("south"), settings=HostSettings())
        self.start(NOW)
        self.handle(Listening(REPLIES + "eve", True), NOW)
        self._made = 0

    def ask(self, payload: bytes) -> list[dict[str, Any]]:
        """Send a request; return the replies."""
        sent = self.handle(Message("eve", REQUESTS + "eve", payload), NOW)
        return [json.loads(message.payload) for message in _list_replies(sent)]

    def give(self, kind: int, body: bytes, expires: int = NOW + 60_000, **beside: int) -> str:
        """Give an item that north signed; return why it was refused, "" if it was not."""
        self._made += 1
        item = Item(Dot("north", 1, self._made), kind, expires, body)
        item = replace(item, signature=HmacKeys("north").sign(item.signed))
        sent = SentItem(item, beside.get("copies", 1), beside.get("hops", 1))
        before = len(self.logs)
        frame = decode_item_batch(encode_item_batch(ItemBatch((), (), (sent,))))
        receive = self.peers._receiver.receive
        self.act(lambda transaction: receive(transaction, frame, "north"), NOW)
        self.handle(Tick(), NOW)
        refused = [log for log in self.logs[before:] if log.kind == "refuse"]
        return str(refused[0].fields["why"]) if refused else ""


def _list_replies(sent: list[Publish]) -> list[Publish]:
    return [message for message in sent if message.topic == REPLIES + "eve"]


def make_subscription(node: HostedNode, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "owner": "eve",
        "role": "",
        "words": "gas",
        "created": NOW,
        "language": 0,
        "vocabulary": node.vocabularies.own_hash,
        "vector": VECTOR,
        "options": {},
        **changes,
    }
    return encode_body(SubscriptionBody(**fields))


# The inputs that stopped nodes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ('{"list":true,"request":"\\ud800"}', '"request"'),
        ('{"prefer":[["\\ud800","b"]]}', '"prefer"'),
        ('{"subscribe":"gas is high","name":"\\ud800"}', '"name"'),
        ('{"\\ud800":1}', "a key"),
        ('{"when":"gas is \\udc00"}', '"when"'),
        ('{"list":true,"request":"' + 65 * "r" + '"}', '"request"'),
        ("find a" + 9000 * " " + "\nx", "in a row"),
        ("find a" + 9000 * ",", "in a row"),
        ("my top 3" + 9000 * " " + ", by x", "in a row"),
        (json.dumps({"my_top": "3" + 4000 * "\t"}), '"my_top"'),
        ("my top " + 9000 * "9", "a number or off is expected"),
        ("my top 3 of the last " + 9000 * "9", "one of these is expected"),
    ],
)
def test_a_request_with_what_cannot_be_answered_is_refused_by_its_field(
    request_: str, field: str
) -> None:
    node = Victim()
    [reply] = node.ask(request_.encode())
    assert not reply["ok"]
    assert field in reply["error"]
    assert node.ask(b"list")[0]["ok"]


def make_bomb(levels: int) -> bytes:
    """Return CBOR in which each value refers to the one before it twice: 2 ** levels texts."""
    texts = [b"\xd8\x1c\x64text"]
    texts += [b"\xd8\x1c\x82" + 2 * (b"\xd8\x1d\x18" + bytes([n])) for n in range(levels)]
    return b"\x98" + bytes([len(texts)]) + b"".join(texts)


@pytest.mark.parametrize("before", [b"\xa1\x64when", b"\xa1\x69subscribe\xa1\x64when"])
def test_cbor_that_refers_to_itself_is_refused_unread(before: bytes) -> None:
    node = Victim()
    # 500 bytes; as JSON, which subscriptions are written in, more than any machine has.
    [reply] = node.ask(before + make_bomb(60))
    assert "tags" in reply["error"]
    assert node.ask(b"list")[0]["ok"]
    with pytest.raises(ProtocolError, match="tags"):
        decode_body(SubscriptionBody, make_bomb(60))


@given(st.recursive(st.one_of(st.integers(-(2**64), 2**64 - 1), st.binary(), st.text(), st.floats(),
    st.none()), lambda some: st.lists(some) | st.dictionaries(st.text(), some)))  # fmt: skip
def test_cbor_without_tags_is_read(value: Any) -> None:
    data = cbor2.dumps(value)
    assert cbor2.dumps(load_cbor(data)) == data
    with pytest.raises(ProtocolError, match="tags"):
        load_cbor(cbor2.dumps([value, cbor2.CBORTag(4000, 0)]))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"prefer": 5}, "prefer"),
        ({"prefer": [[1, 2]]}, "prefer"),
        ({"prefer": [["a"]]}, "prefer"),
        ({"name": 7}, "name"),
        ({"name": "\n"}, "name"),
        ({"name": "n" * 65}, "name"),
        ({"score": float("nan")}, "score"),
        ({"score": (1 << 64) - 1}, "score"),
        ({"top": True}, "top"),
        ({"top": 1 << 40}, "top"),
        ({"expiry": float("inf")}, "expiry"),
        ({"expiry": "1"}, "expiry"),
        ({"format": ["json"]}, "format"),
        ({"else": 1}, "else"),
        ({3: 1}, "3"),
    ],
)
def test_options_have_one_schema_in_items_and_requests(options: dict[Any, Any], field: str) -> None:
    node = Victim()
    assert field in node.give(SUBSCRIPTION, make_subscription(node, options=options))
    assert node.subscribers.count_subscriptions() == 0
    with pytest.raises(ProtocolError, match=field):
        check_options(options)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"owner": "o" * 129}, "owner"),
        ({"owner": "a/b"}, "owner"),
        ({"owner": ""}, "owner"),
        ({"role": "r" * 200}, "role"),
        ({"created": LATEST}, "created"),
        ({"created": -1}, "created"),
        ({"created": (1 << 64) - 1}, "created"),
        ({"language": (1 << 64) - 1}, "language"),
        ({"vocabulary": b"short"}, "vocabulary"),
        ({"vector": bytes(20_000)}, "vector"),
    ],
)
def test_a_subscription_has_its_ranges(changes: dict[str, Any], field: str) -> None:
    node = Victim()
    assert f"SubscriptionBody: {field} " in node.give(
        SUBSCRIPTION, make_subscription(node, **changes)
    )
    assert node.item_store.count(SUBSCRIPTION) == 0


@pytest.mark.parametrize(
    "note",
    [
        ["south", 1 << 32, 1],
        ["south", 1, 1 << 40],
        ["south", 1, (1 << 64) - 1],
        ["south", -1, 1],
        ["n" * 300, 1, 1],
        ["\U0001f600" * 64, 1, 1],
        ["a/b", 1, 1],
        ["", 1, 1],
        ["south", 1, True],
        ["south", 1],
        "south",
        ["south", 1, 1, b"", []],
        ["south", 1, 1, b"1", [1, 1, [1], 1, b"1", b"1"]],
        ["south", 1, 1, b"", [1, 1, [1], 1, b"1"]],
        ["south", 1, 1, b"", [-1, 1, [1], 1, b"1", b"1"]],
        ["south", 1, 1, b"", [1, 1, [-1], 1, b"1", b"1"]],
        ["south", 1, 1, b"", [1, 1, [1], 1, b"1" * 2000, b"1"]],
    ],
)
def test_a_receipt_has_possible_dots(note: Any) -> None:
    node = Victim()
    assert "DeliveredBody: notes is not [origin, epoch, sequence, proof] each" in node.give(
        DELIVERED, encode_body(DeliveredBody("medic7", [note]))
    )
    assert node.item_store.count(DELIVERED) == 0


def test_an_end_that_no_clock_shows_is_refused() -> None:
    node = Victim()
    assert "2100" in node.give(SUBSCRIPTION, make_subscription(node), LATEST)
    assert node.give(SUBSCRIPTION, make_subscription(node), NOW + 60_000) == ""


def test_a_vocabulary_that_no_reader_can_follow_is_refused() -> None:
    node = Victim()
    own = json.loads(write_document(node.vocabularies.own))
    deep = "[" * 60_000
    huge = json.dumps({**own, "recent": {"recent": [30, 10**400]}})
    for document in (deep, huge, "{}", "[]", '{"event": {"a": 1e999}}'):
        body = encode_body(VocabularyBody(bytes(8), document))
        assert "not a vocabulary" in node.give(VOCABULARY, body)
    assert node.ask(b"list")[0]["ok"]
    node.start(NOW)  # what was stored does no harm at a start either


@pytest.mark.parametrize("beside", [{"copies": 1 << 62}, {"hops": 1 << 62}])
def test_copies_and_hops_have_two_bytes(beside: Mapping[str, int]) -> None:
    node = Victim()
    with pytest.raises(ProtocolError, match="copies or hops"):
        node.give(SUBSCRIPTION, make_subscription(node), **beside)


def test_a_lag_that_no_clock_shows_and_a_question_without_end_are_refused() -> None:
    for lag in (1 << 61, -(1 << 61)):
        with pytest.raises(ProtocolError, match="lag"):
            decode_answer(encode_answer(Answer(NOW, lag, bytes(4), (), 0, ())))
        with pytest.raises(ProtocolError, match="lag"):
            decode_completion(encode_completion(SummaryCompletion(NOW, lag, ())))
    with pytest.raises(ProtocolError, match="question"):
        decode_ask(bytes(4096))


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (Item(Dot("\U0001f600" * 64, 1, 1), 1, 0, b""), "name"),
        (Item(Dot("north", 1 << 32, 1), 1, 0, b""), "epoch"),
        (Item(Dot("north", 1, 0), 1, 0, b""), "sequence"),
        (Item(Dot("north", 1, 1 << 63), 1, 0, b""), "sequence"),
        (Item(Dot("north", 1, 1), 99, 0, b""), "kind"),
        (Item(Dot("north", 1, 1), 1, -1, b""), "end"),
        (Item(Dot("north", 1, 1), 1, 0, bytes(70_000)), "long"),
        (Item(Dot("north", 1, 1), 1, 0, b"", bytes(200)), "long"),
    ],
)
def test_an_item_has_a_possible_dot_kind_end_and_length(item: Item, field: str) -> None:
    assert field in check_item(item)


# Whatever else ---------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(
    ["gas is high", "\ud800", "a\0b", "fever", "event", "=", "json", "medic7", "x" * 5_000]
)
NUMBERS = (
    st.integers(-5, 300)
    | st.sampled_from([1 << 31, 1 << 32, 1 << 53, 1 << 63, 1 << 64, -(1 << 63), 1 << 200, NOW])
    | st.floats()
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
COMMANDS = st.sampled_from(
    ["subscribe", "content", "unsubscribe", "list", "mute", "prefer", "received", "probe", "when"]
)
KEYS = COMMANDS | st.sampled_from(
    ["name", "format", "score", "top", "expiry", "valid_for", "request"]
)
REQUESTS_OF_ANYBODY = st.dictionaries(KEYS, VALUES, min_size=1, max_size=3)
BYTES = st.binary(max_size=24) | st.sampled_from([VECTOR, bytes(8)])
FIELDS = VALUES | BYTES


@given(REQUESTS_OF_ANYBODY)
def test_any_json_is_answered(request_: dict[str, Any]) -> None:
    node = Victim()
    replies = node.ask(json.dumps(request_).encode())
    assert replies or "received" in request_, "a report of what came needs no reply"
    assert node.ask(b"list")[0]["ok"]


@given(st.dictionaries(KEYS, VALUES | BYTES, max_size=3) | FIELDS)
def test_any_cbor_is_answered(request_: Any) -> None:
    node = Victim()
    try:
        payload = cbor2.dumps(request_)
    except (UnicodeEncodeError, cbor2.CBOREncodeError):  # halves of characters
        payload = b"\xa1" + cbor2.dumps("list") + b"\x7f\x62\xed\xa0\xff"
    node.ask(payload)
    assert node.ask(b"list")[0]["ok"]


@st.composite
def bodies(draw: st.DrawFn) -> tuple[int, list[Any]]:
    """Return a kind and a body of it in which some fields are anything."""
    right: dict[int, list[Any]] = {
        SUBSCRIPTION: ["eve", "", "gas", NOW, draw(st.integers(0, 2)), None, VECTOR, {}],
        NOTIFICATION: ["bed-1", 1, 1, NOW, 0, None, draw(BYTES)],
        DELIVERED: ["eve", [["south", 1, 1]]],
        VOCABULARY: [bytes(8), "{}"],
    }
    kind = draw(st.sampled_from(sorted(KINDS)))
    body = right.get(kind, [1, "eve", 1, "medic", []])
    for at in draw(st.sets(st.integers(0, len(body) - 1), max_size=2)):
        body[at] = draw(FIELDS)
    if kind == SUBSCRIPTION and draw(st.booleans()):
        body[-1] = draw(st.dictionaries(KEYS | st.just("prefer"), VALUES, max_size=3))
    return kind, body


@given(bodies())
def test_any_item_of_a_member_is_stored_or_refused(made: tuple[int, list[Any]]) -> None:
    node = Victim()
    kind, body = made
    if kind in (SUBSCRIPTION, NOTIFICATION) and body[5] is None:
        body[5] = node.vocabularies.own_hash
    try:
        data = cbor2.dumps(body)
    except (UnicodeEncodeError, cbor2.CBOREncodeError):
        return
    node.give(kind, data)
    assert node.ask(b"list")[0]["ok"]
    node.restart(NOW + 1_000)
    node.handle(Tick(), NOW + 120_000)


def test_the_checks_are_what_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the schema of the options, the core fails at what it accepted."""
    monkeypatch.setattr("denwatch.node.core.items.check_options", lambda _: None)
    node = Victim()
    assert decode_body(SubscriptionBody, make_subscription(node, options={"prefer": 5}))
    with pytest.raises(TypeError):
        node.give(SUBSCRIPTION, make_subscription(node, options={"prefer": 5}))
