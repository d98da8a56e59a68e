"""The scripts that fuzzing starts from, by target: good input, and input that once did harm.

Written as Python values, so that they can be read and reviewed. An input that showed a defect comes
here when the defect is mended (until then it is in known_defects.py), as small as it was made.
"""

from __future__ import annotations

from typing import Any

import cbor2
from denwatch.node.core.items import (
    DELIVERED,
    NOTIFICATION,
    REVOCATION,
    SUBSCRIPTION,
    VOCABULARY,
)
from denwatch.node.core.notifications import shorten_hash
from denwatch.node.replication.wire import (
    ACK,
    ANSWER,
    ASK,
    COMPLETION,
    DIGEST,
    EQUAL,
    GROUPS,
    NAMES,
    PICK,
    RESET,
    SUMMARY,
    TELL,
    encode_digest,
)
from denwatch.protocol import notification, subscription
from denwatch.protocol.frames import encode_message, join_vectors
from denwatch.protocol.vectors import (
    NotificationVector,
    Predicate,
    Reading,
    SubscriptionVector,
)

from simulator.client_packets import (
    HANDSHAKE,
    write_connect,
    write_frame,
    write_publish,
    write_publish_v5,
    write_subscribe,
)
from simulator.fuzzing.targets import DEVICE, NODE, PEER, START, load_words

_HOUR = 3_600_000


def list_seeds(target: str) -> list[bytes]:
    """Return the scripts of a target, encoded."""
    scripts: list[Any] = {
        "codecs": _list_codecs,
        "mqtt": _list_mqtt,
        "websocket": _list_websocket,
        "requests": _list_requests,
        "operators": _list_operators,
        "devices": _list_devices,
        "peers": _list_peers,
    }[target]()
    return [cbor2.dumps(script) for script in scripts]


# What devices send ---------------------------------------------------------------------------

VECTOR = notification.encode(
    NotificationVector(1, [Reading(0, (151,) * 4), Reading(1, (100, 120, 130, 140))])
)
WANTED = subscription.encode(
    SubscriptionVector(1, [Predicate(0, 130, 255, 12), Predicate(1, 10, 60, 100)])
)


def _make_hello() -> bytes:
    return encode_message(
        "hello",
        {
            "device": DEVICE,
            "epoch": 3,
            "vocabulary": shorten_hash(load_words()),
            "senses": {1: [3, 0], 2: [1, 0]},
            "capacity": 1024,
            "languages": [0],
            "firmware": "1.0",
        },
    )


def _list_codecs() -> list[Any]:
    acknowledge = encode_message("acknowledge", {"epoch": 3, "sequence": 7})
    return [
        *([0, WANTED], [1, VECTOR], [2, _make_hello()], [2, acknowledge]),
        [3, cbor2.dumps({0: [1, "two", b"three", {4: None}]}, canonical=True)],
    ]


def _list_devices() -> list[Any]:
    hello = [0, 2, 3, 1, _make_hello()]
    acknowledge = encode_message("acknowledge", {"epoch": 3, "sequence": 1})
    readings = join_vectors([VECTOR, VECTOR])
    return [
        [hello, [1, 1, 3, 2, readings], [3, 2, 3, 3, acknowledge]],
        [[1, 1, 3, 2, readings], hello, [1, 1, 3, 2, readings], [1, 1, 4, 1, readings]],
        [hello, [1, 1, 0xFFFFFFFF, 0xFFFFFFFF, readings], [0, 2, 4, 1, _make_hello()]],
    ]


# What clients of the server send -------------------------------------------------------------


