"""Parts of stories are installed on devices, cover and are covered, and go with their story."""

from __future__ import annotations

from denwatch.client.compiler.stories import COUNT, SEQUENCE, Story
from denwatch.node.core.languages import STORY

from tests.devices.device_node import make_vector, settle
from tests.devices.installing import check_installed, make_met


def test_a_device_gets_the_parts_of_a_story() -> None:
    node, watchdog = make_met()
    first, second = make_vector(0, 9), make_vector(20, 29)
    story = Story(SEQUENCE, (first, second), ((5_000, 7_500),))
    item = node.subscribe(story.encode(), language=STORY)
    settle(node, watchdog)
    check_installed(node, watchdog, first, second)
    again = node.subscribe(first)
    node.unsubscribe(item)
    settle(node, watchdog)
    check_installed(node, watchdog, first)
    node.unsubscribe(again)
    settle(node, watchdog)
    check_installed(node, watchdog)


def test_a_part_that_is_covered_is_not_sent() -> None:
    node, watchdog = make_met()
    wide, narrow = make_vector(0, 50), make_vector(20, 29)
    story = Story(COUNT, (narrow,), ((5_000, 5_000),), count=2).encode()
    covering = node.subscribe(wide)
    node.subscribe(story, language=STORY)
    settle(node, watchdog)
    check_installed(node, watchdog, wide)
    node.unsubscribe(covering)
    settle(node, watchdog)
    check_installed(node, watchdog, narrow)


def test_two_equal_parts_and_bytes_that_are_no_story() -> None:
    node, watchdog = make_met()
    part = make_vector(0, 9)
    story = Story(SEQUENCE, (part, part), ((5_000, 7_500),)).encode()
    item = node.subscribe(story, language=STORY)
    node.subscribe(b"\x86\x00", language=STORY)
    settle(node, watchdog)
    check_installed(node, watchdog, part)
    node.unsubscribe(item)
    settle(node, watchdog)
    check_installed(node, watchdog)
