"""Hellos: what they make known, and each way to be refused."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Listening, Message
from denwatch.protocol import frames
from denwatch.protocol.messages import encode_message

from tests.devices.device_node import (
    DOG,
    SENSES,
    TOPIC,
    VOCABULARY,
    DeviceNode,
    Keys,
    Watchdog,
    make_hello,
    make_vector,
    meet,
    seal_up,
    settle,
)


def hello(payload: bytes, sender: str = DOG) -> Message:
    return Message(sender, TOPIC + "hello", payload)


def test_a_hello_makes_a_device_known_also_after_a_restart() -> None:
    site, watchdog = DeviceNode(), Watchdog()
    meet(site, watchdog)
    site.reopen()
    (device,) = site.devices.list_devices()
    assert (device.name, device.hello, device.key_id) == (DOG, (1, 1), 7)
    assert (device.sensed, device.capacity, device.languages) == (SENSES, 1024, (1,))
    assert (device.firmware, device.vocabulary, device.dropped) == ("dog 1", VOCABULARY, 0)
    assert device.heard == site.now
    assert not device.is_present  # nobody knows that after a start
    records = [log.fields for log in site.logs if log.kind == "device"]
    assert records[0]["senses"] == [1 << 32 | 7, 2 << 32 | 2 << 16 | 3]


def test_every_hello_is_answered_so_that_it_is_not_repeated() -> None:
    site, watchdog = DeviceNode(), Watchdog()
    site.do(watchdog.say_hello())
    assert [publish.topic for publish in site.outbox] == [TOPIC + "ack"]
    settle(site, watchdog)
    watchdog.now += 900_000
    assert watchdog.next_message() is None
    assert watchdog.uplink.counts["acknowledged"] == 0  # it said nothing new


def test_an_empty_hello_is_a_device_that_is_gone() -> None:
    site, watchdog = DeviceNode(), Watchdog()
    meet(site, watchdog)
    assert site.devices.list_devices()[0].is_present
    site.do(hello(b""))
    assert not site.devices.list_devices()[0].is_present
    assert site.logs[-1].fields == {"device": DOG, "is_up": False, "device_epoch": 1}
    site.subscribe(make_vector(0, 9))
    assert site.outbox == []  # nobody listens
    assert site.devices.describe() | {"devices": 1, "present": 0, "vectors": 1} == (
        site.devices.describe()
    )


def test_who_publishes_what() -> None:
    site = DeviceNode(keys=Keys(dog_1=[7], dog_2=[7]))
    meet(site, Watchdog())
    meet(site, Watchdog({1: (0b1001, 0)}, name="dog-2"))
    find = site.devices.find_publishers
    assert find(1, 0b0001) == ["dog-1", "dog-2"]
    assert find(1, 0b1001) == ["dog-2"]
    assert find(1, 0b0101) == ["dog-1"]
    assert find(2, 0b0001, VOCABULARY) == ["dog-1"]
    assert find(2, 0b0001, b"another.") == find(3, 1) == find(3, 0) == []


def check_refused(site: DeviceNode, message: Message, reason: str) -> None:
    """The message is refused for a reason, and changes nothing."""
    before = {name: dict(space) for name, space in site.medium.spaces.items()}
    count = site.counts.get(f"device_refused.{reason}", 0)
    site.outbox.clear()
    site.do(message)
    assert site.counts.get(f"device_refused.{reason}", 0) == count + 1, site.logs[-1]
    assert site.logs[-1].kind == "refuse"
    assert str(site.logs[-1].fields["why"]).startswith(reason)
    assert site.medium.spaces == before
    assert site.outbox == []


def test_refused_hellos() -> None:
    site = DeviceNode()
    good = make_hello(3, 5)
    site.do(hello(good))
    site.subscribe(make_vector(0, 9))
    check_refused(site, hello(good), "replay")
    check_refused(site, hello(make_hello(3, 4)), "replay")
    check_refused(site, hello(make_hello(2, 9)), "replay")
    check_refused(site, hello(make_hello(3, 6), sender="dog-2"), "sender")
    check_refused(site, Message("dog-2", "dens/1/wd/dog-2/hello", good), "unknown device")
    check_refused(site, hello(b"\x43\0\x09" + good[3:]), "unknown key")
    check_refused(site, hello(b"\xc3" + good[1:]), "version")
    check_refused(site, hello(bytes(5000)), "too long")
    for end in range(1, frames.OVERHEAD):
        check_refused(site, hello(good[:end]), "truncated")
    fresh = make_hello(3, 6)
    for at in range(3, len(fresh)):
        check_refused(site, hello(fresh[:at] + bytes([fresh[at] ^ 1]) + fresh[at + 1 :]), "tag")
        if at >= frames.OVERHEAD:
            check_refused(site, hello(fresh[:at]), "tag")
    check_refused(site, Message(DOG, TOPIC + "sv", fresh), "topic")
    check_refused(site, Message(DOG, "dens/1/wd/hello", fresh), "sender")
    link = site.keys.link_for(DOG, 7)
    assert link is not None
    down = frames.seal(link, frames.DOWN, frames.Frame(3, 9, 9, b""))
    check_refused(site, hello(down), "direction")
    site.do(hello(fresh))
    assert site.devices.list_devices()[0].hello == (3, 6)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"device": "dog-1", "epoch": 4}, "message"),
        ({"vocabulary": b"stranger"}, "vocabulary"),
        ({"senses": {1: [0b100000001, 0]}}, "senses"),
        ({"senses": {9: [1, 0]}}, "senses"),
        ({"senses": {1: [0, 0]}}, "senses"),
        ({"senses": {2: [3, 0]}}, "senses"),
        ({"senses": {1: [1, 1]}}, "senses"),
    ],
)
def test_a_hello_that_cannot_be_silences_the_device(fields: dict[str, object], reason: str) -> None:
    site = DeviceNode()
    site.do(hello(make_hello(2, 1)))
    message = {
        "device": DOG,
        "epoch": 3,
        "vocabulary": VOCABULARY,
        "senses": {1: [7, 0]},
        "capacity": 99,
        "languages": [1],
    }
    body = encode_message("hello", message | fields)
    check_refused(site, hello(seal_up(frames.MESSAGE, 3, 1, body)), reason)
    note = frames.join_vectors([bytes.fromhex("8100000100000001c8")])
    nv = Message(DOG, TOPIC + "nv", seal_up(frames.NOTIFICATIONS, 2, 1, note))
    check_refused(site, nv, "hello")  # an answer would end its hellos
    site.do(hello(make_hello(3, 2)))
    site.do(nv)
    assert site.count_notes() == 1


def test_other_messages_are_no_hello() -> None:
    site = DeviceNode()
    body = encode_message("acknowledge", {"epoch": 1, "sequence": 1})
    check_refused(site, hello(seal_up(frames.MESSAGE, 1, 1, body)), "message")
    check_refused(site, hello(seal_up(frames.MESSAGE, 1, 1, b"\xff")), "message")
    check_refused(site, hello(seal_up(frames.NOTIFICATIONS, 1, 1, b"")), "kind")
    body = encode_message("hello", {
        "device": "dog-2", "epoch": 1, "vocabulary": VOCABULARY, "senses": {}, "capacity": 9,
        "languages": [],
    })  # fmt: skip
    check_refused(site, hello(seal_up(frames.MESSAGE, 1, 1, body)), "name")


def test_an_unknown_vocabulary_is_no_obstacle_once_it_is_learned() -> None:
    site, watchdog = DeviceNode(), Watchdog(vocabulary=b"new one.")
    site.do(watchdog.say_hello())
    assert site.counts["device_refused.vocabulary"] == 1
    assert site.outbox == []
    assert site.devices.list_devices() == []
    site.vocabularies.known[b"new one."] = {1: (0b0111, 0), 2: (0b0011, 0b0010)}
    watchdog.now += 10_000  # it says so again until somebody answers
    settle(site, watchdog)
    assert [device.name for device in site.devices.list_devices()] == [DOG]


def test_two_keys_are_good_while_both_are_listed() -> None:
    site = DeviceNode(keys=Keys(dog_1=[7, 8]))
    site.subscribe(make_vector(0, 9))
    watchdog = Watchdog()
    meet(site, watchdog)
    watchdog.tell(1, {0: 5})
    settle(site, watchdog)
    watchdog.key_id = 8
    watchdog.restart()
    meet(site, watchdog)
    assert site.devices.list_devices()[0].key_id == 8
    assert watchdog.uplink.counts["installed"] == 1  # what comes down has the new key
    late = make_hello(1, 9)
    site.do(hello(late))  # a frame under the old key changes nothing back
    assert site.devices.list_devices()[0].key_id == 8
    site.keys.ids[DOG] = [8]
    check_refused(site, hello(make_hello(5, 1)), "unknown key")
    watchdog.tell(1, {0: 6})
    settle(site, watchdog)
    assert site.count_notes() == 2


def test_a_revoked_device_is_a_stranger() -> None:
    site, watchdog = DeviceNode(), Watchdog()
    meet(site, watchdog)
    site.keys.ids[DOG] = []
    watchdog.tell(1, {0: 5})
    message = watchdog.next_message()
    assert message is not None
    check_refused(site, message, "unknown device")
    site.subscribe(make_vector(0, 9))
    assert site.outbox == []


def test_an_erased_device_is_refused_until_an_operator_forgets_it() -> None:
    site, watchdog = DeviceNode(), Watchdog()
    for _ in range(3):
        watchdog.restart()
    site.subscribe(make_vector(0, 9))
    meet(site, watchdog)
    watchdog.tell(1, {0: 5})
    settle(site, watchdog)
    erased = Watchdog()
    check_refused(site, erased.say_hello(), "replay")
    erased.tell(1, {0: 6})
    settle(site, erased)
    assert site.count_notes() == 1
    assert erased.spool.has_waiting()  # it was not told that its notification is here
    assert site.run(lambda turn: site.devices.forget_device(turn, DOG)) == []
    assert site.devices.list_devices() == []
    assert site.find_installed() == []
    site.reopen()
    meet(site, erased)
    assert site.count_notes() == 2
    assert len(erased.list_installed()) == 1


def test_listeners_of_other_topics_are_nobody() -> None:
    site = DeviceNode()
    assert site.do(Listening(TOPIC + "ack", True)) == []
    assert site.do(Listening("dens/1/wd/stranger/sv", True)) == []
    assert not site.devices.is_installed("stranger")
    assert not site.run(lambda turn: site.devices.forget_device(turn, "stranger"))
