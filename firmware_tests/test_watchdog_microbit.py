"""The watchdog's kernel on the emulated micro:bit: hundreds of subscriptions in its 9 KB heap."""

from __future__ import annotations

from firmware_tests.kernel import SUBSCRIPTIONS, compare_kernel
from firmware_tests.microbit import Microbit
from firmware_tests.runtimes import find_microbit
from firmware_tests.support import require


def test_hundreds_of_subscriptions_are_filtered_on_the_board() -> None:
    require(find_microbit)
    with Microbit() as board:
        events, hits, wrong = compare_kernel(board, 6)
        assert wrong == []
        assert SUBSCRIPTIONS >= 200
        assert hits > 3 * events
        assert board.read_free_heap() > 0