def _list_mqtt() -> list[Any]:
    medic = write_connect("app", "medic7", is_clean=False, will="dens/1/sub/medic7")
    other = write_connect("", "dog-1")
    listen = write_subscribe(1, "dens/1/note/medic7", "dens/1/reply/medic7", "a/+/#")
    ask = write_publish("dens/1/sub/medic7", b"heart rate is high", 1, 2)
    retained = write_publish("a/b/c", b"x" * 20, 2, 3, retain=True)
    release = b"\x62\x02\x00\x03"
    return [
        [[0, 0, medic + listen + ask], [0, 0, b"\xc0\0"], [0, 0, b"\x40\2\0\1"]],
        [[0, 0, medic], [4, 0, listen], [1, 0, b""], [7, 7, b"note"], [6, 0, b""], [0, 0, medic]],
        [[0, 0, medic + listen], [0, 1, other + retained], [0, 1, release], [0, 1, b"\xe0\0"]],
        [[0, 0, medic + listen], [2, 0, b""], *[[7, 7, b"n" * 900]] * 8, [5, 0, b"x" * 70]],
        [[0, 0, medic], [0, 1, medic], [0, 0, listen], [0, 1, b"\xa2\x0c\0\5\0\x08a/+/#abc"]],
        [[0, 1, other + write_publish("dens/1/peer/north", bytes(40), 1, 9)], [1, 1, b""]],
        *_list_mqtt5(),
    ]


def _list_mqtt5() -> list[Any]:
    terms = b"\x11\0\0\0\x0a\x21\0\2\x22\0\2\x27\0\0\1\0\x26\0\1k\0\1v"
    medic = write_connect("app", "medic7", is_clean=False, will="a/b/c", properties=terms)
    listen = write_subscribe(1, "dens/1/reply/medic7", "a/+/#", properties=b"\x0b\x07", qos=0x1D)
    share = write_subscribe(2, "$share/g/a/#", "dens/1/note/medic7", properties=b"")
    answer = b"\x08\0\x13dens/1/reply/medic7\x09\0\x0242"
    ask = write_publish_v5("dens/1/sub/medic7", b"heart rate is high", 1, 2, answer)
    more = b"\x02\0\0\0\5\x23\0\1\x26\0\1k\0\1v\1\1\3\0\1t"
    alias = write_publish_v5("a/b/c", b"x", 2, 3, more, retain=True)
    again = write_publish_v5("", b"y", 1, 4, b"\x23\0\1")
    goodbye = b"\xe0\x07\x04\x05\x11\0\0\0\x05"
    return [
        [[0, 0, medic + listen + ask], [0, 0, b"\x40\4\0\1\0\0"]],
        [[0, 0, medic + listen + share], [0, 0, alias + again], [1, 0, b""], [5, 0, b"x" * 20]],
        [[4, 0, medic], [4, 0, alias], [0, 0, goodbye], [6, 0, b""], [0, 0, medic]],
        [[0, 0, medic + share], [0, 1, medic], [0, 1, b"\x50\3\0\1\x80"], [7, 7, b"n" * 300]],
    ]


def _list_websocket() -> list[Any]:
    """The same as above within frames, after the handshake."""
    found: list[Any] = []
    for script in _list_mqtt():
        known: set[int] = set()
        steps = []
        for what, client, data in script:
            wrapped = data
            if what in (0, 4):
                wrapped = (b"" if client in known else HANDSHAKE) + write_frame(data)
                known.add(client)
            elif what in (1, 6):
                known.clear()
            steps.append([what, client, wrapped])
        found.append(steps)
    frames = write_frame(b"?", 0x89) + write_frame(b"text", 0x81) + write_frame(b"\3\xe8", 0x88)
    return [*found, [[0, 0, HANDSHAKE + frames]], [[4, 0, HANDSHAKE]]]


# What subscribers and operators ask for --------------------------------------------------------


def _list_requests() -> list[Any]:
    json_request = (
        b'{"when": {"attribute": "patient_temperature", "is": "very high"}, "name": "fever",'
        b' "top": 3, "threshold": 0.6}'
    )
    content = (
        b'{"content": [["event", "=", "patient"], ["heart_rate", ">", 100]], "name": "red",'
        b' "top": 3, "score": 0.5, "expiry": 60, "valid_for": 60, "request": "8"}'
    )
    return [
        [[0, b"patient_temperature is very high and heart_rate is not normal, at least 0.6"]],
        [[0, b"heart rate is high, top 2, expires after 60 s"], [0, b"list"], [0, b"mute"]],
        [[0, b"gas is high or fire temperature is about 300"], [0, b"unsubscribe 1"]],
        [[0, b'{"subscribe": "heart rate is high", "name": "pain", "format": "cbor"}']],
        [[0, content], [1, content], [0, b'{"list": true, "request": "7"}'], [0, b"unmute"]],
        [[0, json_request], [0, b'{"prefer": [["fever", "red"]]}'], [0, b'{"mute": true}']],
        [[0, b'{"received": ["0123456789abcdef"]}'], [0, b'{"probe": ["heart rate is high"]}']],
        [
            [2, b"heart rate is high"],
            [2, cbor2.dumps({"subscribe": "gas is high", "name": "g", "request": "9"})],
            [2, cbor2.dumps({"unsubscribe": "g"})],
        ],
        [
            [
                1,
                b'<subscription name="x"><is attribute="heart_rate" term="high"/></subscription>',
            ]
        ],
        [[0, b'{"list":true,"request":"\\ud800"}']],
    ]


