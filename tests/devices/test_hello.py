"""Hellos: what they make known, and each way to be refused."""

from __future__ import annotations

import pytest
from denwatch.node.core.devices import DeviceSettings
from denwatch.node.core.events import Listening, Message
from denwatch.protocol import frames
from denwatch.protocol.frames import encode_message

from tests.devices.device_node import (
    DEVICE,
    SENSES,
    TOPIC,
    VOCABULARY,
    DeviceNode,
    Keys,
    Watchdog,
    make_hello,
    make_vector,
    meet,
    seal_batch,
    seal_up,
    settle,
)


def hello(payload: bytes, sender: str = DEVICE) -> Message:
    return Message(sender, TOPIC + "hello", payload)


def test_a_hello_makes_a_device_known_also_after_a_restart() -> None:
    node, watchdog = DeviceNode(), Watchdog()
    meet(node, watchdog)
    node.reopen()
    (device,) = node.devices.list_devices()
    assert (device.name, device.hello, device.key_id) == (DEVICE, (1, 1), 7)
    assert (device.sensed, device.capacity, device.languages) == (SENSES, 1024, (0,))
    assert (device.firmware, device.vocabulary, device.dropped) == ("dog 1", VOCABULARY, 0)
    assert device.heard == node.now
    assert not device.is_present  # nobody knows that after a start
    records = [log.fields for log in node.logs if log.kind == "device"]
    assert records[0]["senses"] == [1 << 32 | 7, 2 << 32 | 2 << 16 | 3]


def test_a_hello_says_how_the_board_is() -> None:
    node = DeviceNode()
    facts = {1: 3712, 2: 96, 3: 41, 4: 2, 9: 61, 77: 5}  # of a newer watchdog: one too many
    node.do(hello(make_hello(facts=facts, log="12 link: ended\n")))
    (record,) = [log.fields for log in node.logs if log.kind == "device"]
    assert record["settings"] == {
        "battery_mv": 3712,
        "wakes": 96,
        "radio_s": 41,
        "urgent": 2,
        "signal_dbm": -61,
        "log": "12 link: ended\n",
    }


def test_every_hello_is_answered_so_that_it_is_not_repeated() -> None:
    node, watchdog = DeviceNode(), Watchdog()
    node.do(watchdog.say_hello())
    assert [publish.topic for publish in node.outbox] == [TOPIC + "ack"]
    settle(node, watchdog)
    watchdog.now += 900_000
    assert watchdog.next_message() is None
    assert watchdog.uplink.counts["acknowledged"] == 0  # it said nothing new


@pytest.mark.parametrize("has_listeners", [True, False])
def test_a_device_that_listens_no_more_is_gone_unless_a_broker_speaks(has_listeners: bool) -> None:
    """An orderly DISCONNECT leaves no will; of a broker's listeners nobody tells us."""
    node, watchdog = DeviceNode(DeviceSettings(has_listeners=has_listeners)), Watchdog()
    meet(node, watchdog)
    node.do(Listening(TOPIC + "sv", False))
    assert node.devices.list_devices()[0].is_present is not has_listeners
    node.do(Listening(TOPIC + "sv", True))
    node.do(watchdog.say_hello())
    assert node.devices.list_devices()[0].is_present


def test_an_empty_hello_is_a_device_that_is_gone() -> None:
    node, watchdog = DeviceNode(), Watchdog()
    meet(node, watchdog)
    assert node.devices.list_devices()[0].is_present
    node.do(hello(b""))
    assert not node.devices.list_devices()[0].is_present
    assert node.logs[-1].fields == {"device": DEVICE, "is_up": False, "device_epoch": 1}
    node.subscribe(make_vector(0, 9))
    assert node.outbox == []  # nobody listens
    assert node.devices.describe() | {"devices": 1, "present": 0, "vectors": 1} == (
        node.devices.describe()
    )


