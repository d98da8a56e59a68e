"""Notification frames: what is taken, when it was read, what is refused, what comes again."""

from __future__ import annotations

import pytest
from denwatch.node.core.events import Message
from denwatch.node.core.items import NOTIFICATION, decode_item
from denwatch.protocol import frames
from denwatch.protocol.notification import decode, encode
from denwatch.protocol.timecode import decode_age, encode_age
from denwatch.protocol.vectors import NotificationVector, Reading

from tests.devices.device_node import (
    DEVICE,
    EVERYTHING,
    TOPIC,
    VOCABULARY,
    DeviceNode,
    Watchdog,
    make_hello,
    make_vector,
    meet,
    seal_batch,
    seal_up,
    settle,
)
from tests.devices.test_hello import check_refused


def make_note(sequence: int, value: int = 9, age: int = 0, event: int = 1, **fields: int) -> bytes:
    reading = Reading(fields.get("attribute", 0), (value,) * 4, bool(fields.get("wide", 0)))
    faults = fields.get("faults", 0)
    return encode(NotificationVector(event, [reading], sequence & 0xFFFF, age, faults=faults))


def note_frame(epoch: int, sequence: int, *vectors: bytes, **fields: int) -> Message:
    return Message(DEVICE, TOPIC + "nv", seal_batch(epoch, sequence, *vectors, **fields))  # type: ignore[arg-type]


def make_site() -> DeviceNode:
    node = DeviceNode()
    node.do(Message(DEVICE, TOPIC + "hello", make_hello(3, 1)))
    node.outbox.clear()
    return node


def read_ack(node: DeviceNode) -> tuple[int, int]:
    """Return what the node's last acknowledgement says, as the device reads it."""
    (publish,) = (p for p in node.outbox if p.topic == TOPIC + "ack")
    watchdog = Watchdog()
    watchdog.connect()
    watchdog.spool._sequence = 1 << 31  # whatever is acknowledged was sent
    watchdog.spool.epoch = 99
    assert watchdog.receive(publish)
    words = watchdog.spool._ring.words
    return words[1], words[2]


def test_a_notification_is_an_item_with_its_true_time() -> None:
    node = make_site()
    age = encode_age(16 * 3600 * 24 * 3)
    node.do(note_frame(3, 2, make_note(1, 7), make_note(2, 8, age)))
    first, second = node.list_notes()
    assert (first.device, first.device_epoch, first.device_sequence) == (DEVICE, 3, 1)
    assert (first.at, first.vocabulary) == (node.now, VOCABULARY)
    assert second.at == node.now - decode_age(age) * 1000 // 16
    assert decode(second.vector).readings[0].points[0] == 8
    # transit 2 s, clock 5 ms; half of 1,024 sixteenths is 32 s
    assert first.doubt <= 2000 + 100
    assert 32_000 <= second.doubt - 2005 <= 33_000
    ((key, value), _) = node.store.scan("item.notification")
    item = decode_item(key, value)
    assert (item.kind, item.signature) == (NOTIFICATION, b"")  # signed when it first leaves
    assert item.expires == node.now + 7 * 86_400_000
    assert read_ack(node) == (3, 2)


@pytest.mark.parametrize("sixteenths", [0, 1, 15, 2047, 2048, 4097, 99_999, 16 * 86400 * 200])
def test_the_doubt_covers_what_the_age_code_loses(sixteenths: int) -> None:
    node = make_site()
    node.do(note_frame(3, 1, make_note(1, 7, encode_age(sixteenths))))
    (note,) = node.list_notes()
    true = node.now - sixteenths * 1000 / 16
    assert abs(note.at - true) <= note.doubt - 2005


def test_what_came_before_is_acknowledged_again_and_not_taken() -> None:
    node = make_site()
    frame = note_frame(3, 2, make_note(1), make_note(2))
    node.do(frame)
    node.outbox.clear()
    for _ in range(2):
        node.do(frame)
        assert read_ack(node) == (3, 2)
        node.outbox.clear()
        node.do(frame)  # who asks at once again gets no answer: it would go on for ever
        assert node.outbox == []
        node.now += 1000
    assert node.count_notes() == 2
    assert node.counts["device_again"] == 8
    node.do(note_frame(3, 4, make_note(2), make_note(3), make_note(4)))
    assert [note.device_sequence for note in node.list_notes()] == [1, 2, 3, 4]
    node.outbox.clear()
    node.do(note_frame(2, 9, make_note(8), make_note(9)))  # an older run, late
    assert read_ack(node) == (3, 4)
    assert node.count_notes() == 4


def test_numbers_survive_a_restart() -> None:
    node = make_site()
    node.do(note_frame(3, 2, make_note(1), make_note(2)))
    node.reopen()
    node.do(note_frame(3, 3, make_note(2), make_note(3)))
    assert [note.device_sequence for note in node.list_notes()] == [1, 2, 3]


def test_sequences_are_extended_from_the_frames_number() -> None:
    node = make_site()
    numbers = range(65_534, 65_539)
    node.do(note_frame(3, 65_538, *[make_note(number) for number in numbers]))
    assert [note.device_sequence for note in node.list_notes()] == list(numbers)


def test_without_room_a_frame_is_neither_taken_nor_acknowledged() -> None:
    node, watchdog = DeviceNode(), Watchdog()
    meet(node, watchdog)
    watchdog.tell(1, {0: 5})
    node.has_room = False
    settle(node, watchdog)
    assert node.counts["device_held"] == 1
    assert node.count_notes() == 0
    assert node.outbox == []
    assert watchdog.spool.has_waiting()
    node.has_room = True
    watchdog.now += 10_000
    settle(node, watchdog)
    assert node.count_notes() == 1
    assert not watchdog.spool.has_waiting()


