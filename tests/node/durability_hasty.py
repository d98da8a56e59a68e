"""The app of the durability benchmark with one rule of the library switched off.

    python -m tests.node.durability_hasty CONFIG.json LIFE

It acknowledges a note and commits it a moment later, as a library that trusts its memory would.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

from denwatch.client.subscriber.core import AcknowledgeMessage, StoreNotification
from denwatch.client.subscriber.session import SubscriberSession

from benchmarks.durability_app import main

_MOMENT = 0.2  # s


def break_rule() -> None:
    """Let the engine acknowledge first."""
    perform = SubscriberSession._perform

    def hasty(self: SubscriberSession, actions: Iterable[Any]) -> None:
        actions = list(actions)
        early = [action for action in actions if isinstance(action, AcknowledgeMessage)]
        for action in early:
            self._do(action)
        if self._link is not None and early:
            self._link.poll(0, self._waker, limit=0)  # out with it
        if any(isinstance(action, StoreNotification) for action in actions):
            time.sleep(_MOMENT)
        perform(self, [action for action in actions if action not in early])

    SubscriberSession._perform = hasty  # type: ignore[method-assign]


if __name__ == "__main__":
    break_rule()
    main(*sys.argv[1:])