def check_refused(node: DeviceNode, message: Message, reason: str) -> None:
    """The message is refused for a reason, and changes nothing."""
    before = {name: dict(space) for name, space in node.medium.spaces.items()}
    count = node.counts.get(f"device_refused.{reason}", 0)
    node.outbox.clear()
    node.do(message)
    assert node.counts.get(f"device_refused.{reason}", 0) == count + 1, node.logs[-1]
    assert node.logs[-1].kind == "refuse"
    assert str(node.logs[-1].fields["why"]).startswith(reason)
    after = node.medium.spaces
    if reason == "replay":  # the answer has a number
        after = {**after, "device.down": before.get("device.down", {})}
    assert after == before
    assert [publish.topic for publish in node.outbox] in (
        [],
        [TOPIC + "ack"] * (reason == "replay"),
    )


def test_refused_hellos() -> None:
    node = DeviceNode()
    good = make_hello(3, 5)
    node.do(hello(good))
    node.subscribe(make_vector(0, 9))
    check_refused(node, hello(good), "replay")
    check_refused(node, hello(make_hello(3, 4)), "replay")
    check_refused(node, hello(make_hello(2, 9)), "replay")
    check_refused(node, hello(make_hello(3, 6), sender="dog-2"), "sender")
    check_refused(node, Message("dog-2", "dens/1/wd/dog-2/hello", good), "unknown device")
    check_refused(node, hello(b"\x83\0\x09" + good[3:]), "unknown key")
    check_refused(node, hello(b"\xc3" + good[1:]), "version")
    check_refused(node, hello(b"\x43" + good[1:]), "version")
    assert "update" in str(node.logs[-1].fields["why"])  # the release before
    check_refused(node, hello(bytes(5000)), "too long")
    for end in range(1, frames.OVERHEAD):
        check_refused(node, hello(good[:end]), "truncated")
    fresh = make_hello(3, 6)
    for at in range(3, len(fresh)):
        check_refused(node, hello(fresh[:at] + bytes([fresh[at] ^ 1]) + fresh[at + 1 :]), "tag")
        if at >= frames.OVERHEAD:
            check_refused(node, hello(fresh[:at]), "tag")
    check_refused(node, Message(DEVICE, TOPIC + "sv", fresh), "topic")
    check_refused(node, Message(DEVICE, "dens/1/wd/hello", fresh), "sender")
    link = node.keys.link_for(DEVICE, 7)
    assert link is not None
    down = frames.seal(link, frames.DOWN, frames.Frame(3, 9, 9, b""))
    check_refused(node, hello(down), "direction")
    node.do(hello(fresh))
    assert node.devices.list_devices()[0].hello == (3, 6)


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
    node = DeviceNode()
    node.do(hello(make_hello(2, 1)))
    message = {
        "device": DEVICE,
        "epoch": 3,
        "vocabulary": VOCABULARY,
        "senses": {1: [7, 0]},
        "capacity": 99,
        "languages": [0],
    }
    body = encode_message("hello", message | fields)
    check_refused(node, hello(seal_up(frames.MESSAGE, 3, 1, body)), reason)
    note = bytes.fromhex("8100000100000001c8")
    nv = Message(DEVICE, TOPIC + "nv", seal_batch(3, 1, note, answer=(1, 2)))
    check_refused(node, nv, "tag")  # no answer was given that it could belong to
    node.do(hello(make_hello(3, 2)))
    node.do(nv)
    assert node.count_notes() == 1


def test_other_messages_are_no_hello() -> None:
    node = DeviceNode()
    body = encode_message("acknowledge", {"epoch": 1, "sequence": 1})
    check_refused(node, hello(seal_up(frames.MESSAGE, 1, 1, body)), "message")
    check_refused(node, hello(seal_up(frames.MESSAGE, 1, 1, b"\xff")), "message")
    check_refused(node, hello(seal_up(frames.SUBSCRIPTIONS, 1, 1, b"")), "kind")
    body = encode_message("hello", {
        "device": "dog-2", "epoch": 1, "vocabulary": VOCABULARY, "senses": {}, "capacity": 9,
        "languages": [],
    })  # fmt: skip
    check_refused(node, hello(seal_up(frames.MESSAGE, 1, 1, body)), "name")