def make_subscription(options: dict[str, Any]) -> list[Any]:
    """Return the item of a subscription with these options: kind, expires, sequence, body."""
    known, text = shorten_hash(load_words()), "heart rate is high"
    fields = ["medic7", "medic", text, START, 0, known, WANTED, options]
    return [SUBSCRIPTION - 1, 0, 1, fields]


def _list_harmful() -> list[Any]:
    """Return items that once ended a node's run."""
    return [
        make_subscription({"prefer": 5}),
        make_subscription({"prefer": [5]}),
        [NOTIFICATION - 1, 0, 3, ["", 1, 10**40, 0, 10, b"", VECTOR]],
        [DELIVERED - 1, 0, 4, ["", [["", 1 << 49, 0]]]],
        [DELIVERED - 1, 0, 5, ["medic7", [[NODE, 1, 1 << 41], ["n" * 300, 1, 1]]]],
    ]


def _list_items() -> dict[int, list[Any]]:
    """Return an item of each kind, as kind, expires, sequence, body."""
    known = shorten_hash(load_words())
    end = START + _HOUR
    options = {"name": "fever", "top": 2, "score": 0.5, "prefer": [["fever", "red"]]}
    conditions = [["event", "=", "patient"], ["heart_rate", ">", 100]]
    content = ["medic7", "medic", "", START, 1, known, cbor2.dumps(conditions), {"name": "red"}]
    return {
        SUBSCRIPTION: make_subscription(options),
        -SUBSCRIPTION: [SUBSCRIPTION - 1, end, 2, content],
        NOTIFICATION: [NOTIFICATION - 1, end, 3, [DEVICE, 1, 5, START, 10, known, VECTOR]],
        DELIVERED: [DELIVERED - 1, end, 4, ["medic7", [[PEER, 1, 103], [NODE, 1, 2]]]],
        VOCABULARY: [VOCABULARY - 1, 0, 5, [bytes(32), '{"events": {}}']],
        REVOCATION: [REVOCATION - 1, 0, 6, [DEVICE, 1, "lost"]],
    }


def _list_operators() -> list[Any]:
    items = _list_items()
    return [
        [cbor2.dumps(["plan", "spray:6", "few nodes", START])],
        [[items[SUBSCRIPTION], items[NOTIFICATION]], [items[-SUBSCRIPTION]]],
        [cbor2.dumps(["items", [[PEER, 1, 7, 1, 0, b"body", bytes(64)]]])],
        *([[item]] for item in _list_harmful()),
    ]


# What peers send -------------------------------------------------------------------------------


def _number(kind: int) -> int:
    return sorted(NAMES).index(kind)


def _list_peers() -> list[Any]:
    digest = encode_digest(b"saltsalt", bytes(16), START)
    empty = [2, 3, 4, 6, 12]
    scripts: list[Any] = [[15, 15, item] for item in (*_list_items().values(), *_list_harmful())]
    scripts += [[15, 15, *_list_items().values(), 8]]
    scripts += [[2, [_number(DIGEST), flag, digest], 4] for flag in (False, True)]
    scripts += [
        [wait, [_number(kind), False, body]]
        for wait in empty
        for kind, body in (
            (EQUAL, bytes(6)),
            (SUMMARY, b"saltsalt" + bytes(6 + 4) + b"\0\0"),
            (ANSWER, bytes(6 + 1 + 4) + b"\0\0\0"),
            (COMPLETION, bytes(6) + b"\0\0"),
            (GROUPS, bytes(12)),
            (PICK, b"\3"),
            (ACK, b"\1"),
            (RESET, b""),
            (ASK, b"abcd"),
            (TELL, bytes(4)),
        )
    ]
    return scripts
