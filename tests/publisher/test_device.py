"""The simulated device against the node's core, without a network; and its key file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from denwatch.client.publisher import PublisherError, SimulatedDevice, parse_reading, read_key
from denwatch.client.vocabulary import load_shipped
from denwatch.node.core.events import Acknowledged, Message
from denwatch.node.core.notifications import list_sensed, shorten_hash
from denwatch.protocol.frames import DOWN, decode_message, open_frame
from denwatch.protocol.vectors import NotificationVector, Reading

from tests.devices.device_node import DEVICE, NODE, DeviceNode, make_secret, make_vector

RESCUE = load_shipped("rescue")
FEVER = parse_reading("patient heart_rate=160 patient_temperature=39.5", RESCUE)
START = 1_700_000_000_000_000


def make_pair(start: int = START, **options: int) -> tuple[DeviceNode, SimulatedDevice]:
    node = DeviceNode()
    node.vocabularies.known[shorten_hash(RESCUE)] = list_sensed(RESCUE)
    return node, make_device(node, start, **options)


def make_device(node: DeviceNode, start: int, **options: int) -> SimulatedDevice:
    link = node.keys.link_for(DEVICE, 7)
    assert link is not None
    return SimulatedDevice(link, shorten_hash(RESCUE), list_sensed(RESCUE), start, **options)


def talk(node: DeviceNode, device: SimulatedDevice, now: int) -> None:
    """Carry everything both ways until there is silence."""
    while (message := device.next_message(now)) is not None:
        node.do(Message(DEVICE, *message))
        while node.outbox:
            publish = node.outbox.pop(0)
            device.receive(publish.topic, publish.payload, 0)
            if publish.token:
                node.do(Acknowledged(publish.topic, publish.token))


def test_readings_arrive_with_their_age() -> None:
    node, device = make_pair()
    device.put(FEVER, -3_600_000)
    device.put(FEVER, 0)
    talk(node, device, 0)
    assert device.is_done
    old, new = node.list_notes()
    assert new.at == node.now
    assert abs(old.at - (node.now - 3_600_000)) <= old.doubt
    assert (new.device, new.device_epoch) == (DEVICE, START // 1_000_000)
    assert new.device_sequence == old.device_sequence + 1


def test_many_readings_go_in_several_frames() -> None:
    node, device = make_pair()
    for _ in range(100):
        device.put(FEVER, 0)
    talk(node, device, 0)
    assert device.is_done
    assert len(node.list_notes()) == 100


def test_nothing_is_done_before_the_node_says_so() -> None:
    node, device = make_pair()
    device.put(FEVER, 0)
    assert device.next_message(0) is not None
    assert device.next_message(2_999) is None
    hello = device.next_message(3_000)  # nobody heard the first
    assert hello is not None
    node.do(Message(DEVICE, *hello))
    assert not device.is_done
    device.receive(node.outbox[0].topic, node.outbox[0].payload, 0)
    frame = device.next_message(3_000)
    assert frame is not None
    assert not device.is_done
    again = device.next_message(6_000)
    assert again is not None
    for message in (frame, again):
        node.do(Message(DEVICE, *message))
    for publish in node.outbox:
        device.receive(publish.topic, publish.payload, 0)
    assert device.is_done
    assert len(node.list_notes()) == 1


def test_every_run_comes_after_the_one_before() -> None:
    node, device = make_pair()
    for start in (START, START + 1, START + 999_999, START + 1_000_000):
        device = make_device(node, start)
        device.put(FEVER, 0)
        talk(node, device, 0)
        assert device.is_done
    assert len(node.list_notes()) == 4
    late = make_device(node, START)
    late.put(FEVER, 0)
    message = late.next_message(0)
    assert message is not None
    node.do(Message(DEVICE, *message))
    (publish,) = node.outbox
    assert publish.topic == late.topics[1]
    told = decode_message(open_frame(late.link, DOWN, publish.payload).body)
    assert told == ("heard", {"epoch": device.epoch, "count": 1})
    assert node.counts["device_refused.replay"] == 1
    assert not late.receive(publish.topic, publish.payload, 0), "it is no acknowledgement"
    again = late.next_message(3_000)
    assert again is not None
    assert again[0] == late.hello_topic, "no reading before the node takes the hello"
    assert not late.is_done
    assert len(node.list_notes()) == 4


def test_what_was_not_announced_is_not_sent() -> None:
    _, device = make_pair()
    with pytest.raises(PublisherError, match="not announced"):
        device.put(NotificationVector(60, [Reading(0, (1,) * 4)]), 0)


def test_vectors_of_the_node_tell_what_is_wanted() -> None:
    node, device = make_pair(capacity=1000)
    wide = node.subscribe(make_vector(100, 255), vocabulary=shorten_hash(RESCUE))
    talk(node, device, 0)
    assert device.matches(FEVER)
    assert not device.matches(parse_reading("patient patient_temperature=34", RESCUE))
    node.unsubscribe(wide)
    for publish in node.outbox:
        assert device.receive(publish.topic, publish.payload, 0)
        assert not device.receive(publish.topic, publish.payload, 0)  # once only
    assert device.vectors == {}


def test_a_hello_says_what_may_be_uncertain() -> None:
    for doubts, expected in ((None, True), ({}, False), ({FEVER.event: 1}, True)):
        node, device = make_pair()
        device.doubts = doubts
        device.put(FEVER, 0)
        talk(node, device, 0)
        (known,) = node.devices.list_devices()
        assert known.may_doubt(FEVER.event) is expected


def test_what_is_not_the_nodes_is_refused() -> None:
    node, device = make_pair()
    device.put(FEVER, 0)
    sv, ack = device.topics
    assert not device.receive(ack, b"nonsense", 0)
    talk(node, device, 0)
    assert len(device.refusals) == 1
    hello = device.next_message(0) or make_device(node, START + 5).next_message(0)
    assert hello is not None
    node.do(Message(DEVICE, *hello))
    (publish,) = node.outbox
    assert not device.receive(sv, publish.payload, 0)
    assert not device.receive("dens/1/wd/dog-2/ack", publish.payload, 0)
    forged = publish.payload[:-1] + bytes([publish.payload[-1] ^ 1])
    assert not device.receive(ack, forged, 0)


# Key files ----------------------------------------------------------------------------------


def write_key(folder: Path, **changes: object) -> Path:
    entry = {
        "name": NODE,
        "url": "mqtt://127.0.0.1:1883",
        "key_id": 7,
        "key": make_secret(7).hex(),
        "user": DEVICE,
        "password": "x",
    }
    path = folder / "dog.json"
    path.write_text(json.dumps({"device": DEVICE, "nodes": [entry | changes]}), encoding="utf-8")
    return path


def test_a_key_file_says_everything(tmp_path: Path) -> None:
    key = read_key(write_key(tmp_path, ca="ca.der"), DEVICE, NODE)
    assert (key.link.device, key.link.node, key.link.key_id) == (DEVICE, NODE, 7)
    assert (key.url, key.user, key.password) == ("mqtt://127.0.0.1:1883", DEVICE, "x")
    assert key.ca == tmp_path / "ca.der"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "(--secrets shows it)"}, "not a key"),
        ({"key": "00" * 32}, "not a key"),
        ({"key": ""}, "key is missing"),
        ({"key_id": None}, "not a key"),
        ({"url": None}, "url is missing"),
        ({"name": "south"}, "only for south"),
    ],
)
def test_key_files_that_cannot_be(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    path = write_key(tmp_path, **changes)
    with pytest.raises(PublisherError, match=words.replace("(", r"\(")):
        read_key(path, None, NODE)


def test_no_key_files(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(PublisherError, match="No such file"):
        read_key(path)
    for text, words in (
        ("{", "not JSON"),
        ("[]", "not a device's key file"),
        ('{"device": "a"}', "no node"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(PublisherError, match=words):
            read_key(path)
    with pytest.raises(PublisherError, match="not of dog-2"):
        read_key(write_key(tmp_path), "dog-2")