def test_an_unknown_vocabulary_is_no_obstacle_once_it_is_learned() -> None:
    node, watchdog = DeviceNode(), Watchdog(vocabulary=b"new one.")
    node.do(watchdog.say_hello())
    assert node.counts["device_refused.vocabulary"] == 1
    assert node.outbox == []
    assert node.devices.list_devices() == []
    node.vocabularies.known[b"new one."] = {1: (0b0111, 0), 2: (0b0011, 0b0010)}
    watchdog.now += 10_000  # it says so again until somebody answers
    settle(node, watchdog)
    assert [device.name for device in node.devices.list_devices()] == [DEVICE]


def test_two_keys_are_good_while_both_are_listed() -> None:
    node = DeviceNode(keys=Keys(dog_1=[7, 8]))
    node.subscribe(make_vector(0, 9))
    watchdog = Watchdog()
    meet(node, watchdog)
    watchdog.tell(1, {0: 5})
    settle(node, watchdog)
    watchdog.key_id = 8
    watchdog.restart()
    meet(node, watchdog)
    assert node.devices.list_devices()[0].key_id == 8
    assert watchdog.uplink.counts["installed"] == 1  # what comes down has the new key
    late = make_hello(1, 9)
    node.do(hello(late))  # a frame under the old key changes nothing back
    assert node.devices.list_devices()[0].key_id == 8
    node.keys.ids[DEVICE] = [8]
    check_refused(node, hello(make_hello(5, 1)), "unknown key")
    watchdog.tell(1, {0: 6})
    settle(node, watchdog)
    assert node.count_notes() == 2


def test_a_revoked_device_is_a_stranger() -> None:
    node, watchdog = DeviceNode(), Watchdog()
    meet(node, watchdog)
    node.keys.ids[DEVICE] = []
    watchdog.tell(1, {0: 5})
    message = watchdog.next_message()
    assert message is not None
    check_refused(node, message, "unknown device")
    node.subscribe(make_vector(0, 9))
    assert node.outbox == []


def test_a_device_whose_memory_was_erased_begins_above_its_old_numbers() -> None:
    """A board that was flashed anew comes back by itself, and what it read meanwhile arrives."""
    node, watchdog = DeviceNode(), Watchdog()
    node.subscribe(make_vector(0, 9))
    for _ in range(3):
        watchdog.restart()
        meet(node, watchdog)
    watchdog.tell(1, {0: 5})
    settle(node, watchdog)
    erased = Watchdog()
    for value in range(40):
        erased.tell(1, {0: value % 9})
    erased.spool.flush(0)
    erased.tell(1, {0: 7})
    node.now += 5_000
    meet(node, erased)
    assert node.counts["device_refused.replay"] == 1
    assert erased.spool.epoch == watchdog.spool.epoch + 1
    assert node.count_notes() == 1 + 41
    assert not erased.spool.has_waiting()
    assert len(erased.list_installed()) == 1
    erased.restart()
    meet(node, erased)
    assert erased.spool.epoch == watchdog.spool.epoch + 2


def test_what_was_heard_changes_nothing_for_a_device_that_remembers() -> None:
    """Somebody plays an old hello back: the device is told of a number that it has said itself."""
    node, watchdog = DeviceNode(), Watchdog()
    old = watchdog.say_hello()
    node.do(old)
    settle(node, watchdog)
    watchdog.restart()
    meet(node, watchdog)
    watchdog.tell(1, {0: 5})
    epoch = watchdog.spool.epoch
    node.now += 5_000
    node.outbox.clear()
    node.do(old)
    (heard,) = node.outbox
    assert watchdog.receive(heard)
    assert watchdog.spool.epoch == epoch
    assert watchdog.spool.has_waiting(), "it is no acknowledgement"


def test_a_device_can_be_forgotten() -> None:
    node, watchdog = DeviceNode(), Watchdog()
    node.subscribe(make_vector(0, 9))
    meet(node, watchdog)
    assert node.run(lambda turn: node.devices.forget_device(turn, DEVICE)) == []
    assert node.devices.list_devices() == []
    assert node.find_installed() == []


def test_listeners_of_other_topics_are_nobody() -> None:
    node = DeviceNode()
    assert node.do(Listening(TOPIC + "ack", True)) == []
    assert node.do(Listening("dens/1/wd/stranger/sv", True)) == []
    assert not node.devices.is_installed("stranger")
    assert not node.run(lambda turn: node.devices.forget_device(turn, "stranger"))