def test_a_broken_sensor_is_news_too() -> None:
    node, watchdog = DeviceNode(), Watchdog()
    meet(node, watchdog)
    watchdog.tell(1, {}, faults=0b0010)
    settle(node, watchdog)
    (note,) = node.list_notes()
    assert decode(note.vector).faults == 0b0010


def test_refused_notifications() -> None:
    node = make_site()
    check_refused(node, note_frame(3, 1, make_note(1, event=3)), "senses")
    check_refused(node, note_frame(3, 1, make_note(1, attribute=5)), "senses")
    check_refused(node, note_frame(3, 1, make_note(1, faults=0b1000)), "senses")
    check_refused(node, note_frame(3, 1, make_note(1, wide=1)), "senses")
    check_refused(node, note_frame(3, 1, make_note(1, event=2, attribute=1)), "senses")
    check_refused(node, note_frame(3, 2, make_note(2), make_note(1), make_note(2)), "sequence")
    check_refused(node, note_frame(3, 1, make_note(2), make_note(1)), "sequence")
    check_refused(node, note_frame(3, 0, make_note(0)), "sequence")
    check_refused(node, note_frame(3, 1), "vector")
    check_refused(node, note_frame(3, 1, b"\x81"), "vector")
    check_refused(node, note_frame(3, 1, b"\x81\0\0\1"), "vector")
    check_refused(node, note_frame(3, 1, make_note(1) + b"\0"), "vector")
    nv = TOPIC + "nv"
    check_refused(node, Message(DEVICE, nv, seal_up(frames.MESSAGE, 3, 1, b"")), "kind")
    good = note_frame(3, 1, make_note(1)).payload
    check_refused(node, Message("dog-2", nv, good), "sender")
    check_refused(node, Message(DEVICE, nv, b""), "truncated")
    for at in range(3, len(good)):
        forged = good[:at] + bytes([good[at] ^ 128]) + good[at + 1 :]
        check_refused(node, Message(DEVICE, nv, forged), "tag")
    node.do(Message("", nv, good))  # a broker that does not say who
    assert node.count_notes() == 1


def test_a_stranger_has_to_say_hello_first() -> None:
    node = DeviceNode()
    check_refused(node, note_frame(1, 1, make_note(1)), "hello")
    node.do(Message(DEVICE, TOPIC + "hello", make_hello(3, 1)))
    for other in ((1, 2), (2, 1)):  # an answer that it did not get
        check_refused(node, note_frame(3, 1, make_note(1), answer=other), "tag")  # type: ignore[arg-type]
    check_refused(node, note_frame(2, 1, make_note(1), today=2), "tag")
    node.do(note_frame(3, 1, make_note(1)))
    assert node.count_notes() == 1


def test_older_runs_may_have_had_other_sensors() -> None:
    node = make_site()
    assert not 0b1000 & 0b0111  # attribute 3 is not among those announced
    node.do(note_frame(2, 1, make_note(1, attribute=3)))
    assert node.count_notes() == 1
    assert not EVERYTHING[1][0] >> 9 & 1
    check_refused(node, note_frame(2, 2, make_note(2, attribute=9)), "senses")


def test_a_vocabulary_that_is_gone() -> None:
    node = make_site()
    node.vocabularies.known.clear()
    check_refused(node, note_frame(3, 1, make_note(1)), "vocabulary")


def test_a_run_whose_hello_was_lost_gets_its_subscriptions_again() -> None:
    node, watchdog = DeviceNode(), Watchdog()
    node.subscribe(make_vector(0, 9))
    meet(node, watchdog)
    watchdog.restart()
    watchdog.connect()
    watchdog.next_message()  # the hello: nobody hears it
    watchdog.tell(1, {0: 5})
    settle(node, watchdog)
    assert node.list_notes() == []
    watchdog.now += 10_000
    settle(node, watchdog)
    assert node.list_notes()[-1].device_epoch == 2
    assert len(watchdog.list_installed()) == 1


def test_frames_that_came_together_are_received_each_by_itself_and_acknowledged_once() -> None:
    parts = [
        note_frame(3, 2, make_note(1, 7), make_note(2, 8)),
        Message(DEVICE, TOPIC + "nv", b"\0" * 40),  # no frame at all
        note_frame(3, 2, make_note(1, 7), make_note(2, 8)),  # again
        note_frame(3, 1, make_note(1, 7)),  # older
        note_frame(3, 5, make_note(3), make_note(4), make_note(5)),
        note_frame(3, 6, make_note(6, event=3)),  # not announced
        note_frame(3, 7, make_note(7)),
    ]
    alone, together = make_site(), make_site()
    for part in parts:
        alone.do(part)
    others = tuple(part.payload for part in parts[1:])
    together.do(parts[0]._replace(others=others))
    assert together.list_notes() == alone.list_notes()
    assert [note.device_sequence for note in together.list_notes()] == [1, 2, 3, 4, 5, 7]
    assert together.counts == alone.counts
    assert together.counts["device_refused"] == 2
    assert read_ack(together) == (3, 7)
    # What is the same on the disk: all but the number of the next frame down.
    kept = [[*node.store.scan(space)] for node in (alone, together) for space in ("device.taken",)]
    assert kept[0] == kept[1]
