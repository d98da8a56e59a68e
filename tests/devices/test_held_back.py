"""A frame that somebody between device and node held back is not dated as if it were fresh."""

from __future__ import annotations

import pytest
from denwatch.node.core import device_protocol
from denwatch.node.core.events import Message

from tests.devices.device_node import DeviceNode, Watchdog, meet, settle

HOUR = 3_600_000


def pass_time(node: DeviceNode, watchdog: Watchdog, milliseconds: int) -> None:
    node.now += milliseconds
    watchdog.now += milliseconds


def make_met() -> tuple[DeviceNode, Watchdog]:
    node, watchdog = DeviceNode(), Watchdog()
    meet(node, watchdog)
    return node, watchdog


def take_message(watchdog: Watchdog) -> Message:
    message = watchdog.next_message()
    assert message is not None
    assert message.topic.endswith("nv")
    return message


def hold_back(held: int, quiet: int = 0) -> int:
    """Return how old a node takes a fresh reading for, whose frame was held back so long, ms.

    The device had been connected for `quiet` ms.
    """
    node, watchdog = make_met()
    pass_time(node, watchdog, quiet)
    watchdog.tell(1, {0: 5})
    message = take_message(watchdog)
    pass_time(node, watchdog, held)
    node.do(message)
    (note,) = node.list_notes()
    assert note.at + note.doubt >= node.now - held, "the true time is within the doubt"
    return node.now - note.at


@pytest.mark.parametrize("quiet", [0, 1_000, HOUR, 24 * HOUR])
def test_a_frame_held_back_for_an_hour_is_dated_an_hour_old(quiet: int) -> None:
    assert hold_back(HOUR, quiet) == pytest.approx(HOUR, abs=100)


@pytest.mark.parametrize("quiet", [0, HOUR, 24 * HOUR])
def test_a_frame_that_was_under_way_as_usual_is_dated_by_its_arrival(quiet: int) -> None:
    assert hold_back(0, quiet) == 0
    assert hold_back(1_500, quiet) == 0


def test_without_the_rule_it_is_dated_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_protocol, "find_delay", lambda *_: (0, 0))
    assert hold_back(HOUR) == 0


def test_a_clock_that_goes_wrong_by_a_thousandth_does_not_make_readings_old() -> None:
    for slower in (999, 1001):
        node, watchdog = make_met()
        node.now += 24 * HOUR
        watchdog.now += 24 * HOUR * slower // 1000
        watchdog.tell(1, {0: 5})
        settle(node, watchdog)
        assert node.list_notes()[0].at == node.now


def test_what_waited_for_days_keeps_its_age_after_a_restart_and_a_new_answer() -> None:
    node, watchdog = make_met()
    watchdog.tell(1, {0: 5})
    taken = node.now
    pass_time(node, watchdog, 72 * HOUR)
    watchdog.restart()
    node.reopen()
    meet(node, watchdog)
    (note,) = node.list_notes()
    assert abs(note.at - taken) <= note.doubt
    assert note.doubt < 100_000


def test_a_frame_of_the_connection_before_is_refused_and_comes_again() -> None:
    node, watchdog = make_met()
    watchdog.tell(1, {0: 5})
    held = take_message(watchdog)
    pass_time(node, watchdog, HOUR)
    watchdog.connect()
    hello = watchdog.next_message()
    assert hello is not None
    node.do(hello)
    node.do(held)  # whose time would be counted from the new answer
    assert node.counts["device_refused.tag"] == 1
    assert node.list_notes() == []
    settle(node, watchdog)
    (note,) = node.list_notes()
    assert node.now - note.at == pytest.approx(HOUR, abs=note.doubt)


def test_an_answer_held_back_makes_nothing_younger() -> None:
    node, watchdog = DeviceNode(), Watchdog()
    hello = watchdog.say_hello()
    node.do(hello)
    answers = list(node.outbox)
    node.outbox.clear()
    pass_time(node, watchdog, HOUR)
    for answer in answers:
        watchdog.receive(answer)
    watchdog.tell(1, {0: 5})
    node.do(take_message(watchdog))
    (note,) = node.list_notes()
    assert note.at <= node.now
